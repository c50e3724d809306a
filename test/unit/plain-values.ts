/** Tensors of a checkpoint as FP64 values. This slow and simple code reads them byte by byte by their views. */
import { readFileSync } from 'node:fs';
import { splitRead, type Split, type TensorSource } from '../../shared/model/tensor-source.js';

export interface Matrix {
  rows: number;
  columns: number;
  data: Float64Array;
}

const FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** The last file that was read is remembered, because the tensors of a file are read one after another. */
let kept: { path: string; bytes: Buffer } | null = null;

function chunkBytes(source: TensorSource, plane: number): DataView {
  const chunk = source.chunks.find((candidate) => candidate.plane === plane);
  if (chunk === undefined) throw new Error(`no plane ${plane}`);
  if (kept?.path !== chunk.path) kept = { path: chunk.path, bytes: readFileSync(chunk.path) };
  const { buffer, byteOffset } = kept.bytes;
  return new DataView(buffer, byteOffset + chunk.offsetBytes, chunk.storedBytes);
}

function bfloat16(bits: number): number {
  const single = new DataView(new ArrayBuffer(4));
  single.setUint32(0, bits * 2 ** 16);
  return single.getFloat32(0);
}

function e4m3(bits: number): number {
  const [sign, exponent, mantissa] = [bits & 128 ? -1 : 1, (bits >> 3) & 15, bits & 7];
  if (exponent === 15 && mantissa === 7) return NaN;
  return sign * (exponent === 0 ? mantissa * 2 ** -9 : (8 + mantissa) * 2 ** (exponent - 10));
}

/** The stored value at a row and column. */
function reader(source: TensorSource): (row: number, column: number) => number {
  const { view } = source;
  const split: Split = view === null ? source.split : splitRead(view.storedSplit);
  const columns = view?.storedColumns ?? source.columns;
  const values = chunkBytes(source, 0);
  if (split === 'none-bf16') return (row, column) => bfloat16(values.getUint16(2 * (row * columns + column), true));
  if (split === 'none-fp32') return (row, column) => values.getFloat32(4 * (row * columns + column), true);
  const scales = chunkBytes(source, 1);
  if (split === 'fp8' || split === 'fp8-tile') {
    const blocks = Math.ceil(columns / 128);
    const scaleAt = (row: number, column: number): number =>
      scales.getFloat32(4 * (Math.floor(row / (view?.scaleBlockRows ?? 1)) * blocks + (column >> 7)), true);
    return (row, column) => Math.fround(e4m3(values.getUint8(row * columns + column)) * scaleAt(row, column));
  }
  if (split !== 'mxfp4') throw new Error(`a checkpoint has no ${split}`);
  return (row, column) => {
    const pair = values.getUint8((row * columns + column) >> 1);
    const code = column % 2 === 0 ? pair & 15 : pair >> 4;
    const scale = 2 ** (scales.getUint8((row * columns + column) >> 5) - 127);
    return (code & 8 ? -1 : 1) * (FP4[code & 7] ?? 0) * scale;
  };
}

export function plainValues(source: TensorSource): Matrix {
  const { rows, columns, view } = source;
  const at = reader(source);
  const data = new Float64Array(rows * columns);
  const taken = view === null ? columns : Math.ceil((view.storedColumns - view.firstColumn) / view.stepColumns);
  const blockHeight = view === null ? rows : view.transposed ? taken : view.blockRows;
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const [block, inBlock] = [Math.floor(row / blockHeight), row % blockHeight];
      const [storedRow, storedColumn] = view?.transposed === true ? [column, inBlock] : [inBlock, column];
      data[row * columns + column] =
        view === null
          ? at(row, column)
          : Math.fround(
              Math.fround(
                at(
                  view.firstRow + block * view.stepRows + storedRow,
                  view.firstColumn + storedColumn * view.stepColumns,
                ) * view.multiply,
              ) + view.add,
            );
    }
  }
  return { rows, columns, data };
}
