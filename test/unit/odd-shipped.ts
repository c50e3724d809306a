/** Random matrices as quantized Hugging Face checkpoints have them: their tensors, and the exact values (docs/formats.md). */
import assert from 'node:assert/strict';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { fp32Bytes } from './odd-model.js';
import type { TinyTensor } from './tiny-checkpoint.js';

interface Shipped {
  tensors: TinyTensor[];
  values: Float32Array;
}

/** Makes the tensors of a module, whose name has no dot at its end. */
export type Quantizer = (module: string, rows: number, columns: number, random: SeededRandom) => Shipped;

type ScaleType = 'F32' | 'BF16' | 'F16' | 'F8_E8M0';

interface Numbers {
  dtype: ScaleType | 'U8';
  data: Uint8Array;
  values: Float32Array;
}

/** Positive scales near 1/100. */
function scalesOf(count: number, dtype: ScaleType, random: SeededRandom): Numbers {
  if (dtype === 'F8_E8M0') {
    const data = Uint8Array.from({ length: count }, () => 120 + random.int(3));
    return { dtype, data, values: Float32Array.from(data, (byte) => (1 << (byte - 120)) / 128) };
  }
  const mantissas = Array.from({ length: count }, () => random.int(128));
  const values = Float32Array.from(mantissas, (mantissa) => (128 + mantissa) / 128 / 128);
  const words = new DataView(fp32Bytes(values).slice().buffer);
  if (dtype === 'F32') return { dtype, data: new Uint8Array(words.buffer), values };
  const data = new Uint8Array(2 * count);
  const half = new DataView(data.buffer);
  mantissas.forEach((mantissa, at) => {
    if (dtype === 'BF16') half.setUint16(2 * at, words.getUint16(4 * at + 2, true), true);
    else half.setUint16(2 * at, (8 << 10) | (mantissa << 3), true);
  });
  return { dtype, data, values };
}

function matrixOf(rows: number, columns: number, value: (row: number, column: number) => number): Float32Array {
  return Float32Array.from({ length: rows * columns }, (_, at) => value(Math.floor(at / columns), at % columns));
}

function table(rows: number, columns: number, random: SeededRandom, limit: number): number[][] {
  return Array.from({ length: rows }, () => Array.from({ length: columns }, () => random.int(limit)));
}

function at(codes: readonly (readonly number[])[], row: number, column: number): number {
  return codes[row]?.[column] ?? 0;
}

/** Words of I32 with codes of `bits` bits, the first one lowest, from left to right; places behind the last code are 0. */
function words(codes: readonly (readonly number[])[], bits: number): { shape: [number, number]; data: Uint8Array } {
  const each = 32 / bits;
  const width = Math.ceil((codes[0]?.length ?? 0) / each);
  const data = new Uint32Array(codes.length * width);
  codes.forEach((row, y) => {
    row.forEach((code, x) => {
      const word = y * width + Math.floor(x / each);
      data[word] = (data[word] ?? 0) | (code << (bits * (x % each)));
    });
  });
  return { shape: [codes.length, width], data: new Uint8Array(data.buffer) };
}

function transposed(codes: readonly (readonly number[])[]): number[][] {
  return (codes[0] ?? []).map((_, column) => codes.map((row) => row[column] ?? 0));
}

function tensor(name: string, dtype: string, shape: readonly number[], data: Uint8Array): TinyTensor {
  return { name, dtype, shape, data };
}

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Pairs of codes in bytes, the even column low. */
function pairs(codes: readonly (readonly number[])[]): Uint8Array {
  return Uint8Array.from(
    codes.flatMap((row) => row.flatMap((code, x) => (x % 2 === 0 ? [code | ((row[x + 1] ?? 0) << 4)] : []))),
  );
}

/** An E4M3 code from 1/8 to 15/8 or its negative, and its value. */
function e4m3(code: number): { byte: number; value: number } {
  const [sign, exponent, mantissa] = [code >> 5, (code >> 3) & 3, code & 7] as const;
  const value = ((8 + mantissa) * (1 << exponent)) / 64;
  return { byte: (sign << 7) | ((4 + exponent) << 3) | mantissa, value: sign === 1 ? -value : value };
}

