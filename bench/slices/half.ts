/** Numbers as FP16 (IEEE 754 binary16). */

const LEAST_NORMAL = 2 ** -14;
const STEP_OF_DENORMALS = 2 ** -24;
const FRACTION_BITS = 10;
const BIAS = 15;

/** The bits of a number from 0 to 65504, rounded to nearest, ties to even. */
export function halfBitsOf(value: number): number {
  if (value < LEAST_NORMAL) return roundHalfToEven(value / STEP_OF_DENORMALS);
  const exponent = Math.floor(Math.log2(value));
  // log2 may round to the next integer just below a power of two.
  const power = 2 ** exponent > value ? exponent - 1 : exponent;
  const fraction = roundHalfToEven((value / 2 ** power - 1) * 2 ** FRACTION_BITS);
  // A fraction of 2^10 carries into the exponent.
  return ((power + BIAS) << FRACTION_BITS) + fraction;
}

/** The nearest integer; of two that are equally near, the even one. */
export function roundHalfToEven(value: number): number {
  const below = Math.floor(value);
  const above = value - below;
  if (above !== 0.5) return above < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}
