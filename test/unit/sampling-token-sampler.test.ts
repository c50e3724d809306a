import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { chooseToken } from '../../engine/sampling/choose-token.js';
import { TokenSampler } from '../../engine/sampling/token-sampler.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import { resolveSampling, type SamplingOptions } from '../../shared/wire/sampling-options.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';
import { scriptedConstraint } from './scripted-constraint.js';

const GREEDY = resolveSampling(null, () => 1);
const VOCABULARY = 12;

interface Drawn {
  logits: Float32Array;
  prompt: number[];
  answer: number[];
  sampling: SamplingOptions;
  allowed: number[] | null;
}

const token = fc.integer({ min: 0, max: VOCABULARY - 1 });
const penalty = fc.constantFrom(0, 0.5, -0.25, 2);
const drawn: fc.Arbitrary<Drawn> = fc.record({
  logits: fc
    .array(fc.float({ min: -8, max: 8, noNaN: true }), { minLength: VOCABULARY, maxLength: VOCABULARY })
    .map((values) => Float32Array.from(values)),
  prompt: fc.array(token, { minLength: 1, maxLength: 6 }),
  answer: fc.array(token, { maxLength: 10 }),
  sampling: fc.record({
    temperature: fc.constantFrom(0, 0.7, 3),
    topK: fc.constantFrom(0, 3),
    topP: fc.constantFrom(1, 0.8),
    minP: fc.constantFrom(0, 0.1),
    repetitionPenalty: fc.constantFrom(1, 1.5),
    seed: fc.nat(),
    presencePenalty: penalty,
    frequencyPenalty: penalty,
    logitBias: fc.uniqueArray(fc.record({ tokenId: token, bias: fc.constantFrom(-100, -3, 1.5, 100) }), {
      selector: ({ tokenId }) => tokenId,
    }),
    outputFormat: fc.constant(null),
  }),
  allowed: fc.option(fc.uniqueArray(token)),
});

/** A constraint that allows the same tokens everywhere, and is closed after `closedAfter` tokens of the answer. */
function constraintOf(allowed: readonly number[] | null, closedAfter = Infinity): OutputConstraint {
  return scriptedConstraint(
    () => allowed && Uint8Array.from({ length: VOCABULARY }, (_, id) => Number(allowed.includes(id))),
    (answer) => answer.length >= closedAfter,
  );
}

function samplerOf(
  promptTokens: number,
  sampling: Partial<SamplingOptions>,
  constraint: OutputConstraint | null = null,
): TokenSampler {
  return new TokenSampler({ sampling: { ...GREEDY, ...sampling }, promptTokens, maxPositions: 100, constraint });
}

/** Logits after all options, by a slow and simple computation. */
function plainLogits({ logits, prompt, answer, sampling, allowed }: Drawn): Float32Array {
  return logits.map((logit, id) => {
    let score = logit;
    if ([...prompt, ...answer].includes(id)) {
      score = Math.fround(score < 0 ? score * sampling.repetitionPenalty : score / sampling.repetitionPenalty);
    }
    const times = answer.filter((other) => other === id).length;
    if (times > 0) score = Math.fround(score - (times * sampling.frequencyPenalty + sampling.presencePenalty));
    const bias = sampling.logitBias.find(({ tokenId }) => tokenId === id)?.bias ?? 0;
    score = bias === -100 ? -Infinity : Math.fround(score + bias);
    return allowed === null || allowed.includes(id) ? score : -Infinity;
  });
}

