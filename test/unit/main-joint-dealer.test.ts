import assert from 'node:assert/strict';
import fc from 'fast-check';
import { JointDealer } from '../../main-node/pass/announcements.js';
import { takersOf } from '../../main-node/pass/plan-layer.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { Placement } from '../../shared/wire/messages.js';

const LAYERS = 6;
const EXPERTS = 8;
const NOBODY: ReadonlyMap<number, string> = new Map();

function placementOf(workers: number, changes: { epoch?: number; homes?: number } = {}): Placement {
  return planPlacement({
    epoch: 1,
    layers: LAYERS,
    experts: EXPERTS,
    expertsPerToken: 2,
    groupSize: 'auto' as const,
    ...changes,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
  });
}

describe('main: dealing the predicted experts of joint passes', () => {
  const dealtOf = (placement: Placement, layer: number, pass = 0, held = NOBODY) => ({
    placement,
    takers: takersOf(placement, layer, Infinity),
    pass,
    layer,
    held,
  });

  it('gives each worker a free layer between two loads, also across passes, where workers are twice as many', () => {
    const placement = placementOf(8);
    const dealer = new JointDealer(() => false);
    let before: string[] = [];
    for (let pass = 0; pass < 3; pass++) {
      for (let layer = 0; layer < LAYERS; layer++) {
        const experts = [0, 1, 2, 3].map((place) => (place + 3 * layer + pass) % EXPERTS);
        const workers = [...(dealer.deal(dealtOf(placement, layer, pass), experts)?.values() ?? [])];
        assert.equal(new Set(workers).size, 4);
        assert.deepEqual(
          workers.filter((id) => before.includes(id)),
          [],
        );
        before = workers;
      }
    }
  });

  it('places joining experts evenly beside the experts that workers already expect', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.nat(EXPERTS - 1), { maxLength: 4 }),
        fc.uniqueArray(fc.nat(EXPERTS - 1)),
        fc.integer({ min: 3, max: 9 }),
        (first, more, workers) => {
          const placement = placementOf(workers);
          const dealer = new JointDealer(() => false);
          const held = new Map(first.map((expert, place) => [expert, `w${place % workers}`]));
          const dealt = dealer.deal(dealtOf(placement, 1, 0, held), [...more, ...more]);
          assert.deepEqual([...(dealt?.keys() ?? [])].sort(), more.filter((expert) => !held.has(expert)).sort());
          const loads = placement.workers.map(
            ({ id }) => [...held.values(), ...(dealt?.values() ?? [])].filter((worker) => worker === id).length,
          );
          assert.ok(Math.max(...loads) <= Math.max(Math.ceil((held.size + (dealt?.size ?? 0)) / workers), 2));
        },
      ),
    );
  });

  it('deals nothing where a worker caches experts, experts have homes, or a layer has a group', () => {
    const placement = placementOf(4);
    const keeper = new JointDealer((id) => id === 'w2');
    const dealer = new JointDealer(() => false);
    assert.equal(keeper.deal(dealtOf(placement, 0), [1]), null);
    const strict = placementOf(4, { homes: 1 });
    assert.equal(dealer.deal(dealtOf(strict, 0), [1]), null);
    assert.equal(dealer.deal({ ...dealtOf(placement, 0), takers: placement }, [1]), null);
    assert.equal(dealer.openCount, 0);
  });

  it('forgets the experts dealt under another placement, and those of a pass that is not run', () => {
    const dealer = new JointDealer(() => false);
    const placement = placementOf(4);
    const pass = dealer.beginPass();
    assert.notEqual(dealer.beginPass(), pass);
    dealer.deal(dealtOf(placement, 0, pass), [1, 2]);
    assert.equal(dealer.openCount, 3);
    dealer.forget(placementOf(4, { epoch: 2 }), pass);
    assert.equal(dealer.openCount, 3);
    dealer.forget(placement, pass);
    assert.equal(dealer.openCount, 0);
    dealer.deal(dealtOf(placement, 0, pass), [1, 2]);
    dealer.deal(dealtOf(placementOf(3, { epoch: 2 }), 0, pass), [1]);
    assert.equal(dealer.openCount, 2);
  });
});
