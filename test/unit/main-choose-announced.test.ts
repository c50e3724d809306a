import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  announcingCosts,
  chooseAnnounced,
  chooseDoubted,
  correctedShare,
  unionOfRows,
  type AnnouncingCosts,
  type ForetoldLayer,
} from '../../main-node/pass/choose-announced.js';

/** Eight workers in four groups of two, one slot each, whose loads take as long as four layers. */
const COSTS: AnnouncingCosts = { loadLayers: 4, workers: 2, slots: 1, groups: 4 };

function foretold(probabilities: readonly number[], changes: Partial<ForetoldLayer> = {}): ForetoldLayer {
  return { distance: 3, nextDistance: 2, corrected: 0.2, probabilities, held: new Set(), ...changes };
}

const distanceOf = fc.constantFrom([4, 2], [2, 1], [1, 0], [0, null]) as fc.Arbitrary<[number, number | null]>;
const costsOf = fc.record({
  loadLayers: fc.double({ min: 0.01, max: 40, noNaN: true }),
  workers: fc.integer({ min: 1, max: 8 }),
  slots: fc.integer({ min: 1, max: 4 }),
  groups: fc.integer({ min: 1, max: 8 }),
});
const layerOf = fc
  .record({
    distances: distanceOf,
    corrected: fc.double({ min: 0, max: 1, noNaN: true }),
    probabilities: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 16 }),
    held: fc.uniqueArray(fc.nat(15), { maxLength: 4 }),
  })
  .map(({ distances: [distance, nextDistance], held, ...rest }): ForetoldLayer => ({
    ...rest,
    distance,
    nextDistance,
    held: new Set(held),
  }));

describe('the experts to announce', () => {
  it('are those that are likely, where a load takes as long as the layers ahead', () => {
    assert.deepEqual(chooseAnnounced(foretold([0.05, 0.9, 0.02, 0.8]), COSTS), [1, 3]);
    assert.deepEqual(chooseAnnounced(foretold([0.05, 0.9, 0.02, 0.1]), COSTS), [1]);
    assert.deepEqual(chooseAnnounced(foretold([0.9, 0.9, 0.9]), COSTS), [0, 1], 'two slots hold no third expert');
  });

  it('are none while a load that begins at the next word still ends in time', () => {
    const sure = [1, 0, 1, 0];
    assert.deepEqual(chooseAnnounced(foretold(sure), { ...COSTS, loadLayers: 2.5 }), []);
    assert.deepEqual(chooseAnnounced(foretold(sure), { ...COSTS, loadLayers: 2.6 }), [0, 2]);
    const last = foretold(sure, { distance: 0, nextDistance: null });
    assert.deepEqual(chooseAnnounced(last, { ...COSTS, loadLayers: 0.1 }), [0, 2]);
  });

  it('are none as long as an earlier layer of the same workers needs their slots', () => {
    const far = foretold([1, 0, 1, 0], { distance: 8, nextDistance: 4 });
    assert.deepEqual(chooseAnnounced(far, { ...COSTS, loadLayers: 9 }), []);
    assert.deepEqual(chooseAnnounced(far, { ...COSTS, loadLayers: 9, slots: 3 }), [0, 2]);
  });

  it('are more where workers have time to spare', () => {
    const unsure = foretold([0.4, 0.3, 0.2, 0.05], { distance: 0, nextDistance: null });
    const many = { ...COSTS, slots: 2 };
    assert.deepEqual(chooseAnnounced(unsure, { ...many, loadLayers: 8 }), []);
    assert.deepEqual(chooseAnnounced(unsure, { ...many, loadLayers: 0.4 }), [0, 1, 2]);
  });

  it('are distinct, not held, the likeliest ones, and fit into the slots', () => {
    fc.assert(
      fc.property(layerOf, costsOf, (layer, costs) => {
        const chosen = chooseAnnounced(layer, costs);
        assert.equal(new Set(chosen).size, chosen.length);
        assert.ok(chosen.length === 0 || chosen.length + layer.held.size <= costs.workers * costs.slots);
        const probability = (expert: number): number => layer.probabilities[expert] ?? 0;
        const left = Array.from(layer.probabilities).flatMap((_, expert) =>
          layer.held.has(expert) || chosen.includes(expert) ? [] : [probability(expert)],
        );
        for (const expert of chosen) {
          assert.ok(!layer.held.has(expert));
          assert.ok(left.every((other) => other <= probability(expert)));
        }
      }),
    );
  });

  it('stay announced if one of them gets likelier', () => {
    fc.assert(
      fc.property(layerOf, costsOf, fc.double({ min: 0, max: 1, noNaN: true }), (layer, costs, share) => {
        // The workers' load follows from the sum of probabilities, which is kept.
        const first = chooseAnnounced(layer, costs)[0];
        if (first === undefined) return;
        const { probabilities } = layer;
        const raised = (1 - (probabilities[first] ?? 0)) * share;
        const others = Array.from(probabilities).reduce(
          (sum, value, expert) => (expert === first ? sum : sum + value),
          0,
        );
        if (others <= raised) return;
        const changed = Array.from(probabilities).map((value, expert) =>
          expert === first ? value + raised : value * (1 - raised / others),
        );
        assert.ok(chooseAnnounced({ ...layer, probabilities: changed }, costs).includes(first));
      }),
    );
  });

  it('are as many or more where wrong loads cost less, because the next word corrects less', () => {
    fc.assert(
      fc.property(layerOf, costsOf, fc.double({ min: 0, max: 1, noNaN: true }), (layer, costs, share) => {
        const more = chooseAnnounced({ ...layer, corrected: layer.corrected * share }, costs);
        assert.deepEqual(more.slice(0, chooseAnnounced(layer, costs).length), chooseAnnounced(layer, costs));
      }),
    );
  });

  it('are all sure ones that fit, if waiting for the next word would make main wait longer', () => {
    fc.assert(
      fc.property(costsOf, fc.integer({ min: 1, max: 8 }), (costs, sure) => {
        const probabilities = Array.from({ length: 8 }, (_, expert) => (expert < sure ? 1 : 0));
        const last = foretold(probabilities, { distance: 0, nextDistance: null });
        assert.equal(chooseAnnounced(last, costs).length, Math.min(sure, costs.workers * costs.slots));
      }),
    );
  });

  it('are none that a damaged predictor gives no probability', () => {
    assert.deepEqual(chooseAnnounced(foretold([NaN, -1, Infinity, 0]), COSTS), [2]);
    assert.deepEqual(chooseAnnounced(foretold([1, 1]), { ...COSTS, loadLayers: 0 }), []);
  });
});

