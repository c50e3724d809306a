import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, assertWithout, requestFor } from './harness/answers.js';
import { waitUntil } from './harness/wait-until.js';

/** Long enough that an answer is under way for some time after a client has seen its first tokens. */
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 120, logprobs: 5 });

/** Workers that stop, or all go: test/long/integration/fault-worker-processes.test.ts. */
describe('a worker that fails in the middle of an answer', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  it('is replaced after SIGKILL: the answer goes on, and a new worker of that name is used', async () => {
    const running = await clusters.start('tiny', 3, true);
    const answer = await running.ask(REQUEST, (count) => {
      if (count === 10) running.daemon('worker-1').signal('SIGKILL');
    });
    assertSameAnswer(answer, clusters.expected);
    assertWithout(answer, ['worker-1']);
    await running.waitForRoster(2, 1);
    await running.startWorker('worker-1');
    await running.waitForRoster(3, 1);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    await waitUntil('the new worker has executed something', async () => {
      const again = (await running.status()).nodes.find(({ identity }) => identity.id === 'worker-1');
      return (again?.executions ?? 0) > 0;
    });
  });
});
