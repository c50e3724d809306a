import assert from 'node:assert/strict';
import fc from 'fast-check';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { chooseReplacement } from '../../main-node/pass/expert-dispatcher.js';
import { hasKept, keep, keptBytes } from '../../shared/decisions/placement/kept-experts.js';
import { matchExperts } from '../../main-node/pass/plan-layer.js';
import { neededExperts } from '../../shared/decisions/placement/needed-experts.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { workersForPrefillExpert } from '../../shared/decisions/placement/prefill-workers.js';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import type { Placement } from '../../shared/wire/messages.js';

const LAYERS = 6;

function place(workers: readonly string[], experts: number, homes: number): Placement {
  return planPlacement({
    epoch: 1,
    layers: LAYERS,
    experts,
    expertsPerToken: 2,
    groupSize: 'auto',
    homes,
    workers: workers.map((id) => ({ id, address: `${id}:1`, slots: 2 })),
  });
}

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `box-${index}`);
const places = (experts: number): [layer: number, expert: number][] =>
  Array.from({ length: LAYERS * experts }, (_, index) => [Math.floor(index / experts), index % experts]);

const clusters = fc.record({
  workers: fc.uniqueArray(fc.stringMatching(/^[a-z]{1,5}$/), { minLength: 1, maxLength: 12 }),
  experts: fc.integer({ min: 1, max: 40 }),
  homes: fc.integer({ min: 1, max: 2 }),
});

describe('placement: experts with strict homes', () => {
  it('have the requested number of homes, spread evenly, whatever the order of the workers', () => {
    fc.assert(
      fc.property(clusters, ({ workers, experts, homes }) => {
        const placement = place(workers, experts, homes);
        const other = place([...workers].reverse(), experts, homes);
        const copies = Math.min(homes, workers.length);
        for (let layer = 0; layer < LAYERS; layer += 1) {
          const held = new Map<string, number>();
          for (let expert = 0; expert < experts; expert += 1) {
            const own = strictHomesOf(placement, layer, expert);
            assert.deepEqual(own, strictHomesOf(other, layer, expert));
            assert.equal(new Set(own).size, copies);
            const [first = ''] = own;
            held.set(first, (held.get(first) ?? 0) + 1);
          }
          assert.ok(Math.max(...held.values()) <= Math.ceil(experts / workers.length), [...held.values()].join());
        }
      }),
    );
  });

  it('run at their homes only, in decode, in prefill, on a disk', () => {
    fc.assert(
      fc.property(clusters, fc.nat(LAYERS - 1), ({ workers, experts, homes }, layer) => {
        const placement = place(workers, experts, homes);
        const all = Array.from({ length: experts }, (_, expert) => expert);
        const isOwn = (expert: number, id: string): boolean => strictHomesOf(placement, layer, expert).includes(id);
        for (const [expert, id] of assignPredictedExperts(placement, layer, all)) assert.ok(isOwn(expert, id));
        const announced = new Map(
          all.slice(0, 2).map((expert) => [expert, strictHomesOf(placement, layer, expert)[0] ?? '']),
        );
        for (const [expert, workerId] of matchExperts(placement, layer, announced, all.slice(1), 'all'))
          assert.ok(isOwn(expert, workerId));
        for (const expert of all)
          assert.deepEqual(workersForPrefillExpert(placement, layer, expert), strictHomesOf(placement, layer, expert));
        const needed = placement.workers.reduce((sum, { id }) => sum + neededExperts(placement, id).length, 0);
        assert.equal(needed, LAYERS * experts * Math.min(homes, workers.length));
      }),
    );
  });

  it('go to a copy where one exists, else to any worker', () => {
    const placement = place(names(4), 8, 2);
    const [first = '', second = ''] = strictHomesOf(placement, 3, 5);
    const here = { layer: 3, expert: 5 };
    assert.equal(chooseReplacement(placement, here, new Set([first]), new Map([[second, 9]])), second);
    const other = chooseReplacement(placement, here, new Set([first, second]), new Map());
    assert.ok(other !== null && other !== first && other !== second);
  });

  it('stay where they are when another worker leaves, with few exceptions', () => {
    for (const [workers, experts] of [
      [8, 128],
      [4, 60],
      [10, 256],
    ] as const) {
      const before = place(names(workers), experts, 1);
      const after = place(names(workers - 1), experts, 1);
      const moved = places(experts).filter(
        ([layer, expert]) => strictHomesOf(before, layer, expert)[0] !== strictHomesOf(after, layer, expert)[0],
      );
      const share = moved.length / (LAYERS * experts);
      assert.ok(share < 1.6 / workers, `${share} of all moved among ${workers}`);
    }
  });

  it('of a lost worker mostly go to the worker of the copy', () => {
    const before = place(names(8), 128, 2);
    const after = place(names(7), 128, 2);
    const ofLost = places(128).filter(([layer, expert]) => strictHomesOf(before, layer, expert)[0] === 'box-7');
    const fetched = ofLost.filter(([layer, expert]) =>
      strictHomesOf(after, layer, expert).every((id) => !strictHomesOf(before, layer, expert).includes(id)),
    );
    assert.ok(fetched.length <= 0.1 * ofLost.length, `${fetched.length} of ${ofLost.length} are nowhere near`);
  });

  it('are kept first at the worker whose bitmap has them, and shared by the others else', () => {
    fc.assert(
      fc.property(clusters, fc.infiniteStream(fc.boolean()), ({ workers, experts, homes }, drawn) => {
        const [keeper = ''] = workers;
        const kept = new Uint8Array(keptBytes({ layers: LAYERS, experts }));
        for (const [layer, expert] of places(experts)) if (drawn.next().value) keep(kept, experts, layer, expert);
        const plain = place(workers, experts, homes);
        const placement = {
          ...plain,
          workers: plain.workers.map((worker) => (worker.id === keeper ? { ...worker, keptExperts: kept } : worker)),
        };
        const sharing = workers.length - 1;
        for (let layer = 0; layer < LAYERS; layer += 1) {
          const held = new Map<string, number>();
          let shared = 0;
          for (let expert = 0; expert < experts; expert += 1) {
            const own = strictHomesOf(placement, layer, expert);
            assert.equal(own.length, Math.min(homes, workers.length));
            assert.equal(new Set(own).size, own.length);
            const [first = ''] = own;
            const isKept = hasKept(kept, experts, layer, expert);
            if (sharing > 0) assert.equal(first === keeper, isKept);
            if (isKept) assert.equal(assignPredictedExperts(placement, layer, [expert]).get(expert), keeper);
            else held.set(first, (held.get(first) ?? 0) + 1);
            shared += isKept ? 0 : 1;
          }
          if (sharing > 0) assert.ok(Math.max(0, ...held.values()) <= Math.ceil(shared / sharing));
        }
      }),
    );
  });
});
