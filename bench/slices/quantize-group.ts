import { halfValue } from '../../packs/checkpoint/expert-biases.js';
import { halfBitsOf, roundHalfToEven } from './half.js';

/** Bits of a code, and of its upper slice: MAT(high, low) of SliceMoE, section 4.2. */
export interface SlicePair {
  readonly high: number;
  readonly low: number;
}

/** A group of weights as asymmetric codes: weight = scale * (code - zero). */
export interface AsymmetricCodes {
  readonly scale: number;
  readonly zero: number;
  readonly codes: readonly number[];
}

/** A group of weights as symmetric codes: weight = scale * code. */
export interface SymmetricCodes {
  readonly scale: number;
  readonly codes: readonly number[];
}

/** The scale as FP16, of an FP32 quotient. */
function scaleOf(range: number, most: number): number {
  return halfValue(halfBitsOf(Math.fround(Math.fround(range) / most)));
}

function within(value: number, lowest: number, highest: number): number {
  return Math.min(highest, Math.max(lowest, value));
}

/** The FP32 quotient of a weight and its scale, as an integer. */
function steps(weight: number, scale: number): number {
  return roundHalfToEven(Math.fround(weight / scale));
}

/** The codes of a group by native/include/odmoe/arithmetic.h ("slices of h bits"). */
export function asymmetricCodes(weights: readonly number[], bits: number): AsymmetricCodes {
  const most = 2 ** bits - 1;
  const lowest = Math.min(0, ...weights);
  const scale = scaleOf(Math.max(0, ...weights) - lowest, most);
  if (scale === 0) return { scale, zero: 0, codes: weights.map(() => 0) };
  const zero = within(steps(-lowest, scale), 0, most);
  return { scale, zero, codes: weights.map((weight) => within(steps(weight, scale) + zero, 0, most)) };
}

/** Codes from -(2^(bits - 1) - 1) to 2^(bits - 1) - 1 with the scale greatest magnitude / (2^(bits - 1) - 1). */
export function symmetricCodes(weights: readonly number[], bits: number): SymmetricCodes {
  const most = 2 ** (bits - 1) - 1;
  const scale = scaleOf(Math.max(...weights.map(Math.abs)), most);
  if (scale === 0) return { scale, codes: weights.map(() => 0) };
  return { scale, codes: weights.map((weight) => within(steps(weight, scale), -most, most)) };
}

/** A way to quantize a group: the values that stand in its place. Its name is as in the rows of `odmoe bench slices`. */
export interface QuantizedVariant {
  readonly name: string;
  readonly valuesOf: (weights: readonly number[]) => readonly number[];
}

/** Table 1, "Base": codes of as many bits, quantized directly. */
export function directVariants(bits: number): QuantizedVariant[] {
  return [
    {
      name: `sym${bits}`,
      valuesOf: (weights) => {
        const { scale, codes } = symmetricCodes(weights, bits);
        return codes.map((code) => scale * code);
      },
    },
    {
      name: `asym${bits}`,
      valuesOf: (weights) => {
        const { scale, zero, codes } = asymmetricCodes(weights, bits);
        return codes.map((code) => scale * (code - zero));
      },
    },
  ];
}

/**
 * The upper bits of a code alone, read in every way that table 1 may mean. `amat`: the zero loses its lower bits, too (the paper's rule).
 * `centred`: the middle of the codes with these upper bits. `asymtrunc`: the zero stays as it was. `symshift`: symmetric codes, shifted.
 * `symclip`: symmetric codes, limited to the range of the lower number of bits.
 */
export function truncatedVariants({ high, low }: SlicePair): QuantizedVariant[] {
  const shift = high - low;
  const step = 2 ** shift;
  const ofUpper = (name: string, value: (upper: number, zero: number) => number): QuantizedVariant => ({
    name: `${name}(${high},${low})`,
    valuesOf: (weights) => {
      const { scale, zero, codes } = asymmetricCodes(weights, high);
      return codes.map((code) => scale * value(code >> shift, zero));
    },
  });
  const ofSymmetric = (name: string, value: (code: number) => number): QuantizedVariant => ({
    name: `${name}(${high},${low})`,
    valuesOf: (weights) => {
      const { scale, codes } = symmetricCodes(weights, high);
      return codes.map((code) => scale * value(code));
    },
  });
  const most = 2 ** (low - 1) - 1;
  return [
    ofUpper('amat', (upper, zero) => step * (upper - (zero >> shift))),
    ofUpper('centred', (upper, zero) => upper * step + (step - 1) / 2 - zero),
    ofUpper('asymtrunc', (upper, zero) => step * (upper - zero)),
    ofSymmetric('symshift', (code) => step * (code >> shift)),
    ofSymmetric('symclip', (code) => within(code, -most, most)),
  ];
}
