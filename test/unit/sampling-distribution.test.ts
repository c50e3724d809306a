import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { chooseToken, samplingDistribution } from '../../engine/sampling/choose-token.js';
import { TokenSampler } from '../../engine/sampling/token-sampler.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { validateGenerateRequest } from '../../shared/wire/generate-validation.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';
import { REPETITION_PENALTY_RANGE, resolveSampling, type SamplingOptions } from '../../shared/wire/sampling-options.js';

const GREEDY: SamplingOptions = resolveSampling(null, () => 1);
const PLAIN: SamplingOptions = { ...GREEDY, temperature: 1 };

const logitsArbitrary = fc
  .array(fc.float({ min: -20, max: 20, noNaN: true }), { minLength: 1, maxLength: 60 })
  .map((values) => Float32Array.from(values));

const optionsArbitrary = fc.record({
  temperature: fc.double({ min: 0.05, max: 5, noNaN: true }),
  topK: fc.integer({ min: 0, max: 70 }),
  topP: fc.double({ min: 0.01, max: 1, noNaN: true }),
  minP: fc.double({ min: 0, max: 1, noNaN: true }),
  repetitionPenalty: fc.double({ min: 0.5, max: 2, noNaN: true }),
  seed: fc.maxSafeNat(),
});

/** Probabilities by a slow and simple computation. */
function softmax(logits: Float32Array, temperature: number): number[] {
  const highest = Math.max(...logits);
  const weights = [...logits].map((logit) => Math.exp((logit - highest) / temperature));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

function byLogit(logits: Float32Array): number[] {
  return [...logits.keys()].sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b);
}

describe('greedy sampling', () => {
  it('takes the highest logit, and the lowest id among equals', () => {
    assert.equal(chooseToken(Float32Array.of(1, 3, 2), 0, GREEDY), 1);
    assert.equal(chooseToken(Float32Array.of(1, 3, 3, 3), 0, GREEDY), 1);
    assert.equal(chooseToken(Float32Array.of(-Infinity, -5), 0, GREEDY), 1);
  });

  it('does not depend on seed and position', () => {
    fc.assert(
      fc.property(logitsArbitrary, fc.maxSafeNat(), fc.nat(), (logits, seed, position) => {
        const highest = Math.max(...logits);
        assert.equal(chooseToken(logits, position, { ...GREEDY, seed }), logits.indexOf(highest));
      }),
    );
  });
});

