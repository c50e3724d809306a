import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/index.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from './harness/answers.js';
import { ProcessCluster, endCluster } from './harness/process-cluster.js';
import { openReference } from './harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 160, logprobs: 300 });

describe('workers that fail and come while main itself tells them what to load ahead', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer;
  let cluster: ProcessCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = await collect(reference.generate(REQUEST, new AbortController().signal));
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await endCluster(this, cluster);
    cluster = null;
  });

  for (const [what, shadow, flags] of [
    ["the next token's first layer", true, ['--spread', 'all']],
    ['random experts', false, ['--prediction', 'random']],
  ] as const) {
    it(`${what}: one killed, another joined in the middle of an answer`, async () => {
      const running = (cluster = await ProcessCluster.start('tiny', 4, shadow, flags));
      let joined: Promise<unknown> = Promise.resolve();
      const answer = await running.ask(REQUEST, async (count) => {
        if (count === 20) running.daemon('worker-1').signal('SIGKILL');
        if (count === 60) joined = running.startWorker('worker-4');
        if (count === 100) await joined;
      });
      assertSameAnswer(answer, expected);
      assert.ok((answer.finished.sep?.predictedCorrectly ?? 0) > 0, 'experts were loaded ahead');
      await running.waitForRoster(4, shadow ? 1 : 0);
      assertSameAnswer(await running.ask(REQUEST), expected);
    });
  }
});
