import assert from 'node:assert/strict';
import { answeringClusters } from '../../integration/harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from '../../integration/harness/answers.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 450, logprobs: 5 });

describe('a main that ends in the middle of an answer', () => {
  const clusters = answeringClusters('tiny', REQUEST);

  it('finishes the answer after one SIGTERM, exits with 0, and every other daemon can be stopped', async () => {
    // However slow this machine is.
    const running = await clusters.start('tiny', 2, true, ['--stop-grace-ms', '300000']);
    const asking = running.ask(REQUEST, (count) => {
      if (count === 10) running.main.signal('SIGTERM');
    });
    assertSameAnswer(await asking, clusters.expected);
    assert.deepEqual(await running.main.exited, { code: 0, signal: null });
    for (const id of ['worker-0', 'worker-1', 'shadow']) {
      assert.deepEqual(await running.daemon(id).end(), { code: 0, signal: null });
    }
  });

  it('stops at once after two signals, and the client gets an error', async () => {
    const running = await clusters.start('tiny', 1, false);
    const asking = running.ask(REQUEST, async (count) => {
      if (count !== 10) return;
      running.main.signal('SIGTERM');
      await waitUntil('main ends what is under way', () => running.logged('no new requests are taken').length > 0);
      running.main.signal('SIGTERM');
    });
    await assert.rejects(asking, { code: 'NO_MAIN' });
    assert.deepEqual(await running.main.exited, { code: 1, signal: null });
  });
});
