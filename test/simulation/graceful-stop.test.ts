import assert from 'node:assert/strict';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { openReference } from '../integration/harness/test-models.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const LONG = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 80, logprobs: 5 });
const QUEUED = requestFor([5, 44, 7], { maxTokens: 8, logprobs: 2 });

describe('a main that is stopped in the middle of answers', () => {
  let cluster: VirtualCluster;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  /** Asks for one answer that runs and for one that waits in the queue, and stops main when the first has some tokens. */
  async function stopAmid(
    stopGraceMs: number,
  ): Promise<{ running: Promise<CollectedAnswer>; queued: Promise<CollectedAnswer> }> {
    cluster = await VirtualCluster.start({
      workers: 2,
      shadow: 'int8',
      main: { main: { maxActiveSequences: 1, stopGraceMs } },
    });
    let tokens = 0;
    const running = cluster.ask(LONG, undefined, (count) => {
      tokens = count;
    });
    running.catch(() => undefined);
    await cluster.waitUntil('the first answer has begun', () => tokens > 0);
    const queued = cluster.ask(QUEUED);
    queued.catch(() => undefined);
    await cluster.waitUntil('the other one waits', async () => (await cluster.status()).queuedRequests === 1);
    return { running, queued };
  }

  it('finishes accepted answers, queued ones too, to the bit, refuses others meanwhile, and then exits', async () => {
    const { running, queued } = await stopAmid(30_000);
    let isGone = false;
    const gone = cluster.stopNode('main').then(() => (isGone = true));
    await assert.rejects(cluster.ask(QUEUED), { code: 'NO_MAIN', message: /being stopped: it takes no new requests/ });
    assert.equal(isGone, false);
    const reference = await openReference('tiny');
    try {
      for (const [asked, answer] of [
        [LONG, running],
        [QUEUED, queued],
      ] as const) {
        assertSameAnswer(await answer, await collect(reference.generate(asked, new AbortController().signal)));
      }
    } finally {
      reference.dispose();
    }
    await gone;
  });

  it('ends answers with an error when they take longer than main.stop_grace_ms', async () => {
    const { running, queued } = await stopAmid(5);
    const gone = cluster.stopNode('main');
    const why = { code: 'NO_MAIN', message: /not finished within the 5 ms of main\.stop_grace_ms/ };
    await Promise.all([assert.rejects(running, why), assert.rejects(queued, why), gone]);
  });
});
