import type { Pool, PoolCapacities } from '../../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { PACK_CODECS, type PackCodec } from '../../../packs/format/pack-codec.js';
import { NO_CAPACITIES } from '../../../shared/decisions/caching/pool-capacities.js';
import type { CacheStatus } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';

const TINY_VOCABULARY = 300;
const EVERY_CACHING: PackCodec = 'zstd';
const REQUESTS = [
  requestFor([1, 17, 250, 3, 88], { maxTokens: 10, logprobs: TINY_VOCABULARY }),
  requestFor(
    Array.from({ length: 40 }, (_, index) => (index * 37 + 3) % TINY_VOCABULARY),
    {
      maxTokens: 6,
      logprobs: TINY_VOCABULARY,
      sampling: { temperature: 0.9, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 1.1, seed: 11 },
    },
  ),
];

interface Caching {
  worker: Partial<NodeSettings['worker']>;
  /** Pools that are hit. */
  hits: Pool[];
}

const pools = (capacities: Partial<PoolCapacities>, policy: NodeSettings['worker']['cachePolicy'] = 'planned') => ({
  worker: { pools: { ...NO_CAPACITIES, ...capacities }, cachePolicy: policy },
});
const CACHINGS: Record<string, Caching> = {
  'no cache': { worker: {}, hits: [] },
  'full experts': { ...pools({ full: 6 }), hits: ['full'] },
  'compressed experts': { ...pools({ compressed: 8 }), hits: ['compressed'] },
  'signs and mantissas': { ...pools({ signMantissa: 8 }), hits: ['signMantissa'] },
  exponents: { ...pools({ exponent: 8 }), hits: ['exponent'] },
  'all pools': { ...pools({ full: 4, compressed: 4, signMantissa: 4, exponent: 4 }), hits: ['full'] },
  'a plan of its own': { worker: { cacheBytes: 512 * 1024 }, hits: [] },
  'full experts by LRU': { ...pools({ full: 6 }, 'lru'), hits: ['full'] },
  'full experts by FIFO': { ...pools({ full: 6 }, 'fifo'), hits: ['full'] },
  'full experts by popularity': { ...pools({ full: 6 }, 'popularity'), hits: ['full'] },
  'full experts by marking': { ...pools({ full: 6 }, 'marking'), hits: ['full'] },
  'whole and compressed experts, divided anew every other pass': {
    worker: { ...pools({ full: 3, compressed: 5 }, 'residency').worker, replanPasses: 2 },
    hits: [],
  },
  'a residency plan of its own': { worker: { cacheBytes: 512 * 1024, cachePolicy: 'residency' }, hits: ['compressed'] },
};

