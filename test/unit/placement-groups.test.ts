import assert from 'node:assert/strict';
import fc from 'fast-check';
import { chooseReplacement } from '../../main-node/pass/expert-dispatcher.js';
import { groupForLayer, layersOfWorker, planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { workersForPrefillExpert } from '../../shared/decisions/placement/prefill-workers.js';
import type { PlacedWorker, Placement } from '../../shared/wire/messages.js';

const worker = (id: string): PlacedWorker => ({ id, address: `${id}:1`, slots: 1 });
const place = (count: number, expertsPerToken: number, groupSize: number | 'auto' = 'auto'): Placement =>
  planPlacement({
    epoch: 1,
    workers: Array.from({ length: count }, (_, index) => worker(`worker-${index + 1}`)),
    layers: 32,
    experts: 8,
    expertsPerToken,
    groupSize,
  });
const sizes = (placement: Placement): number[] => placement.groups.map((group) => group.workerIds.length);

describe('placement: the division into groups', () => {
  it('makes groups of top-k where the workers allow it and spreads the rest', () => {
    assert.deepEqual(sizes(place(8, 2)), [2, 2, 2, 2]);
    assert.deepEqual(sizes(place(1, 2)), [1]);
    assert.deepEqual(sizes(place(3, 4)), [3]);
    assert.deepEqual(sizes(place(5, 2)).sort(), [2, 3]);
    assert.deepEqual(sizes(place(7, 3)).sort(), [3, 4]);
    assert.deepEqual(sizes(place(8, 2, 3)), [4, 4]);
    assert.deepEqual(sizes(place(3, 2, 100)), [3]);
    assert.deepEqual(sizes(place(0, 2)), []);
  });

  it('puts every worker into exactly one group, for any number of workers, top-k and group size, in any order', () => {
    const cases = fc.record({
      ids: fc.uniqueArray(fc.string({ minLength: 1, maxLength: 6 }), { minLength: 1, maxLength: 40 }),
      expertsPerToken: fc.integer({ min: 1, max: 12 }),
      groupSize: fc.oneof(fc.constant('auto' as const), fc.integer({ min: 1, max: 60 })),
      order: fc.array(fc.nat(), { minLength: 40, maxLength: 40 }),
    });
    fc.assert(
      fc.property(cases, ({ ids, expertsPerToken, groupSize, order }) => {
        const plan = (of: string[]) =>
          planPlacement({ epoch: 3, workers: of.map(worker), layers: 5, experts: 16, expertsPerToken, groupSize });
        const placement = plan(ids);
        assert.deepEqual(placement.groups.flatMap((group) => group.workerIds).sort(), [...ids].sort());
        const size = Math.min(groupSize === 'auto' ? expertsPerToken : groupSize, ids.length);
        assert.equal(placement.groups.length, Math.floor(ids.length / size));
        const groupSizes = sizes(placement);
        assert.ok(Math.min(...groupSizes) >= size);
        assert.ok(Math.max(...groupSizes) - Math.min(...groupSizes) <= 1);
        const keyed = ids.map((id, index) => ({ id, key: order[index] as number }));
        const shuffled = keyed.sort((left, right) => left.key - right.key).map((entry) => entry.id);
        assert.deepEqual(plan(shuffled), placement);
      }),
    );
  });

  it('gives the layers to the groups in turn', () => {
    const placement = place(8, 2);
    for (let layer = 0; layer < 32; layer++) {
      assert.deepEqual(groupForLayer(placement, layer), placement.groups[layer % 4]?.workerIds);
    }
    const [, second] = groupForLayer(placement, 3);
    assert.deepEqual(layersOfWorker(placement, second as string), [3, 7, 11, 15, 19, 23, 27, 31]);
    assert.deepEqual(layersOfWorker(placement, 'stranger'), []);
    const everyLayer = Array.from({ length: placement.layers }, (_, layer) => layer);
    assert.deepEqual(layersOfWorker({ ...placement, spread: true }, second as string), everyLayer);
    assert.deepEqual(layersOfWorker({ ...placement, spread: true }, 'stranger'), []);
  });
});

describe('placement: prefill', () => {
  it('shares the experts of every layer evenly over all workers, with several workers each where possible', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 30 }), fc.nat(40), (count, layer) => {
        const placement = place(count, 2);
        const held = new Map<string, number>();
        for (let expert = 0; expert < placement.experts; expert++) {
          const holders = workersForPrefillExpert(placement, layer, expert);
          assert.ok(holders.length >= 1);
          assert.equal(new Set(holders).size, holders.length);
          for (const id of holders) held.set(id, (held.get(id) ?? 0) + 1);
        }
        const counts = placement.workers.map(({ id }) => held.get(id) ?? 0);
        assert.ok(Math.min(...counts) >= 1 || count > placement.experts);
        assert.ok(Math.max(...counts) - Math.min(...counts) <= 1);
        if (count >= placement.experts) assert.deepEqual(new Set(counts), new Set([1]));
      }),
    );
  });

  it('is rotated by layer', () => {
    const placement = place(5, 2);
    assert.deepEqual(
      [0, 1, 2].map((layer) => workersForPrefillExpert(placement, layer, 0)),
      [['worker-1'], ['worker-2'], ['worker-3']],
    );
  });

  it('has no result without workers', () => {
    assert.throws(() => workersForPrefillExpert(place(0, 2), 0, 0), { code: 'NO_WORKERS' });
  });
});

describe('placement: the replacement of a lost worker', () => {
  it('stays in the group while a worker of it is left and takes the least busy', () => {
    const placement = place(8, 4);
    const [first, second, third, fourth] = groupForLayer(placement, 1) as [string, string, string, string];
    const busy = new Map([
      [second, 2],
      [third, 1],
      [fourth, 1],
    ]);
    assert.equal(chooseReplacement(placement, { layer: 1, expert: 0 }, new Set([first]), busy), third);
    assert.equal(chooseReplacement(placement, { layer: 1, expert: 0 }, new Set([first, third, fourth]), busy), second);
    const others = groupForLayer(placement, 0);
    const wholeGroup = new Set([first, second, third, fourth]);
    assert.ok(others.includes(chooseReplacement(placement, { layer: 1, expert: 0 }, wholeGroup, busy) as string));
  });

  it('is null exactly when all workers are lost', () => {
    const placement = place(3, 2);
    const all = new Set(placement.workers.map(({ id }) => id));
    assert.equal(chooseReplacement(placement, { layer: 0, expert: 0 }, all, new Map()), null);
    all.delete('worker-2');
    assert.equal(chooseReplacement(placement, { layer: 0, expert: 0 }, all, new Map([['worker-2', 99]])), 'worker-2');
  });
});
