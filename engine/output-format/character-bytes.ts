import { sequencesMachine, type ByteMachine, type ByteSet } from './byte-machine.js';
import { codePointsOf, intersection, type CodePoints } from './code-points.js';

/** Ranges of code points by the length of their UTF-8: 1 to 4 bytes. */
const UTF8_LENGTHS: readonly (readonly [number, number])[] = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, 0x10ffff],
];
const CONTINUATION_BITS = 6;

/** Characters that need no escape in a JSON string: all except control characters, the quotation mark and the backslash. */
const PLAIN_IN_JSON: CodePoints = [
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5d, 0x10ffff],
];
const SHORT_ESCAPES: readonly (readonly [number, string])[] = [
  [0x22, '"'],
  [0x5c, '\\'],
  [0x2f, '/'],
  [0x08, 'b'],
  [0x0c, 'f'],
  [0x0a, 'n'],
  [0x0d, 'r'],
  [0x09, 't'],
];
const BACKSLASH: ByteSet = [[0x5c, 0x5c]];
const LETTER_U: ByteSet = [[0x75, 0x75]];

/** Accepts one of the characters in the forms of a JSON string: in UTF-8, or escaped. */
export function jsonCharacterMachine(set: CodePoints): ByteMachine {
  const escapes = SHORT_ESCAPES.filter(([codePoint]) =>
    set.some(([low, high]) => low <= codePoint && codePoint <= high),
  );
  return sequencesMachine([
    ...utf8Sequences(intersection(set, PLAIN_IN_JSON)),
    ...escapes.map(([, letter]): ByteSet[] => [BACKSLASH, [[letter.charCodeAt(0), letter.charCodeAt(0)]]]),
    ...numericEscapes(set),
  ]);
}

/** Accepts one of the characters in UTF-8. */
export function plainCharacterMachine(set: CodePoints): ByteMachine {
  return sequencesMachine(utf8Sequences(set));
}

/** UTF-8 of the characters, as sequences of byte sets. */
export function utf8Sequences(set: CodePoints): ByteSet[][] {
  return UTF8_LENGTHS.flatMap((range, index) => {
    const lead = index === 0 ? 0 : (0xf00 >> (index + 1)) & 0xff;
    return intersection(set, [range]).flatMap(([low, high]) =>
      digitSequences(low, high, index, CONTINUATION_BITS).map((digits) =>
        digits.map(([first, last], place): ByteSet => {
          const mark = place === 0 ? lead : 0x80;
          return [[mark + first, mark + last]];
        }),
      ),
    );
  });
}

/** Escapes \uXXXX, and pairs of them for characters above U+FFFF. */
function numericEscapes(set: CodePoints): ByteSet[][] {
  const single = intersection(set, [[0, 0xffff]]).flatMap(([low, high]) => escapedUnits(low, high));
  const pairs = intersection(set, [[0x10000, 0x10ffff]]).flatMap(([low, high]) =>
    digitSequences(low - 0x10000, high - 0x10000, 1, 10).flatMap(([lead, trail]) => {
      if (lead === undefined || trail === undefined) return [];
      const leads = escapedUnits(0xd800 + lead[0], 0xd800 + lead[1]);
      const trails = escapedUnits(0xdc00 + trail[0], 0xdc00 + trail[1]);
      return leads.flatMap((first) => trails.map((second) => [...first, ...second]));
    }),
  );
  return [...single, ...pairs];
}

function escapedUnits(low: number, high: number): ByteSet[][] {
  return digitSequences(low, high, 3, 4).map((digits) => [
    BACKSLASH,
    LETTER_U,
    ...digits.map(([first, last]) => hexadecimal(first, last)),
  ]);
}

/** Hexadecimal digits from first to last, in upper and lower case. */
function hexadecimal(first: number, last: number): ByteSet {
  const ranges: [number, number][] = [];
  if (first < 10) ranges.push([0x30 + first, 0x30 + Math.min(last, 9)]);
  if (last >= 10) {
    const from = Math.max(first, 10) - 10;
    ranges.push([0x41 + from, 0x41 + last - 10], [0x61 + from, 0x61 + last - 10]);
  }
  return codePointsOf(ranges);
}

/** The numbers from low to high as digits of `bits` bits (`rest`: number of digits after the first), with a range for each digit. */
function digitSequences(low: number, high: number, rest: number, bits: number): (readonly [number, number])[][] {
  if (rest === 0) return [[[low, high]]];
  const unit = 1 << (rest * bits);
  const [first, last] = [Math.floor(low / unit), Math.floor(high / unit)];
  const [lowRest, highRest] = [low % unit, high % unit];
  const full = unit - 1;
  const behind = (digit: readonly [number, number], from: number, to: number): (readonly [number, number])[][] =>
    digitSequences(from, to, rest - 1, bits).map((digits) => [digit, ...digits]);
  if (first === last) return behind([first, first], lowRest, highRest);
  if (lowRest > 0)
    return [...behind([first, first], lowRest, full), ...digitSequences((first + 1) * unit, high, rest, bits)];
  if (highRest < full) {
    return [...digitSequences(low, last * unit - 1, rest, bits), ...behind([last, last], 0, highRest)];
  }
  return behind([first, last], 0, full);
}