describe('a simulated cluster that caches answers as the single-process engine does, to the bit,', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer[];
  let cluster: VirtualCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = [];
    for (const request of REQUESTS) {
      expected.push(await collect(reference.generate(request, new AbortController().signal)));
    }
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  /** The status of each worker's cache after both answers, twice: the second time from what the first has left. */
  async function holds(codec: PackCodec, { worker }: Caching, plan: Partial<ClusterPlan> = {}): Promise<CacheStatus[]> {
    const running = (cluster = await VirtualCluster.start({
      codec,
      workers: 2,
      shadow: 'int8',
      worker: () => ({ worker }),
      ...plan,
    }));
    for (let round = 0; round < 2; round++) {
      for (const [index, request] of REQUESTS.entries()) {
        assertSameAnswer(await running.ask(request), expected[index] as CollectedAnswer);
      }
    }
    return (await running.status()).nodes.flatMap(({ cache }) => cache ?? []);
  }

  for (const codec of PACK_CODECS) {
    // Every kind of cache with one codec, and every codec with all pools.
    for (const [name, caching] of Object.entries(CACHINGS)) {
      if (codec !== EVERY_CACHING && name !== 'all pools') continue;
      it(`a cluster with a ${codec} pack and ${name} answers as the single-process engine does`, async () => {
        const caches = await holds(codec, caching);
        assert.equal(caches.length, name === 'no cache' ? 0 : 2);
        for (const { hits, kept, capacities } of caches) {
          for (const pool of caching.hits) assert.ok(hits[pool] > 0, `no hit in the ${pool} pool`);
          for (const pool of ['full', 'compressed', 'signMantissa', 'exponent'] as const)
            assert.ok(kept[pool] <= capacities[pool], `${kept[pool]} experts in the ${pool} pool`);
        }
      });
    }
  }

  for (const policy of ['lru', 'planned', 'residency'] as const) {
    it(`with kept experts that are recoded between answers, by ${policy}`, async () => {
      const { worker } = pools({ full: 12, compressed: policy === 'lru' ? 0 : 2 }, policy);
      const running = (cluster = await VirtualCluster.start({
        workers: 2,
        worker: () => ({ worker: { ...worker, resident: 'fixed4', replanPasses: 4 } }),
        main: { prediction: { source: 'off', layersAhead: 1 } },
      }));
      const caches = async (): Promise<CacheStatus[]> =>
        (await running.status()).nodes.flatMap(({ cache }) => cache ?? []);
      for (let round = 0; round < 2; round++) {
        for (const [index, request] of REQUESTS.entries()) {
          assertSameAnswer(await running.ask(request), expected[index] as CollectedAnswer);
          await running.sleep(2500);
          for (const { packed, kept } of await caches()) {
            assert.ok(kept.full > 0);
            assert.equal(packed, kept.full, 'all that are kept are recoded in a pause');
          }
        }
      }
    });
  }

  for (const [name, { worker }] of Object.entries(CACHINGS)) {
    if (!['no cache', 'all pools', 'full experts by LRU'].includes(name)) continue;
    for (const codec of PACK_CODECS) {
      it(`with a ${codec} pack, ${name} and experts in host memory`, async () => {
        await holds(codec, { worker: { ...worker, hostMemory: 'auto' }, hits: [] });
        const { nodes } = await (cluster as VirtualCluster).status();
        const held = nodes.flatMap(({ hostMemory }) => hostMemory ?? []);
        assert.equal(held.length, 2);
        for (const { heldBytes, budgetBytes, experts, loads, loadedBytes } of held) {
          assert.ok(heldBytes > 0 && heldBytes <= budgetBytes && experts > 0, 'nothing is held');
          assert.ok(loads > 0 && loadedBytes > 0, 'no load takes what is held');
        }
      });
    }
  }

  it('with layers divided between host memory and storage', async function () {
    const { worker } = CACHINGS['whole and compressed experts, divided anew every other pass'] as Caching;
    const heldOf = async (cachePolicy: NodeSettings['worker']['cachePolicy']): Promise<number> => {
      await holds('huffman', { worker: { ...worker, cachePolicy, hostMemory: 'auto' }, hits: [] });
      const running = cluster as VirtualCluster;
      await running.sleep(10_000);
      const { nodes } = await running.status();
      await stopVirtualCluster(this, running);
      cluster = null;
      return nodes.reduce((sum, { hostMemory }) => sum + (hostMemory?.experts ?? 0), 0);
    };
    const all = await heldOf('planned');
    const part = await heldOf('residency');
    // The emulated link brings both alike.
    assert.ok(part >= 0.3 * all && part <= 0.65 * all, `${part} of ${all} experts`);
  });

  it('with several answers at a time', async () => {
    const { worker } = CACHINGS['all pools'] as Caching;
    const running = (cluster = await VirtualCluster.start({ workers: 3, shadow: 'int8', worker: () => ({ worker }) }));
    const answers = await Promise.all([...REQUESTS, ...REQUESTS].map((request) => running.ask(request)));
    answers.forEach((answer, index) => {
      assertSameAnswer(answer, expected[index % REQUESTS.length] as CollectedAnswer);
    });
  });

  it('with one worker, many slots and no shadow, so that several experts load at a time', async () => {
    const caching = CACHINGS['signs and mantissas'] as Caching;
    await holds('zstd', caching, { workers: 1, worker: () => ({ slots: 8, worker: caching.worker }) });
  });

  it('with workers that cache differently', async () => {
    const kinds = Object.values(CACHINGS);
    const worker = (index: number): { worker: Caching['worker'] } => ({ worker: kinds[index]?.worker ?? {} });
    const running = (cluster = await VirtualCluster.start({ workers: 6, shadow: 'nf4', worker }));
    for (const [index, request] of REQUESTS.entries()) {
      assertSameAnswer(await running.ask(request), expected[index] as CollectedAnswer);
    }
  });

  it('with experts dealt to all workers, where caches for all experts together serve all loads', async () => {
    const share = { full: 8 };
    const running = (cluster = await VirtualCluster.start({
      workers: 4,
      shadow: 'int8',
      worker: () => pools(share, 'lru'),
      main: { spread: 'all' },
    }));
    const counts = async (): Promise<{ hits: number; uses: number }> => {
      const caches = (await running.status()).nodes.flatMap(({ cache }) => cache ?? []);
      const hits = caches.reduce((sum, { hits: { full } }) => sum + full, 0);
      return { hits, uses: caches.reduce((sum, { misses }) => sum + misses, hits) };
    };
    const [request, answer] = [REQUESTS[0], expected[0]];
    assert.ok(request !== undefined && answer !== undefined);
    for (let round = 0; round < 3; round++) assertSameAnswer(await running.ask(request), answer);
    const before = await counts();
    for (let round = 0; round < 3; round++) assertSameAnswer(await running.ask(request), answer);
    const after = await counts();
    const hitRate = (after.hits - before.hits) / (after.uses - before.uses);
    assert.ok(hitRate > 0.9, `${hitRate} of uses are hits`);
  });
});
