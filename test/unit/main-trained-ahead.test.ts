import assert from 'node:assert/strict';
import type { AnnouncingCosts } from '../../main-node/pass/choose-announced.js';
import { existingDistances } from '../../shared/model/expert-maps.js';
import { MapsTime } from '../../main-node/pass/maps-time.js';
import type { ObservedPass, RoutedExpert } from '../../main-node/pass/pass-observer.js';
import type { TrainedPredictor } from '../../main-node/pass/trained-ahead.js';
import {
  answerRows,
  memberOf,
  PassCluster,
  type PassClusterOptions,
  promptRows,
  type Router,
  type TestMember,
} from './pass-cluster.js';
import { plainPrediction } from './wire-messages.js';

const LAYERS = 4;
const EXPERTS = 8;
const DISTANCES = [0, 1, 2];
/** Loads as long as two layers, and workers with time and slots to spare. */
const COSTS: AnnouncingCosts = { loadLayers: 2, workers: 4, slots: 4, groups: 1 };
const POSITION = 10;

/** The experts that the maps at `layer` foretell for the row with this state, at this distance. */
type Foretell = (state: number, layer: number, distance: number) => readonly number[];

/** Maps that are sure of what they say. A row's state is one number. */
function trained(
  foretell: Foretell,
  costs = COSTS,
  time = new MapsTime(
    () => 0,
    () => 0,
  ),
): TrainedPredictor & { asked: string[]; failures: unknown[] } {
  const shape = { hiddenSize: 1, experts: EXPERTS, units: 1, layers: LAYERS, distances: DISTANCES };
  const asked: string[] = [];
  const failures: unknown[] = [];
  const probabilities = (layer: number, states: Float32Array, rows: number): Float32Array => {
    const distances = existingDistances(shape, layer);
    const values = new Float32Array(rows * distances.length * EXPERTS);
    for (let row = 0; row < rows; row++)
      for (const [index, distance] of distances.entries())
        for (const expert of foretell(states[row] ?? -1, layer, distance))
          values[(row * distances.length + index) * EXPERTS + expert] = 1;
    return values;
  };
  return {
    asked,
    failures,
    maps: {
      mappedAt: (layer) =>
        existingDistances(shape, layer).map((distance, index, all) => {
          const nextDistance = all[index - 1] ?? null;
          return { index, distance, nextDistance, corrected: nextDistance === null ? 1 : 0.25 };
        }),
      predictHere: (layer, states, rows) => {
        asked.push(`here ${layer}: ${states.join()}`);
        return probabilities(layer, states, rows);
      },
      predict: async (layer, states, rows) => {
        asked.push(`aside ${layer}: ${states.join()}`);
        return probabilities(layer, states, rows);
      },
      failed: (thrown) => void failures.push(thrown),
    },
    costs: () => costs,
    time,
  };
}

const router: Router = (token, layer) => [layer, 4 + token];
const right: Foretell = (state, layer, distance) => [...router(state, layer + distance)];

/** The state of a row is its token. */
function clusterOf(
  predictor: TrainedPredictor,
  source: 'trained' | 'sep' = 'trained',
  attending?: PassClusterOptions['attending'],
  engine: PassClusterOptions['engine'] = {},
): PassCluster {
  return new PassCluster({
    ...(attending === undefined ? {} : { attending }),
    experts: EXPERTS,
    layers: LAYERS,
    router,
    residual: (tokens) => Float32Array.from(tokens),
    engine: { prediction: { source, layersAhead: 1 }, trained: predictor, ...engine },
  });
}

const nothing = (): void => undefined;
const UNOBSERVED: ObservedPass = {
  layerBegun: nothing,
  routed: nothing,
  sent: nothing,
  received: nothing,
  answered: nothing,
  layerEnded: nothing,
  ended: nothing,
};

