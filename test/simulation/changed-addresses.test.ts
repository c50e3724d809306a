import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { openReference } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 40, logprobs: 5 });

describe('a daemon whose host gets another address in the middle of an answer', () => {
  let cluster: VirtualCluster;
  let expected: CollectedAnswer;

  before(async () => {
    const reference = await openReference('tiny');
    expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  async function addressesOf(id: string): Promise<string[]> {
    const { nodes, placement } = await cluster.status();
    const told = nodes.filter(({ identity }) => identity.id === id).length;
    return [
      ...(placement?.workers ?? []).filter((worker) => worker.id === id).map(({ address }) => address),
      `${told}`,
    ];
  }

  for (const [way, changes] of [
    ['announces itself', { provider: 'mdns', mainAddress: null }],
    ['joins the main that it was given', {}],
  ] as const satisfies readonly (readonly [string, SettingsChanges])[]) {
    it(`a worker that ${way} is used again, under the new address alone, and the answer is the same`, async () => {
      cluster = await VirtualCluster.start({
        workers: 2,
        shadow: 'int8',
        main: { ...('provider' in changes && { provider: 'mdns' }) },
        worker: () => changes,
      });
      let moved = false;
      const answer = cluster.ask(REQUEST, undefined, (count) => {
        if (count === 10) cluster.simulated.network.move('worker-1', 'worker-1-new');
        moved ||= count === 10;
      });
      assertSameAnswer(await answer, expected);
      assert.ok(moved);
      await cluster.waitUntil('the worker is placed where it is now', async () => {
        return (await addressesOf('worker-1')).includes('worker-1-new:7600');
      });
      assert.deepEqual(await addressesOf('worker-1'), ['worker-1-new:7600', '1']);
      await cluster.waitUntil(
        'the old address is forgotten',
        async () => (await cluster.status()).problems.length === 0,
      );
      assertSameAnswer(await cluster.ask(REQUEST), expected);
    });
  }

  it('a shadow that announces itself predicts again', async () => {
    cluster = await VirtualCluster.start({ workers: 1, main: { provider: 'mdns' } });
    await cluster.addShadow('shadow', { precision: 'int8', provider: 'mdns', mainAddress: null });
    await cluster.waitForRoster(1, 1);
    cluster.simulated.network.move('shadow', 'shadow-new');
    await cluster.waitUntil('it is connected where it is now, alone', async () => {
      const { nodes } = await cluster.status();
      const shadows = nodes.filter(({ identity }) => identity.role === 'ROLE_SHADOW');
      return shadows.length === 1 && shadows[0]?.identity.address === 'shadow-new:7600';
    });
    const answer = await cluster.ask(REQUEST);
    assertSameAnswer(answer, expected);
    assert.ok(answer.finished.sep !== null);
  });

  it('main gives experts where it is now to a worker that was given its former address', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-moved-'));
    try {
      const isWhole = (): boolean => readdirSync(directory).includes('manifest.json');
      cluster = await VirtualCluster.start({ workers: 0, main: { provider: 'mdns' } });
      await cluster.addWorker('worker-0', { provider: 'mdns', packDirectory: directory });
      assert.ok(!isWhole());
      cluster.simulated.network.move('main', 'main-new');
      await cluster.waitUntil('the worker has fetched the pack', isWhole);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
