import type { LoadTimes } from './load-times.js';
import { needsPart, type ScheduleBlock, type LoadTask, type Recovery } from './load-task.js';

/** One operation of a schedule. `shard` is -1 for operations without a shard; `thread` is -1 for operations of the I/O thread or the executor. */
export interface ScheduledOperation {
  kind: 'readExponents' | 'readSignMantissa' | 'decompress' | 'execute';
  expert: number;
  tensor: number;
  shard: number;
  thread: number;
  startMs: number;
  endMs: number;
}

export type RecordOperation = (operation: ScheduledOperation) => void;

/** Decompression operations of all tasks, numbered in order of priority: operation i belongs to task floor(i / K). */
interface Releases {
  /** Time at which the operation's input has been read. */
  releasedMs: Float64Array;
  /** All operations, sorted by that time. */
  byRelease: Int32Array;
  /** Time at which a task's signs and mantissas are in memory. */
  signMantissaMs: Float64Array;
  readEndMs: number;
}

/** Times at which the decompression threads end, ascending. */
export interface ThreadEnds {
  threadEndMs: Float64Array;
  readEndMs: number;
}

/** The I/O thread reads without a pause, schedule block after schedule block. In each it reads E-chunks before SM-chunks, each in order of tasks. */
class Reading implements Releases {
  readonly releasedMs: Float64Array;
  readonly byRelease: Int32Array;
  readonly signMantissaMs: Float64Array;
  readEndMs = 0;
  private released = 0;

  constructor(
    private readonly loadTimes: LoadTimes,
    private readonly recovery: Recovery,
    private readonly record: RecordOperation | null,
    blocks: readonly ScheduleBlock[],
  ) {
    const tasks = blocks.reduce((sum, block) => sum + block.length, 0);
    this.releasedMs = new Float64Array(tasks * loadTimes.shards);
    this.byRelease = new Int32Array(tasks * loadTimes.shards);
    this.signMantissaMs = new Float64Array(tasks);
    forEachTask(blocks, (task, index) => {
      if (!needsPart(task, 'exponent') && !this.waitsForSignMantissa(task)) this.releaseAll(index);
    });
    let first = 0;
    for (const block of blocks) {
      block.forEach((task, index) => this.readExponents(task, first + index));
      block.forEach((task, index) => this.readSignMantissa(task, first + index));
      first += block.length;
    }
  }

  private waitsForSignMantissa(task: LoadTask): boolean {
    return this.recovery === 'with' && needsPart(task, 'signMantissa');
  }

  private readExponents(task: LoadTask, index: number): void {
    if (!needsPart(task, 'exponent')) return;
    for (let shard = 0; shard < this.loadTimes.shards; shard += 1) {
      const startMs = this.readEndMs;
      this.readEndMs += this.loadTimes.exponentReadMs;
      if (!this.waitsForSignMantissa(task)) this.release(index, shard, this.readEndMs);
      this.record?.({ ...named('readExponents', task), shard, startMs, endMs: this.readEndMs });
    }
  }

  private readSignMantissa(task: LoadTask, index: number): void {
    if (!needsPart(task, 'signMantissa')) return;
    const { shards, signMantissaReadMs } = this.loadTimes;
    const startMs = this.readEndMs;
    this.readEndMs += signMantissaReadMs;
    this.signMantissaMs[index] = this.readEndMs;
    this.record?.({ ...named('readSignMantissa', task), startMs, endMs: this.readEndMs });
    if (!this.waitsForSignMantissa(task)) return;
    for (let shard = 0; shard < shards; shard += 1) {
      this.release(index, shard, startMs + (signMantissaReadMs * (shard + 1)) / shards);
    }
  }

  private releaseAll(index: number): void {
    for (let shard = 0; shard < this.loadTimes.shards; shard += 1) this.release(index, shard, 0);
  }

  private release(index: number, shard: number, atMs: number): void {
    const operation = index * this.loadTimes.shards + shard;
    this.releasedMs[operation] = atMs;
    this.byRelease[this.released++] = operation;
  }
}

