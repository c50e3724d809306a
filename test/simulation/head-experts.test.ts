import assert from 'node:assert/strict';
import { headLayerOf } from '../../engine/loading/head-layer.js';
import { openPack } from '../../packs/format/open-pack.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import { STATUS_INTERVAL_MS } from '../../shared/wire/node-status.js';
import { assertSameAnswer, type CollectedAnswer, referenceAnswer, requestFor } from '../integration/harness/answers.js';
import { packOf } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { BLOCK_POSITIONS, DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const MODEL = 'fixtures/glm45';
const REQUEST = requestFor([1, 17, 250, 3, 88, 9, 41], { logprobs: 5, maxTokens: 24 });
const OTHER = requestFor([1, 17, 250, 3, 88, 9, 41, 7, 130], { logprobs: 5, maxTokens: 16 });
/** Room for the rows of few answers: layers of the model and its head, and blocks of positions; and for passes of heads. */
const CONTEXT_BYTES = 6 * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes * 5;
const LONG = { ...REQUEST, promptTokenIds: Array.from({ length: 230 }, (_, place) => 1 + (place % 40)), maxTokens: 48 };
/** More than the experts of the model and its head. */
const ROOMY_BYTES = 4 * 1024 * 1024;
const AT_WORKERS: SettingsChanges = { drafting: { rows: 3, source: 'mtp', headExperts: 'workers' } };

describe("a simulated cluster whose workers run the experts of the model's own head", () => {
  let expected: CollectedAnswer;
  let headLayer = -1;
  /** Executes of the head's layer that main has sent. */
  let executes = 0;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    expected = await referenceAnswer(MODEL, REQUEST);
    headLayer = headLayerOf((await openPack(await packOf(MODEL))).shape);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (main: SettingsChanges, worker?: SettingsChanges, workers = 3): Promise<VirtualCluster> => {
    const plan = { model: MODEL, workers, main: { ...AT_WORKERS, ...main } } as const;
    cluster = await VirtualCluster.start(worker === undefined ? plan : { ...plan, worker: () => worker });
    return countExecutes(cluster);
  };

  const countExecutes = (running: VirtualCluster): VirtualCluster => {
    running.simulated.network.tap = (way, _from, _to, message) => {
      if (way === 'sent' && message.kind === 'execute' && message.execute.layer === headLayer) executes += 1;
    };
    return running;
  };

  const workersOf = async (running: VirtualCluster): Promise<NodeStatus[]> =>
    (await running.status()).nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');

  const assertDrafted = (running: VirtualCluster, answer: CollectedAnswer): void => {
    assertSameAnswer(answer, expected);
    assert.ok(executes > 0, 'workers run experts of the head');
    executes = 0;
    assert.ok(draftsOf(answer) > 0, 'the head drafts');
    assert.deepEqual(running.log.matching("the model's own head has failed"), []);
  };

  for (const [name, main] of [
    ['in groups', { groupSize: 1 }],
    ['dealt to all workers', { spread: 'all' }],
    ['at strict homes', { homes: 'strict', replicas: 1 }],
  ] as const)
    it(`answers as one process does, ${name}`, async () => {
      const running = await start(main);
      assertDrafted(running, await running.ask(REQUEST));
      assert.deepEqual(running.log.matching('could not run the experts'), []);
      for (const { servesDraftHead } of await workersOf(running)) assert.equal(servesDraftHead, true);
      const both = await Promise.all([REQUEST, OTHER].map((request) => running.ask(request)));
      assertDrafted(running, both[0] ?? assert.fail());
      assertSameAnswer(both[1] ?? assert.fail(), await referenceAnswer(MODEL, OTHER));
    });

  it('drafts the same tokens as a main that has the experts of the head itself', async () => {
    const drafted: number[] = [];
    for (const headExperts of ['main', 'workers'] as const) {
      const running = await start({ drafting: { rows: 3, source: 'mtp', headExperts } });
      const answer = await running.ask(REQUEST);
      if (headExperts === 'main') {
        assertSameAnswer(answer, expected);
        assert.equal(executes, 0);
      } else assertDrafted(running, answer);
      drafted.push(draftsOf(answer));
      await running.stop();
      cluster = null;
    }
    assert.equal(drafted[0], drafted[1]);
  });

  it('keeps experts of the head in caches, and loads them once', async () => {
    const cache = { device: { memoryBudgetBytes: 4 * 1024 * 1024 }, worker: { cacheBytes: 3 * 1024 * 1024 } };
    const running = await start({ homes: 'strict', replicas: 1 }, cache);
    // The second answer takes over rows of the first one, so its head begins at another row.
    for (let asked = 0; asked < 2; asked += 1) assertDrafted(running, await running.ask(REQUEST));
    const before = (await workersOf(running)).reduce((sum, { loads }) => sum + loads, 0);
    assertDrafted(running, await running.ask(REQUEST));
    const after = (await workersOf(running)).reduce((sum, { loads }) => sum + loads, 0);
    assert.equal(after, before);
  });

  it('gives caches memory for experts of the head only once main asks for them', async () => {
    const cache = { device: { memoryBudgetBytes: ROOMY_BYTES }, worker: { cacheBytes: ROOMY_BYTES } };
    const takenSlots = async (main: SettingsChanges['drafting']): Promise<number> => {
      const running = await start({ drafting: { rows: 3, source: 'mtp', ...main } }, cache, 1);
      assertSameAnswer(await running.ask(REQUEST), expected);
      await running.sleep(2 * STATUS_INTERVAL_MS);
      const [worker] = await workersOf(running);
      const { slotBytes, deviceMemoryUsedBytes, cache: held } = worker ?? assert.fail();
      assert.equal((held?.capacities?.full ?? 0) * slotBytes, held?.bytes);
      await running.stop();
      cluster = null;
      return deviceMemoryUsedBytes / slotBytes;
    };
    const [atMain, byAuto] = [await takenSlots({ headExperts: 'main' }), await takenSlots({ headExperts: 'auto' })];
    assert.equal(atMain, byAuto);
    const { experts } = (await openPack(await packOf(MODEL))).shape;
    const atWorkers = await takenSlots({ headExperts: 'workers' });
    assert.equal(Math.round(atWorkers - atMain), experts);
  });

  it('goes on to draft where a worker dies, and where one joins', async () => {
    const running = await start({});
    const answer = await running.ask(REQUEST, undefined, async (count) => {
      if (count === 6) running.node('worker-1').kill();
      if (count === 14) void running.addWorker('worker-3');
    });
    assertDrafted(running, answer);
    assertDrafted(running, await running.ask(REQUEST));
  });

  it('answers where its only worker dies and another one comes', async () => {
    const running = await start({}, undefined, 1);
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count !== 6) return;
      running.node('worker-0').kill();
      void running.addWorker('worker-1');
    });
    assertDrafted(running, answer);
  });

  it('answers many at once where memory has room for few of them and their heads', async () => {
    const main = { maxActiveSequences: 4, contextMemoryBytes: CONTEXT_BYTES };
    const running = await start({ main });
    const requests = [0, 1, 2, 3].map((seed) => ({ ...LONG, promptTokenIds: [seed + 50, ...LONG.promptTokenIds] }));
    const answers = await Promise.all(requests.map((request) => running.ask(request)));
    for (const [index, request] of requests.entries())
      assertSameAnswer(answers[index] ?? assert.fail(), await referenceAnswer(MODEL, request));
    const { passes, nodes } = await running.status();
    assert.ok((passes?.preemptions ?? 0) > 0);
    const ofMain = nodes.find(({ identity }) => identity.role === 'ROLE_MAIN') ?? assert.fail();
    assert.ok(ofMain.keyValueBytes <= CONTEXT_BYTES);
    assert.deepEqual(running.log.matching('could not run the experts'), []);
  });

  it('frees what workers hold for an answer that is cancelled', async () => {
    const running = await start({});
    const client = new AbortController();
    await assert.rejects(
      running.ask(REQUEST, client.signal, (count) => {
        if (count === 7) client.abort();
      }),
    );
    assertDrafted(running, await running.ask(REQUEST));
  });
});

function draftsOf({ finished }: CollectedAnswer): number {
  return finished.drafts?.proposed ?? 0;
}
