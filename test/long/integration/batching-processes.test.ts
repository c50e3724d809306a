import assert from 'node:assert/strict';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from '../../integration/harness/answers.js';

const WORKERS = 4;
/** A worker is killed when the first answer has this many tokens. All other answers are under way then. */
const TOKENS_BEFORE = 8;
const QUESTIONS = [
  'Tell me a story about a fox and an owl who were friends and lived in a wood.',
  'What is 17 plus 25?',
  'Tell me a story about an owl and a bear.',
];

/** Greedy and sampled, of several lengths, with log-probabilities of what was not chosen, too; two of them ask the same. */
const REQUESTS: readonly GenerateRequest[] = Array.from({ length: 8 }, (_, index) => ({
  ...requestFor([], { maxTokens: 80 - 6 * index, logprobs: 5, ignoreEos: true }),
  messages: [{ role: 'user', content: QUESTIONS[index % QUESTIONS.length] ?? '' }],
  raw: false,
  sampling: {
    ...(index % 2 === 0 ? { temperature: 0, topK: 0, topP: 1 } : { temperature: 1, topK: 40, topP: 0.95 }),
    minP: 0,
    repetitionPenalty: 1,
    seed: index,
  },
  ...(index % 3 === 0 ? { promptLogprobs: true } : {}),
}));
const [FIRST = requestFor([])] = REQUESTS;

describe('daemons that answer eight requests at once', function () {
  this.timeout(120_000);
  const clusters = answeringClusters('demo', FIRST);

  it('give each the single-process answer though a worker is killed (SIGKILL), and again when repeated', async () => {
    const running = await clusters.start('demo', WORKERS, true);
    const answers = await Promise.all(
      REQUESTS.map((request) =>
        running.ask(request, (count) => {
          if (request === FIRST && count === TOKENS_BEFORE) running.daemon('worker-1').signal('SIGKILL');
        }),
      ),
    );
    for (const [index, request] of REQUESTS.entries()) {
      const answer = answers[index];
      assert.ok(answer !== undefined);
      assertSameAnswer(answer, await clusters.reference(request));
    }
    const ids = answers[0]?.finished.nodes.map(({ identity }) => identity.id) ?? [];
    assert.ok(ids.includes('worker-0') && !ids.includes('worker-1'), 'it was lost before the longest answer ended');
    const again = { ...FIRST, maxTokens: 4, promptLogprobs: false };
    const expected = await clusters.reference(again);
    for (const answer of await Promise.all([again, again, again].map((request) => running.ask(request)))) {
      assertSameAnswer(answer, expected);
      assert.equal(answer.finished.cachedTokens, expected.started.promptTokenIds.length - 1);
    }
    const { passes } = await running.status();
    assert.ok(passes !== null && passes !== undefined && passes.rows > passes.passes, 'answers have shared passes');
  });
});
