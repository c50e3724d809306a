import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import {
  executionTimes,
  needsPart,
  readMs,
  type ScheduleBlock,
  type LoadTask,
} from '../../shared/decisions/caching/load-task.js';

/**
 * A lower bound for all schedules (ZipMoE Lemma B.3): all reading, all decompression over L threads, all executions, and the longest path
 * through one task. In the paper's path, decompression begins when all K E-chunks have been read; a pipeline is faster than that. Here it
 * begins with the first chunk, and the last chunk is decompressed after it has been read.
 */
export function lowerBound(tasks: readonly LoadTask[], profile: LoadTimes): number {
  const { shards, threads, decompressMs } = profile;
  let readingMs = 0;
  let longestMs = 0;
  for (const task of tasks) {
    readingMs += readMs(task, profile);
    longestMs = Math.max(longestMs, criticalPathMs(task, profile));
  }
  let executingMs = 0;
  for (const executeMs of executionTimes(tasks).values()) executingMs += executeMs;
  const decompressingMs = (tasks.length * shards * decompressMs) / threads;
  return Math.max(readingMs, decompressingMs, executingMs, longestMs);
}

function criticalPathMs(task: LoadTask, profile: LoadTimes): number {
  const { shards, threads, decompressMs, exponentReadMs } = profile;
  const pathsMs = [Math.ceil(shards / threads) * decompressMs];
  if (needsPart(task, 'exponent')) {
    pathsMs[0] = exponentReadMs + Math.ceil(shards / threads) * decompressMs;
    pathsMs.push(shards * exponentReadMs + decompressMs);
  }
  if (needsPart(task, 'signMantissa')) pathsMs.push(readMs(task, profile));
  return Math.max(...pathsMs) + task.executeMs;
}

/** Tensors in the order of their requests, one schedule block each. */
export function fifoBlocks(tasks: readonly LoadTask[]): ScheduleBlock[] {
  return tasks.map((task) => [task]);
}
