import { type RecordedRow, recordedRowBytes, type RecordedSizes } from '../recording/recorded-row.js';
import { NO_CHOICE } from './foretold-experts.js';
import type { RecordedRows } from './record-layers.js';
import type { RecordedStates } from './recorded-states.js';
import { throwIfInterrupted } from './interruption.js';

/** Memory for rows that are copied together. */
const TOGETHER_BYTES = 64 * 1024 * 1024;
const MOST_TOGETHER = 512;
/** Bytes that are copied before they are made to stay. It waits for the disk, once for each file of the folder, so it is seldom. */
const KEPT_BYTES = 4 * 1024 * 1024 * 1024;

/** The place to which rows are copied. */
export interface CopyTarget {
  /** Rows before this one are there already. */
  readonly firstRow: number;
  readonly signal: AbortSignal;
  readonly record: (rows: RecordedRows) => Promise<void>;
  /** All rows before this one have been copied at every layer: a later run does not copy them again. */
  readonly keep: (rows: number) => Promise<void>;
  readonly onProgress: (rows: number) => void;
}

/**
 * Copies recorded rows, each with all its layers, into rows by layer. A damaged row becomes one of zeros without choices.
 * @param rows the numbers of the recorded rows, in the order in which they are written
 * @throws CANCELLED, PACK_CORRUPT (the file was cut), STORAGE_FAILED, STORAGE_FULL
 */
export async function copyRecorded(
  recorded: Pick<RecordedStates, 'row'>,
  rows: readonly number[],
  sizes: RecordedSizes,
  { firstRow, signal, record, keep, onProgress }: CopyTarget,
): Promise<void> {
  const together = Math.max(1, Math.min(MOST_TOGETHER, Math.floor(TOGETHER_BYTES / recordedRowBytes(sizes))));
  const keptRows = Math.ceil(KEPT_BYTES / recordedRowBytes(sizes));
  let kept = firstRow;
  for (let first = firstRow; first < rows.length;) {
    if (signal.aborted && first > kept) await keep(first);
    throwIfInterrupted(signal);
    const some = await Promise.all(rows.slice(first, first + together).map((row) => recorded.row(row)));
    await copyTogether(some, first, sizes, record);
    first += some.length;
    if (first - kept >= keptRows || first === rows.length) {
      await keep(first);
      kept = first;
    }
    onProgress(first);
  }
}

async function copyTogether(
  rows: readonly (RecordedRow | null)[],
  firstRow: number,
  { expertLayers, hiddenSize, expertsPerToken }: RecordedSizes,
  record: CopyTarget['record'],
): Promise<void> {
  for (let layer = 0; layer < expertLayers; layer += 1) {
    const states = new Float32Array(rows.length * hiddenSize);
    const choices = new Int32Array(rows.length * expertsPerToken).fill(NO_CHOICE);
    for (const [index, row] of rows.entries()) {
      if (row === null) continue;
      states.set(row.states(layer), index * hiddenSize);
      choices.set(row.choices(layer), index * expertsPerToken);
    }
    await record({ layer, firstRow, states, choices });
  }
}
