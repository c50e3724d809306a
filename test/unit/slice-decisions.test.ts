import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  isCritical,
  renormalizedWeights,
  thresholdOfShare,
} from '../../shared/decisions/slices/critical-executions.js';
import { measuredThresholds } from '../../shared/decisions/slices/plan-readings.js';

const weight = fc.float({ min: 0, max: 1, noNaN: true });

describe('critical executions', () => {
  it('have a weight of at least theta after the division by the sum of the row, in FP32', () => {
    const renormalized = renormalizedWeights(Float32Array.of(0.6, 0.2, 0.1, 0.1), 2);
    const sum = Math.fround(Math.fround(0.6) + Math.fround(0.2));
    assert.equal(renormalized[0], Math.fround(Math.fround(0.6) / sum));
    assert.deepEqual([...renormalized.subarray(2)], [0.5, 0.5]);
    assert.deepEqual(
      [...renormalized].map((one) => isCritical(one, 0.5)),
      [true, false, true, true],
    );
  });

  it('do not depend on the scale of the weights of a row, if that is a power of two', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(weight, weight, weight), { minLength: 1, maxLength: 20 }), (rows) => {
        const weights = Float32Array.from(rows.flat().map((one) => (one < 2 ** -60 ? 0 : one)));
        assert.deepEqual(
          renormalizedWeights(
            weights.map((one) => one * 4),
            3,
          ),
          renormalizedWeights(weights, 3),
        );
      }),
    );
  });

  it('are none in a row whose weights are all 0', () => {
    const renormalized = renormalizedWeights(Float32Array.of(0, 0, 0.5, 0.5), 2);
    assert.deepEqual(
      [...renormalized].map((one) => isCritical(one, 0)),
      [false, false, true, true],
    );
    assert.deepEqual(thresholdOfShare(renormalized, 0.9), { theta: 0.5, share: 0.5 });
  });

  it('have the higher of two thresholds that are equally near to the wanted share', () => {
    const renormalized = Float32Array.of(0.25, 0.75, 0.5, 1);
    assert.deepEqual(thresholdOfShare(renormalized, 0.375), { theta: 1, share: 0.25 });
    assert.deepEqual(thresholdOfShare(renormalized, 0.625), { theta: 0.75, share: 0.5 });
    assert.deepEqual(thresholdOfShare(renormalized, 0.63), { theta: 0.5, share: 0.75 });
  });

  it('have a threshold for every twentieth of them, each listed once with the share that it really has', () => {
    const even = measuredThresholds(Float32Array.from({ length: 100 }, (_, index) => (index + 1) / 128));
    assert.deepEqual(
      even.map(({ critical }) => critical),
      Array.from({ length: 19 }, (_, index) => (index + 1) / 20),
    );
    assert.deepEqual(even[5], { critical: 0.3, theta: 71 / 128 });
    assert.deepEqual(measuredThresholds(Float32Array.of(0.25, 0.25, 0.75)), [{ critical: 0.333333, theta: 0.75 }]);
  });

  it('have no threshold where it would make all executions critical, or none can be compared', () => {
    for (const weights of [[1, 1, 1], [NaN, NaN], []])
      assert.deepEqual(measuredThresholds(Float32Array.from(weights)), []);
  });

  it('are nearer to the wanted share by the measured threshold than by any other', () => {
    const weights = fc.array(fc.oneof(weight, fc.constantFrom(0.25, 0.5, 0.75)), { minLength: 1, maxLength: 60 });
    fc.assert(
      fc.property(weights, fc.double({ min: 0, max: 1, noNaN: true }), (given, wanted) => {
        const renormalized = Float32Array.from(given);
        const shareOf = (theta: number): number =>
          renormalized.filter((one) => isCritical(one, theta)).length / renormalized.length;
        const { theta, share: measured } = thresholdOfShare(renormalized, wanted);
        assert.ok(renormalized.includes(theta));
        assert.equal(measured, shareOf(theta));
        for (const other of renormalized) {
          const [own, others] = [measured, shareOf(other)].map((one) => Math.abs(one - wanted)) as [number, number];
          assert.ok(own <= others);
          // The higher of two thresholds that are equally near.
          if (own === others) assert.ok(theta >= other, `${theta} for ${other}`);
        }
      }),
    );
  });
});