describe('the announced experts that main doubts', () => {
  const HELD = new Set([0, 1, 2]);
  const justNow = (experts: readonly number[]) => new Map(experts.map((expert) => [expert, 0]));

  it('are those that a surer word does not name any more', () => {
    const layer = foretold([0.9, 0.02, 0, 0.9], { distance: 1, nextDistance: 0, held: HELD });
    assert.deepEqual(chooseDoubted(layer, justNow([0, 1, 2]), COSTS), [1, 2]);
    assert.deepEqual(chooseDoubted(layer, justNow([0, 2]), COSTS), [2], 'others have announced expert 1');
  });

  it('are none whose load has nearly ended, if they are as likely as one whose load has just begun', () => {
    const layer = foretold([0.3, 0.9], { distance: 0, nextDistance: null, held: new Set([0]) });
    const costs = { ...COSTS, loadLayers: 4.5, groups: 1 };
    const after = (layers: number): number[] => chooseDoubted(layer, new Map([[0, layers]]), costs);
    assert.deepEqual([0, 4].map(after), [[0], []]);
    const unlikely = foretold([0.001, 0.9], { distance: 0, nextDistance: null, held: new Set([0]) });
    assert.deepEqual(chooseDoubted(unlikely, new Map([[0, 9]]), costs), [0], 'it keeps a slot');
  });

  it('are no more if their loads began earlier', () => {
    const layers = fc.array(fc.nat(8), { minLength: 1, maxLength: 1 });
    fc.assert(
      fc.property(layerOf, costsOf, layers, ({ held, ...layer }, costs, [since = 0]) => {
        const [first] = held;
        if (first === undefined) return;
        const alone = { ...layer, held: new Set([first]) };
        // No earlier layer holds the slots back, at either time.
        const many = { ...costs, groups: 32 };
        if (chooseDoubted(alone, justNow([first]), many).length > 0) return;
        assert.deepEqual(chooseDoubted(alone, new Map([[first, since]]), many), []);
      }),
    );
  });

  it('are some of its own, each once, and none that is sure to be used', () => {
    fc.assert(
      fc.property(layerOf, costsOf, ({ held, ...layer }, costs) => {
        const own = [...held].filter((expert) => expert % 2 === 0);
        const doubted = chooseDoubted({ ...layer, held }, justNow(own), costs);
        for (const expert of doubted) {
          assert.ok(own.includes(expert));
          assert.ok((layer.probabilities[expert] ?? 0) < 1);
        }
        assert.equal(new Set(doubted).size, doubted.length);
      }),
    );
  });

  it('are none that main would announce by the same word', () => {
    fc.assert(
      fc.property(layerOf, costsOf, (layer, costs) => {
        const chosen = chooseAnnounced({ ...layer, held: new Set() }, costs);
        assert.deepEqual(chooseDoubted({ ...layer, held: new Set(chosen) }, justNow(chosen), costs), []);
      }),
    );
  });
});

describe('the costs of announcing', () => {
  it('take a load to be as long as the groups allow until it is measured', () => {
    const sizes = { workers: 9, layerWorkers: 9 / 4, slots: 1 };
    assert.deepEqual(announcingCosts({ ...sizes, loadMs: 0, layerMs: 3 }), COSTS);
    assert.deepEqual(announcingCosts({ ...sizes, loadMs: 12, layerMs: 3 }), COSTS);
    assert.equal(announcingCosts({ ...sizes, loadMs: 30, layerMs: 3 }).loadLayers, 10);
    assert.equal(announcingCosts({ workers: 8, layerWorkers: 8, slots: 2, loadMs: 0, layerMs: 0 }).groups, 1);
  });
});

describe('the share of wrong experts that the next word corrects', () => {
  it('follows from both recalls', () => {
    assert.equal(correctedShare(0.8, 0.9), 1 - (1 - 0.9) / (1 - 0.8));
    assert.equal(correctedShare(0.9, 0.8), 0);
    assert.equal(correctedShare(1, 1), 0);
    assert.equal(correctedShare(0.5, 1), 1);
    assert.equal(correctedShare(undefined, 1), correctedShare(0.5, undefined));
  });
});

describe('the experts that some row uses', () => {
  it('are likelier than for any row, and as likely as for the only row', () => {
    const rows = fc.array(fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 4, maxLength: 4 }));
    fc.assert(
      fc.property(rows, (all) => {
        const union = unionOfRows(all, 4);
        for (let expert = 0; expert < 4; expert++) {
          const most = Math.max(0, ...all.map((row) => row[expert] ?? 0));
          assert.ok((union[expert] ?? 0) >= most - 1e-12 && (union[expert] ?? 0) <= 1);
        }
      }),
    );
    assert.deepEqual(
      [
        ...unionOfRows(
          [
            [0.5, 1],
            [0.5, NaN],
          ],
          2,
        ),
      ],
      [0.75, 1],
    );
  });
});
