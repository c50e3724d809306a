import { machineOf, type ByteMachine } from './byte-machine.js';

/** A number: digits times 10^-fractionDigits. */
export interface Decimal {
  digits: bigint;
  fractionDigits: number;
}

const [MINUS, POINT, ZERO] = [0x2d, 0x2e, 0x30];

/** The shortest decimal that reads as the double, or the integer itself. */
export function decimalOf(value: number | bigint): Decimal {
  if (typeof value === 'bigint') return { digits: value, fractionDigits: 0 };
  const [mantissa = '0', exponent = '0'] = String(value).split('e');
  const [whole = '0', fraction = ''] = mantissa.split('.');
  const fractionDigits = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  if (fractionDigits >= 0) return { digits, fractionDigits };
  return { digits: digits * tenTimes(-fractionDigits), fractionDigits: 0 };
}

/** 10 to a power. */
export function tenTimes(power: number): bigint {
  return BigInt(`1${'0'.repeat(power)}`);
}

export function isMultiple(value: Decimal, of: Decimal): boolean {
  const [whole, step] = inOneUnit(value, of);
  return whole % step === 0n;
}

/** The least number that is a multiple of both. */
export function commonMultiple(one: Decimal, other: Decimal): Decimal {
  const [first, second] = inOneUnit(one, other);
  let [divisor, rest] = [first, second];
  while (rest > 0n) [divisor, rest] = [rest, divisor % rest];
  let [digits, fractionDigits] = [(first / divisor) * second, Math.max(one.fractionDigits, other.fractionDigits)];
  for (; fractionDigits > 0 && digits % 10n === 0n; fractionDigits--) digits /= 10n;
  return { digits, fractionDigits };
}

function inOneUnit(one: Decimal, other: Decimal): [bigint, bigint] {
  const fractionDigits = Math.max(one.fractionDigits, other.fractionDigits);
  const inUnit = ({ digits, fractionDigits: own }: Decimal): bigint => digits * tenTimes(fractionDigits - own);
  return [inUnit(one), inUnit(other)];
}

/**
 * Accepts numbers without exponents that are multiples of a positive decimal. It checks digits alone, so it also accepts texts that are no
 * numbers. It has about `digits` states for each digit behind the point.
 */
export function multiplesMachine({ digits, fractionDigits }: Decimal): ByteMachine {
  const step = Number(digits);
  /** `rest`: the digits so far as one whole number, modulo `step`. `behind`: digits behind the point; -1: no point yet. */
  interface Place {
    rest: number;
    behind: number;
  }
  const missingFactor = (behind: number): number => Number(tenTimes(fractionDigits - Math.max(0, behind)) % digits);
  return machineOf<Place>({
    start: { rest: 0, behind: -1 },
    key: ({ rest, behind }) => `${rest} ${behind}`,
    isFinal: ({ rest, behind }) => (rest * missingFactor(behind)) % step === 0,
    edges: ({ rest, behind }) => {
      const edges: { low: number; high: number; target: Place }[] = [];
      const one = (byte: number, target: Place): void => void edges.push({ low: byte, high: byte, target });
      if (behind < 0) {
        one(MINUS, { rest, behind });
        if (fractionDigits > 0) one(POINT, { rest, behind: 0 });
      }
      if (behind < fractionDigits) {
        const next = behind < 0 ? behind : behind + 1;
        for (let digit = 0; digit < 10; digit++) one(ZERO + digit, { rest: (rest * 10 + digit) % step, behind: next });
      }
      return edges;
    },
  });
}
