import { commonMachine, machineOf, textsMachine, type ByteMachine } from './byte-machine.js';
import { decimalOf, isMultiple, multiplesMachine, tenTimes, type Decimal } from './number-multiples.js';

/** Numbers that a schema accepts; absent bounds are infinite. A bound is a `bigint` if it is an integer that no double can represent. */
export interface NumberRule {
  isInteger: boolean;
  least: number | bigint;
  isLeastExcluded: boolean;
  most: number | bigint;
  isMostExcluded: boolean;
  /** The number is a multiple of this one; null: any. It is whole if `isInteger`, and not whole otherwise. */
  multipleOf: Decimal | null;
}

export const ANY_NUMBER: NumberRule = {
  isInteger: false,
  least: -Infinity,
  isLeastExcluded: false,
  most: Infinity,
  isMostExcluded: false,
  multipleOf: null,
};

/** Digits before the point when no bound asks for more: such integers are exact in a double. */
const WHOLE_DIGITS = 15;
/** Digits after the point, and digits of an exponent. */
const FRACTION_DIGITS = 17;
const EXPONENT_DIGITS = 2;

const [MINUS, PLUS, POINT, ZERO] = [0x2d, 0x2b, 0x2e, 0x30];

/** Accepts the JSON numbers of the rule, each of limited length. Exponents are written only if there is no bound. */
export function numberMachine(rule: NumberRule): ByteMachine {
  if (isUnbounded(rule)) return anyNumberMachine();
  const range = decimalRange(rule);
  if (range === null) return textsMachine([]);
  const { multipleOf } = rule;
  return multipleOf === null
    ? decimalMachine(range)
    : commonMachine(decimalMachine(range), multiplesMachine(multipleOf));
}

/** True if `numberMachine` accepts any number. This takes much less work. */
export function hasNumber(rule: NumberRule): boolean {
  if (isUnbounded(rule)) return true;
  const range = decimalRange(rule);
  if (range === null || rule.multipleOf === null) return range !== null;
  const { digits, fractionDigits } = rule.multipleOf;
  const step = digits * tenTimes(Math.max(0, range.fractionDigits - fractionDigits));
  const behindLow = range.low % step;
  return range.low + (behindLow > 0n ? step - behindLow : -behindLow) <= range.high;
}

function isUnbounded({ isInteger, least, most, multipleOf }: NumberRule): boolean {
  return !isInteger && least === -Infinity && most === Infinity && multipleOf === null;
}

export function isInNumberRule(value: number | bigint, rule: NumberRule): boolean {
  if (rule.isInteger && typeof value === 'number' && !Number.isInteger(value)) return false;
  if (rule.multipleOf !== null && !isMultiple(decimalOf(value), rule.multipleOf)) return false;
  if (rule.isLeastExcluded ? value <= rule.least : value < rule.least) return false;
  return rule.isMostExcluded ? value < rule.most : value <= rule.most;
}

/** Whole numbers in units of 10^-fractionDigits. */
interface DecimalRange {
  low: bigint;
  high: bigint;
  fractionDigits: number;
}

/**
 * The decimals whose doubles obey the rule, or for integers the integers that obey it; null: none. Rounding to doubles keeps the order, so
 * bounds that are doubles stay valid.
 */
function decimalRange(rule: NumberRule): DecimalRange | null {
  const least = endOf(rule.least, rule.isLeastExcluded ? 1 : 0, rule.isInteger);
  const most = endOf(rule.most, rule.isMostExcluded ? -1 : 0, rule.isInteger);
  if (!(least <= most)) return null;
  const digitsOfBounds = [least, most]
    .filter((bound) => Number.isFinite(bound))
    .map((bound) => decimalOf(bound).fractionDigits);
  for (const fractionDigits of rule.isInteger ? [0] : [FRACTION_DIGITS, ...digitsOfBounds]) {
    const low = least === -Infinity ? null : scaled(least, fractionDigits, 'up');
    const high = most === Infinity ? null : scaled(most, fractionDigits, 'down');
    if (low === null || high === null || low <= high) {
      return rule.multipleOf === null
        ? shortNumbers(low, high, fractionDigits)
        : exactNumbers(low, high, fractionDigits, rule.multipleOf);
    }
  }
  return null;
}

