/** Writes floats as Python does. */

/** Python writes a float with an exponent if its decimal exponent is at least EXPONENT_FROM or below EXPONENT_BELOW. */
const EXPONENT_FROM = 16;
const EXPONENT_BELOW = -4;

/** A float as repr() writes it: with the same digits as JavaScript, but other exponents. */
export function pythonFloat(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0';
  const [mantissa = '', exponentText = ''] = value.toExponential().split('e');
  const exponent = Number(exponentText);
  if (exponent < EXPONENT_BELOW || exponent >= EXPONENT_FROM) return `${mantissa}e${exponentOf(exponent)}`;
  const sign = value < 0 ? '-' : '';
  const digits = mantissa.replace(/[-.]/g, '');
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}

function exponentOf(exponent: number): string {
  return `${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
}

/** |value| * 10 ** places, rounded to an integer, half to even, without any error. `value` is finite. */
function scaled(value: number, places: number): bigint {
  let size = Math.abs(value);
  let twos = 0;
  while (!Number.isSafeInteger(size)) {
    const isLarge = size >= Number.MAX_SAFE_INTEGER;
    size = isLarge ? size / 2 : size * 2;
    twos += isLarge ? 1 : -1;
  }
  let top = BigInt(size);
  let bottom = 1n;
  if (twos > 0) top <<= BigInt(twos);
  else bottom <<= BigInt(-twos);
  const tens = BigInt(`1${'0'.repeat(Math.abs(places))}`);
  if (places > 0) top *= tens;
  else bottom *= tens;
  const whole = top / bottom;
  const twice = (top % bottom) * 2n;
  return twice > bottom || (twice === bottom && whole % 2n === 1n) ? whole + 1n : whole;
}

/** The absolute value with `places` digits after the point. `value` is finite. */
export function fixedDigits(value: number, places: number): string {
  const digits = scaled(value, places)
    .toString()
    .padStart(places + 1, '0');
  return places === 0 ? digits : `${digits.slice(0, -places)}.${digits.slice(-places)}`;
}

/** The first `count` digits of the absolute value, and the exponent of the first one. `value` is finite. */
function leadingDigits(value: number, count: number): { digits: string; exponent: number } {
  if (value === 0) return { digits: '0'.repeat(count), exponent: 0 };
  let exponent = Number(value.toExponential().split('e')[1]);
  for (;;) {
    const digits = scaled(value, count - 1 - exponent).toString();
    if (digits.length === count) return { digits, exponent };
    exponent += digits.length > count ? 1 : -1;
  }
}

/** The absolute value with an exponent, and `places` digits after the point. */
export function exponentDigits(value: number, places: number): string {
  const { digits, exponent } = leadingDigits(value, places + 1);
  return `${digits.slice(0, 1)}${places > 0 ? '.' : ''}${digits.slice(1)}e${exponentOf(exponent)}`;
}

/** The absolute value with `precision` digits in all, with an exponent if it is large or small, as %g does. `keepsZeros`: of the flag #. */
export function generalDigits(value: number, precision: number, keepsZeros = false): string {
  const count = Math.max(1, precision);
  const { exponent } = leadingDigits(value, count);
  const isFixed = exponent >= EXPONENT_BELOW && exponent < count;
  const text = isFixed ? fixedDigits(value, count - 1 - exponent) : exponentDigits(value, count - 1);
  if (keepsZeros || !text.includes('.')) return text;
  return text.replace(/\.?0+(?=e|$)/, '');
}

/** Python's round() of a float to `places` digits after the point. */
export function roundedFloat(value: number, places: number): number {
  if (!Number.isFinite(value) || value === 0 || places > 400) return value;
  if (places < -400) return value < 0 ? -0 : 0;
  const number = Number(`${scaled(value, places)}e${-places}`);
  return value < 0 ? -number : number;
}
