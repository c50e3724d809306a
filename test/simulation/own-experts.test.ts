import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { countKept } from '../../shared/decisions/placement/kept-experts.js';
import { DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import type { Placement } from '../../shared/wire/messages.js';
import { assertSameAnswer, referenceAnswer, requestFor } from '../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const OWN = 'main-worker';
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 32, ignoreEos: true });
/** Experts that main has memory for, of 32. */
const ROOM = 18;
const RESIDENT = { device: { memoryBudgetBytes: 4 * 1024 * 1024 }, worker: { cacheBytes: 4 * 1024 * 1024 } };
const MAIN = {
  main: { experts: 'both' as const },
  homes: 'strict' as const,
  device: { memoryBudgetBytes: 8 * 1024 * 1024 },
  worker: { cacheBytes: ROOM * DEVICE_BYTES.slotBytes },
};

function keptBy({ workers }: Placement): number {
  return workers.reduce((sum, { keptExperts = new Uint8Array() }) => sum + countKept(keptExperts), 0);
}

describe('a simulated cluster whose main keeps the experts that it uses most', () => {
  let parent: string;
  let cluster: VirtualCluster | null = null;

  beforeEach(() => {
    parent = mkdtempSync(join(tmpdir(), 'odmoe-own-experts-'));
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    rmSync(parent, { recursive: true, force: true });
  });

  async function begin(workers: number, partial: boolean, shadow = false): Promise<VirtualCluster> {
    const running = await VirtualCluster.start({ workers: 0, main: MAIN });
    cluster = running;
    for (let index = 0; index < workers; index += 1)
      await running.addWorker(`worker-${index}`, {
        ...RESIDENT,
        ...(partial ? { packDirectory: join(parent, `worker-${index}`) } : {}),
      });
    if (shadow) await running.addShadow('shadow', { precision: 'int8' });
    await running.waitForRoster(workers + 1, shadow ? 1 : 0);
    return running;
  }

  const placementOf = async (running: VirtualCluster): Promise<Placement> =>
    (await running.status()).placement ?? assert.fail('no placement');

  /** Messages to the other workers so far. */
  async function messagesOf(running: VirtualCluster): Promise<number> {
    const { workerWaits = [] } = await running.status();
    return workerWaits.filter(({ worker }) => worker !== OWN).reduce((sum, { executes }) => sum + executes, 0);
  }

  async function messagesOfAnswer(running: VirtualCluster): Promise<number> {
    const before = await messagesOf(running);
    await running.ask(REQUEST);
    return (await messagesOf(running)) - before;
  }

  for (const [workers, partial, shadow] of [
    [1, false, false],
    [2, false, true],
    [2, true, false],
  ] as const) {
    const who = `${workers} ${partial ? 'workers that fetch their experts' : 'workers'}${shadow ? ' and a shadow' : ''}`;
    it(`sends fewer messages with ${who}, and answers the same while they change`, async () => {
      const expected = await referenceAnswer('tiny', REQUEST);
      const running = await begin(workers, partial, shadow);
      assert.equal(keptBy(await placementOf(running)), 0);
      const before = await messagesOfAnswer(running);
      // One answer follows the other, so that homes change while one is computed.
      for (let answers = 0; answers < 60 && keptBy(await placementOf(running)) === 0; answers += 1)
        assertSameAnswer(await running.ask(REQUEST), expected);
      const kept = keptBy(await placementOf(running));
      assert.ok(kept > 0 && kept <= ROOM, `${kept} experts are kept`);
      assertSameAnswer(await running.ask(REQUEST), expected);
      const after = await messagesOfAnswer(running);
      assert.ok(after <= 0.9 * before, `${before} messages before, ${after} after`);
      const own = (await running.status()).nodes.find(({ identity }) => identity.id === OWN);
      assert.ok(own !== undefined && own.loads <= 32, `${own?.loads} loads: what main keeps stays in its memory`);
    });
  }
});