/**
 * The time at which each task is recovered. L threads take the operation of highest priority whose input has been read; no thread is idle while
 * there is one.
 */
export function loadBlocks(
  blocks: readonly ScheduleBlock[],
  loadTimes: LoadTimes,
  recovery: Recovery,
  record: RecordOperation | null,
): Float64Array {
  const reading = new Reading(loadTimes, recovery, record, blocks);
  const { releasedMs, byRelease } = reading;
  const tasks = record === null ? [] : blocks.flat();
  const ready = new SmallestFirst(releasedMs.length);
  const threadEndMs = new Float64Array(loadTimes.threads);
  const recoveredMs = reading.signMantissaMs;
  let released = 0;
  while (released < byRelease.length || ready.size > 0) {
    const thread = indexOfLeast(threadEndMs);
    let startMs = threadEndMs[thread] ?? 0;
    if (ready.size === 0) startMs = Math.max(startMs, releasedMs[byRelease[released] ?? 0] ?? 0);
    while (released < byRelease.length && (releasedMs[byRelease[released] ?? 0] ?? 0) <= startMs) {
      ready.push(byRelease[released++] ?? 0);
    }
    const operation = ready.pop();
    const index = Math.floor(operation / loadTimes.shards);
    const endMs = startMs + loadTimes.decompressMs;
    threadEndMs[thread] = endMs;
    recoveredMs[index] = Math.max(recoveredMs[index] ?? 0, endMs);
    const task = tasks[index];
    const shard = operation % loadTimes.shards;
    if (task !== undefined) record?.({ ...named('decompress', task), shard, thread, startMs, endMs });
  }
  return recoveredMs;
}

/** The times at which the threads of loadBlocks end. All operations take the same time, so the order in which they run makes no difference. */
export function threadEnds(blocks: readonly ScheduleBlock[], loadTimes: LoadTimes, recovery: Recovery): ThreadEnds {
  const { releasedMs, byRelease, readEndMs } = new Reading(loadTimes, recovery, null, blocks);
  const threadEndMs = new Float64Array(loadTimes.threads);
  for (const operation of byRelease) {
    const thread = indexOfLeast(threadEndMs);
    threadEndMs[thread] = Math.max(threadEndMs[thread] ?? 0, releasedMs[operation] ?? 0) + loadTimes.decompressMs;
  }
  return { threadEndMs: threadEndMs.sort(), readEndMs };
}

function forEachTask(blocks: readonly ScheduleBlock[], visit: (task: LoadTask, index: number) => void): void {
  let index = 0;
  for (const block of blocks) for (const task of block) visit(task, index++);
}

export function named(kind: ScheduledOperation['kind'], { expert, tensor }: LoadTask): ScheduledOperation {
  return { kind, expert, tensor, shard: -1, thread: -1, startMs: 0, endMs: 0 };
}

function indexOfLeast(values: Float64Array): number {
  let least = 0;
  for (let index = 1; index < values.length; index += 1) {
    if ((values[index] ?? 0) < (values[least] ?? 0)) least = index;
  }
  return least;
}

/** A set of numbers from 0 on that returns the smallest first: a binary heap over a preallocated array. */
class SmallestFirst {
  private readonly heap: Int32Array;
  #size = 0;

  constructor(capacity: number) {
    this.heap = new Int32Array(capacity);
  }

  get size(): number {
    return this.#size;
  }

  push(value: number): void {
    const heap = this.heap;
    let index = this.#size++;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent] ?? 0;
      if (above <= value) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = value;
  }

  /** The heap must not be empty. */
  pop(): number {
    const heap = this.heap;
    const smallest = heap[0] ?? 0;
    const last = heap[--this.#size] ?? 0;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= this.#size) break;
      if (child + 1 < this.#size && (heap[child + 1] ?? 0) < (heap[child] ?? 0)) child += 1;
      if ((heap[child] ?? 0) >= last) break;
      heap[index] = heap[child] ?? 0;
      index = child;
    }
    heap[index] = last;
    return smallest;
  }
}
