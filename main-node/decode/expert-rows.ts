import type { ActivatedRow } from './activated-experts.js';

/** The rows behind one another, `rowBytes` each; all of them, in order, need not be copied. */
export function gatherExpertRows(hidden: Uint8Array, rows: readonly ActivatedRow[], rowBytes: number): Uint8Array {
  if (rows.length * rowBytes === hidden.byteLength && rows.every(({ row }, index) => row === index)) return hidden;
  const gathered = new Uint8Array(rows.length * rowBytes);
  rows.forEach(({ row }, index) => {
    gathered.set(hidden.subarray(row * rowBytes, (row + 1) * rowBytes), index * rowBytes);
  });
  return gathered;
}

/** Puts an expert's outputs for these rows in their places among `outputs`, rows x k by rank. */
export function scatterExpertOutputs(
  outputs: Uint8Array,
  result: Uint8Array,
  rows: readonly ActivatedRow[],
  expertsPerToken: number,
  rowBytes: number,
): void {
  rows.forEach(({ row, rank }, index) => {
    const output = result.subarray(index * rowBytes, (index + 1) * rowBytes);
    outputs.set(output, (row * expertsPerToken + rank) * rowBytes);
  });
}
