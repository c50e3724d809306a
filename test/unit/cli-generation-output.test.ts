import assert from 'node:assert/strict';
import { generationJson, generationSummary, type GenerationResult } from '../../cli/output/generation-output.js';

const ANSWER: GenerationResult = {
  started: { promptTokenIds: [1, 2], seed: 3 },
  promptLogprobs: [],
  tokens: [{ tokenId: 4, text: 'a', logprob: -1, top: [] }],
  finished: {
    finishReason: 'length',
    text: 'a',
    timing: null,
    sep: null,
    reloads: 2,
    nodes: [],
    drafts: null,
    stopString: '',
    cachedTokens: 0,
  },
};

const drafted = (drafts: GenerationResult['finished']['drafts']): GenerationResult => ({
  ...ANSWER,
  finished: { ...ANSWER.finished, drafts },
});

describe('an answer printed on the terminal', () => {
  it('reports proposed and accepted drafts where drafting was on', () => {
    assert.deepEqual(generationJson(drafted({ proposed: 9, accepted: 7 }))['drafts'], { proposed: 9, accepted: 7 });
    assert.match(generationSummary(drafted({ proposed: 9, accepted: 7 })), /7 of 9 drafts accepted/);
  });

  it('includes the log-probabilities of the prompt in its JSON where they were requested', () => {
    assert.ok(!('prompt_logprobs' in generationJson(ANSWER)));
    const top = [{ tokenId: 9, logprob: -0.5 }];
    const promptLogprobs = [
      { logprob: 0, top: [] },
      { logprob: -2, top },
    ];
    assert.deepEqual(generationJson({ ...ANSWER, promptLogprobs })['prompt_logprobs'], [
      { token_id: 1, logprob: null, top: [] },
      { token_id: 2, logprob: -2, top: [{ token_id: 9, logprob: -0.5 }] },
    ]);
  });

  it('reports how much of the prompt was reused', () => {
    const cached = { ...ANSWER, finished: { ...ANSWER.finished, cachedTokens: 1 } };
    assert.equal(generationJson(cached)['cached_tokens'], 1);
    assert.match(generationSummary(cached), /1 of 2 prompt tokens were there/);
    assert.equal(generationJson(ANSWER)['cached_tokens'], 0);
    assert.doesNotMatch(generationSummary(ANSWER), /prompt tokens/);
  });

  it('reports the misses of its logical cache, and says where none were counted', () => {
    const cached = (missShare: number | null, isMet: boolean): GenerationResult => ({
      ...ANSWER,
      finished: { ...ANSWER.finished, logicalCache: { missShare, lever: 'none', isMet } },
    });
    const told = (answer: GenerationResult): unknown => generationJson(answer)['logical_cache'];
    assert.deepEqual(told(cached(0, true)), { miss_share: 0, lever: 'none', is_met: true });
    assert.deepEqual(told(cached(null, true)), { miss_share: null, lever: 'none', is_met: null });
    assert.match(generationSummary(cached(0.25, false)), /misses 25\.0 % .*more than asked/);
    assert.match(generationSummary(cached(null, true)), /misses are not counted in the first 10 tokens/);
  });

  it('has null for drafts in its JSON, and no text for people, where drafting was off', () => {
    assert.equal(generationJson(ANSWER)['drafts'], null);
    assert.doesNotMatch(generationSummary(ANSWER), /draft/);
  });
});