/** The numbers between the bounds (null: no bound) that doubles hold with all the digits of a multiple; null: there are none. */
function exactNumbers(
  low: bigint | null,
  high: bigint | null,
  fractionDigits: number,
  multipleOf: Decimal,
): DecimalRange | null {
  const last = tenTimes(WHOLE_DIGITS - multipleOf.fractionDigits + fractionDigits) - 1n;
  const range = {
    low: low === null || low < -last ? -last : low,
    high: high === null || high > last ? last : high,
    fractionDigits,
  };
  return range.low <= range.high ? range : null;
}

/** An end of a range: the neighbour of the bound (1: above, -1: below) or the bound itself (0). */
function endOf(bound: number | bigint, beside: 1 | 0 | -1, isInteger: boolean): number | bigint {
  if (typeof bound === 'bigint' && isInteger) return bound + BigInt(beside);
  return beside === 0 ? Number(bound) : doubleBeside(Number(bound), beside);
}

/** The numbers between the bounds (null: no bound) with up to WHOLE_DIGITS digits; if all are longer, some of the shortest. */
function shortNumbers(low: bigint | null, high: bigint | null, fractionDigits: number): DecimalRange {
  const usual = tenTimes(WHOLE_DIGITS + fractionDigits) - 1n;
  const last = scaled(Number.MAX_VALUE, fractionDigits, 'down');
  const within = (value: bigint | null, least: bigint, most: bigint, open: bigint): bigint =>
    value === null ? open : value < least ? least : value > most ? most : value;
  if (low !== null && low > usual) {
    const most = low * 10n < last ? low * 10n : last;
    return { low, high: within(high, low, most, most), fractionDigits };
  }
  if (high !== null && high < -usual) {
    const least = high * 10n > -last ? high * 10n : -last;
    return { low: within(low, least, high, least), high, fractionDigits };
  }
  return { low: within(low, -usual, usual, -usual), high: within(high, -usual, usual, usual), fractionDigits };
}

/** The next double above (1) or below (-1). */
function doubleBeside(value: number, direction: 1 | -1): number {
  if (!Number.isFinite(value)) return value;
  if (value === 0) return direction * Number.MIN_VALUE;
  const bits = new BigInt64Array(new Float64Array([value]).buffer);
  const step = value > 0 === direction > 0 ? 1n : -1n;
  const beside = new Float64Array(new BigInt64Array([(bits[0] ?? 0n) + step]).buffer);
  return beside[0] ?? value;
}

function scaled(value: number | bigint, fractionDigits: number, rounding: 'up' | 'down'): bigint {
  const decimal = decimalOf(value);
  const more = fractionDigits - decimal.fractionDigits;
  if (more >= 0) return decimal.digits * tenTimes(more);
  const divisor = tenTimes(-more);
  const quotient = decimal.digits / divisor;
  const rest = decimal.digits % divisor;
  if (rest > 0n && rounding === 'up') return quotient + 1n;
  return rest < 0n && rounding === 'down' ? quotient - 1n : quotient;
}

/** The position in a number that is being written. */
type DigitPlace = BoundedPlace | FreePlace;

/** The digits so far equal those of one or both ends of the range: the next digit must not go beyond that end's digit. */
interface BoundedPlace {
  /** Digits of the ends, with equal lengths; `whole` of them are before the point. */
  range: { low: string; high: string; whole: number; sign: '+' | '-' };
  place: number;
  isLow: boolean;
  isHigh: boolean;
  isBehindPoint: boolean;
}

