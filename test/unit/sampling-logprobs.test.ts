import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { logprobsOf } from '../../engine/sampling/log-probabilities.js';
import { logSumExp, tokenWeights } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TokenLogprob } from '../../shared/wire/messages.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';

const logprobOf = (logits: Float32Array, id: number): number => logprobsOf(logits, id, 1).logprob;
const topLogprobs = (logits: Float32Array, count: number): TokenLogprob[] => logprobsOf(logits, 0, count).top;

const logitsArbitrary = fc
  .array(fc.float({ min: -30, max: 30, noNaN: true }), { minLength: 1, maxLength: 50 })
  .map((values) => Float32Array.from(values));

describe('log-probabilities', () => {
  it('equal the logarithm of softmax', () => {
    const logits = Float32Array.of(Math.log(1), Math.log(2), Math.log(5));
    assert.ok(Math.abs(logprobOf(logits, 2) - Math.log(5 / 8)) < 1e-6);
    assert.ok(Math.abs(logprobOf(logits, 0) - Math.log(1 / 8)) < 1e-6);
  });

  it('add up to probability one over the whole vocabulary', () => {
    fc.assert(
      fc.property(logitsArbitrary, (logits) => {
        const sum = topLogprobs(logits, logits.length).reduce((total, { logprob }) => total + Math.exp(logprob), 0);
        assert.ok(Math.abs(sum - 1) < 1e-5);
      }),
    );
  });

  it('are sorted by likelihood, equal ones by id, and agree with logprobOf', () => {
    fc.assert(
      fc.property(logitsArbitrary, fc.integer({ min: 0, max: 60 }), (logits, count) => {
        const top = topLogprobs(logits, count);
        assert.equal(top.length, Math.min(count, logits.length));
        const sorted = [...logits.keys()].sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b);
        assert.deepEqual(
          top.map(({ tokenId }) => tokenId),
          sorted.slice(0, count),
        );
        for (const { tokenId, logprob } of top) assert.equal(logprob, logprobOf(logits, tokenId));
      }),
    );
  });

  it('do not overflow for large logits', () => {
    const logits = Float32Array.of(3e38, -3e38, 0);
    assert.equal(logprobOf(logits, 0), 0);
    assert.ok(logprobOf(logits, 1) < -1e38);
  });
});

describe('the softmax arithmetic of answers', () => {
  const VOCABULARY = 32_000;
  const logits = Float32Array.from({ length: VOCABULARY }, (_, id) => 8 * Math.sin(id * id));
  const highest = logits.reduce((left, right) => Math.max(left, right));

  it('has these very bits on every machine', () => {
    const values = Float32Array.of(0.5, -1.25, 3, -30);
    const bits = (floats: Float32Array): string[] =>
      [...new Uint32Array(floats.buffer)].map((word) => word.toString(16));
    assert.deepEqual(bits(tokenWeights(values, 3, 0.75)), ['3d121ee5', '3b62b6bb', '3f800000', '1fb7ba0f']);
    assert.deepEqual(bits(Float32Array.of(logSumExp(values, 3))), ['4045e318']);
  });

  it('is computed only on request', () => {
    assert.deepEqual(logprobsOf(Float32Array.of(Number.NaN), 0, 0), { logprob: 0, top: [] });
    assert.throws(() => logprobsOf(Float32Array.of(Number.NaN), 0, 1), OdmoeError);
  });

  it('takes a small part of a millisecond for a whole vocabulary', () => {
    const fastestMs = (work: () => unknown): number =>
      Math.min(
        ...Array.from({ length: 30 }, () => {
          const startMs = performance.now();
          work();
          return performance.now() - startMs;
        }),
      );
    assert.ok(fastestMs(() => tokenWeights(logits, highest, 0.8)) < 0.5);
    assert.ok(fastestMs(() => logSumExp(logits, highest)) < 0.5);
  });
});

describe('counter-based random numbers', () => {
  it('are in [0, 1) and repeat for the same seed and position', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.nat(), (seed, position) => {
        const value = counterRandom(seed, position);
        assert.ok(value >= 0 && value < 1);
        assert.equal(counterRandom(seed, position), value);
      }),
    );
  });

  it('differ between positions, and between neighbouring seeds', () => {
    const values = new Set<number>();
    for (let seed = 0; seed < 100; seed++)
      for (let position = 0; position < 100; position++) values.add(counterRandom(seed, position));
    assert.equal(values.size, 10_000);
  });

  it('are spread evenly', () => {
    const buckets = new Array<number>(16).fill(0);
    for (let position = 0; position < 16_000; position++) {
      const bucket = Math.floor(counterRandom(3, position) * 16);
      buckets[bucket] = (buckets[bucket] ?? 0) + 1;
    }
    const chiSquare = buckets.reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0);
    // Fifteen degrees of freedom: above 37.7 once in a thousand seeds; the seed is fixed.
    assert.ok(chiSquare < 37.7, `chi-square ${chiSquare}`);
  });
});
