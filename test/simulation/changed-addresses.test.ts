import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 40, logprobs: 5 });

describe("when a daemon's host changes its address in the middle of an answer,", () => {
  let cluster: VirtualCluster;
  let expected: CollectedAnswer;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  async function addressesOf(id: string): Promise<string[]> {
    const { nodes, placement } = await cluster.status();
    const listed = nodes.filter(({ identity }) => identity.id === id).length;
    return [
      ...(placement?.workers ?? []).filter((worker) => worker.id === id).map(({ address }) => address),
      `${listed}`,
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

  it('a shadow that advertises itself predicts again', async () => {
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
});

describe('a worker without the pack that was given the address of main', () => {
  let cluster: VirtualCluster;
  let directory: string;

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-moved-'));
    cluster = await VirtualCluster.start({ workers: 0, main: { provider: 'mdns' } });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    rmSync(directory, { recursive: true });
  });

  const addWorker = (): Promise<void> => cluster.addWorker('worker-0', { provider: 'mdns', packDirectory: directory });

  /** Starts the worker, and runs `meanwhile` while the worker waits for the manifest. */
  async function startWhile(meanwhile: () => void | Promise<void>): Promise<void> {
    const { network } = cluster.simulated;
    network.setLink('main', 'worker-0', { slowness: 3000 });
    const added = addWorker();
    const { runtime } = cluster.node('worker-0');
    await cluster.waitUntil('the worker asks for the manifest', () => network.packSources.openOf(runtime) > 0);
    await meanwhile();
    network.setLink('main', 'worker-0', { slowness: 1 });
    await added;
    assert.ok(cluster.log.matching('main does not give its manifest').length > 0);
  }

  it("gets the manifest from main's current address", () =>
    startWhile(() => cluster.simulated.network.move('main', 'main-new')));

  it('gets the manifest from no other advertised main', async () => {
    await cluster.add('main', 'other', { provider: 'mdns' });
    await startWhile(async () => {
      cluster.node('main').kill();
      await cluster.sleep(10_000);
      assert.ok(!cluster.node('worker-0').isReady);
      await cluster.startAgain('main');
    });
  });

  it("gets experts from main's current address", async () => {
    const isWhole = (): boolean => readdirSync(directory).includes('manifest.json');
    await addWorker();
    assert.ok(!isWhole());
    cluster.simulated.network.move('main', 'main-new');
    await cluster.waitUntil('the worker has fetched the pack', isWhole);
  });
});