/** Any digits may follow. */
interface FreePlace {
  /** Least and most digits that still follow before the point. */
  least: number;
  most: number;
  /** Digits that may still follow after the point; null: no point has been written. */
  fraction: number | null;
  /** The first digit of a number with several digits must not be zero. */
  isFirst: boolean;
}

function decimalMachine({ low, high, fractionDigits }: DecimalRange): ByteMachine {
  const positive = high < 0n ? [] : digitPlaces('+', low > 0n ? low : 0n, high, fractionDigits);
  // Never "-0": a negative number has a digit that is not zero.
  const negative = low >= 0n ? [] : digitPlaces('-', high < 0n ? -high : 1n, -low, fractionDigits);
  const canEnd = (place: DigitPlace): boolean =>
    'range' in place
      ? boundedCanEnd(place)
      : !place.isFirst && place.least === 0 && (place.fraction === null || place.fraction < fractionDigits);
  return machineOf<{ places: readonly DigitPlace[]; isFirst: boolean }>({
    start: { places: positive, isFirst: true },
    key: ({ places, isFirst }) => (isFirst ? 'first' : places.map(placeKey).sort().join(' ')),
    isFinal: ({ places, isFirst }) => !isFirst && places.some(canEnd),
    edges: ({ places, isFirst }) => {
      const edges = [];
      for (let digit = 0; digit < 10; digit++) {
        const next = places.flatMap((place) =>
          'range' in place ? boundedBehind(place, digit, fractionDigits) : freeBehind(place, digit),
        );
        const target = { places: distinct(next), isFirst: false };
        if (next.length > 0) edges.push({ low: ZERO + digit, high: ZERO + digit, target });
      }
      const behindPoint =
        isFirst || fractionDigits === 0 ? [] : places.flatMap((place) => pointBehind(place, fractionDigits));
      if (behindPoint.length > 0)
        edges.push({ low: POINT, high: POINT, target: { places: behindPoint, isFirst: false } });
      if (isFirst && negative.length > 0) {
        edges.push({ low: MINUS, high: MINUS, target: { places: negative, isFirst: false } });
      }
      return edges;
    },
  });
}

/** The numbers from low to high (neither is negative), by their number of digits before the point. */
function digitPlaces(sign: '+' | '-', low: bigint, high: bigint, fractionDigits: number): DigitPlace[] {
  const wholeOf = (value: bigint): number => Math.max(1, value.toString().length - fractionDigits);
  const [least, most] = [wholeOf(low), wholeOf(high)];
  const places: DigitPlace[] = [];
  for (const whole of new Set([least, most])) {
    const length = whole + fractionDigits;
    const first = whole === 1 ? 0n : tenTimes(length - 1);
    const last = tenTimes(length) - 1n;
    const range = {
      low: (low > first ? low : first).toString().padStart(length, '0'),
      high: (high < last ? high : last).toString().padStart(length, '0'),
      whole,
      sign,
    };
    places.push({ range, place: 0, isLow: true, isHigh: true, isBehindPoint: false });
  }
  if (most - least > 1) places.push({ least: least + 1, most: most - 1, fraction: null, isFirst: true });
  return places;
}

function placeKey(place: DigitPlace): string {
  if (!('range' in place)) return `${place.least} ${place.most} ${place.fraction} ${place.isFirst}`;
  const { range, place: digits, isLow, isHigh, isBehindPoint } = place;
  return `${range.sign}${range.whole}/${digits}${isLow ? ' low' : ''}${isHigh ? ' high' : ''}${isBehindPoint ? ' point' : ''}`;
}

function distinct(places: readonly DigitPlace[]): DigitPlace[] {
  return [...new Map(places.map((place) => [placeKey(place), place])).values()];
}