describe('the sampling distribution', () => {
  it('holds exactly the k most likely tokens, ties to the lower id', () => {
    const logits = Float32Array.of(1, 2, 2, 2, 0);
    assert.deepEqual([...samplingDistribution(logits, { ...PLAIN, topK: 2 }).ids].sort(), [1, 2]);
    assert.deepEqual([...samplingDistribution(logits, { ...PLAIN, topK: 0 }).ids], [0, 1, 2, 3, 4]);
    assert.deepEqual([...samplingDistribution(logits, { ...PLAIN, topK: 9 }).ids], [0, 1, 2, 3, 4]);
  });

  it('with top-p holds the fewest tokens with that much probability', () => {
    fc.assert(
      fc.property(logitsArbitrary, fc.double({ min: 0.01, max: 0.99, noNaN: true }), (logits, topP) => {
        const probabilities = softmax(logits, 1);
        const ids = [...samplingDistribution(logits, { ...PLAIN, topP }).ids];
        assert.deepEqual(ids, byLogit(logits).slice(0, ids.length));
        const mass = (count: number): number =>
          ids.slice(0, count).reduce((sum, id) => sum + (probabilities[id] ?? 0), 0);
        assert.ok(mass(ids.length) >= topP - 1e-6, 'too few');
        assert.ok(ids.length === 1 || mass(ids.length - 1) < topP + 1e-6, 'too many');
      }),
    );
  });

  it('with min-p holds the tokens that are likely enough compared with the likeliest', () => {
    fc.assert(
      fc.property(logitsArbitrary, fc.double({ min: 0, max: 1, noNaN: true }), (logits, minP) => {
        const probabilities = softmax(logits, 1);
        const highest = Math.max(...probabilities);
        const kept = new Set(samplingDistribution(logits, { ...PLAIN, minP }).ids);
        for (const [id, probability] of probabilities.entries()) {
          if (probability > minP * highest + 1e-6) assert.ok(kept.has(id), `${id} is missing`);
          if (probability < minP * highest - 1e-6) assert.ok(!kept.has(id), `${id} should be out`);
        }
      }),
    );
  });

  it('with min-p 1 holds the likeliest token, and all that are as likely', () => {
    assert.deepEqual([...samplingDistribution(Float32Array.of(1, 3, 2), { ...PLAIN, minP: 1 }).ids], [1]);
    assert.deepEqual([...samplingDistribution(Float32Array.of(3, 1, 3), { ...PLAIN, minP: 1 }).ids], [0, 2]);
  });

  it('is never empty, and every drawn token comes from it', () => {
    fc.assert(
      fc.property(logitsArbitrary, optionsArbitrary, fc.nat({ max: 100_000 }), (logits, options, position) => {
        const { ids } = samplingDistribution(logits, { ...PLAIN, ...options });
        assert.ok(ids.length > 0);
        assert.ok(ids.includes(chooseToken(logits, position, { ...PLAIN, ...options })));
      }),
    );
  });

  it('agrees with a vocabulary-sized list, where candidates are picked before they are sorted', () => {
    const logits = Float32Array.from({ length: 30_000 }, (_, id) => ((id * 7919) % 30_011) / 1500);
    const ids = [...samplingDistribution(logits, { ...PLAIN, topP: 0.9 }).ids];
    assert.ok(ids.length > 1 && ids.length < logits.length / 2);
    assert.deepEqual(ids, byLogit(logits).slice(0, ids.length));
    const topK = [...samplingDistribution(logits, { ...PLAIN, topK: 1000 }).ids];
    assert.deepEqual(topK, byLogit(logits).slice(0, 1000));
  });

  it('survives the smallest and the greatest temperature', () => {
    const logits = Float32Array.of(1, 5, -1e30, 4.9999);
    assert.equal(chooseToken(logits, 3, { ...PLAIN, temperature: Number.MIN_VALUE }), 1);
    assert.equal(samplingDistribution(logits, { ...PLAIN, temperature: 1000 }).ids.length, 3);
  });
});

describe('the random draw of a token', () => {
  it('depends on seed and position, and on nothing else', () => {
    const logits = Float32Array.from({ length: 50 }, (_, id) => Math.sin(id));
    const run = (seed: number): number[] =>
      Array.from({ length: 64 }, (_, position) => chooseToken(logits, position, { ...PLAIN, seed }));
    assert.deepEqual(run(7), run(7));
    assert.notDeepEqual(run(7), run(8));
    assert.equal(run(7)[40], chooseToken(logits, 40, { ...PLAIN, seed: 7 }));
  });

  it('follows the distribution', () => {
    const draws = 20_000;
    const logits = Float32Array.of(0, 1, 2, -1, 0.5);
    const counts = [0, 0, 0, 0, 0];
    for (let position = 0; position < draws; position++) {
      const id = chooseToken(logits, position, { ...PLAIN, temperature: 1.3, seed: 42 });
      counts[id] = (counts[id] ?? 0) + 1;
    }
    const chiSquare = softmax(logits, 1.3).reduce((sum, probability, id) => {
      const expected = probability * draws;
      return sum + ((counts[id] ?? 0) - expected) ** 2 / expected;
    }, 0);
    // Four degrees of freedom: above 18.5 once in a thousand seeds; the seed is fixed.
    assert.ok(chiSquare < 18.5, `chi-square ${chiSquare}`);
  });
});

/** The token that follows a prompt. */
function sampled(logits: Float32Array, history: readonly number[], sampling: SamplingOptions): number {
  const setting = { promptTokens: history.length, maxPositions: history.length + 1, constraint: null };
  return runAtOnce(new TokenSampler({ sampling, ...setting }).sample(logits, history));
}

