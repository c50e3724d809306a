import assert from 'node:assert/strict';
import fc from 'fast-check';
import { CachedLayers, cachingWorkersOf } from '../../main-node/cluster/cached-layers.js';
import type { WorkerOrders } from '../../main-node/cluster/placed-workers.js';
import { CachedNews, MAX_NEWS_LAYERS } from '../../main-node/decode/cached-news.js';
import { ExpertDealer } from '../../shared/decisions/placement/expert-dealer.js';
import { assignMoreExperts, takersOf, matchExperts } from '../../main-node/pass/plan-layer.js';
import { assignCached, CACHED_BEYOND_SHARE } from '../../shared/decisions/placement/cached-assignment.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { Placement } from '../../shared/wire/messages.js';
import { PredictionDealer } from '../../shadow-node/rpc/prediction-dealer.js';

const LAYERS = 4;
const EXPERTS = 8;

function placementOf(workers: number, epoch = 1): Placement {
  return planPlacement({
    epoch,
    layers: LAYERS,
    experts: EXPERTS,
    expertsPerToken: 2,
    groupSize: 'auto' as const,
    spread: true,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
  });
}

/** Workers that reported these experts of each layer as cached. */
function keeping(placement: Placement, kept: Readonly<Record<string, readonly number[]>>) {
  const links = new Map(
    placement.workers.map(({ id }) => {
      const layers = new CachedLayers();
      for (let layer = 0; layer < LAYERS; layer++) if (kept[id] !== undefined) layers.take(layer, kept[id]);
      return [id, { cached: layers } as unknown as WorkerOrders & { cached: CachedLayers }];
    }),
  );
  return { placement, worker: (id: string) => links.get(id) ?? null, links };
}

describe('placement: experts that workers cache', () => {
  it('go to a worker that caches them, and to none more than its share and one', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.nat(EXPERTS - 1)),
        fc.array(fc.uniqueArray(fc.nat(EXPERTS - 1)), { minLength: 1, maxLength: 5 }),
        (experts, kept) => {
          const keepers = (expert: number): number[] =>
            kept.flatMap((has, place) => (has.includes(expert) ? [place] : []));
          const given = assignCached(experts, keepers, new Map<number, number>(), kept.length);
          const most = Math.ceil(experts.length / kept.length) + CACHED_BEYOND_SHARE;
          for (const [expert, place] of given) assert.ok(kept[place]?.includes(expert));
          const counts = kept.map((_, place) => [...given.values()].filter((other) => other === place).length);
          assert.ok(Math.max(...counts) <= most);
          for (const expert of experts)
            assert.ok(given.has(expert) || keepers(expert).every((place) => counts[place] === most));
        },
      ),
    );
  });

  it('are dealt to their workers at every ordinal, and count as no load', () => {
    const dealer = new ExpertDealer(4, LAYERS);
    const keepers = (expert: number): number[] => (expert === 5 ? [2] : []);
    const others = [0, 1, 2, 3].map((ordinal) => {
      const [kept, other] = dealer.deal(ordinal, [5, ordinal], keepers);
      assert.equal(kept, 2);
      return other;
    });
    assert.deepEqual(others, [0, 1, 3, 2]);
    dealer.forget(0, 6);
    assert.equal(dealer.openCount, 0);
  });

  it('are dealt by a shadow that main has informed, until a worker caches others', () => {
    const dealer = new PredictionDealer(placementOf(4));
    const deal = (position: number): number[] =>
      dealer.deal(
        1,
        { spread: true, optimistic: true },
        {
          position,
          rows: 1,
          layer: 2,
          experts: [3, 6],
          critical: [],
          again: false,
          runUs: 0,
        },
      );
    dealer.noteCached([
      { worker: 3, layer: 2, experts: [6] },
      { worker: 1, layer: 2, experts: [3] },
      { worker: 9, layer: 2, experts: [3] },
      { worker: 0, layer: 99, experts: [3] },
    ]);
    assert.deepEqual(deal(0), [1, 3]);
    dealer.noteCached([{ worker: 1, layer: 2, experts: [] }]);
    assert.equal(deal(1)[1], 3);
    assert.notEqual(deal(1)[0], 3);
  });

  it('run at their workers without an announcement, or when rows of several sequences want them', () => {
    const placement = placementOf(4);
    const workers = keeping(placement, { w3: [0], w2: [1, 4] });
    const keepers = cachingWorkersOf(workers, placement, 1) ?? assert.fail('workers keep experts');
    const runs = (announced: Map<number, string> | null): Map<number, string> =>
      matchExperts(placement, 1, announced, [0, 1, 5], 'all', keepers);
    for (const announced of [null, new Map([[5, 'w0']])]) {
      assert.equal(runs(announced).get(0), 'w3');
      assert.equal(runs(announced).get(1), 'w2');
    }
    const joint = assignMoreExperts(takersOf(placement, 1, Infinity), 1, new Map(), [0, 1, 5], keepers);
    assert.deepEqual([joint.get(0), joint.get(1)], ['w3', 'w2']);
    assert.equal(cachingWorkersOf(keeping(placement, {}), placement, 1), null);
    assert.equal(cachingWorkersOf(workers, { ...placement, homes: 1 }, 1), null);
  });

  it('are reported to each shadow once, then changes only, and all again under another placement', () => {
    const workers = keeping(placementOf(2), { w0: [1], w1: [2, 3] });
    const news = new CachedNews<object>(workers);
    const shadow = {};
    assert.equal(news.takeFor(shadow).length, 2 * LAYERS);
    assert.deepEqual(news.takeFor(shadow), []);
    workers.links.get('w1')?.cached.take(2, [7]);
    assert.deepEqual(news.takeFor(shadow), [{ worker: 1, layer: 2, experts: [7] }]);
    assert.equal(news.takeFor({}).length, 2 * LAYERS);
    workers.placement = placementOf(2, 2);
    assert.equal(news.takeFor(shadow).length, 2 * LAYERS);
  });

  it('are reported in several messages where there are many layers of them', () => {
    const placement = placementOf(1);
    const workers = keeping(placement, {});
    const kept = workers.links.get('w0')?.cached ?? assert.fail('there is one worker');
    for (let layer = 0; layer < MAX_NEWS_LAYERS + 3; layer++) kept.take(layer, [0]);
    const news = new CachedNews<object>(workers);
    const shadow = {};
    assert.equal(news.takeFor(shadow).length, MAX_NEWS_LAYERS);
    assert.equal(news.takeFor(shadow).length, 3);
  });
});
