import assert from 'node:assert/strict';
import fc from 'fast-check';
import { exponential, logarithm, power } from '../../shared/base/arithmetic/elementary.js';

const isNear = (actual: number, expected: number, relative: number): boolean =>
  actual === expected || Math.abs(actual - expected) <= relative * Math.abs(expected);

describe('the elementary functions for decisions', () => {
  it('are close to the exact functions', () => {
    fc.assert(
      fc.property(fc.double({ min: -700, max: 700, noNaN: true }), (x) => {
        assert.ok(isNear(exponential(x), Math.exp(x), 1e-14), `exp(${x}) = ${exponential(x)}`);
      }),
    );
    fc.assert(
      fc.property(fc.double({ min: 1e-300, max: 1e300, noNaN: true }), (x) => {
        assert.ok(Math.abs(logarithm(x) - Math.log(x)) <= 1e-15 * Math.max(1, Math.abs(Math.log(x))) * 2, `log(${x})`);
      }),
    );
    fc.assert(
      fc.property(
        fc.double({ min: 1e-6, max: 1e6, noNaN: true }),
        fc.double({ min: -4, max: 4, noNaN: true }),
        (x, y) => {
          assert.ok(isNear(power(x, y), x ** y, 1e-13), `${x} ** ${y}`);
        },
      ),
    );
  });

  it('have the limits of the exact functions', () => {
    assert.deepEqual([exponential(0), exponential(-Infinity), exponential(Infinity)], [1, 0, Infinity]);
    assert.deepEqual([exponential(-800), exponential(800), exponential(NaN)], [0, Infinity, NaN]);
    assert.deepEqual([logarithm(1), logarithm(0), logarithm(Infinity), logarithm(-1)], [0, -Infinity, Infinity, NaN]);
    assert.deepEqual([power(0, 2), power(0, -1), power(7, 0), power(0, 0)], [0, Infinity, 1, 1]);
    assert.ok(logarithm(Number.MIN_VALUE) < -744);
  });

  it('have these very bits on every machine', () => {
    const bits = (x: number): string => new BigUint64Array(Float64Array.of(x).buffer)[0]?.toString(16) ?? '';
    assert.deepEqual(
      [bits(exponential(1.25)), bits(logarithm(10)), bits(power(3, 0.6))],
      ['400bec38edb0faf0', '40026bb1bbb55516', '3ffeee504bc32424'],
    );
  });
});