export function blocksOfFp8(scales: 'block' | 'channel' | 'tensor', dtype: ScaleType, part: string): Quantizer {
  return (module, rows, columns, random) => {
    const codes = table(rows, columns, random, 64);
    const shape = { block: [Math.ceil(rows / 128), Math.ceil(columns / 128)], channel: [rows, 1], tensor: [1] }[scales];
    const numbers = scalesOf(
      shape.reduce((a, b) => a * b, 1),
      dtype,
      random,
    );
    const index = (row: number, column: number): number =>
      scales === 'tensor' ? 0 : scales === 'channel' ? row : (row >> 7) * Math.ceil(columns / 128) + (column >> 7);
    return {
      tensors: [
        tensor(
          `${module}.weight`,
          'F8_E4M3',
          [rows, columns],
          Uint8Array.from(codes.flat(), (code) => e4m3(code).byte),
        ),
        tensor(`${module}.${part}`, dtype, shape, numbers.data),
      ],
      values: matrixOf(
        rows,
        columns,
        (row, column) => e4m3(at(codes, row, column)).value * (numbers.values[index(row, column)] ?? 0),
      ),
    };
  };
}

export function packed(bits: 4 | 8, group: number, dtype: ScaleType, symmetric: boolean): Quantizer {
  return (module, rows, columns, random) => {
    const limit = bits === 4 ? 16 : 256;
    const codes = table(rows, columns, random, limit);
    const groups = group === 0 ? 1 : Math.ceil(columns / group);
    const scales = scalesOf(rows * groups, dtype, random);
    const zeros = table(rows, groups, random, limit);
    const groupOf = (column: number): number => (group === 0 ? 0 : Math.floor(column / group));
    const shape = new Uint8Array(Int32Array.of(rows, columns).buffer);
    const stored = words(codes, bits);
    const storedZeros = words(transposed(zeros), bits);
    const turned = transposedWords(storedZeros);
    return {
      tensors: [
        tensor(`${module}.weight_packed`, 'I32', stored.shape, stored.data),
        tensor(`${module}.weight_scale`, dtype, [rows, groups], scales.data),
        tensor(`${module}.weight_shape`, 'I32', [2], shape),
        ...(symmetric ? [] : [tensor(`${module}.weight_zero_point`, 'I32', turned.shape, turned.data)]),
      ],
      values: matrixOf(rows, columns, (row, column) => {
        const zero = symmetric ? limit / 2 : at(zeros, row, groupOf(column));
        return (at(codes, row, column) - zero) * (scales.values[row * groups + groupOf(column)] ?? 0);
      }),
    };
  };
}

function transposedWords({ shape, data }: { shape: [number, number]; data: Uint8Array }): {
  shape: [number, number];
  data: Uint8Array;
} {
  const source = new Uint32Array(data.buffer);
  const [rows, columns] = shape;
  const out = new Uint32Array(source.length);
  for (let row = 0; row < rows; row += 1)
    for (let column = 0; column < columns; column += 1) out[column * rows + row] = source[row * columns + column] ?? 0;
  return { shape: [columns, rows], data: new Uint8Array(out.buffer) };
}

export const mxfp4: Quantizer = (module, rows, columns, random) => {
  const codes = table(rows, columns, random, 16);
  const exponents = table(rows, columns / 32, random, 3);
  return {
    tensors: [
      tensor(`${module}.weight_packed`, 'U8', [rows, columns / 2], pairs(codes)),
      tensor(
        `${module}.weight_scale`,
        'U8',
        [rows, columns / 32],
        Uint8Array.from(exponents.flat(), (e) => 121 + e),
      ),
    ],
    values: matrixOf(
      rows,
      columns,
      (row, column) => ((E2M1[at(codes, row, column)] ?? 0) * (1 << at(exponents, row, column >> 5))) / 64,
    ),
  };
};

/** MXFP4 as DeepSeek-V4's experts have it. */
export const mxfp4Pairs: Quantizer = (module, rows, columns, random) => {
  const { tensors, values } = mxfp4(module, rows, columns, random);
  const [codes, scales] = tensors;
  assert.ok(codes !== undefined && scales !== undefined);
  const renamed = [
    { ...codes, name: `${module}.weight`, dtype: 'I8' },
    { ...scales, name: `${module}.scale`, dtype: 'F8_E8M0' },
  ];
  return { tensors: renamed, values };
};

export const mxfp8: Quantizer = (module, rows, columns, random) => {
  const codes = table(rows, columns, random, 64);
  const exponents = table(rows, columns / 32, random, 3);
  return {
    tensors: [
      tensor(
        `${module}.weight`,
        'F8_E4M3',
        [rows, columns],
        Uint8Array.from(codes.flat(), (code) => e4m3(code).byte),
      ),
      tensor(
        `${module}.weight_scale`,
        'U8',
        [rows, columns / 32],
        Uint8Array.from(exponents.flat(), (e) => 122 + e),
      ),
    ],
    values: matrixOf(
      rows,
      columns,
      (row, column) => (e4m3(at(codes, row, column)).value * (1 << at(exponents, row, column >> 5))) / 32,
    ),
  };
};