/** The event loop comes to other work. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const member = (id: number, fed = false): TestMember => memberOf(id, { fed, layers: LAYERS });
const withoutWorkers = (said: readonly string[]): string[] => said.map((text) => text.replace(/^w\d+ /, '')).sort();

describe('main: trained maps', () => {
  it('announce the experts of every layer, those of the first one too, before its router chooses', async () => {
    const cluster = clusterOf(trained(right));
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1])]);
    const due = [0, 1, 2, 3].flatMap((layer) => router(1, layer).map((expert) => `${POSITION}/${layer} ${expert}`));
    assert.deepEqual(withoutWorkers(cluster.workers.announcedExperts), due.sort());
    assert.deepEqual(cluster.workers.unannounced, []);
    assert.deepEqual(cluster.workers.releases, []);
    assert.equal(one.predictions.metrics().predictedCorrectly, LAYERS * 2);
    assert.equal(one.counters.reloads, 0);
  });

  it('release what the router does not choose, and correct an early word by a later one', async () => {
    const early: Foretell = (state, layer, distance) =>
      distance === 2 ? [7 - layer, 0] : [...router(state, layer + distance)];
    const cluster = clusterOf(trained(early));
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual(cluster.workers.unannounced, []);
    const released = cluster.workers.releasedExperts;
    assert.ok(released.length > 0);
    const wrong = cluster.workers.announcedExperts.filter((said) => !cluster.workers.asked.includes(said));
    assert.deepEqual([...released].sort(), wrong.sort());
    assert.deepEqual(cluster.workers.doubtedExperts.sort(), wrong, 'the surer word has come before the router');
    assert.equal(one.predictions.metrics().predictedCorrectly, LAYERS * 2);
  });

  it('count no expert as predicted that they doubt when the router chooses it', async () => {
    const lost: Foretell = (state, layer, distance) => router(state, layer + distance).slice(distance === 0 ? 1 : 0);
    const routed: string[] = [];
    const observer = {
      begin: () => ({ ...UNOBSERVED, routed: (_: number, experts: readonly RoutedExpert[]) => note(experts) }),
      predictionArrived: () => undefined,
      sequenceEnded: () => undefined,
    };
    const note = (experts: readonly RoutedExpert[]): void => {
      routed.push(experts.map(({ expert, outcome }) => `${expert < 4 ? 'lost' : 'kept'} ${outcome}`).join());
    };
    const cluster = clusterOf(trained(lost), 'trained', undefined, { observer });
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual([...new Set(routed)], ['lost mispredicted,kept predicted'], 'as the recall counts them');
    assert.equal(cluster.workers.doubtedExperts.length, LAYERS - 1);
    assert.deepEqual(
      cluster.workers.unannounced.map((said) => said.split(' ')[1]),
      [`${POSITION}/0`],
      'they are asked for where they were announced',
    );
    assert.equal(one.predictions.metrics().predictedCorrectly, LAYERS);
  });

  it('doubt nothing of which shadow has spoken for another answer', async () => {
    const early: Foretell = (state, layer, distance) => (distance === 2 ? [7] : [...router(state, layer + distance)]);
    const cluster = clusterOf(trained(early), 'sep');
    const [seven, eight] = [member(7), member(8, true)];
    for (const layer of [0, 1, 2, 3])
      eight.predictions.arrive(plainPrediction({ sequence: 8, position: 5, layer, experts: [0], workers: [0] }));
    await cluster.run([answerRows(seven, POSITION, [1]), answerRows(eight, 5, [1])]);
    assert.ok(cluster.workers.announcedExperts.some((said) => said.endsWith(' 7')));
    assert.deepEqual(cluster.workers.doubtedExperts, []);
  });

  it('run on another thread for many rows, and speak for each sequence by its own rows', async () => {
    const predictor = trained(right);
    const cluster = clusterOf(predictor, 'trained', turn);
    const [seven, eight] = [member(7), member(8)];
    await cluster.run([
      promptRows(member(6), 0, 2),
      answerRows(seven, POSITION, [0, 1, 2]),
      answerRows(eight, 5, [3, 3]),
    ]);
    assert.deepEqual(predictor.asked[0], 'aside 0: 0,1,2,3,3', 'the rows of prompts are left out');
    assert.deepEqual(
      [seven, eight].map(({ predictions }) => predictions.metrics()).map((m) => [m.predictedCorrectly, m.activated]),
      [
        [LAYERS * 4, LAYERS * 4],
        [LAYERS * 2, LAYERS * 2],
      ],
    );
  });

  it('run on another thread, too, where they take longer than a hop leaves time for', async () => {
    let nowMs = 0;
    // Each look at the clock is 1 ms later than the one before.
    const time = new MapsTime(
      () => (nowMs += 1),
      () => 1,
    );
    const predictor = trained(right, COSTS, time);
    const cluster = clusterOf(predictor, 'trained', turn);
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual(predictor.asked, ['here 0: 1', 'aside 1: 1', 'aside 2: 1', 'aside 3: 1']);
    assert.equal(one.predictions.metrics().predictedCorrectly, LAYERS * 2);
  });

  it('are not asked about prompts', async () => {
    const predictor = trained(right);
    await clusterOf(predictor).run([promptRows(member(7), 0, 3)]);
    assert.deepEqual(predictor.asked, []);
  });

  it('give shadow the word where it has spoken, and speak where it has not', async () => {
    const wrong: Foretell = () => [6, 7];
    const cluster = clusterOf(trained(wrong), 'sep');
    const one = member(7, true);
    const said = (layer: number) =>
      plainPrediction({ sequence: 7, position: POSITION, layer, experts: [...router(1, layer)], workers: [] });
    for (const layer of [0, 1, 2, 3]) if (layer !== 2) one.predictions.arrive(said(layer));
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual(withoutWorkers(cluster.workers.announcedExperts), [`${POSITION}/2 6`, `${POSITION}/2 7`]);
    assert.equal(one.predictions.metrics().predictedCorrectly, 3 * 2);
  });

  it('leave the layers further on to a shadow that is in time, and speak of all once it is late', async () => {
    const farExperts = async (fed: boolean, spoken: number): Promise<string[]> => {
      const cluster = clusterOf(
        trained((_, layer, distance) => (distance === 2 ? [layer, 7] : [])),
        'sep',
      );
      const one = member(7, fed);
      for (let layer = 0; layer < spoken; layer++)
        one.predictions.arrive(
          plainPrediction({ sequence: 7, position: POSITION, layer, experts: [0, 1], workers: [] }),
        );
      await cluster.run([answerRows(one, POSITION, [1])]);
      return withoutWorkers(cluster.workers.announcedExperts);
    };
    assert.deepEqual(await farExperts(true, 2), []);
    assert.deepEqual(await farExperts(true, 1), [`${POSITION}/3 1`, `${POSITION}/3 7`], 'late from layer 1 on');
    assert.equal((await farExperts(false, 0)).length, 4);
  });

  it('announce nothing where loads take no time', async () => {
    const cluster = clusterOf(trained(right, { ...COSTS, loadLayers: 0 }));
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual(cluster.workers.announcedExperts, []);
    assert.deepEqual(one.predictions.metrics().predictedCorrectly, 0);
  });

  it('make no layer wait: a late word counts for the layers that are still ahead, and none is asked for meanwhile', async () => {
    const predictor = trained(right);
    const { predict } = predictor.maps;
    let speak = (): void => undefined;
    predictor.maps.predict = async (layer, states, rows) => {
      const word = await predict(layer, states, rows);
      await new Promise<void>((resolve) => (speak = resolve));
      return word;
    };
    const states: number[] = [];
    const cluster = clusterOf(predictor, 'trained', async (layer) => {
      if (layer === 1) speak();
      await turn();
      states.push(layer);
    });
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [0, 1, 2, 3, 0])]);
    assert.deepEqual(states, [0, 1, 2, 3]);
    assert.deepEqual(predictor.asked, ['aside 0: 0,1,2,3,0', 'aside 2: 0,1,2,3,0'], 'the last one is still on its way');
    const announced = withoutWorkers(cluster.workers.announcedExperts).map((said) => said.split(' ')[0]);
    assert.deepEqual([...new Set(announced)].sort(), [`${POSITION}/1`, `${POSITION}/2`]);
    assert.deepEqual(cluster.workers.releases, []);
    const { length } = cluster.workers.predictions;
    speak();
    await turn();
    assert.equal(cluster.workers.predictions.length, length, 'the pass has ended');
    assert.deepEqual(predictor.failures, []);
  });

  it('speak beside attention of the states that they were asked about, though the next layer has others', async () => {
    const predictor = trained(right);
    const seen: string[] = [];
    predictor.maps.predict = async (_, states) => {
      await turn();
      await turn();
      seen.push([...states].join());
      return new Float32Array(5 * DISTANCES.length * EXPERTS);
    };
    let layer = 0;
    const cluster = new PassCluster({
      experts: EXPERTS,
      layers: LAYERS,
      router,
      residual: (tokens) => Float32Array.from(tokens, (token) => token + 10 * layer),
      engine: { prediction: { source: 'trained', layersAhead: 1 }, trained: predictor },
      attending: async () => {
        layer += 1;
        await turn();
      },
    });
    await cluster.run([answerRows(member(7), POSITION, [0, 1, 2, 3, 0])]);
    assert.equal(seen[0], '0,1,2,3,0');
  });

  it('that fail beside attention cost the announcements of the rest of the pass alone, and are told of', async () => {
    const predictor = trained(right);
    let asked = 0;
    predictor.maps.predict = () => {
      asked += 1;
      return Promise.reject(new Error('no thread'));
    };
    const cluster = clusterOf(predictor, 'trained', turn);
    for (const passes of [1, 2]) {
      await cluster.run([answerRows(member(7), POSITION, [0, 1, 2, 3, 0])]);
      assert.deepEqual([asked, predictor.failures.length], [passes, passes]);
    }
    assert.match(String(predictor.failures[0]), /no thread/);
    assert.deepEqual(cluster.workers.announcedExperts, []);
  });
});
