import assert from 'node:assert/strict';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 400, logprobs: 300 });

describe('a shadow or a main that fails in the middle of an answer', () => {
  const clusters = answeringClusters('tiny', REQUEST);

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
