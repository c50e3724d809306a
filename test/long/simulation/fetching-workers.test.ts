import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { COMPLETION_PAUSE_MS } from '../../../packs/fetching/file-completion.js';
import {
  assertSameAnswer,
  collect,
  referenceAnswer,
  requestFor,
  type CollectedAnswer,
} from '../../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';
import { openReference, packOf } from '../../integration/harness/test-models.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 40, logprobs: 300 });

describe('simulated workers without the pack', () => {
  let expected: CollectedAnswer;
  let parent: string;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(() => {
    parent = mkdtempSync(join(tmpdir(), 'odmoe-fetch-'));
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    rmSync(parent, { recursive: true, force: true });
  });

  const directory = (index: number | string): string => join(parent, `worker-${index}`);

  it('fetch their needed experts from main, and answer as one process does', async () => {
    cluster = await VirtualCluster.start({
      workers: 4,
      shadow: 'int8',
      main: { groupSize: 1 },
      worker: (index) => ({ packDirectory: directory(index) }),
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    const { nodes } = await cluster.status();
    const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
    assert.deepEqual(
      workers.map(
        ({ fetchNeededBytes, fetchHeldBytes }) => fetchNeededBytes > 0 && fetchNeededBytes === fetchHeldBytes,
      ),
      [true, true, true, true],
    );
  });

  it('join a running cluster in the middle of an answer', async () => {
    const running = (cluster = await VirtualCluster.start({ workers: 1 }));
    let joined: Promise<void> = Promise.resolve();
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count === 10) joined = running.addWorker('fresh', { packDirectory: directory('fresh') });
    });
    await joined;
    assertSameAnswer(answer, expected);
    await running.waitForRoster(2, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
    await running.waitUntil('the fresh worker has executed something', async () => {
      const fresh = (await running.status()).nodes.find(({ identity }) => identity.id === 'fresh');
      return (fresh?.executions ?? 0) > 0;
    });
  });

  it('end up with an ordinary pack, the same as main has, when they fetch all of it', async () => {
    cluster = await VirtualCluster.start({ workers: 1, worker: () => ({ packDirectory: directory(0) }) });
    await cluster.waitUntil('the pack is whole', () => readdirSync(directory(0)).includes('manifest.json'));
    await cluster.stop();
    const original = await packOf('tiny');
    const names = readdirSync(original).sort();
    assert.deepEqual(readdirSync(directory(0)).sort(), [...names, 'fetched.jsonl'].sort());
    for (const name of names) {
      assert.ok(readFileSync(join(original, name)).equals(readFileSync(join(directory(0), name))), name);
    }
  });

  it('fetch experts again that are damaged on their disk, and answer as before', async () => {
    cluster = await VirtualCluster.start({
      workers: 2,
      main: { groupSize: 1 },
      worker: (index) => ({ packDirectory: directory(index) }),
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    const files = readdirSync(directory(0)).filter((name) => name.endsWith('.bin'));
    for (const name of files) {
      const path = join(directory(0), name);
      writeFileSync(path, readFileSync(path).fill(0x5a), { flag: 'r+' });
    }
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok(cluster.log.matching('an expert on the disk is damaged and is fetched again').length > 0);
    assert.deepEqual(cluster.log.matching('loading an expert failed'), []);
  });

  it('fetch damaged experts of a whole fetched pack again, after a restart', async () => {
    cluster = await VirtualCluster.start({ workers: 1, worker: () => ({ packDirectory: directory(0) }) });
    await cluster.waitUntil('the pack is whole', () => readdirSync(directory(0)).includes('fetched.jsonl'));
    await cluster.stopNode('worker-0');
    await cluster.addWorker('worker-0', { packDirectory: directory(0) });
    await cluster.waitForRoster(1, 0);
    const timers = (): number => cluster?.node('worker-0').runtime.openCounts.timers ?? 0;
    const timersAtRest = timers();
    const path = join(directory(0), 'experts-00001.bin');
    writeFileSync(path, readFileSync(path).fill(0x5a), { flag: 'r+' });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    assert.ok(cluster.log.matching('an expert on the disk is damaged and is fetched again').length > 0);
    assert.deepEqual(cluster.log.matching('loading an expert failed'), []);
    assert.ok(readdirSync(directory(0)).includes('fetching-manifest.json'), 'it is partial until it has settled');
    await cluster.sleep(COMPLETION_PAUSE_MS / 2);
    assert.equal(timers(), timersAtRest + 1, 'it waits, because more damage may be found');
    await cluster.sleep(COMPLETION_PAUSE_MS);
    assert.ok(readdirSync(directory(0)).includes('manifest.json'), 'it is whole again');
    assert.equal(timers(), timersAtRest);
  });

  it('start with a fetched pack that has a truncated file', async () => {
    cluster = await VirtualCluster.start({ workers: 1, worker: () => ({ packDirectory: directory(0) }) });
    await cluster.waitUntil('the pack is whole', () => readdirSync(directory(0)).includes('fetched.jsonl'));
    for (const kept of [1000, 0]) {
      await cluster.stopNode('worker-0');
      truncateSync(join(directory(0), 'experts-00001.bin'), kept);
      await cluster.addWorker('worker-0', { packDirectory: directory(0) });
      await cluster.waitUntil('the pack is whole again', () => readdirSync(directory(0)).includes('fetched.jsonl'));
      await cluster.waitForRoster(1, 0);
      assertSameAnswer(await cluster.ask(REQUEST), expected);
    }
    assert.equal(cluster.log.matching('the fetched pack is damaged').length, 2);
  });

  it('fetch the experts of a new placement on demand after a worker is lost', async () => {
    cluster = await VirtualCluster.start({
      workers: 4,
      main: { groupSize: 1 },
      worker: (index) => ({ packDirectory: directory(index) }),
    });
    const running = cluster;
    let gone: Promise<unknown> = Promise.resolve();
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count === 10) gone = Promise.all(['worker-0', 'worker-1', 'worker-2'].map((id) => running.stopNode(id)));
    });
    await gone;
    assertSameAnswer(answer, expected);
    await running.waitForRoster(1, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
  });

  for (const model of ['fixtures/gptoss-mxfp4', 'fixtures/deepseekv3-fp8', 'fixtures/qwen35moe'] as const) {
    it(`fetch experts of other kinds, and again what is damaged of them (${model})`, async () => {
      const single = await openReference(model);
      try {
        const request = requestFor([1, 17, 250, 3, 88], { maxTokens: 12, logprobs: 100 });
        const answer = await collect(single.generate(request, new AbortController().signal));
        cluster = await VirtualCluster.start({
          model,
          workers: 2,
          main: { groupSize: 1 },
          worker: (index) => ({ packDirectory: directory(index) }),
        });
        assertSameAnswer(await cluster.ask(request), answer);
        for (const name of readdirSync(directory(1)).filter((file) => file.endsWith('.bin'))) {
          const path = join(directory(1), name);
          writeFileSync(path, readFileSync(path).fill(0x5a), { flag: 'r+' });
        }
        assertSameAnswer(await cluster.ask(request), answer);
        assert.ok(cluster.log.matching('an expert on the disk is damaged and is fetched again').length > 0);
        assert.deepEqual(cluster.log.matching('loading an expert failed'), []);
      } finally {
        single.dispose();
      }
    });
  }
});
