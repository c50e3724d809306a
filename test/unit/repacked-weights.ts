/** Codes of 4 and 8 bits as other programs store them, and the planes of a pack that hold the same: slow and simple. */
import type { TensorView } from '../../shared/model/tensor-source.js';

/** A matrix of codes: value = (code - zero) * scale; column j has the scale of group groups[j]. */
export interface GroupedMatrix {
  bits: 4 | 8;
  rows: number;
  columns: number;
  group: number;
  codes: readonly (readonly number[])[];
  /** By row and group; null: 8 or 128 everywhere. */
  zeros: readonly (readonly number[])[] | null;
  /** FP16 or BF16, as bits, by row and group. */
  scales: readonly (readonly number[])[];
  /** Null: column j is of group j / group. */
  groups: readonly number[] | null;
}

export type GroupedForm = 'pack-quantized' | 'gptq' | 'gptq-v1' | 'awq';

/** The outputs of an AWQ word, from its lowest half byte on (AutoAWQ, "gemm"). */
const AWQ_OUTPUTS = [0, 2, 4, 6, 1, 3, 5, 7];

/** The bytes of the form's tensors, by plane: codes, scales, zero points, groups of columns. */
export function storedPlanes(matrix: GroupedMatrix, form: GroupedForm): Uint8Array[] {
  const { bits, rows, columns, codes, scales, groups } = matrix;
  const groupCount = columns / matrix.group;
  const middle = bits === 4 ? 8 : 128;
  const zero = (row: number, group: number): number => matrix.zeros?.[row]?.[group] ?? middle;
  const code = (row: number, column: number): number => codes[row]?.[column] ?? 0;
  const perWord = 32 / bits;
  const order = groups === null ? new Uint8Array(0) : words(groups);
  if (form === 'pack-quantized') {
    const packed = grid(rows, columns / perWord, (row, word) =>
      packWord(bits, (place) => code(row, word * perWord + place)),
    );
    const zeros = grid(Math.ceil(rows / perWord), groupCount, (word, group) =>
      packWord(bits, (place) => (word * perWord + place < rows ? zero(word * perWord + place, group) : 0)),
    );
    return [words(packed), halves(scales.flat()), matrix.zeros === null ? new Uint8Array(0) : words(zeros), order];
  }
  const turned = grid(groupCount, rows, (group, row) => scales[row]?.[group] ?? 0);
  const less = form === 'gptq-v1' ? 1 : 0;
  const outputs = (place: number): number => (form === 'awq' ? (AWQ_OUTPUTS[place] ?? 0) : place);
  const packed =
    form === 'awq'
      ? grid(columns, rows / 8, (column, word) => packWord(4, (place) => code(word * 8 + outputs(place), column)))
      : grid(columns / perWord, rows, (word, row) => packWord(bits, (place) => code(row, word * perWord + place)));
  const zeros = grid(groupCount, rows / perWord, (group, word) =>
    packWord(bits, (place) => zero(word * perWord + outputs(place), group) - less),
  );
  return [words(packed), halves(turned), words(zeros), order];
}

/** The two planes of a pack, row by row. `orderBytes`: of each row. */
export function packedPlanes(matrix: GroupedMatrix, orderBytes: number): [Uint8Array, Uint8Array] {
  const { bits, rows, columns, codes, zeros, scales } = matrix;
  const order = sortedColumns(matrix);
  const orderAll = [...halves(order)];
  const codeBytes: number[] = [];
  const scaleBytes: number[] = [];
  for (let row = 0; row < rows; row += 1) {
    const sorted = order.map((column) => codes[row]?.[column] ?? 0);
    codeBytes.push(...packCodes(bits, sorted));
    scaleBytes.push(...halves(scales[row] ?? []), ...(zeros === null ? [] : packCodes(bits, zeros[row] ?? [])));
    for (let i = 0; i < orderBytes; i += 1) scaleBytes.push(orderAll[row * orderBytes + i] ?? 0);
  }
  if (codeBytes.length !== (rows * columns * bits) / 8) throw new RangeError('a row has another number of codes');
  return [Uint8Array.from(codeBytes), Uint8Array.from(scaleBytes)];
}

/** Columns by their group; those of a group in their own order. */
function sortedColumns({ columns, groups }: GroupedMatrix): number[] {
  const all = Array.from({ length: columns }, (_, column) => column);
  return groups === null ? all : all.sort((a, b) => (groups[a] ?? 0) - (groups[b] ?? 0) || a - b);
}

export function viewOf(rows: number, columns: number, storedSplit: TensorView['storedSplit']): TensorView {
  const sizes = { storedRows: rows, storedColumns: columns, blockRows: rows, stepRows: rows };
  const places = { firstRow: 0, firstColumn: 0, stepColumns: 1, transposed: false, multiply: 1, add: 0 };
  return { ...sizes, ...places, storedSplit, scaleBlockRows: 1 };
}

function grid(rows: number, columns: number, value: (row: number, column: number) => number): number[] {
  return Array.from({ length: rows * columns }, (_, index) => value(Math.floor(index / columns), index % columns));
}

function packWord(bits: 4 | 8, code: (place: number) => number): number {
  let word = 0;
  for (let place = 32 / bits - 1; place >= 0; place -= 1) word = word * (bits === 4 ? 16 : 256) + code(place);
  return word;
}

function packCodes(bits: 4 | 8, codes: readonly number[]): number[] {
  if (bits === 8) return [...codes];
  const pairs = Math.ceil(codes.length / 2);
  return Array.from({ length: pairs }, (_, pair) => (codes[2 * pair] ?? 0) + 16 * (codes[2 * pair + 1] ?? 0));
}

function words(values: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

function halves(values: readonly number[]): Uint8Array {
  return new Uint8Array(Uint16Array.from(values).buffer);
}
