import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest, SamplingMessage } from '../../../shared/wire/messages.js';
import { jsonFormat } from '../../../shared/language/response-format.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { openReference } from '../../integration/harness/test-models.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';

const VOCABULARY = 1024;
const GREEDY: SamplingMessage = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0, seed: 3 };
const SAMPLED: SamplingMessage = { ...GREEDY, temperature: 0.8, topP: 0.95 };

const ANIMALS = jsonFormat(
  JSON.stringify({
    type: 'array',
    items: {
      type: 'object',
      properties: {
        kind: { enum: ['fox', 'owl'] },
        says: { type: 'string', minLength: 5, maxLength: 30 },
        legs: { type: 'integer', minimum: 2, maximum: 400 },
      },
      required: ['kind', 'says', 'legs'],
      additionalProperties: false,
    },
    minItems: 1,
    maxItems: 2,
  }),
);

const ask = (changes: Partial<GenerateRequest>): GenerateRequest =>
  requestFor([], { text: 'Tell me a story about a fox.', raw: false, maxTokens: 40, ignoreEos: false, ...changes });

const REQUESTS: Record<string, GenerateRequest> = {
  'presence and frequency penalty': ask({ sampling: { ...GREEDY, presencePenalty: 0.8, frequencyPenalty: 0.4 } }),
  'penalties, sampled': ask({ sampling: { ...SAMPLED, presencePenalty: -0.5, frequencyPenalty: 1.5, minP: 0.01 } }),
  'logit bias': ask({
    sampling: {
      ...GREEDY,
      logitBias: [452, 263, 708].map((tokenId, index) => ({ tokenId, bias: index === 0 ? -100 : 4 })),
    },
  }),
  'log-probabilities of the prompt': ask({ logprobs: 7, promptLogprobs: true }),
  'log-probabilities of a long prompt alone': ask({
    text: 'a fox and a fog. '.repeat(25),
    raw: true,
    maxTokens: 0,
    logprobs: 3,
    promptLogprobs: true,
  }),
  'JSON after a schema': ask({ ignoreEos: false, sampling: { ...GREEDY, outputFormat: ANIMALS } }),
  'JSON after a schema, sampled': ask({
    maxTokens: 70,
    sampling: { ...SAMPLED, temperature: 1.5, outputFormat: ANIMALS, frequencyPenalty: 0.1 },
  }),
  'any JSON object, in little room': ask({
    maxTokens: 16,
    sampling: { ...SAMPLED, outputFormat: jsonFormat('{"type":"object"}') },
  }),
  'no token': ask({ maxTokens: 0 }),
  'special tokens shown': ask({
    showSpecialTokens: true,
    ignoreEos: true,
    sampling: { ...GREEDY, frequencyPenalty: 5, logitBias: [1, 2, 3].map((tokenId) => ({ tokenId, bias: 30 })) },
  }),
};

describe('a simulated cluster that drafts, with every option of an answer:', () => {
  let reference: LocalEngine;
  let cluster: VirtualCluster;

  before(async () => {
    reference = await openReference('demo');
    cluster = await VirtualCluster.start({
      model: 'demo',
      workers: 3,
      shadow: 'int8',
      main: { drafting: { optimistic: false, rows: 4 }, main: { prefillRows: 48 } },
    });
  });

  after(async function () {
    await stopVirtualCluster(this, cluster);
    reference.dispose();
  });

  const answerOf = (request: GenerateRequest): Promise<CollectedAnswer> =>
    collect(reference.generate(request, new AbortController().signal));

  for (const [name, request] of Object.entries(REQUESTS)) {
    it(`${name}: it answers as one process does, to the bit`, async () => {
      const expected = await answerOf(request);
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      if (name.includes('JSON')) {
        assert.equal(answer.finished.finishReason, 'stop');
        assert.equal(typeof JSON.parse(answer.finished.text), 'object');
      }
      if (request.maxTokens > 0)
        assert.ok((answer.finished.drafts?.accepted ?? 0) > 5, 'shadow drafts as main samples');
    });
  }

  it('each option changes answers in its own way', async () => {
    const plain = await answerOf(ask({}));
    const idsOf = ({ tokens }: CollectedAnswer): number[] => tokens.map(({ tokenId }) => tokenId);
    for (const name of ['presence and frequency penalty', 'logit bias'] as const) {
      assert.notDeepEqual(idsOf(await answerOf(REQUESTS[name] ?? ask({}))), idsOf(plain), name);
    }
    const shown = await answerOf(REQUESTS['special tokens shown'] ?? ask({}));
    assert.ok(shown.finished.text.includes('<'), shown.finished.text);
  });

  it('the log-probabilities of a prompt equal those of an answer at the same positions', async () => {
    const { started, promptLogprobs } = await answerOf(
      ask({ logprobs: VOCABULARY, promptLogprobs: true, maxTokens: 0 }),
    );
    const ids = started.promptTokenIds;
    assert.equal(promptLogprobs.length, ids.length);
    assert.deepEqual(promptLogprobs[0], { logprob: 0, top: [] });
    for (let position = 1; position < ids.length; position++) {
      const { tokens } = await answerOf(requestFor(ids.slice(0, position), { maxTokens: 1, logprobs: VOCABULARY }));
      const reported = promptLogprobs[position];
      assert.deepEqual(reported?.top, tokens[0]?.top);
      assert.equal(reported?.logprob, tokens[0]?.top.find(({ tokenId }) => tokenId === ids[position])?.logprob);
    }
  });

  it('a bias that leaves no token is refused by cluster and engine', async () => {
    const logitBias = Array.from({ length: VOCABULARY }, (_, tokenId) => ({ tokenId, bias: -100 }));
    const request = ask({ sampling: { ...GREEDY, logitBias } });
    const refused = { code: 'REQUEST_INVALID', message: /no token is left by logit_bias/ };
    await assert.rejects(answerOf(request), refused);
    await assert.rejects(cluster.ask(request), refused);
    assertSameAnswer(await cluster.ask(ask({})), await answerOf(ask({})));
  });
});
