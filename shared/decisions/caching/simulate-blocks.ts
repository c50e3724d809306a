import { loadBlocks, named, type ScheduledOperation } from './block-timeline.js';
import type { LoadTimes } from './load-times.js';
import type { ScheduleBlock, Recovery } from './load-task.js';

export interface BlockSchedule {
  /** Time until the last expert has been executed. */
  makespanMs: number;
  operations: ScheduledOperation[];
}

/**
 * Simulates schedule blocks: one I/O thread, L decompression threads and one executor, none idle while there is work for it (ZipMoE appendix A). An
 * expert is executed when all its tensors are recovered. Experts are executed in the order in which they are recovered.
 */
export function simulateBlocks(
  blocks: readonly ScheduleBlock[],
  loadTimes: LoadTimes,
  recovery: Recovery = 'with',
): BlockSchedule {
  const operations: ScheduledOperation[] = [];
  const makespanMs = run(blocks, loadTimes, recovery, (operation) => operations.push(operation));
  return { makespanMs, operations };
}

/** As simulateBlocks, but returns the makespan alone. */
export function blocksMakespanMs(
  blocks: readonly ScheduleBlock[],
  loadTimes: LoadTimes,
  recovery: Recovery = 'with',
): number {
  return run(blocks, loadTimes, recovery, null);
}

function run(
  blocks: readonly ScheduleBlock[],
  loadTimes: LoadTimes,
  recovery: Recovery,
  record: ((operation: ScheduledOperation) => void) | null,
): number {
  const recoveredMs = loadBlocks(blocks, loadTimes, recovery, record);
  const experts = new Map<number, { readyMs: number; order: number; executeMs: number }>();
  let index = 0;
  for (const block of blocks) {
    for (const { expert, executeMs } of block) {
      const found = experts.get(expert) ?? { readyMs: 0, order: index, executeMs };
      found.readyMs = Math.max(found.readyMs, recoveredMs[index] ?? 0);
      experts.set(expert, found);
      index += 1;
    }
  }
  const byReadiness = [...experts].sort(
    ([, left], [, right]) => left.readyMs - right.readyMs || left.order - right.order,
  );
  let nowMs = 0;
  for (const [expert, { readyMs, executeMs }] of byReadiness) {
    const startMs = Math.max(nowMs, readyMs);
    nowMs = startMs + executeMs;
    const task = { expert, tensor: -1, state: 'missing', executeMs } as const;
    record?.({ ...named('execute', task), startMs, endMs: nowMs });
  }
  return nowMs;
}
