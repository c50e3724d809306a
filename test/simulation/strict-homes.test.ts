import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 24, logprobs: 300 });
const WORKERS = 4;
/** Experts of the model: 4 layers of 8 experts. */
const EXPERTS = 32;
/** Settings of a worker whose cache has room for all its own experts. */
const RESIDENT = { device: { memoryBudgetBytes: 4 * 1024 * 1024 }, worker: { cacheBytes: 4 * 1024 * 1024 } };

describe('a simulated cluster with strict homes of experts', () => {
  let expected: CollectedAnswer;
  let parent: string;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(() => {
    parent = mkdtempSync(join(tmpdir(), 'odmoe-homes-'));
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    rmSync(parent, { recursive: true, force: true });
  });

  const workersOf = async (running: VirtualCluster): Promise<NodeStatus[]> =>
    (await running.status()).nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');

  for (const replicas of [1, 2]) {
    it(`answers as one process does with ${replicas} of each, drafts and a worker that is killed`, async () => {
      const running = (cluster = await VirtualCluster.start({
        workers: WORKERS,
        shadow: 'int8',
        main: { homes: 'strict', replicas, drafting: { rows: 3 } },
      }));
      const { placement, groupReason } = await running.status();
      assert.equal(placement?.homes, replicas);
      assert.equal(placement.groups.length, 1);
      assert.match(groupReason, /strict/);
      const answer = await running.ask(REQUEST, undefined, (count) => {
        if (count === 8) running.node('worker-2').kill();
      });
      assertSameAnswer(answer, expected);
      assert.ok((answer.finished.sep?.predictedCorrectly ?? 0) > 0);
    });
  }

  it('loads each expert once, at its home', async () => {
    cluster = await VirtualCluster.start({
      workers: WORKERS,
      shadow: 'int8',
      main: { homes: 'strict' },
      worker: () => RESIDENT,
    });
    for (let ask = 0; ask < 3; ask += 1) assertSameAnswer(await cluster.ask(REQUEST), expected);
    const loads = (await workersOf(cluster)).reduce((sum, worker) => sum + worker.loads, 0);
    assert.ok(loads > 0 && loads <= EXPERTS, `${loads} loads of ${EXPERTS} experts`);
  });

  it('fetches only a worker’s own experts, and after a loss its new ones', async () => {
    const running = (cluster = await VirtualCluster.start({
      workers: WORKERS,
      main: { homes: 'strict' },
      worker: (index) => ({ packDirectory: join(parent, `worker-${index}`) }),
    }));
    const before = (await running.status()).placement;
    assert.ok(before !== null);
    const held = (await workersOf(running)).map(({ fetchHeldBytes }) => fetchHeldBytes);
    const expertBytes = held.reduce((sum, bytes) => sum + bytes, 0) / EXPERTS;
    held.forEach((bytes, index) => {
      const own = Array.from({ length: EXPERTS }, (_, place) =>
        strictHomesOf(before, Math.floor(place / 8), place % 8),
      );
      const count = own.filter((ids) => ids.includes(`worker-${index}`)).length;
      assert.ok(Math.abs(bytes / expertBytes - count) < 0.5, `${bytes / expertBytes} of ${count} experts`);
    });
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count === 8) running.node('worker-2').kill();
    });
    assertSameAnswer(answer, expected);
    await running.waitUntil('what the lost one had is fetched', async () => {
      const left = (await workersOf(running)).filter(({ identity }) => identity.id !== 'worker-2');
      return left.reduce((sum, { fetchHeldBytes }) => sum + fetchHeldBytes, 0) >= EXPERTS * expertBytes * 0.99;
    });
  });
});
