/** The first tables of SliceMoE on the experts of a checkpoint: their codes, the digests of all codes, and the error of each variant. */
import { createHash } from 'node:crypto';
import { sliceRows } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SLICE_GROUP_COLUMNS, planeRowBytes } from '../../shared/model/weight-dtype.js';
import type { SlicedSplit } from '../../shared/model/tensor-source.js';
import { expertMatrices, rowOf, type ExpertMatrixValues } from './expert-matrices.js';
import { directVariants, truncatedVariants, type QuantizedVariant, type SlicePair } from './quantize-group.js';
import { readGroup } from './sliced-rows.js';

export interface CodesRow {
  table: 'codes';
  matrix: string;
  row: number;
  group: number;
  pair: string;
  /** The bits of the FP16 scale. */
  s_bits: number;
  z: number;
  q: number[];
  q_up: readonly number[];
  q_low: readonly number[];
}

export interface PlanesRow {
  table: 'planes';
  pair: string;
  /** They hash one byte a code, and one byte a group: all matrices in the order of their names, row-major. */
  sha256_q: string;
  sha256_z: string;
}

export interface ErrorRow {
  table: 'mse';
  variant: string;
  /** Squared error over squared weights, all matrices of all experts. */
  value: number;
}

export interface SlicedForm {
  readonly split: SlicedSplit;
  readonly pair: SlicePair;
  readonly name: string;
}

export const SLICED_FORMS: readonly SlicedForm[] = [
  { split: 'sliced84', pair: { high: 8, low: 4 }, name: '(8,4)' },
  { split: 'sliced63', pair: { high: 6, low: 3 }, name: '(6,3)' },
  { split: 'sliced42', pair: { high: 4, low: 2 }, name: '(4,2)' },
];

const DIRECT_BITS: readonly number[] = [8, 6, 4, 3, 2];

/** The variants of table 1, direct ones first. */
export const VARIANTS: readonly QuantizedVariant[] = [
  ...DIRECT_BITS.flatMap(directVariants),
  ...SLICED_FORMS.flatMap(({ pair }) => truncatedVariants(pair)),
];

/** Slices every matrix of every expert. Of each matrix the first group of the first row and the last group of the last row are shown. */
export async function measureCodes(directory: string): Promise<(CodesRow | PlanesRow)[]> {
  const digests = SLICED_FORMS.map(() => ({ q: createHash('sha256'), z: createHash('sha256') }));
  const shown: CodesRow[] = [];
  for await (const matrix of expertMatrices(directory)) {
    for (const [index, form] of SLICED_FORMS.entries()) {
      const slices = await slicesOf(matrix, form.split);
      const groups = Math.ceil(matrix.columns / SLICE_GROUP_COLUMNS);
      for (let row = 0; row < matrix.rows; row += 1) {
        const ofRow = rowOfSlices(slices, form.split, matrix.columns, row);
        for (let group = 0; group < groups; group += 1) {
          const { scaleBits, zero, upper, lower } = readGroup(form.split, ofRow, matrix.columns, group);
          const codes = upper.map((code, at) => code * 2 ** form.pair.low + (lower[at] ?? 0));
          digests[index]?.q.update(Uint8Array.from(codes));
          digests[index]?.z.update(Uint8Array.of(zero));
          if (row + group !== 0 && (row !== matrix.rows - 1 || group !== groups - 1)) continue;
          const place = { matrix: matrix.name, row, group, pair: form.name };
          shown.push({ table: 'codes', ...place, s_bits: scaleBits, z: zero, q: codes, q_up: upper, q_low: lower });
        }
      }
    }
  }
  const planes = SLICED_FORMS.map(({ name }, index): PlanesRow => {
    const sha256 = (plane: 'q' | 'z'): string => digests[index]?.[plane].digest('hex') ?? '';
    return { table: 'planes', pair: name, sha256_q: sha256('q'), sha256_z: sha256('z') };
  });
  return [...shown, ...planes];
}

async function slicesOf(matrix: ExpertMatrixValues, split: SlicedSplit): Promise<[Uint8Array, Uint8Array]> {
  try {
    return await sliceRows([matrix.bytes], 'none-bf16', matrix.rows, matrix.columns, split);
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_UNSUPPORTED') throw thrown;
    throw new OdmoeError('MODEL_UNSUPPORTED', `${matrix.name}: ${thrown.message}`, { cause: thrown });
  }
}

function rowOfSlices(
  slices: readonly [Uint8Array, Uint8Array],
  split: SlicedSplit,
  columns: number,
  row: number,
): [Uint8Array, Uint8Array] {
  const [upperBytes = 0, lowerBytes = 0] = planeRowBytes(split, columns);
  return [
    slices[0].subarray(row * upperBytes, (row + 1) * upperBytes),
    slices[1].subarray(row * lowerBytes, (row + 1) * lowerBytes),
  ];
}

/** Quantizes every group of every matrix in each way of table 1. */
export async function measureErrors(directory: string): Promise<ErrorRow[]> {
  const errors = new Map(VARIANTS.map(({ name }) => [name, 0]));
  let squares = 0;
  for await (const matrix of expertMatrices(directory)) {
    for (let row = 0; row < matrix.rows; row += 1) {
      const weights = rowOf(matrix, row);
      squares += squaresOf(weights);
      for (let first = 0; first < matrix.columns; first += SLICE_GROUP_COLUMNS) {
        const group = weights.slice(first, first + SLICE_GROUP_COLUMNS);
        for (const { name, valuesOf } of VARIANTS) {
          const values = valuesOf(group);
          errors.set(name, (errors.get(name) ?? 0) + squaresOf(group.map((weight, at) => weight - (values[at] ?? 0))));
        }
      }
    }
  }
  return [...errors].map(([variant, sum]) => ({ table: 'mse', variant, value: sum / squares }));
}

function squaresOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value * value, 0);
}
