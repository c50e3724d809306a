/**
 * Elementary functions by additions, multiplications and divisions alone. IEEE 754 pins these, so the bits are the same under every version of
 * Node and on every processor. No standard pins Math.exp, Math.log and Math.pow. Use these functions for decisions; the numbers of an answer are
 * computed by the native core alone. Results are within a few units in the last place.
 */

const LN_2 = 0.6931471805599453;
/** LN_2 in two parts. The first part has so few bits that its multiples are exact. */
const LN_2_HIGH = 0.693147180369123816490173339844;
const LN_2_LOW = 1.9082149292705877e-10;
const SQRT_HALF = 0.7071067811865476;
/** Most terms of each series that still change a double. */
const EXPONENTIAL_TERMS = 14;
const LOGARITHM_TERMS = 12;
/** Beyond these the result is 0 or infinite. */
const LOWEST_EXPONENT = -746;
const HIGHEST_EXPONENT = 710;

/** After this many doublings or halvings any finite number is infinite or 0. */
const MOST_DOUBLINGS = 2200;

/** e to the power of x. */
export function exponential(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x <= LOWEST_EXPONENT) return 0;
  if (x >= HIGHEST_EXPONENT) return Infinity;
  const halvings = Math.round(x / LN_2);
  const rest = x - halvings * LN_2_HIGH - halvings * LN_2_LOW;
  let sum = 1;
  for (let term = EXPONENTIAL_TERMS; term >= 1; term -= 1) sum = 1 + (rest / term) * sum;
  return timesPowerOfTwo(sum, halvings);
}

/** The natural logarithm. */
export function logarithm(x: number): number {
  if (!(x > 0)) return x === 0 ? -Infinity : NaN;
  if (x === Infinity) return Infinity;
  let doublings = 0;
  let mantissa = x;
  for (; mantissa >= 2 * SQRT_HALF; mantissa /= 2) doublings += 1;
  for (; mantissa < SQRT_HALF; mantissa *= 2) doublings -= 1;
  // log(m) = 2 artanh(z)
  const z = (mantissa - 1) / (mantissa + 1);
  let sum = 0;
  for (let term = LOGARITHM_TERMS; term >= 0; term -= 1) sum = sum * z * z + 1 / (2 * term + 1);
  return doublings * LN_2_HIGH + (2 * z * sum + doublings * LN_2_LOW);
}

/** `base` to the power of `exponent`, for a base of at least 0. 0 to a positive power is 0. */
export function power(base: number, exponent: number): number {
  if (exponent === 0) return 1;
  return base === 0 ? (exponent > 0 ? 0 : Infinity) : exponential(exponent * logarithm(base));
}

/** x * 2^exponent, for a whole exponent. */
export function timesPowerOfTwo(x: number, exponent: number): number {
  const steps = Math.max(-MOST_DOUBLINGS, Math.min(MOST_DOUBLINGS, exponent));
  let result = x;
  for (let left = steps; left > 0; left -= 1) result *= 2;
  for (let left = steps; left < 0; left += 1) result /= 2;
  return result;
}
