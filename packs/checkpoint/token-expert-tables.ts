import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import type { CheckpointTensor } from '../model-config/checkpoint-tensor.js';
import { CHECKPOINT_FILE_ERRORS, readInto } from './safetensors-file.js';

/** Rows that are read at a time. */
const READ_ROWS = 65_536;

/**
 * Refuses a table of experts by token whose rows name other numbers than those of the layer's experts, or one twice. Numbers of 64 bits are checked
 * as a whole: a model is loaded with their low halves alone, and would take 2**32 + 3 for 3. Tensors of other types pass.
 * @throws MODEL_CORRUPT, MODEL_NOT_FOUND, STORAGE_FAILED
 */
export async function refuseOtherExperts(table: CheckpointTensor, experts: number): Promise<void> {
  const numberBytes = { I64: 8, I32: 4 }[table.dtype];
  const [rows = 0, columns = 0] = table.shape;
  if (numberBytes === undefined) return;
  const rowBytes = columns * numberBytes;
  const { path, offsetBytes } = table;
  const buffer = Buffer.allocUnsafe(Math.min(READ_ROWS, rows) * rowBytes);
  try {
    const file = await openFile(path);
    try {
      for (let row = 0; row < rows; row += READ_ROWS) {
        const bytes = buffer.subarray(0, Math.min(READ_ROWS, rows - row) * rowBytes);
        await readInto(file, path, offsetBytes + row * rowBytes, bytes);
        const wrong = firstWrongRow(numbersOf(bytes, numberBytes), columns, experts);
        if (wrong !== null) throw wrongRow(table, row + wrong.row, wrong.number, experts);
      }
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}

function wrongRow({ path, name }: CheckpointTensor, row: number, number: number | bigint, experts: number): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `${path}: tensor ${name} has the number ${number} in row ${row}, expected are numbers of experts, each once, from 0 to ${experts - 1}; ${CHECKPOINT_FILE_ERRORS.remedy}`,
  );
}

function numbersOf(bytes: Buffer, numberBytes: number): Int32Array | BigInt64Array {
  // A copy begins where typed arrays may begin.
  const { buffer } = Uint8Array.from(bytes);
  return numberBytes === Int32Array.BYTES_PER_ELEMENT ? new Int32Array(buffer) : new BigInt64Array(buffer);
}

/** The first row with a number that is not that of an expert, or that stands there twice; null: there is none. Pure. */
function firstWrongRow(
  numbers: Int32Array | BigInt64Array,
  columns: number,
  experts: number,
): { row: number; number: number | bigint } | null {
  const lastRow = new Int32Array(experts).fill(-1);
  for (const [at, number] of numbers.entries()) {
    const row = Math.floor(at / columns);
    const expert = Number(number);
    if (expert < 0 || expert >= experts || lastRow[expert] === row) return { row, number };
    lastRow[expert] = row;
  }
  return null;
}
