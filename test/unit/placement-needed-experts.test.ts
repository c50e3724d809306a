import assert from 'node:assert/strict';
import fc from 'fast-check';
import { groupForLayer, type PlacementInput, planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import { neededExperts } from '../../shared/decisions/placement/needed-experts.js';
import { usesNearlyAllExperts, workersForPrefillExpert } from '../../shared/decisions/placement/prefill-workers.js';

const inputs = fc.record({
  epoch: fc.nat(100),
  workers: fc
    .uniqueArray(fc.stringMatching(/^[a-z]{1,4}$/), { minLength: 1, maxLength: 12 })
    .map((ids) => ids.map((id) => ({ id, address: `${id}:1`, slots: 1 }))),
  layers: fc.integer({ min: 1, max: 9 }),
  experts: fc.integer({ min: 1, max: 9 }),
  expertsPerToken: fc.integer({ min: 1, max: 4 }),
  groupSize: fc.oneof(fc.constant('auto' as const), fc.integer({ min: 1, max: 5 })),
}) satisfies fc.Arbitrary<PlacementInput>;

describe('placement: the experts that a worker needs', () => {
  it('are those that decode or prefill may request, each once, in order', () => {
    fc.assert(
      fc.property(inputs, (input) => {
        const placement = planPlacement(input);
        for (const { id } of placement.workers) {
          const needed = neededExperts(placement, id);
          const keys = needed.map(({ layer, expert }) => layer * placement.experts + expert);
          assert.deepEqual(
            keys,
            [...new Set(keys)].sort((left, right) => left - right),
          );
          for (let key = 0; key < placement.layers * placement.experts; key += 1) {
            const layer = Math.floor(key / placement.experts);
            const asked =
              groupForLayer(placement, layer).includes(id) ||
              workersForPrefillExpert(placement, layer, key % placement.experts).includes(id);
            assert.equal(keys.includes(key), asked, `worker ${id}, layer ${layer}, expert ${key % placement.experts}`);
          }
        }
      }),
    );
  });

  it('cover all experts for all workers together', () => {
    fc.assert(
      fc.property(inputs, (input) => {
        const placement = planPlacement(input);
        const together = new Set(
          placement.workers.flatMap(({ id }) =>
            neededExperts(placement, id).map(({ layer, expert }) => layer * placement.experts + expert),
          ),
        );
        assert.equal(together.size, placement.layers * placement.experts);
      }),
    );
  });

  it('are far fewer than all with several groups, and none for an unplaced worker', () => {
    const workers = Array.from({ length: 8 }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 }));
    const placement = planPlacement({
      epoch: 1,
      workers,
      layers: 32,
      experts: 8,
      expertsPerToken: 2,
      groupSize: 'auto' as const,
    });
    // All experts in a quarter of the layers, and an eighth of the experts in the others.
    assert.equal(neededExperts(placement, 'w3').length, 8 * 8 + 24);
    assert.deepEqual(neededExperts(placement, 'stranger'), []);
  });
});

describe('placement: a pass that is expected to use nearly all experts of a layer', () => {
  const rowsNeeded = (experts: number, expertsPerToken: number): number => {
    let rows = 1;
    while (!usesNearlyAllExperts({ experts, expertsPerToken }, rows)) rows += 1;
    return rows;
  };

  it('has more rows, the smaller the part is that a row uses', () => {
    assert.equal(rowsNeeded(4, 4), 1);
    assert.equal(rowsNeeded(8, 2), 8);
    assert.equal(rowsNeeded(128, 8), 35);
    assert.equal(rowsNeeded(512, 10), 112);
  });
});
