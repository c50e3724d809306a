import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { rowCount, selectRows } from '../../shared/wire/pass-rows.js';
import type { ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { type ExpertRowShape, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertRows, PassLayer } from '../../shared/wire/messages.js';
import type { ExecuteWork } from '../cluster/placed-workers.js';
import { MESSAGE_SIZE_LIMIT_BYTES } from '../../shared/wire/limits.js';

const FLOAT_BYTES = 4;

/** A layer of a pass whose router has chosen. The buffers belong to the pass. */
export interface LayerStep extends PassLayer {
  /** rows x expertRowSize FP32. */
  hidden: Uint8Array;
  /** rows x k x expertRowSize FP32, by rank. */
  outputs: Uint8Array;
}

/** The unit of work: an expert, and the rows of the pass that it is to run on, in rising order. */
export interface ExpertWork extends ExpertId {
  rows: readonly ActivatedRow[];
  /** The pass has no further rows for this expert. */
  last: boolean;
}

/** Makes the message for this work of one worker. It has each hidden state that the experts need once. */
export function messageOf(step: LayerStep, work: readonly ExpertWork[]): ExecuteWork {
  const { pass, layer } = step;
  const allRows = rowCount(step.rows);
  const used = usedRows(work);
  const place = new Map(used.map((row, index) => [row, index]));
  const experts = work.map(({ expert, rows, last }): ExpertRows => {
    const indexOf = (row: number): number => requirePresent(place.get(row), () => `row ${row} is sent.`);
    const indexes = rows.length === used.length ? [] : rows.map(({ row }) => indexOf(row));
    const upper = rows.flatMap(({ reading = 'both' }, index) => (reading === 'both' ? [] : [index]));
    return upper.length === 0 ? { expert, rows: indexes, last } : { expert, rows: indexes, last, upper };
  });
  if (used.length === allRows) return { pass, layer, rows: step.rows, hidden: step.hidden, experts };
  const rowBytes = step.hidden.byteLength / allRows;
  const hidden = new Uint8Array(used.length * rowBytes);
  used.forEach((row, index) => {
    hidden.set(step.hidden.subarray(row * rowBytes, (row + 1) * rowBytes), index * rowBytes);
  });
  return { pass, layer, rows: selectRows(step.rows, used), hidden, experts };
}

function usedRows(work: readonly ExpertWork[]): number[] {
  const used = new Set<number>();
  for (const { rows } of work) for (const { row } of rows) used.add(row);
  return [...used].sort((left, right) => left - right);
}

/** Copies an expert's output for its rows to their place among the step's outputs. */
export function takeOutput(
  step: LayerStep,
  { rows }: ExpertWork,
  output: Uint8Array,
  { expertsPerToken, ...shape }: ExpertRowShape & Pick<ModelShape, 'expertsPerToken'>,
): void {
  const rowBytes = expertRowSize(shape) * FLOAT_BYTES;
  assertInvariant(
    output.byteLength === rows.length * rowBytes,
    () => `an output of ${rows.length} rows has their bytes.`,
  );
  rows.forEach(({ row, rank }, index) => {
    const ofRow = output.subarray(index * rowBytes, (index + 1) * rowBytes);
    step.outputs.set(ofRow, (row * expertsPerToken + rank) * rowBytes);
  });
}

/** Bytes that a message needs beside its rows, and beside each row for its row range and its place among an expert's rows. */
const OTHER_FIELDS_BYTES = 1024;

const OTHER_ROW_BYTES = 48;

/** Rows of a mini-batch: as many as wanted, but not more than one message holds. */
export function miniBatchRowsFor(wantedRows: number, rowSize: number): number {
  const fittingRows = Math.floor(
    (MESSAGE_SIZE_LIMIT_BYTES - OTHER_FIELDS_BYTES) / (rowSize * FLOAT_BYTES + OTHER_ROW_BYTES),
  );
  return Math.max(1, Math.min(wantedRows, fittingRows));
}

/** Work that a worker is to do. */
export interface AssignedWork extends ExpertWork {
  workerId: string;
}

/**
 * Splits the work into the first row of each worker, which makes the worker load its expert, and all rows after these. The rest is sent when the
 * first rows have come back, so that every worker's first expert is loaded by then.
 */
export function splitLoadingRows(assigned: readonly AssignedWork[]): { loading: AssignedWork[]; rest: AssignedWork[] } {
  const loading: AssignedWork[] = [];
  const rest: AssignedWork[] = [];
  const begun = new Set<string>();
  for (const work of assigned) {
    if (begun.has(work.workerId)) {
      rest.push(work);
      continue;
    }
    begun.add(work.workerId);
    const more = work.rows.length > 1;
    loading.push({ ...work, rows: work.rows.slice(0, 1), last: work.last && !more });
    if (more) rest.push({ ...work, rows: work.rows.slice(1) });
  }
  return { loading, rest };
}

/**
 * Makes the messages for each worker, in the order of sending. A message takes the worker's next work as long as it has no more than miniBatchRows
 * rows; Infinity: one message for all. Work for one expert stays together, so that a worker with one slot loads each expert once.
 */
export function bundleWork(assigned: readonly AssignedWork[], miniBatchRows: number): Map<string, ExpertWork[][]> {
  const byWorker = new Map<string, ExpertWork[][]>();
  for (const work of assigned) {
    const messages = byWorker.get(work.workerId) ?? [];
    byWorker.set(work.workerId, messages);
    const open = messages.at(-1);
    const fits =
      open !== undefined &&
      open.reduce((sum, { rows }) => sum + rows.length, work.rows.length) <= miniBatchRows &&
      !open.some(({ expert }) => expert === work.expert);
    if (fits) open.push(work);
    else messages.push([work]);
  }
  return byWorker;
}
