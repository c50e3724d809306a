import assert from 'node:assert/strict';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, collect, requestFor } from './harness/answers.js';
import { openReference } from './harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 400, logprobs: 300 });

describe('a shadow or a main that fails in the middle of an answer', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  it('shadow killed: the answer goes on without predictions; a new one is aligned and used in the same answer', async function () {
    // So many tokens that the new shadow is there before the end on fast machines take their time on slow ones.
    this.timeout(300_000);
    const demo = await openReference('demo');
    try {
      const request = requestFor([0, 2, 14, 435, 407, 262, 398, 469], { maxTokens: 1500 });
      const wanted = await collect(demo.generate(request, new AbortController().signal));
      const running = await clusters.start('demo', 2, true);
      let restarted: Promise<unknown> = Promise.resolve();
      const answer = await running.ask(request, (count) => {
        if (count !== 50) return;
        restarted = running
          .daemon('shadow')
          .end('SIGKILL')
          .then(() => running.startShadow('shadow'));
      });
      await restarted;
      assertSameAnswer(answer, wanted);
      const correct = answer.finished.sep?.correctByIteration ?? [];
      const without = correct.indexOf(0);
      assert.ok(without > 10, `predicted before it was lost: ${without} iterations`);
      const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
      assert.ok(sum(correct.slice(without)) > 0, 'predicted after it was back');
    } finally {
      demo.dispose();
    }
  });

  it('shadow stopped (SIGSTOP): the answer goes on', async () => {
    const running = await clusters.start('tiny', 2, true);
    const answer = await running.ask(REQUEST, (count) => {
      if (count === 10) running.daemon('shadow').signal('SIGSTOP');
    });
    assertSameAnswer(answer, clusters.expected);
    await running.waitForRoster(2, 0);
    running.daemon('shadow').signal('SIGCONT');
    await running.waitForRoster(2, 1);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
  });

  it('main asked to end (SIGTERM): the client is told, main exits with 0, and everyone else can be ended', async () => {
    const running = await clusters.start('tiny', 2, true);
    const asking = running.ask({ ...REQUEST, maxTokens: 450 }, (count) => {
      if (count === 10) running.main.signal('SIGTERM');
    });
    await assert.rejects(asking, { code: 'NO_MAIN' });
    assert.deepEqual(await running.main.exited, { code: 0, signal: null });
    for (const id of ['worker-0', 'worker-1', 'shadow']) {
      assert.deepEqual(await running.daemon(id).end(), { code: 0, signal: null });
    }
  });
});