function pointBehind(place: DigitPlace, fractionDigits: number): DigitPlace[] {
  if ('range' in place) {
    const isAtPoint = !place.isBehindPoint && place.place === place.range.whole;
    return isAtPoint ? [{ ...place, isBehindPoint: true }] : [];
  }
  const isAtPoint = place.fraction === null && place.least === 0 && !place.isFirst;
  return isAtPoint ? [{ least: 0, most: 0, fraction: fractionDigits, isFirst: false }] : [];
}

function freeBehind({ least, most, fraction, isFirst }: FreePlace, digit: number): DigitPlace[] {
  if (isFirst && digit === 0) return [];
  if (fraction !== null) return fraction > 0 ? [{ least, most, fraction: fraction - 1, isFirst: false }] : [];
  return most > 0 ? [{ least: Math.max(0, least - 1), most: most - 1, fraction, isFirst: false }] : [];
}

function boundedBehind(at: BoundedPlace, digit: number, fractionDigits: number): DigitPlace[] {
  const { range, place, isBehindPoint } = at;
  if (place >= range.low.length || (place >= range.whole && !isBehindPoint)) return [];
  const least = at.isLow ? Number(range.low[place]) : 0;
  const most = at.isHigh ? Number(range.high[place]) : 9;
  if (digit < least || digit > most) return [];
  const [isLow, isHigh] = [at.isLow && digit === least, at.isHigh && digit === most];
  if (isLow || isHigh) return [{ range, place: place + 1, isLow, isHigh, isBehindPoint }];
  const whole = Math.max(0, range.whole - place - 1);
  const fraction = isBehindPoint ? fractionDigits - (place + 1 - range.whole) : null;
  return [{ least: whole, most: whole, fraction, isFirst: false }];
}

/** True if omitted zeros complete the number; a point must have a digit after it. */
function boundedCanEnd({ range, place, isLow, isBehindPoint }: BoundedPlace): boolean {
  if (isBehindPoint ? place <= range.whole : place !== range.whole) return false;
  return !isLow || /^0*$/.test(range.low.slice(place));
}

type NumberPart = 'first' | 'zero' | 'whole' | 'point' | 'fraction' | 'letter' | 'sign' | 'exponent';

function anyNumberMachine(): ByteMachine {
  interface Place {
    part: NumberPart;
    digits: number;
    isNegative: boolean;
  }
  const ends: readonly NumberPart[] = ['zero', 'whole', 'fraction', 'exponent'];
  const limits = { whole: WHOLE_DIGITS, fraction: FRACTION_DIGITS, exponent: EXPONENT_DIGITS };
  const at = (part: NumberPart, digits = 0, isNegative = true): Place => ({ part, digits, isNegative });
  return machineOf<Place>({
    start: at('first', 0, false),
    key: ({ part, digits, isNegative }) => `${part} ${digits} ${part === 'first' ? isNegative : ''}`,
    isFinal: ({ part }) => ends.includes(part),
    edges: ({ part, digits, isNegative }) => {
      const edges: { low: number; high: number; target: Place }[] = [];
      const digit = (low: number, target: Place): void => void edges.push({ low: ZERO + low, high: ZERO + 9, target });
      const one = (byte: number, target: Place): void => void edges.push({ low: byte, high: byte, target });
      if (part === 'first') {
        one(ZERO, at('zero'));
        digit(1, at('whole', 1));
        if (!isNegative) one(MINUS, at('first'));
      }
      if ((part === 'whole' || part === 'fraction' || part === 'exponent') && digits < limits[part])
        digit(0, at(part, digits + 1));
      if (part === 'point') digit(0, at('fraction', 1));
      if (part === 'letter' || part === 'sign') digit(0, at('exponent', 1));
      if (part === 'letter') for (const sign of [PLUS, MINUS]) one(sign, at('sign'));
      if (part === 'zero' || part === 'whole') one(POINT, at('point'));
      if (part === 'zero' || part === 'whole' || part === 'fraction')
        for (const letter of [0x45, 0x65]) one(letter, at('letter'));
      return edges;
    },
  });
}
