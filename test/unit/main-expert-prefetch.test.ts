import assert from 'node:assert/strict';
import fc from 'fast-check';
import { activatedExperts } from '../../main-node/pass/activated-experts.js';
import { FirstLayerAhead } from '../../main-node/decode/first-layer-ahead.js';
import { RandomPrefetch, randomExperts } from '../../main-node/decode/random-prefetch.js';
import { layersAskedAt, RouterAhead } from '../../main-node/decode/router-ahead.js';
import { toldByPrediction } from '../../main-node/decode/told-by-prediction.js';
import { assignPredictedExperts } from '../../shared/placement/assign-predicted-experts.js';
import { planPlacement } from '../../shared/placement/plan-placement.js';
import { ToldWorkers } from './told-workers.js';
import { plainPrediction } from './wire-messages.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import type { Placement, Prediction } from '../../shared/rpc/messages.js';

const LAYERS = 4;
const EXPERTS = 8;

function placementOf(workers: number, epoch = 1): Placement {
  return planPlacement({
    epoch,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
    ...{ layers: LAYERS, experts: EXPERTS, expertsPerToken: 2, groupSize: 'auto' },
  });
}

const predicted = (position: number, layer: number, experts: number[], workers: number[]): Prediction =>
  plainPrediction({ sequence: 7, position, layer, experts, workers });

describe('main: experts that a pass activates', () => {
  it('come once each, with every row and rank that chose them', () => {
    const k = 2;
    const rowsOf = fc.array(fc.uniqueArray(fc.nat(7), { minLength: k, maxLength: k }), { minLength: 1, maxLength: 16 });
    fc.assert(
      fc.property(rowsOf, (rows) => {
        const activated = activatedExperts(Int32Array.from(rows.flat()), k);
        assert.deepEqual([...activated.keys()], [...new Set(rows.flat())]);
        const found = [...activated].flatMap(([expert, chosen]) =>
          chosen.map(({ row, rank }) => [row * k + rank, expert] as const),
        );
        assert.deepEqual(
          found.sort(([left], [right]) => left - right).map(([, expert]) => expert),
          rows.flat(),
        );
      }),
    );
  });
});

describe('main: who a prediction has told', () => {
  it('is nobody under another placement, or where it names workers that are not there', () => {
    const placement = placementOf(4);
    assert.deepEqual(
      toldByPrediction(placement, predicted(3, 0, [1, 2], [3, 0])),
      new Map([
        [1, 'w3'],
        [2, 'w0'],
      ]),
    );
    assert.deepEqual(
      toldByPrediction(placement, predicted(3, 0, [1, 2], [])),
      assignPredictedExperts(placement, 0, [1, 2]),
    );
    assert.equal(toldByPrediction(placement, predicted(3, 0, [1, 2], [3, 4])), null);
    assert.equal(toldByPrediction(placementOf(4, 2), predicted(3, 0, [1, 2], [3, 0])), null);
    assert.equal(toldByPrediction(placement, null), null);
  });
});

describe('main: the first layer ahead', () => {
  it('tells workers one expert each, once nothing of the token is left for them', () => {
    const targets = new ToldWorkers(placementOf(4));
    const ahead = new FirstLayerAhead(7, 20, targets);
    ahead.afterRouter(10, null);
    assert.deepEqual(targets.predicted, []);
    ahead.afterRouter(10, [predicted(10, 2, [4, 5], [0, 1]), predicted(10, 3, [1, 2], [2, 0])]);
    assert.deepEqual(targets.predicted, ['w3 11/0 3']);
    ahead.afterRouter(10, [predicted(10, 3, [1, 2], [2, 0])]);
    assert.deepEqual(targets.predicted.slice(1), ['w1 11/0 1']);
    ahead.afterRouter(10, []);
    assert.deepEqual(targets.predicted.slice(2), ['w0 11/0 0', 'w2 11/0 2']);
    assert.deepEqual(
      ahead.merge(placementOf(4), 11, new Map([[6, 'w1']])),
      new Map([
        [0, 'w0'],
        [1, 'w1'],
        [2, 'w2'],
        [3, 'w3'],
        [6, 'w1'],
      ]),
    );
    assert.deepEqual(targets.released, []);
  });

  it('releases an expert where shadow has told another worker of it', () => {
    const targets = new ToldWorkers(placementOf(2));
    const ahead = new FirstLayerAhead(7, 20, targets);
    ahead.afterRouter(10, []);
    assert.deepEqual(ahead.merge(placementOf(2), 11, new Map([[0, 'w1']]))?.get(0), 'w1');
    assert.deepEqual(targets.released, ['w0 11/0 0']);
  });

  it('counts for its own token and placement only, and not behind the last token', () => {
    const targets = new ToldWorkers(placementOf(2));
    const ahead = new FirstLayerAhead(7, 11, targets);
    ahead.afterRouter(10, []);
    const told = new Map([[5, 'w1']]);
    assert.equal(ahead.merge(placementOf(2, 2), 11, told), told);
    assert.equal(ahead.merge(placementOf(2), 12, null), null);
    const before = targets.predicted.length;
    ahead.afterRouter(11, []);
    assert.equal(targets.predicted.length, before);
  });
});