export function nvfp4(matrixScale: 'multiplied' | 'divided'): Quantizer {
  return (module, rows, columns, random) => {
    const codes = table(rows, columns, random, 16);
    const scales = table(rows, columns / 16, random, 32);
    const factor = Math.fround(matrixScale === 'divided' ? 30 + random.int(100) / 7 : 0.02 + random.int(100) / 7000);
    const data = fp32Bytes(Float32Array.of(factor));
    const divided = matrixScale === 'divided';
    return {
      tensors: [
        tensor(`${module}.${divided ? 'weight_packed' : 'weight'}`, 'U8', [rows, columns / 2], pairs(codes)),
        tensor(
          `${module}.weight_scale`,
          'F8_E4M3',
          [rows, columns / 16],
          Uint8Array.from(scales.flat(), (code) => e4m3(code).byte),
        ),
        tensor(`${module}.${divided ? 'weight_global_scale' : 'weight_scale_2'}`, 'F32', divided ? [1] : [], data),
      ],
      values: matrixOf(rows, columns, (row, column) => {
        const value = (E2M1[at(codes, row, column)] ?? 0) * e4m3(at(scales, row, column >> 4)).value;
        return divided ? value / factor : value * factor;
      }),
    };
  };
}

/** Order of the outputs in a word of AWQ. */
const AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7];

function awqWords(codes: readonly (readonly number[])[]): { shape: [number, number]; data: Uint8Array } {
  return words(
    codes.map((row) => row.map((_, x) => row[x - (x % 8) + (AWQ_ORDER[x % 8] ?? 0)] ?? 0)),
    4,
  );
}

export function awq(group: number): Quantizer {
  return (module, rows, columns, random) => {
    const codes = table(columns, rows, random, 16);
    const groups = group === 0 ? 1 : Math.ceil(columns / group);
    const zeros = table(groups, rows, random, 16);
    const scales = scalesOf(groups * rows, 'F16', random);
    const [weights, points] = [awqWords(codes), awqWords(zeros)];
    const groupOf = (column: number): number => (group === 0 ? 0 : Math.floor(column / group));
    return {
      tensors: [
        tensor(`${module}.qweight`, 'I32', weights.shape, weights.data),
        tensor(`${module}.qzeros`, 'I32', points.shape, points.data),
        tensor(`${module}.scales`, 'F16', [groups, rows], scales.data),
      ],
      values: matrixOf(
        rows,
        columns,
        (row, column) =>
          (at(codes, column, row) - at(zeros, groupOf(column), row)) *
          (scales.values[groupOf(column) * rows + row] ?? 0),
      ),
    };
  };
}

export function gptq(bits: 4 | 8, group: number, order: 'plain' | 'any' | 'none', version: 1 | 2): Quantizer {
  return (module, rows, columns, random) => {
    const limit = bits === 4 ? 16 : 256;
    const codes = table(rows, columns, random, limit);
    const groups = group === 0 ? 1 : Math.ceil(columns / group);
    // The first version stores zero points less 1.
    const zeros = table(groups, rows, random, limit - 1).map((row) => row.map((zero) => zero + 1));
    const scales = scalesOf(groups * rows, 'F16', random);
    const places = Array.from({ length: columns }, (_, column) => (group === 0 ? 0 : Math.floor(column / group)));
    if (order === 'any') {
      for (let last = columns - 1; last > 0; last -= 1) {
        const other = random.int(last + 1);
        [places[last], places[other]] = [places[other] ?? 0, places[last] ?? 0];
      }
    }
    // Codes of a column stand one below another, so words run along the inputs.
    const weights = transposedWords(words(codes, bits));
    const points = words(
      zeros.map((row) => row.map((zero) => (version === 1 ? zero - 1 : zero))),
      bits,
    );
    return {
      tensors: [
        tensor(`${module}.qweight`, 'I32', weights.shape, weights.data),
        tensor(`${module}.qzeros`, 'I32', points.shape, points.data),
        tensor(`${module}.scales`, 'F16', [groups, rows], scales.data),
        ...(order === 'none'
          ? []
          : [tensor(`${module}.g_idx`, 'I32', [columns], new Uint8Array(Int32Array.from(places).buffer))]),
      ],
      values: matrixOf(
        rows,
        columns,
        (row, column) =>
          (at(codes, row, column) - at(zeros, places[column] ?? 0, row)) *
          (scales.values[(places[column] ?? 0) * rows + row] ?? 0),
      ),
    };
  };
}
