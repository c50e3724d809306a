import { gaussianValues } from '../codec/measure-codecs.js';

/** Weights that are looked at, bytes. */
const SAMPLE_BYTES = 4 * 1024 ** 2;
const VALUE_BITS = 16;
const MANTISSA_BITS = 7;
const EXPONENT_MASK = 0xff;
const MANTISSA_MASK = 0x7f;

export interface WeightStatistics {
  /** Entropies of a weight's exponent and mantissa. */
  exponentBits: number;
  mantissaBits: number;
  /** Of plain BF16, what weights take whose exponents take their entropy (no code takes less). */
  storedShare: number;
}

/** Of normally distributed BF16 weights, which stand for trained ones. */
export function weightStatistics(): WeightStatistics {
  const { values } = gaussianValues(SAMPLE_BYTES);
  const exponents = new Array<number>(EXPONENT_MASK + 1).fill(0);
  const mantissas = new Array<number>(MANTISSA_MASK + 1).fill(0);
  const view = new DataView(values.buffer, values.byteOffset, values.byteLength);
  for (let offset = 0; offset < values.byteLength; offset += 2) {
    const bits = view.getUint16(offset, true);
    const exponent = (bits >> MANTISSA_BITS) & EXPONENT_MASK;
    const mantissa = bits & MANTISSA_MASK;
    exponents[exponent] = (exponents[exponent] ?? 0) + 1;
    mantissas[mantissa] = (mantissas[mantissa] ?? 0) + 1;
  }
  const exponentBits = entropy(exponents);
  const storedShare = (VALUE_BITS - 8 + exponentBits) / VALUE_BITS;
  return { exponentBits, mantissaBits: entropy(mantissas), storedShare };
}

function entropy(counts: readonly number[]): number {
  const all = counts.reduce((sum, count) => sum + count, 0);
  return counts.reduce((bits, count) => (count === 0 ? bits : bits - (count / all) * Math.log2(count / all)), 0);
}
