import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { recordedRowBytes, type RecordedSizes } from '../recording/recorded-row.js';
import type { RecordedRows } from './record-layers.js';
import type { RecordedStates } from './recorded-states.js';

/** Memory for rows that are copied together. */
const TOGETHER_BYTES = 64 * 1024 * 1024;
const MOST_TOGETHER = 512;

/** The place to which rows are copied. */
export interface CopyTarget {
  /** Rows before this one are there already. */
  readonly firstRow: number;
  readonly signal: AbortSignal;
  readonly record: (rows: RecordedRows) => Promise<void>;
  /** All rows before this one have been copied at every layer. */
  readonly done: (rows: number) => Promise<void>;
}

/**
 * Copies recorded rows, each with all its layers, into rows by layer.
 * @param rows the numbers of the recorded rows, in the order in which they are written
 * @throws CANCELLED, PACK_CORRUPT (a damaged row), STORAGE_FAILED, STORAGE_FULL
 */
export async function copyRecorded(
  recorded: Pick<RecordedStates, 'row'>,
  rows: readonly number[],
  sizes: RecordedSizes,
  { firstRow, signal, record, done }: CopyTarget,
): Promise<void> {
  const { expertLayers, hiddenSize, expertsPerToken } = sizes;
  const together = Math.max(1, Math.min(MOST_TOGETHER, Math.floor(TOGETHER_BYTES / recordedRowBytes(sizes))));
  for (let first = firstRow; first < rows.length; first += together) {
    if (signal.aborted) throw new OdmoeError('CANCELLED', 'the work with the model was interrupted');
    const some = await Promise.all(rows.slice(first, first + together).map((row) => recorded.row(row)));
    for (let layer = 0; layer < expertLayers; layer += 1) {
      const states = new Float32Array(some.length * hiddenSize);
      const choices = new Int32Array(some.length * expertsPerToken);
      for (const [index, row] of some.entries()) {
        states.set(row.states(layer), index * hiddenSize);
        choices.set(row.choices(layer), index * expertsPerToken);
      }
      await record({ layer, firstRow: first, states, choices });
    }
    await done(first + some.length);
  }
}
