/** Random matrices in the types of GGUF files: their bytes, and the values that ggml's formulas give (docs/formats.md has them). */
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

/** A block's bytes and values. */
interface Block {
  bytes: Uint8Array;
  values: readonly number[];
}

export interface OddMatrix {
  data: Uint8Array;
  values: Float32Array;
}

/** An FP16 number from 1/128 to 1/64, or a sixteenth or a 256th of one. */
function half(random: SeededRandom, exponent: 8 | 4 = 8): { bits: readonly [number, number]; value: number } {
  const mantissa = random.int(1024);
  const bits = (exponent << 10) | mantissa;
  return { bits: [bits & 255, bits >> 8], value: ((exponent === 8 ? 1 / 128 : 1 / 2048) * (1024 + mantissa)) / 1024 };
}

function codesOf(random: SeededRandom, count: number, limit: number): number[] {
  return Array.from({ length: count }, () => random.int(limit));
}

/** Values i and i + half of them in the low and the high bits of byte i. */
function lowHigh(codes: readonly number[]): number[] {
  const middle = codes.length / 2;
  return Array.from({ length: middle }, (_, at) => ((codes[at] ?? 0) & 15) | (((codes[at + middle] ?? 0) & 15) << 4));
}

/** The fifth bits of 32 codes. */
function fifthBits(codes: readonly number[]): number[] {
  return [0, 8, 16, 24].map((first) =>
    codes.slice(first, first + 8).reduce((byte, code, bit) => byte | ((code >> 4) << bit), 0),
  );
}

function block(bytes: readonly number[], values: readonly number[]): Block {
  return { bytes: Uint8Array.from(bytes), values };
}

const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

function q4k(random: SeededRandom): Block {
  const [d, least] = [half(random, 4), half(random, 4)];
  const [scales, minimums, codes] = [codesOf(random, 8, 64), codesOf(random, 8, 64), codesOf(random, 256, 16)];
  const at = (list: readonly number[], index: number): number => list[index] ?? 0;
  const packed = Array.from({ length: 12 }, (_, j) => {
    if (j < 4) return at(scales, j) | ((at(scales, j + 4) >> 4) << 6);
    if (j < 8) return at(minimums, j - 4) | ((at(minimums, j) >> 4) << 6);
    return (at(scales, j - 4) & 15) | ((at(minimums, j - 4) & 15) << 4);
  });
  const bytes = [0, 64, 128, 192].flatMap((first) => lowHigh(codes.slice(first, first + 64)));
  const values = codes.map(
    (code, column) => d.value * at(scales, column >> 5) * code - least.value * at(minimums, column >> 5),
  );
  return block([...d.bits, ...least.bits, ...packed, ...bytes], values);
}

function q6k(random: SeededRandom): Block {
  const d = half(random, 4);
  const [codes, scales] = [codesOf(random, 256, 64), codesOf(random, 16, 9).map((scale) => scale - 4)];
  const at = (index: number): number => codes[index] ?? 0;
  const low: number[] = [];
  const high: number[] = [];
  for (const first of [0, 128]) {
    for (let l = 0; l < 64; l += 1) low[first / 2 + l] = (at(first + l) & 15) | ((at(first + l + 64) & 15) << 4);
    for (let l = 0; l < 32; l += 1) {
      high[first / 4 + l] = [0, 1, 2, 3].reduce((byte, k) => byte | ((at(first + l + 32 * k) >> 4) << (2 * k)), 0);
    }
  }
  const values = codes.map((code, column) => d.value * (scales[column >> 4] ?? 0) * (code - 32));
  return block([...low, ...high, ...scales.map((scale) => scale & 255), ...d.bits], values);
}

function nvfp4(random: SeededRandom): Block {
  // E4M3 without a sign: 2^-3 times 1 to 15/8.
  const scales = codesOf(random, 4, 8);
  const codes = codesOf(random, 64, 16);
  const values = codes.map((code, column) => ((E2M1[code] ?? 0) * (8 + (scales[column >> 4] ?? 0))) / 64);
  const bytes = [0, 16, 32, 48].flatMap((first) => lowHigh(codes.slice(first, first + 16)));
  return block([...scales.map((scale) => 0x20 | scale), ...bytes], values);
}

const SMALL = ['Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'IQ4_NL', 'MXFP4'] as const;
type Small = (typeof SMALL)[number];

/** The types of these matrices. */
export type OddType = Small | 'Q4_K' | 'Q6_K' | 'NVFP4' | 'F32' | 'BF16' | 'F16';

function isSmall(type: OddType): type is Small {
  return (SMALL as readonly OddType[]).includes(type);
}

function small(type: Small, random: SeededRandom): Block {
  const wide = type === 'Q8_0' || type === 'IQ4_NL';
  const [d, m] = [half(random, wide ? 4 : 8), half(random)];
  const codes = codesOf(random, 32, type.startsWith('Q5') ? 32 : type === 'Q8_0' ? 256 : 16);
  switch (type) {
    case 'Q8_0':
      return block(
        [...d.bits, ...codes],
        codes.map((code) => (code < 128 ? code : code - 256) * d.value),
      );
    case 'Q4_0':
      return block(
        [...d.bits, ...lowHigh(codes)],
        codes.map((code) => (code - 8) * d.value),
      );
    case 'Q4_1':
      return block(
        [...d.bits, ...m.bits, ...lowHigh(codes)],
        codes.map((code) => code * d.value + m.value),
      );
    case 'Q5_0':
      return block(
        [...d.bits, ...fifthBits(codes), ...lowHigh(codes)],
        codes.map((code) => (code - 16) * d.value),
      );
    case 'Q5_1':
      return block(
        [...d.bits, ...m.bits, ...fifthBits(codes), ...lowHigh(codes)],
        codes.map((code) => code * d.value + m.value),
      );
    case 'IQ4_NL':
      return block(
        [...d.bits, ...lowHigh(codes)],
        codes.map((code) => (IQ4[code] ?? 0) * d.value),
      );
    case 'MXFP4':
      return block(
        [123, ...lowHigh(codes)],
        codes.map((code) => (E2M1[code] ?? 0) / 16),
      );
  }
}

function blockOf(type: OddType, random: SeededRandom): Block {
  if (isSmall(type)) return small(type, random);
  switch (type) {
    case 'Q4_K':
      return q4k(random);
    case 'Q6_K':
      return q6k(random);
    case 'NVFP4':
      return nvfp4(random);
    case 'F32': {
      const value = (random.int(257) - 128) / 512;
      return { bytes: new Uint8Array(Float32Array.of(value).buffer), values: [value] };
    }
    case 'BF16': {
      const value = (random.int(257) - 128) / 512;
      return { bytes: new Uint8Array(Float32Array.of(value).buffer).slice(2), values: [value] };
    }
    case 'F16': {
      const { bits, value } = half(random);
      const negative = random.int(2);
      return block([bits[0], bits[1] | (negative << 7)], [negative === 1 ? -value : value]);
    }
  }
}

/** A matrix of this type, rows of whole blocks. */
export function oddMatrix(type: OddType, rows: number, columns: number, random: SeededRandom): OddMatrix {
  const blocks: Block[] = [];
  for (let values = 0; values < rows * columns; values += blocks[0]?.values.length ?? 1)
    blocks.push(blockOf(type, random));
  return {
    data: Buffer.concat(blocks.map(({ bytes }) => bytes)),
    values: Float32Array.from(blocks.flatMap(({ values }) => [...values])),
  };
}