describe('main: random prefetch', () => {
  const shape = { layers: LAYERS, experts: EXPERTS };

  it('chooses distinct experts, always the same for a place, and all of them about as often', () => {
    const counts = new Array<number>(EXPERTS).fill(0);
    for (let position = 0; position < 500; position++) {
      for (let layer = 0; layer < LAYERS; layer++) {
        const place = { sequence: 9, position, layer };
        const chosen = randomExperts(place, shape, 2);
        assert.equal(new Set(chosen).size, 2);
        assert.deepEqual(randomExperts(place, shape, 2), chosen);
        for (const expert of chosen) counts[expert] = (counts[expert] ?? 0) + 1;
      }
    }
    assert.ok(Math.min(...counts) > 400 && Math.max(...counts) < 600, `of 500 expected: ${counts.join(' ')}`);
    assert.equal(randomExperts({ sequence: 9, position: 0, layer: 0 }, shape, 20).length, EXPERTS);
  });

  it('tells each group its next layer, into the next token, and not behind the last', () => {
    const targets = new ToldWorkers(placementOf(6));
    const told: Prediction[] = [];
    const prefetch = new RandomPrefetch(7, 11, {
      workers: targets,
      onPrediction: (prediction) => told.push(prediction),
    });
    const places = (): string[] => told.splice(0).map(({ pass, layer }) => `${pass.position}/${layer}`);
    prefetch.begin(10);
    assert.deepEqual(places(), ['10/0', '10/1', '10/2']);
    for (let layer = 0; layer < LAYERS; layer++) prefetch.layerDone(10, layer);
    assert.deepEqual(places(), ['10/3', '11/0', '11/1', '11/2']);
    for (let layer = 0; layer < LAYERS; layer++) prefetch.layerDone(11, layer);
    assert.deepEqual(places(), ['11/3']);
  });

  it('tells workers what it tells main', () => {
    const targets = new ToldWorkers(placementOf(4));
    const told: Prediction[] = [];
    new RandomPrefetch(7, 20, { workers: targets, onPrediction: (prediction) => told.push(prediction) }).begin(10);
    const expected = told.flatMap((prediction) =>
      [...(toldByPrediction(placementOf(4), prediction) ?? [])].map(
        ([expert, id]) => `${id} ${prediction.pass.position}/${prediction.layer} ${expert}`,
      ),
    );
    assert.deepEqual(targets.predicted.sort(), expected.sort());
  });
});

describe('main: routers ahead', () => {
  it('asks each router but the first once, so many layers ahead', () => {
    const askedBy = (layersAhead: number): number[][] =>
      Array.from({ length: 4 }, (_, layer) => layersAskedAt(layer, 4, layersAhead));
    assert.deepEqual(askedBy(1), [[1], [2], [3], []]);
    assert.deepEqual(askedBy(2), [[1, 2], [3], [], []]);
    assert.deepEqual(askedBy(8), [[1, 2, 3], [], [], []]);
  });

  it('tells the group of the layer, and main, what that router would choose', async () => {
    const targets = new ToldWorkers(placementOf(4));
    const told: Prediction[] = [];
    const ahead = new RouterAhead(LAYERS, 2, {
      workers: targets,
      onPrediction: (prediction) => told.push(prediction),
    });
    const asked: number[] = [];
    const pass = {
      chooseAhead: async (layer: number) => {
        asked.push(layer);
        // Two rows that share an expert.
        return { experts: Int32Array.of(layer, 5, 5, layer + 1), weights: new Float32Array(4) };
      },
    };
    await ahead.routerHasChosen(pass, { ...passOfSequence(7, 10, 2), layer: 1 });
    assert.deepEqual(asked, [3]);
    assert.deepEqual(
      told.map(({ pass: { position }, layer, experts }) => ({ position, layer, experts })),
      [{ position: 10, layer: 3, experts: [3, 5, 4] }],
    );
    // One message for each worker of the layer's group.
    assert.equal(targets.predicted.length, 2);
    await ahead.routerHasChosen(pass, { ...passOfSequence(7, 10, 2), layer: 2 });
    assert.deepEqual(asked, [3]);
  });
});
