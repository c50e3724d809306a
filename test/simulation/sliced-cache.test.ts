/** Clusters whose workers cache slices: answers equal those without a cache to the bit, and fewer bytes are loaded. */
import assert from 'node:assert/strict';
import type { GenerateRequest, NodeStatus } from '../../shared/wire/messages.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import { BLOCK_POSITIONS, DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { openReferenceOf, slicedPackOf } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const TOKENS = 14;
const KILLED_AT = 4;
const THETA = { critical: 0.3, theta: 0.55 };
const QUALITIES = ['sliced(8,4)', 'sliced(8,4,low)', 'sliced(8,4,critical=0.3)'];
/** Layers of the tiny model. */
const LAYERS = 4;
/** Bytes of an expert with both slices, as the emulated devices count them. */
const EXPERT = DEVICE_BYTES.slotBytes;
/** Room for all slices of the tiny model, for most upper ones, and for fewer than a token needs. */
const LARGE_BYTES = 64 * EXPERT;
const SMALL_BYTES = 14.5 * EXPERT;
const TINY_BYTES = 3.5 * EXPERT;

const qualityOf = (text: string): Quality => {
  const read = readQuality(text);
  return 'quality' in read ? read.quality : assert.fail(read.problem);
};

const PLANS: [what: string, plan: Omit<ClusterPlan, 'main'> & { main?: SettingsChanges }, kills: boolean][] = [
  ['1 worker', { workers: 1 }, false],
  ['3 workers and a shadow', { workers: 3, shadow: 'int8' }, false],
  ['3 workers, one of which is killed', { workers: 3, shadow: 'nf4', main: { main: { prefillRows: 8 } } }, true],
  ['3 workers with homes of their own', { workers: 3, main: { homes: 'strict' } }, false],
];