describe('the repetition penalty', () => {
  it('divides positive logits and multiplies negative ones, once per token', () => {
    const logits = Float32Array.of(4, 3, -1, -1.5);
    const penalty = { ...GREEDY, repetitionPenalty: 1.5 };
    assert.equal(sampled(logits, [0, 0, 0], penalty), 1);
    assert.equal(sampled(logits, [0, 1], penalty), 0);
    assert.equal(sampled(Float32Array.of(-1, -1.4), [0], penalty), 1);
    assert.deepEqual([...logits], [4, 3, -1, -1.5], 'the logits themselves are left as they are');
  });

  it('counts a token once, however often it came before', () => {
    const penalty = { ...GREEDY, repetitionPenalty: 1.5 };
    // Once: 4 / 1.5 stays above 2, and -1 * 1.5 above -2. Three times: both would lose.
    assert.equal(sampled(Float32Array.of(4, 2), [0, 0, 0], penalty), 0);
    assert.equal(sampled(Float32Array.of(-1, -2), [0, 0, 0], penalty), 0);
  });

  it('accepts every penalty that a request may name, with logits as large as models give', () => {
    for (const repetitionPenalty of [REPETITION_PENALTY_RANGE.least, REPETITION_PENALTY_RANGE.most]) {
      const options = { ...PLAIN, repetitionPenalty };
      assert.ok([0, 1].includes(sampled(Float32Array.of(1000, -1000), [0, 1], options)));
    }
  });
});

describe('invalid logits:', () => {
  const wrong = [[NaN, 1], [1, NaN], [Infinity, 1], [-Infinity, -Infinity], []];
  for (const values of wrong) {
    for (const temperature of [0, 1]) {
      it(`[${values.join(', ')}] at temperature ${temperature} is an error, never a token`, () => {
        assert.throws(
          () => chooseToken(Float32Array.from(values), 0, { ...PLAIN, temperature }),
          (error) => error instanceof OdmoeError && error.code === 'MODEL_CORRUPT',
        );
      });
    }
  }
});

describe('the sampling options of a request', () => {
  const given = { temperature: 0.5, topK: 3, topP: 0, minP: 0, repetitionPenalty: 0 };

  it('are completed with defaults', () => {
    assert.deepEqual(
      resolveSampling(null, () => 9),
      { ...GREEDY, seed: 9 },
    );
    assert.deepEqual(
      resolveSampling(given, () => 9),
      { ...GREEDY, temperature: 0.5, topK: 3, seed: 9 },
    );
    assert.equal(resolveSampling({ ...given, seed: 0 }, () => 9).seed, 0);
  });

  const request = {
    text: 'a',
    messages: [],
    promptTokenIds: [],
    raw: false,
    maxTokens: 1,
    sampling: null,
    stop: [],
    ignoreEos: false,
    logprobs: 0,
  };
  const wrong = [
    { temperature: -1 },
    { temperature: NaN },
    { temperature: 1001 },
    { topK: -1 },
    { topK: 1.5 },
    { topP: -0.1 },
    { topP: 1.1 },
    { minP: 2 },
    { repetitionPenalty: -1 },
    { repetitionPenalty: Infinity },
    { repetitionPenalty: 1e-300 },
    { repetitionPenalty: 0.0009 },
    { repetitionPenalty: 1000.1 },
    { minP: 1.001 },
    { topK: 2 ** 31 },
    { seed: 0.5 },
    { seed: -1 },
    { seed: 2 ** 60 },
  ];
  for (const change of wrong) {
    it(`the sampling option ${Object.keys(change)[0]} with the value ${Object.values(change)[0]} is refused`, () => {
      assert.throws(
        () => validateGenerateRequest({ ...request, sampling: { ...given, ...change } }),
        (error) =>
          error instanceof OdmoeError && error.code === 'REQUEST_INVALID' && / is .*; it must be/.test(error.message),
      );
    });
  }

  const allowed = [
    { temperature: 0 },
    { temperature: 1000 },
    { topK: 2 ** 31 - 1 },
    { topP: 1 },
    { minP: 1 },
    { repetitionPenalty: 0 },
    { repetitionPenalty: 0.001 },
    { repetitionPenalty: 1000 },
    { seed: 0 },
    { seed: Number.MAX_SAFE_INTEGER },
  ];
  for (const change of allowed) {
    it(`the sampling option ${Object.keys(change)[0]} with the value ${Object.values(change)[0]} is accepted`, () => {
      const sampling = { ...given, ...change };
      assert.deepEqual(validateGenerateRequest({ ...request, sampling }).sampling, sampling);
    });
  }
});
