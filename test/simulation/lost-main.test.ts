import assert from 'node:assert/strict';
import { assertSameAnswer, collect, requestFor } from '../integration/harness/answers.js';
import { openReference } from '../integration/harness/test-models.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 24, logprobs: 5 });
const OTHERS = ['shadow', 'worker-0', 'worker-1'];
const TIMES_LOST = 3;

describe('a main that is lost in the middle of answers', () => {
  let cluster: VirtualCluster;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  it('is reported to the client; the other nodes drop its data, and serve the next main', async () => {
    cluster = await VirtualCluster.start({ workers: 2, shadow: 'int8', main: { drafting: { rows: 4 } } });
    const memoryOf = async (): Promise<number[]> =>
      (await cluster.status()).nodes
        .filter(({ identity }) => identity.role !== 'ROLE_MAIN')
        .map(({ deviceMemoryUsedBytes }) => deviceMemoryUsedBytes);
    const before = await memoryOf();
    for (let time = 0; time < TIMES_LOST; time++) {
      const asking = cluster.ask(REQUEST, undefined, (count) => {
        if (count === 8) cluster.node('main').kill();
      });
      await assert.rejects(asking, { code: 'NO_MAIN' });
      for (const id of OTHERS) {
        const held = (): number =>
          Object.values(cluster.node(id).openCounts() ?? {}).reduce((sum, count) => sum + count, 0);
        await cluster.waitUntil(`${id} holds nothing of the lost main`, () => held() === 0);
      }
      await cluster.waitUntil('shadow has freed its keys and values', () => {
        return cluster.deviceOf('shadow').handles.sequences === 0;
      });
      await cluster.startAgain('main');
      await cluster.waitForRoster(2, 1);
    }
    assert.deepEqual(await memoryOf(), before);
    const reference = await openReference('tiny');
    try {
      const expected = await collect(reference.generate(REQUEST, new AbortController().signal));
      assertSameAnswer(await cluster.ask(REQUEST), expected);
    } finally {
      reference.dispose();
    }
  });
});
