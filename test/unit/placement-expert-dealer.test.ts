import assert from 'node:assert/strict';
import fc from 'fast-check';
import { assignmentOf } from '../../shared/decisions/placement/assignment-of.js';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { ExpertDealer } from '../../shared/decisions/placement/expert-dealer.js';
import {
  firstLayerWorkers,
  isFirstLayerWorthAnnouncing,
} from '../../shared/decisions/placement/first-layer-workers.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { Placement } from '../../shared/wire/messages.js';

const place = (workers: number, experts = 8): Placement =>
  planPlacement({
    epoch: 1,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
    layers: 32,
    experts,
    expertsPerToken: 2,
    groupSize: 'auto',
  });

describe('placement: dealing experts to all workers', () => {
  it('equals the round robin of groups of 2, for one row, top-2 and 8 workers, pass after pass', () => {
    const dealer = new ExpertDealer(8, 32);
    for (let ordinal = 0; ordinal < 32 * 20; ordinal += 1) {
      const first = (2 * ordinal) % 8;
      assert.deepEqual(dealer.deal(ordinal, [ordinal % 8, (ordinal + 3) % 8]), [first, first + 1]);
    }
  });

  it('gives experts in turn to any whole number of groups', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 12 }), (topK, groups) => {
        const dealer = new ExpertDealer(topK * groups, 7);
        const experts = Array.from({ length: topK }, (_, index) => index);
        for (let ordinal = 0; ordinal < 5 * groups + 40; ordinal += 1) {
          const first = topK * (ordinal % groups);
          assert.deepEqual(
            dealer.deal(ordinal, experts),
            experts.map((expert) => first + expert),
          );
        }
      }),
    );
  });

  const deals = fc.array(
    fc.record({ ordinal: fc.integer({ min: 0, max: 60 }), experts: fc.uniqueArray(fc.nat(15), { maxLength: 16 }) }),
    { maxLength: 60 },
  );

  it('keeps the worker of an expert as a set grows, and spreads a set as evenly as possible', () => {
    fc.assert(
      fc.property(deals, fc.integer({ min: 1, max: 20 }), (asked, workers) => {
        const dealer = new ExpertDealer(workers, 64);
        const held = new Map<string, number>();
        for (const { ordinal, experts } of asked) {
          const places = dealer.deal(ordinal, experts);
          assert.equal(places.length, experts.length);
          places.forEach((given, index) => {
            assert.ok(given >= 0 && given < workers);
            const key = `${ordinal}:${experts[index]}`;
            assert.equal(held.get(key) ?? given, given);
            held.set(key, given);
          });
          const counts = new Array<number>(workers).fill(0);
          for (const [key, given] of held) {
            if (key.startsWith(`${ordinal}:`)) counts[given] = (counts[given] ?? 0) + 1;
          }
          assert.ok(Math.max(...counts) - Math.min(...counts) <= 1, `${counts.join()}`);
        }
      }),
    );
  });

  it('gives an expert to the worker whose nearest load is farthest, before and after', () => {
    const dealer = new ExpertDealer(3, 8);
    assert.deepEqual(dealer.deal(0, [0]), [0]);
    assert.deepEqual(dealer.deal(4, [0]), [1]);
    assert.deepEqual(dealer.deal(7, [0]), [2]);
    assert.deepEqual(dealer.deal(3, [0]), [2], '4 away, the others 3 and 1');
    assert.deepEqual(dealer.deal(6, [5]), [0]);
  });

  it('gives no worker an expert whose nearest load is nearer than another’s, wherever the ordinals go', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(60), { maxLength: 60 }), fc.integer({ min: 1, max: 9 }), (ordinals, workers) => {
        const dealer = new ExpertDealer(workers, 64);
        const loads = Array.from({ length: workers }, (): number[] => []);
        const nearest = (place: number, ordinal: number) =>
          Math.min(...(loads[place] ?? []).map((load) => Math.abs(load - ordinal)));
        for (const [expert, ordinal] of ordinals.entries()) {
          const [given = -1] = dealer.deal(ordinal, [expert]);
          assert.equal(nearest(given, ordinal), Math.max(...loads.map((_, place) => nearest(place, ordinal))));
          loads[given]?.push(ordinal);
        }
      }),
    );
  });

  it('does not count forgotten loads', () => {
    const dealer = new ExpertDealer(4, 8);
    dealer.deal(0, [0, 1]);
    dealer.deal(1, [0, 1]);
    dealer.forget(1, 2);
    assert.deepEqual(dealer.deal(1, [6, 7]), [2, 3]);
    dealer.forget(0, 100);
    assert.deepEqual(dealer.deal(5, [6, 7]), [0, 1]);
  });

  it('keeps the choice of others and counts it as a load', () => {
    const dealer = new ExpertDealer(4, 8);
    assert.equal(dealer.give(0, 3, 0), 0);
    assert.equal(dealer.give(0, 3, 2), 0);
    assert.deepEqual(dealer.deal(0, [3, 4]), [0, 1]);
  });

  it('deals to nobody where no worker exists', () => {
    assert.deepEqual(new ExpertDealer(0, 8).deal(0, [1, 2]), []);
  });
});

describe('placement: the recipients of a prediction', () => {
  it('are read from the places of a prediction, else from the groups', () => {
    const placement = place(8);
    const prediction = { layer: 3, experts: [5, 1] };
    assert.deepEqual(
      [...assignmentOf(placement, { ...prediction, workers: [7, 0] })],
      [
        [5, 'w7'],
        [1, 'w0'],
      ],
    );
    assert.deepEqual(
      assignmentOf(placement, { ...prediction, workers: [] }),
      assignPredictedExperts(placement, 3, [5, 1]),
    );
  });

  it('are refused where places are invalid, or not one for each expert', () => {
    const placement = place(2);
    for (const workers of [[0, 2], [0], [0, 1, 1]]) {
      assert.throws(() => assignmentOf(placement, { layer: 0, experts: [4, 5], workers }), {
        code: 'PROTOCOL_VIOLATION',
      });
    }
  });

  it('get one expert of the first layer each, as far as both go', () => {
    assert.deepEqual(
      [...firstLayerWorkers(place(2, 8))],
      [
        [0, 'w0'],
        [1, 'w1'],
      ],
    );
    assert.equal(firstLayerWorkers(place(8, 8)).size, 8);
    const more = firstLayerWorkers(place(9, 4));
    assert.deepEqual([...more.keys()], [0, 1, 2, 3]);
    assert.deepEqual([...more.values()], ['w0', 'w1', 'w2', 'w3']);
    assert.equal(firstLayerWorkers(place(0)).size, 0);
    assert.ok(isFirstLayerWorthAnnouncing({ experts: 8, expertsPerToken: 2 }));
    assert.ok(!isFirstLayerWorthAnnouncing({ experts: 128, expertsPerToken: 8 }));
  });
});