describe('a cluster whose workers cache slices', function () {
  this.timeout(60_000);
  let pack: string;
  let cluster: VirtualCluster | null = null;
  const requests = [0, 5].map((first) =>
    requestFor(
      Array.from({ length: 23 }, (_, index) => (index * 37 + first) % 300),
      { maxTokens: TOKENS, logprobs: 5 },
    ),
  );
  const [request = assert.fail()] = requests;

  before(async () => {
    pack = await slicedPackOf('tiny', [THETA]);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (quality: Quality, plan: ClusterPlan, cacheBytes: number): Promise<VirtualCluster> => {
    const { homes = 'group' } = plan.main ?? {};
    const main = { ...plan.main, main: { ...plan.main?.main, quality } };
    const worker = (): SettingsChanges => ({
      homes,
      main: { quality },
      slots: 2,
      worker: { cacheBytes, cachePolicy: 'sliced' },
    });
    return (cluster = await VirtualCluster.start({ ...plan, packDirectory: pack, main, worker }));
  };

  const workersOf = async (running: VirtualCluster): Promise<NodeStatus[]> =>
    (await running.status()).nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');

  const expectedOf = async (quality: Quality, asked: readonly GenerateRequest[]): Promise<CollectedAnswer[]> => {
    const engine = await openReferenceOf(pack, quality);
    try {
      const answers: CollectedAnswer[] = [];
      for (const each of asked) answers.push(await collect(engine.generate(each, new AbortController().signal)));
      return answers;
    } finally {
      engine.dispose();
    }
  };

  for (const text of QUALITIES) {
    describe(text, () => {
      const quality = qualityOf(text);
      let expected: CollectedAnswer[];

      before(async () => {
        expected = await expectedOf(quality, requests);
      });

      for (const cacheBytes of [LARGE_BYTES, SMALL_BYTES, TINY_BYTES]) {
        for (const [what, plan, kills] of PLANS) {
          it(`answers as one process: ${what}, ${cacheBytes / EXPERT} experts cached`, async () => {
            const running = await start(quality, plan, cacheBytes);
            for (let round = 0; round < 2; round += 1) {
              const answers = await Promise.all(
                requests.map((each) =>
                  running.ask(each, undefined, (token) => {
                    if (kills && token === KILLED_AT && running.node('worker-1').isAlive)
                      running.node('worker-1').kill();
                  }),
                ),
              );
              answers.forEach((answer, index) => {
                assertSameAnswer(answer, expected[index] ?? assert.fail('no answer is expected'));
              });
            }
            for (const { identity, cache } of await workersOf(running)) {
              assert.ok(cache !== null, identity.id);
              assert.equal(cache.policy, 'sliced');
              const hits = cache.hits.full + cache.hits.exponent;
              if (cacheBytes !== TINY_BYTES) assert.ok(hits > 0, `${identity.id} finds no expert in its cache`);
            }
          });
        }
      }

      it('loads fewer bytes with a cache than without, and with a larger one fewer still', async () => {
        const bytes: number[] = [];
        for (const cacheBytes of [0, SMALL_BYTES, LARGE_BYTES]) {
          const running = await start(quality, { workers: 1 }, cacheBytes);
          await running.ask(request);
          const [worker = assert.fail()] = await workersOf(running);
          bytes.push(worker.storageReadBytes);
          await running.stop();
          cluster = null;
        }
        const [none = 0, small = 0, large = 0] = bytes;
        assert.ok(large < small && small < none, `${large} < ${small} < ${none}`);
      });

      it('loads nothing for a prompt that it has answered, when all slices fit', async () => {
        const running = await start(quality, { workers: 1, main: { main: { reusePrefixes: false } } }, LARGE_BYTES);
        // The second answer drafts tokens of the first one, and so runs other rows than that.
        for (let time = 0; time < 2; time += 1) await running.ask(request);
        const [before = assert.fail()] = await workersOf(running);
        await running.ask(request);
        const [after = assert.fail()] = await workersOf(running);
        assert.ok(before.loads > 0 && after.executions > before.executions);
        assert.deepEqual([after.loads, after.storageReadBytes], [before.loads, before.storageReadBytes]);
      });
    });
  }

  it("gives rows the memory of slices in main's own worker before anybody is preempted, and takes it back", async () => {
    const quality = qualityOf('sliced(8,4,critical=0.3)');
    const asked = [0, 1, 2].map((index) =>
      requestFor([7 + index, 17, 250, 3], { maxTokens: 40 + 8 * index, ignoreEos: true }),
    );
    const memoryBudgetBytes =
      DEVICE_BYTES.outerBytes +
      LAYERS * DEVICE_BYTES.denseLayerBytes +
      DEVICE_BYTES.slotSharedBytes +
      EXPERT +
      (asked.length + 1) * LAYERS * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes;
    const main = { quality, experts: 'local', reusePrefixes: false } as const;
    const running = (cluster = await VirtualCluster.start({
      packDirectory: pack,
      workers: 0,
      main: { device: { memoryBudgetBytes }, slots: 2, main, worker: { cachePolicy: 'sliced' } },
    }));
    await running.waitForRoster(1, 0);
    const cacheOf = async () => {
      const own = (await running.status()).nodes.find(({ identity }) => identity.id === 'main-worker');
      return own?.cache ?? assert.fail('no cache');
    };
    const before = await cacheOf();
    const answers = await running.passing(Promise.all(asked.map((each) => running.ask(each))));
    const expected = await expectedOf(quality, asked);
    answers.forEach((answer, index) => assertSameAnswer(answer, expected[index] ?? assert.fail()));
    const { passes, nodes } = await running.status();
    assert.equal(passes?.preemptions, 0);
    assert.ok(nodes.every(({ deviceMemoryHighWaterBytes }) => deviceMemoryHighWaterBytes <= memoryBudgetBytes));
    assert.deepEqual(running.deviceOf('main').violations, []);
    const during = await cacheOf();
    assert.ok(during.bytes < before.bytes && during.hits.full + during.hits.exponent > 0, JSON.stringify(during));
    await running.sleep(3000);
    assert.equal((await cacheOf()).bytes, before.bytes);
  });

  it('keeps upper slices alone where lower ones have no room', async () => {
    const running = await start(qualityOf('sliced(8,4,critical=0.3)'), { workers: 1 }, SMALL_BYTES);
    for (const each of requests) await running.ask(each);
    const [{ cache } = assert.fail()] = await workersOf(running);
    assert.ok(cache !== null);
    assert.ok(cache.kept.exponent > 0 && cache.hits.exponent > 0, JSON.stringify(cache));
    assert.ok(cache.kept.full * EXPERT + (cache.kept.exponent * EXPERT) / 2 <= cache.bytes, JSON.stringify(cache));
  });
});
