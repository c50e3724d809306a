import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { rowCount, selectRows } from '../../shared/wire/pass-rows.js';
import type { ExpertRows, PassLayer } from '../../shared/wire/messages.js';
import type { ExecuteWork } from '../cluster/placed-workers.js';
import type { ActivatedRow } from './activated-experts.js';

const FLOAT_BYTES = 4;

/** A layer of a pass whose router has chosen. The buffers belong to the pass. */
export interface LayerStep extends PassLayer {
  /** rows x hiddenSize FP32. */
  hidden: Uint8Array;
  /** rows x k x hiddenSize FP32, by rank. */
  outputs: Uint8Array;
}

/** One expert of a layer, and the rows of the pass that it is to run on, in rising order. */
export interface ExpertTask {
  expert: number;
  rows: readonly ActivatedRow[];
  /** The pass has no further rows for this expert. */
  last: boolean;
}

/** The tasks of a layer that one worker runs in one message. */
export interface WorkerShare {
  workerId: string;
  tasks: readonly ExpertTask[];
}

/** Makes the message for these tasks. It has each hidden state that they need once. */
export function workOf(step: LayerStep, tasks: readonly ExpertTask[]): ExecuteWork {
  const { pass, layer } = step;
  const allRows = rowCount(step.rows);
  const used = usedRows(tasks);
  const place = new Map(used.map((row, index) => [row, index]));
  const experts = tasks.map(({ expert, rows, last }): ExpertRows => {
    const indexOf = (row: number): number => requirePresent(place.get(row), () => `row ${row} is sent.`);
    const indexes = rows.length === used.length ? [] : rows.map(({ row }) => indexOf(row));
    return { expert, rows: indexes, last };
  });
  if (used.length === allRows) return { pass, layer, rows: step.rows, hidden: step.hidden, experts };
  const rowBytes = step.hidden.byteLength / allRows;
  const hidden = new Uint8Array(used.length * rowBytes);
  used.forEach((row, index) => {
    hidden.set(step.hidden.subarray(row * rowBytes, (row + 1) * rowBytes), index * rowBytes);
  });
  return { pass, layer, rows: selectRows(step.rows, used), hidden, experts };
}

function usedRows(tasks: readonly ExpertTask[]): number[] {
  const used = new Set<number>();
  for (const { rows } of tasks) for (const { row } of rows) used.add(row);
  return [...used].sort((left, right) => left - right);
}

/** Copies an expert's output for the task's rows to its place among the step's outputs. */
export function takeOutput(
  step: LayerStep,
  { rows }: ExpertTask,
  output: Uint8Array,
  { hiddenSize, expertsPerToken }: { hiddenSize: number; expertsPerToken: number },
): void {
  const rowBytes = hiddenSize * FLOAT_BYTES;
  assertInvariant(
    output.byteLength === rows.length * rowBytes,
    () => `an output of ${rows.length} rows has their bytes.`,
  );
  rows.forEach(({ row, rank }, index) => {
    const ofRow = output.subarray(index * rowBytes, (index + 1) * rowBytes);
    step.outputs.set(ofRow, (row * expertsPerToken + rank) * rowBytes);
  });
}
