import assert from 'node:assert/strict';
import fc from 'fast-check';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { groupForLayer, planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { matchExperts } from '../../main-node/pass/plan-layer.js';
import type { Placement } from '../../shared/wire/messages.js';

const EXPERTS = 12;
const place = (count: number, expertsPerToken: number, groupSize: number | 'auto' = 'auto'): Placement =>
  planPlacement({
    epoch: 1,
    workers: Array.from({ length: count }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
    layers: 9,
    experts: EXPERTS,
    expertsPerToken,
    groupSize,
  });
const situations = fc.record({
  placement: fc
    .tuple(
      fc.integer({ min: 1, max: 17 }),
      fc.integer({ min: 1, max: 6 }),
      fc.oneof(fc.constant('auto' as const), fc.integer({ min: 1, max: 8 })),
    )
    .map(([count, expertsPerToken, groupSize]) => place(count, expertsPerToken, groupSize)),
  layer: fc.nat(8),
});
const homeOf = (placement: Placement, layer: number, expert: number): string | undefined =>
  assignPredictedExperts(placement, layer, [expert]).get(expert);
const expertSets = fc.uniqueArray(fc.nat(EXPERTS - 1), { maxLength: 6 });

describe('placement: assignment of predicted experts', () => {
  it('depends on the set only, stays in the group and is even', () => {
    fc.assert(
      fc.property(situations, expertSets, ({ placement, layer }, experts) => {
        const assignment = assignPredictedExperts(placement, layer, experts);
        assert.deepEqual(assignPredictedExperts(placement, layer, [...experts].reverse()), assignment);
        assert.deepEqual(assignPredictedExperts(placement, layer, [...experts, ...experts]), assignment);
        assert.deepEqual([...assignment.keys()].sort(), [...experts].sort());
        const group = groupForLayer(placement, layer);
        const loads = group.map((id) => [...assignment.values()].filter((assigned) => assigned === id).length);
        assert.equal(
          loads.reduce((sum, load) => sum + load, 0),
          experts.length,
        );
        assert.ok(Math.max(...loads) <= Math.ceil(experts.length / group.length));
      }),
    );
  });

  it('gives an expert the same worker whatever else is expected, unless that worker has its share already', () => {
    fc.assert(
      fc.property(situations, expertSets, ({ placement, layer }, experts) => {
        const assignment = assignPredictedExperts(placement, layer, experts);
        const share = Math.ceil(experts.length / Math.max(1, groupForLayer(placement, layer).length));
        for (const [expert, worker] of assignment) {
          const home = homeOf(placement, layer, expert);
          if (worker === home) continue;
          const atHome = [...assignment].filter(([, id]) => id === home).map(([other]) => other);
          assert.equal(atHome.length, share);
          assert.ok(atHome.every((other) => other < expert && homeOf(placement, layer, other) === home));
        }
      }),
    );
  });

  it('makes every worker of a group, spares too, the home of equally many experts', () => {
    for (const placement of [place(5, 2), place(7, 3), place(8, 2), place(1, 2), place(3, 4)]) {
      for (let layer = 0; layer < placement.layers; layer++) {
        const homes = Array.from({ length: EXPERTS }, (_, expert) => homeOf(placement, layer, expert));
        const counts = groupForLayer(placement, layer).map((id) => homes.filter((home) => home === id).length);
        assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, `homes ${counts.join(' ')}`);
      }
    }
  });

  it('lets the workers of a group with a spare rest in turn, layer after layer', () => {
    const placement = place(3, 2);
    const loads = new Map(placement.workers.map(({ id }) => [id, 0]));
    for (let layer = 0; layer < placement.layers; layer++) {
      for (const id of assignPredictedExperts(placement, layer, [1, 5]).values())
        loads.set(id, (loads.get(id) ?? 0) + 1);
    }
    assert.deepEqual([...loads.values()], [6, 6, 6], '9 layers of 2 experts on 3 workers');
  });

  it('begins to deal a layer where the layer before stopped in a group with spares, else one place further', () => {
    for (const [workers, expertsPerToken] of [
      [3, 2],
      [5, 2],
      [7, 3],
      [4, 4],
    ] as const) {
      const placement = place(workers, expertsPerToken, workers);
      const first = placement.groups[0]?.workerIds ?? [];
      const dealt = workers > expertsPerToken ? expertsPerToken : 1;
      const homes = Array.from({ length: placement.layers }, (_, layer) => homeOf(placement, layer, 0));
      const expected = homes.map((_, layer) => first[(layer * dealt) % workers]);
      assert.deepEqual(homes, expected, `${workers} workers, top-${expertsPerToken}`);
    }
  });

  it('uses every worker of a group with a spare about as much, whichever experts are chosen', () => {
    const placement = place(5, 2);
    const loads = new Map(placement.workers.map(({ id }) => [id, 0]));
    for (let layer = 0; layer < placement.layers; layer++) {
      for (let first = 0; first < EXPERTS; first++) {
        for (let second = first + 1; second < EXPERTS; second++) {
          for (const id of assignPredictedExperts(placement, layer, [first, second]).values()) {
            loads.set(id, (loads.get(id) ?? 0) + 1);
          }
        }
      }
    }
    for (const { workerIds } of placement.groups) {
      const ofGroup = workerIds.map((id) => loads.get(id) ?? 0);
      assert.ok(Math.max(...ofGroup) <= 1.05 * Math.min(...ofGroup), `loads ${ofGroup.join(' ')}`);
    }
  });

  it('has no result without workers', () => {
    assert.throws(() => assignPredictedExperts(place(0, 2), 0, [1]), { code: 'NO_WORKERS' });
  });
});

/** For each announced expert that the router did not choose, the worker to which it was announced. */
function holdersOfOthers(announced: ReadonlyMap<number, string>, activated: readonly number[]): string[] {
  return [...announced].filter(([expert]) => !activated.includes(expert)).map(([, workerId]) => workerId);
}

describe('placement: matching of router and prediction', () => {
  it('runs correctly predicted experts where they load, and missed ones in the group', () => {
    fc.assert(
      fc.property(situations, expertSets, expertSets, ({ placement, layer }, predicted, activated) => {
        const announced = assignPredictedExperts(placement, layer, predicted);
        const assignments = matchExperts(placement, layer, announced, activated, 'group');
        assert.deepEqual([...assignments.keys()], activated);
        const group = groupForLayer(placement, layer);
        for (const [expert, workerId] of assignments) {
          if (announced.has(expert)) assert.equal(workerId, announced.get(expert));
          assert.ok(group.includes(workerId));
        }
      }),
    );
  });

  it('never gives a worker more missed experts than it had wrong predictions while others have wrong ones left', () => {
    fc.assert(
      fc.property(situations, expertSets, expertSets, ({ placement, layer }, predicted, activated) => {
        const announced = assignPredictedExperts(placement, layer, predicted);
        const assignments = matchExperts(placement, layer, announced, activated, 'group');
        const wrong = holdersOfOthers(announced, activated);
        const missed = [...assignments].filter(([expert]) => !announced.has(expert)).map(([, workerId]) => workerId);
        const left = [...wrong];
        let onFreedPlaces = 0;
        for (const id of missed) {
          const place = left.indexOf(id);
          if (place < 0) continue;
          left.splice(place, 1);
          onFreedPlaces++;
        }
        assert.equal(onFreedPlaces, Math.min(wrong.length, missed.length));
      }),
    );
  });

  it('does not depend on the order of ranks', () => {
    fc.assert(
      fc.property(situations, expertSets, expertSets, ({ placement, layer }, predicted, activated) => {
        const announced = assignPredictedExperts(placement, layer, predicted);
        const turned = assignPredictedExperts(placement, layer, [...predicted].reverse());
        const forwards = matchExperts(placement, layer, announced, activated, 'group');
        const backwards = matchExperts(placement, layer, turned, [...activated].reverse(), 'group');
        assert.deepEqual([...backwards].reverse(), [...forwards]);
      }),
    );
  });

  it('without a prediction chooses the workers that a right prediction would have chosen', () => {
    fc.assert(
      fc.property(situations, expertSets, ({ placement, layer }, activated) => {
        const unheard = matchExperts(placement, layer, null, activated, 'group');
        const heard = matchExperts(
          placement,
          layer,
          assignPredictedExperts(placement, layer, activated),
          activated,
          'group',
        );
        assert.deepEqual([...unheard], [...heard]);
      }),
    );
  });

  it('sends a missed expert to the worker whose prediction was wrong', () => {
    const placement = place(8, 2);
    const announced = assignPredictedExperts(placement, 3, [2, 5]);
    assert.deepEqual(
      [...matchExperts(placement, 3, announced, [5, 9], 'group')],
      [
        [5, announced.get(5)],
        [9, announced.get(2)],
      ],
    );
  });

  it('with all workers takes freed workers first, then the least busy ones, wherever they are', () => {
    fc.assert(
      fc.property(
        situations,
        expertSets,
        expertSets,
        fc.nat(1000),
        ({ placement, layer }, predicted, activated, turn) => {
          const ids = placement.workers.map(({ id }) => id);
          const announced = new Map(
            predicted.map((expert, index) => [expert, ids[(index + turn) % ids.length] as string]),
          );
          const assignments = matchExperts(placement, layer, announced, activated, 'all');
          const freed = holdersOfOthers(announced, activated);
          const missed = [...assignments].filter(([expert]) => !announced.has(expert)).map(([, workerId]) => workerId);
          const left = [...freed];
          const onFreed = missed.filter((id) => left.includes(id) && left.splice(left.indexOf(id), 1).length > 0);
          assert.equal(onFreed.length, Math.min(freed.length, missed.length));
          if (freed.length > 0) return;
          const loads = ids.map((id) => [...assignments.values()].filter((workerId) => workerId === id).length);
          const most = Math.max(...ids.map((id) => [...announced.values()].filter((worker) => worker === id).length));
          assert.ok(
            Math.max(...loads) <= Math.max(most, Math.ceil(activated.length / ids.length)),
            `loads ${loads.join(' ')}`,
          );
        },
      ),
    );
  });

  it('with all workers and no prediction is even and moves on from layer to layer', () => {
    const placement = place(8, 2);
    const loads = new Map(placement.workers.map(({ id }) => [id, 0]));
    for (let layer = 0; layer < 8; layer++) {
      for (const workerId of matchExperts(placement, layer, null, [0, 1], 'all').values()) {
        loads.set(workerId, (loads.get(workerId) ?? 0) + 1);
      }
    }
    assert.deepEqual([...loads.values()], new Array(8).fill(2));
  });
});
