import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { passOfRanges, rowCount, selectRows } from '../../shared/wire/pass-rows.js';
import type { RowRange } from '../../shared/wire/messages.js';
import type { ExecuteWork, WorkerOrders } from '../cluster/placed-workers.js';
import type { ExpertOutcome } from '../pass/expert-dispatcher.js';
import { messageOf, type ExpertWork, type LayerStep } from '../pass/expert-work.js';

/** An execution that was drawn: a copy of what the worker was given and of what it gave, since the buffers of its pass are used again. */
export interface DrawnCheck {
  readonly workerId: string;
  readonly link: WorkerOrders;
  /** Rows count within the copy. */
  readonly work: ExpertWork;
  /** The rows of the answers that used the output. */
  readonly rows: readonly RowRange[];
  /** Rows x expertRowSize FP32. */
  readonly hidden: Uint8Array;
  /** The output that was used: rows x expertRowSize FP32. */
  readonly output: Uint8Array;
  readonly bytes: number;
}

export function drawnCheck(step: LayerStep, { work, workerId, result }: ExpertOutcome, link: WorkerOrders): DrawnCheck {
  const indexes = work.rows.map(({ row }) => row);
  const rowBytes = step.hidden.byteLength / rowCount(step.rows);
  const hidden = new Uint8Array(indexes.length * rowBytes);
  indexes.forEach((row, at) => hidden.set(step.hidden.subarray(row * rowBytes, (row + 1) * rowBytes), at * rowBytes));
  const output = result.output.slice();
  return {
    workerId,
    link,
    work: { ...work, rows: work.rows.map((activated, row) => ({ ...activated, row })), last: true },
    rows: selectRows(step.rows, indexes),
    hidden,
    output,
    bytes: hidden.byteLength + output.byteLength,
  };
}

/**
 * The message by which another worker is asked for the same. It has the form of all work, and sequences of its own with numbers of the same
 * series as those of answers: a worker that knows the sequences of answers finds none of them here, and none of its expectations is disturbed.
 */
export function messageOfCheck(
  { work, rows, hidden }: DrawnCheck,
  nextSequence: () => number,
): { message: ExecuteWork; sequences: readonly number[] } {
  const numbers = new Map<number, number>();
  for (const { sequence } of rows) if (!numbers.has(sequence)) numbers.set(sequence, nextSequence());
  const renumbered = rows.map((range) => ({
    ...range,
    sequence: requirePresent(numbers.get(range.sequence), 'each sequence of a check has a number.'),
  }));
  const step: LayerStep = { ...passOfRanges(renumbered), layer: work.layer, hidden, outputs: new Uint8Array() };
  return { message: messageOf(step, [work]), sequences: [...numbers.values()] };
}
