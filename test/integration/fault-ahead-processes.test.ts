import assert from 'node:assert/strict';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 160, logprobs: 300 });

describe('workers that fail and come while main itself tells them what to load ahead', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  for (const [what, shadow, flags] of [
    ["the next token's first layer", true, ['--spread', 'all']],
    ['random experts', false, ['--prediction', 'random']],
  ] as const) {
    it(`${what}: one killed, another joined in the middle of an answer`, async () => {
      const running = await clusters.start('tiny', 4, shadow, flags);
      let joined: Promise<unknown> = Promise.resolve();
      const answer = await running.ask(REQUEST, async (count) => {
        if (count === 20) running.daemon('worker-1').signal('SIGKILL');
        if (count === 60) joined = running.startWorker('worker-4');
        if (count === 100) await joined;
      });
      assertSameAnswer(answer, clusters.expected);
      assert.ok((answer.finished.sep?.predictedCorrectly ?? 0) > 0, 'experts were loaded ahead');
      await running.waitForRoster(4, shadow ? 1 : 0);
      assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    });
  }
});
