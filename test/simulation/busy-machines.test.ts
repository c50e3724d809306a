import assert from 'node:assert/strict';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const NETWORK: Partial<NodeSettings['network']> = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700 };
/** Time in which main notices a lost node in a quiet network, as the documents promise. */
const NOTICED_MS = 1200;
const SEEDS = [1, 2, 3, 4, 5];

describe('a worker on a busy machine', () => {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  async function begin(): Promise<VirtualCluster> {
    const plan = { workers: 2, main: { network: NETWORK }, worker: () => ({ network: NETWORK }) };
    return (cluster = await VirtualCluster.start(plan));
  }

  /** Stops the worker's event loop again and again for `stallMs` each, until `forMs` have passed. */
  async function busy(
    running: VirtualCluster,
    random: SeededRandom,
    forMs: number,
    stallMs: () => number,
  ): Promise<void> {
    const worker = running.node('worker-0');
    for (const endMs = running.nowMs + forMs; running.nowMs < endMs;) {
      worker.pause();
      await running.sleep(stallMs());
      worker.resume();
      await running.sleep(20 + random.int(200));
    }
  }

  for (const seed of SEEDS) {
    it(`is not lost while its event loop is late by 1 to 2 s, where it had become busy before (seed ${seed})`, async () => {
      const random = new SeededRandom(seed);
      const running = await begin();
      // The machine becomes busy: its event loop is late by longer and longer times.
      await busy(running, random, 5000, () => 50 + random.int(450));
      await busy(running, random, 5000, () => 200 + random.int(700));
      assert.deepEqual(running.log.matching('worker lost'), []);
      await busy(running, random, 60_000, () => 1000 + random.int(1000));
      assert.deepEqual(running.log.matching('worker lost'), []);
    });
  }

  it('is lost once or twice where it becomes suddenly busy, and not again and again', async () => {
    const random = new SeededRandom(7);
    const running = await begin();
    await busy(running, random, 120_000, () => 1000 + random.int(1000));
    const lost = running.log.matching('worker lost').length;
    assert.ok(lost <= 2, `it was lost ${lost} times`);
    await running.waitForRoster(2, 0);
  });

  it('is found lost as fast as usual when it is cut off from a quiet network', async () => {
    const running = await begin();
    await running.sleep(20_000);
    const { network } = running.simulated;
    const setLinks = (cut: boolean): void => {
      network.setLink('main', 'worker-0', { cut });
      network.setLink('worker-0', 'main', { cut });
    };
    setLinks(true);
    const cutMs = running.nowMs;
    await running.waitUntil('it is lost', () => running.log.matching('worker lost').length > 0);
    assert.ok(running.nowMs - cutMs <= NOTICED_MS + 10, `it was noticed after ${running.nowMs - cutMs} ms`);
    setLinks(false);
    await running.waitForRoster(2, 0);
  });

  it('is found lost at once when it is killed, however busy it was', async () => {
    const random = new SeededRandom(8);
    const running = await begin();
    await busy(running, random, 10_000, () => 100 + random.int(400));
    running.node('worker-0').kill();
    const killedMs = running.nowMs;
    await running.waitUntil('it is lost', () => running.log.matching('worker lost').length > 0);
    assert.ok(running.nowMs - killedMs <= 100, `it was noticed after ${running.nowMs - killedMs} ms`);
  });
});
