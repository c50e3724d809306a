import type { ExpertTask, WorkerShare } from './layer-step.js';
import { MESSAGE_SIZE_LIMIT_BYTES } from '../../shared/wire/limits.js';

const FLOAT_BYTES = 4;
/** Bytes that a message needs beside its rows, and beside each row for its row range and its place among an expert's rows. */
const OTHER_FIELDS_BYTES = 1024;
const OTHER_ROW_BYTES = 48;

/** Rows of a mini-batch: as many as wanted, but not more than one message holds. */
export function miniBatchRowsFor(wantedRows: number, hiddenSize: number): number {
  const fittingRows = Math.floor(
    (MESSAGE_SIZE_LIMIT_BYTES - OTHER_FIELDS_BYTES) / (hiddenSize * FLOAT_BYTES + OTHER_ROW_BYTES),
  );
  return Math.max(1, Math.min(wantedRows, fittingRows));
}

/** Some rows of a pass that one worker runs through one expert at a time. */
export interface ExpertBatch extends ExpertTask {
  workerId: string;
}

/**
 * Splits the batches into the first row of each worker, which makes the worker load its expert, and all rows after these. The rest is sent when the
 * first rows have come back, so that every worker's first expert is loaded by then.
 */
export function splitLoadingRows(batches: readonly ExpertBatch[]): { loading: ExpertBatch[]; rest: ExpertBatch[] } {
  const loading: ExpertBatch[] = [];
  const rest: ExpertBatch[] = [];
  const begun = new Set<string>();
  for (const batch of batches) {
    if (begun.has(batch.workerId)) {
      rest.push(batch);
      continue;
    }
    begun.add(batch.workerId);
    const more = batch.rows.length > 1;
    loading.push({ ...batch, rows: batch.rows.slice(0, 1), last: batch.last && !more });
    if (more) rest.push({ ...batch, rows: batch.rows.slice(1) });
  }
  return { loading, rest };
}

/**
 * Makes the messages for each worker, in the order of sending. A message takes the worker's next batches as long as they have no more than
 * miniBatchRows rows together; Infinity: one message for all. An expert's batches stay next to one another, so that a worker with one slot loads each
 * expert once.
 */
export function bundleBatches(batches: readonly ExpertBatch[], miniBatchRows: number): Map<string, WorkerShare[]> {
  const byWorker = new Map<string, { workerId: string; tasks: ExpertTask[]; rows: number }[]>();
  for (const { workerId, ...task } of batches) {
    const shares = byWorker.get(workerId) ?? [];
    byWorker.set(workerId, shares);
    const open = shares.at(-1);
    const fits = open !== undefined && open.rows + task.rows.length <= miniBatchRows;
    if (!fits || open.tasks.some(({ expert }) => expert === task.expert)) {
      shares.push({ workerId, tasks: [task], rows: task.rows.length });
      continue;
    }
    open.tasks.push(task);
    open.rows += task.rows.length;
  }
  return byWorker;
}