describe('the token sampler', () => {
  it('agrees with a slow and plain implementation for all options together', () => {
    fc.assert(
      fc.property(drawn, (given) => {
        const { logits, prompt, answer, sampling, allowed } = given;
        const constraint = allowed === null ? null : constraintOf(allowed);
        const sampler = samplerOf(prompt.length, sampling, constraint);
        const history = [...prompt, ...answer];
        const plain = plainLogits(given);
        const expected = plain.every((logit) => logit === -Infinity)
          ? null
          : chooseToken(plain, history.length, sampling);
        assert.equal(runAtOnce(sampler.sampleIfAny(logits, history)), expected);
        assert.equal(runAtOnce(sampler.sampleIfAny(logits, history)), expected, 'asked again');
      }),
      { numRuns: 500 },
    );
  });

  it('subtracts penalties for tokens of the answer, not of the prompt, once or each time', () => {
    const logits = Float32Array.of(3, 2.5, 2);
    const after = (promptTokens: number, sampling: Partial<SamplingOptions>, history: number[]) =>
      runAtOnce(samplerOf(promptTokens, sampling).sample(logits, history));
    assert.equal(after(3, { presencePenalty: 0.75 }, [0, 0, 0]), 0);
    assert.equal(after(2, { presencePenalty: 0.75 }, [0, 0, 0]), 1);
    assert.equal(after(1, { presencePenalty: 0.25 }, [2, 0, 0]), 0);
    assert.equal(after(1, { frequencyPenalty: 0.375 }, [2, 0]), 0);
    assert.equal(after(1, { frequencyPenalty: 0.375 }, [2, 0, 0]), 1);
    assert.equal(after(1, { frequencyPenalty: -0.75 }, [2, 2, 2]), 2);
  });

  it('adds biases, of which -100 excludes a token whatever its logit', () => {
    const logits = Float32Array.of(500, 2, 1.5);
    const choose = (...logitBias: { tokenId: number; bias: number }[]) =>
      runAtOnce(samplerOf(1, { logitBias }).sample(logits, [0]));
    assert.equal(choose({ tokenId: 0, bias: -99 }), 0);
    assert.equal(choose({ tokenId: 0, bias: -100 }), 1);
    assert.equal(choose({ tokenId: 0, bias: -100 }, { tokenId: 2, bias: 1 }), 2);
    for (let position = 1; position < 50; position++) {
      const sampler = samplerOf(1, { temperature: 1000, logitBias: [{ tokenId: 1, bias: -100 }] });
      assert.notEqual(runAtOnce(sampler.sample(logits, new Array<number>(position).fill(0))), 1);
    }
  });

  it('gives an error where bias and format leave no token', () => {
    const logits = Float32Array.of(1, 2, 3);
    const logitBias = [{ tokenId: 1, bias: -100 }];
    for (const temperature of [0, 1]) {
      const sampler = samplerOf(1, { temperature, logitBias }, constraintOf([1]));
      assert.equal(runAtOnce(sampler.sampleIfAny(logits, [0])), null);
      assert.throws(() => runAtOnce(sampler.sample(logits, [0])), {
        code: 'REQUEST_INVALID',
        field: 'sampling.logit_bias',
        message: /no token that the output format takes is left by logit_bias/,
      });
      assert.throws(() => runAtOnce(samplerOf(1, { temperature }, constraintOf([])).sample(logits, [0])), {
        code: 'REQUEST_INVALID',
        field: 'sampling.output_format',
      });
    }
  });

  it('reports invalid logits even for excluded tokens', () => {
    const sampler = samplerOf(1, { logitBias: [{ tokenId: 0, bias: -100 }] }, constraintOf([1]));
    assert.throws(() => runAtOnce(sampler.sample(Float32Array.of(NaN, 1), [0])), { code: 'MODEL_CORRUPT' });
  });

  it('gives the constraint the answer alone, and the remaining room', () => {
    const asked: [readonly number[], number][] = [];
    const constraint = scriptedConstraint(
      (answer, room) => {
        asked.push([answer, room]);
        return null;
      },
      (answer) => answer.length === 2,
    );
    const sampler = samplerOf(3, {}, constraint);
    assert.equal(runAtOnce(sampler.sample(Float32Array.of(1, 2), [9, 9, 9, 4])), 1);
    assert.deepEqual(asked, [[[4], 96]]);
    assert.equal(sampler.isClosed([9, 9, 9, 4]), false);
    assert.equal(sampler.isClosed([9, 9, 9, 4, 5]), true);
    assert.equal(samplerOf(3, {}).isClosed([9, 9, 9, 4, 5]), false);
  });
});
