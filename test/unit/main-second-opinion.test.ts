import assert from 'node:assert/strict';
import fc from 'fast-check';
import { judge, sameValues, type Verdict } from '../../main-node/pass/second-opinion.js';
import { allFinite } from '../../native/index.js';

/** FP32 values by their bits, at an address that is not aligned. */
function valuesOf(bits: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(1 + 4 * bits.length).subarray(1);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  bits.forEach((value, place) => view.setUint32(4 * place, value, true));
  return bytes;
}

const ONE = 0x3f800000;
const TWO = 0x40000000;
const NAN = 0x7fc00000;
const OTHER_NAN = 0xffc00001;
const INFINITY = 0x7f800000;
const MINUS_INFINITY = 0xff800000;

describe('main: a second opinion on non-finite values', () => {
  const cases: readonly [what: string, opinions: readonly (readonly number[])[], verdict: Verdict][] = [
    ['only the first worker has been asked', [[NAN]], 'open'],
    ['the second worker gives numbers, so that the first has lied', [[NAN], [ONE]], 'believed'],
    [
      'the second worker gives the same, so that the model is the cause',
      [
        [ONE, INFINITY],
        [ONE, INFINITY],
      ],
      'agreed',
    ],
    [
      'both give NaNs of different bits, as processors and GPUs do',
      [
        [NAN, ONE],
        [OTHER_NAN, ONE],
      ],
      'agreed',
    ],
    ['one gives an infinity and the other a NaN', [[NAN], [INFINITY]], 'open'],
    ['the infinities have different signs', [[INFINITY], [MINUS_INFINITY]], 'open'],
    [
      'numbers beside the NaN differ',
      [
        [NAN, ONE],
        [NAN, TWO],
      ],
      'open',
    ],
    ['the third worker gives numbers, so that both others have lied', [[NAN], [INFINITY], [ONE]], 'believed'],
    ['the third worker agrees with the first', [[NAN], [INFINITY], [NAN]], 'agreed'],
    ['the third worker agrees with the second', [[NAN], [INFINITY], [INFINITY]], 'agreed'],
    ['the values of three workers differ', [[NAN], [INFINITY], [MINUS_INFINITY]], 'open'],
  ];
  for (const [what, opinions, verdict] of cases) {
    it(`the verdict on non-finite values is '${verdict}' when ${what}`, () => {
      const given = opinions.map((bits, worker) => ({ workerId: `w${worker}`, output: valuesOf(bits) }));
      assert.equal(judge(given), verdict);
    });
  }

  const anyBits = fc.array(
    fc.oneof(fc.constantFrom(ONE, NAN, OTHER_NAN, INFINITY, 0, 0x80000000), fc.integer({ min: 0, max: 2 ** 32 - 1 })),
    { maxLength: 9 },
  );

  it('checks for finite values as JavaScript does, at any address', () => {
    fc.assert(
      fc.property(anyBits, (bits) => {
        const bytes = valuesOf(bits);
        const view = new DataView(bytes.buffer, bytes.byteOffset);
        const expected = bits.every((_, place) => Number.isFinite(view.getFloat32(4 * place, true)));
        assert.equal(allFinite(bytes), expected);
      }),
    );
  });

  it('considers values equal to themselves, and to others that differ only in the bits of a NaN', () => {
    fc.assert(
      fc.property(anyBits, anyBits, (left, right) => {
        const [one, other] = [valuesOf(left), valuesOf(right)];
        assert.ok(sameValues(one, one.slice()));
        const isNaNAt = (bits: readonly number[], place: number): boolean =>
          Number.isNaN(new DataView(valuesOf(bits).buffer, 1).getFloat32(4 * place, true));
        const expected =
          left.length === right.length &&
          left.every((bits, place) => bits === right[place] || (isNaNAt(left, place) && isNaNAt(right, place)));
        assert.equal(sameValues(one, other), expected);
        assert.equal(sameValues(other, one), expected);
      }),
    );
  });
});
