import assert from 'node:assert/strict';
import fc from 'fast-check';
import { readGroup } from '../../bench/slices/sliced-rows.js';
import { SLICED_FORMS, VARIANTS } from '../../bench/slices/measure-slices.js';
import { asymmetricCodes, symmetricCodes } from '../../bench/slices/quantize-group.js';
import { sliceRows } from '../../native/index.js';
import { halfBitsOf, roundHalfToEven } from '../../bench/slices/half.js';
import { halfValue } from '../../packs/checkpoint/expert-biases.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';

const LARGEST_HALF = 65504;
const INFINITE_HALF = 0x7c00;

/** Weights as models have them, and groups of zeros, of one sign, of very small and of large values. */
const weights = fc
  .tuple(
    fc.array(fc.float({ min: -1, max: 1, noNaN: true }), { minLength: 1, maxLength: 100 }),
    fc.constantFrom(1, 1e-3, 1e-9, 1e4, 0),
    fc.constantFrom('both', 'positive', 'negative'),
  )
  .map(([values, factor, sign]) =>
    values.map((value) => {
      const scaled = Math.fround(value * factor);
      if (sign === 'both') return scaled;
      return sign === 'positive' ? Math.abs(scaled) : -Math.abs(scaled);
    }),
  );

function groupsOf(row: readonly number[]): number[][] {
  const count = Math.ceil(row.length / 32);
  return Array.from({ length: count }, (_, group) => row.slice(group * 32, group * 32 + 32));
}

function bytesOf(row: readonly number[]): Uint8Array {
  return new Uint8Array(Float32Array.from(row).buffer);
}

describe('FP16 numbers', () => {
  it('of every bit pattern have a value that has these bits again', () => {
    for (let bits = 0; bits < INFINITE_HALF; bits += 1) assert.equal(halfBitsOf(halfValue(bits)), bits);
    assert.equal(halfValue(INFINITE_HALF - 1), LARGEST_HALF);
    assert.equal(halfValue(0x3c00), 1);
  });

  it('are the nearest ones, and of two that are equally near the one with an even last bit', () => {
    const value = fc.oneof(
      fc.double({ min: 0, max: LARGEST_HALF, noNaN: true }),
      fc.double({ min: 0, max: 1e-4, noNaN: true }),
      fc.integer({ min: 0, max: INFINITE_HALF - 2 }).map((bits) => (halfValue(bits) + halfValue(bits + 1)) / 2),
    );
    fc.assert(
      fc.property(value, (given) => {
        const bits = halfBitsOf(given);
        const distance = (other: number): number => Math.abs(halfValue(other) - given);
        for (const other of [bits - 1, bits + 1]) {
          if (other < 0 || other >= INFINITE_HALF) continue;
          assert.ok(distance(bits) < distance(other) || (distance(bits) === distance(other) && bits % 2 === 0));
        }
      }),
    );
  });

  it('come from integers that are rounded half to even', () => {
    assert.deepEqual(
      [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4999].map(roundHalfToEven),
      [-2, -2, 0, 0, 2, 2, 2].map((n) => n + 0),
    );
  });
});

describe('the slices of a row', () => {
  for (const { split, pair, name } of SLICED_FORMS) {
    it(`${name} have the codes, scales and zeros of their definition`, () =>
      fc.assert(
        fc.asyncProperty(weights, async (row) => {
          const slices = await sliceRows([bytesOf(row)], 'none-fp32', 1, row.length, split);
          assert.deepEqual(
            slices.map(({ length }) => length),
            planeRowBytes(split, row.length),
          );
          for (const [group, values] of groupsOf(row).entries()) {
            const expected = asymmetricCodes(values, pair.high);
            const { scaleBits, zero, upper, lower } = readGroup(split, slices, row.length, group);
            assert.equal(halfValue(scaleBits), expected.scale);
            assert.equal(zero, expected.zero);
            const codes = upper.map((code, at) => code * 2 ** pair.low + (lower[at] ?? NaN));
            assert.deepEqual(codes, expected.codes);
          }
        }),
        { numRuns: 60 },
      ));

    it(`${name} are refused where a weight is not finite or a scale is beyond FP16, naming the row`, async () => {
      const sliced = (row: readonly number[]): Promise<unknown> =>
        sliceRows([bytesOf([...row.map(() => 0), ...row])], 'none-fp32', 2, row.length, split);
      for (const wrong of [NaN, Infinity, -Infinity]) {
        await assert.rejects(sliced([0.5, wrong]), { code: 'MODEL_UNSUPPORTED', message: /row 1 .*not finite/ });
      }
      await assert.rejects(sliced([0, 3e38]), { code: 'MODEL_UNSUPPORTED', message: /row 1 .*FP16 scale/ });
    });
  }
});

describe('the variants of table 1', () => {
  const valuesOf = (name: string, row: readonly number[]): readonly number[] => {
    const variant = VARIANTS.find((one) => one.name === name);
    assert.ok(variant !== undefined, name);
    return variant.valuesOf(row);
  };

  it('have a name each', () => {
    assert.equal(new Set(VARIANTS.map(({ name }) => name)).size, VARIANTS.length);
    assert.equal(VARIANTS.length, 25);
  });

  it('put a value within half a step of each weight where codes are direct', () => {
    fc.assert(
      fc.property(weights, fc.constantFrom(8, 6, 4, 3, 2), (row, bits) => {
        for (const group of groupsOf(row)) {
          // The rounding of the scale to FP16 counts once for each step.
          const { scale } = asymmetricCodes(group, bits);
          const most = scale + 2 ** bits * Math.max(scale * 2 ** -11, 2 ** -25);
          valuesOf(`asym${bits}`, group).forEach((value, at) => {
            assert.ok(scale === 0 || Math.abs(value - (group[at] ?? 0)) <= most, `${value} for ${group[at]}`);
          });
          const symmetric = symmetricCodes(group, bits);
          assert.ok(symmetric.codes.every((code) => Math.abs(code) < 2 ** (bits - 1)));
        }
      }),
    );
  });

  it('read the upper slice of a group in the way that their names say', () => {
    // Scale 1/16, zero 128: the codes of -8 and of 7.9375 are 0 and 255.
    const row = [-8, 7.9375, 0, 1];
    const { scale, zero, codes } = asymmetricCodes(row, 8);
    assert.deepEqual([scale, zero, codes], [1 / 16, 128, [0, 255, 128, 144]]);
    assert.deepEqual(valuesOf('amat(8,4)', row), [-8, 7, 0, 1]);
    assert.deepEqual(valuesOf('centred(8,4)', row), [-8 + 7.5 / 16, 7 + 7.5 / 16, 7.5 / 16, 1 + 7.5 / 16]);
    assert.deepEqual(valuesOf('asymtrunc(8,4)', row), [-128, -113, -120, -119]);
    const signed = [-127, 127, 8, -8].map((code) => code / 16);
    assert.deepEqual(symmetricCodes(signed, 8), { scale: 1 / 16, codes: [-127, 127, 8, -8] });
    assert.deepEqual(valuesOf('symshift(8,4)', signed), [-8, 7, 0, -1]);
    assert.deepEqual(valuesOf('symclip(8,4)', signed), [-7 / 16, 7 / 16, 7 / 16, -7 / 16]);
  });
});
