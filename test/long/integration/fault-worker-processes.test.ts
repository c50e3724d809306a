import assert from 'node:assert/strict';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, assertWithout, requestFor } from '../../integration/harness/answers.js';

/** Long enough that an answer is under way for some time after a client has seen its first tokens. */
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 120, logprobs: 5 });

describe('when workers stop, or all end, in the middle of an answer,', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  it('a stopped worker (SIGSTOP) delays no answer, and is used again when it continues', async () => {
    const running = await clusters.start('tiny', 2, true);
    const answer = await running.ask(REQUEST, (count) => {
      if (count === 10) running.daemon('worker-0').signal('SIGSTOP');
    });
    assertSameAnswer(answer, clusters.expected);
    assertWithout(answer, ['worker-0']);
    await running.waitForRoster(1, 1);
    running.daemon('worker-0').signal('SIGCONT');
    await running.waitForRoster(2, 1);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
  });

  it('the loss of all gives NO_WORKERS to the client, and main serves again when one is back', async () => {
    const running = await clusters.start('tiny', 2, true);
    const asking = running.ask(REQUEST, (count) => {
      if (count !== 10) return;
      for (const id of ['worker-0', 'worker-1']) running.daemon(id).signal('SIGKILL');
    });
    await assert.rejects(asking, { code: 'NO_WORKERS', message: /odmoe worker/ });
    await assert.rejects(running.ask(REQUEST), { code: 'NO_WORKERS' });
    await running.startWorker('worker-0');
    await running.waitForRoster(1, 1);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
  });
});
