import assert from 'node:assert/strict';
import fc from 'fast-check';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import { FirstLayerAhead, randomExperts, layersAskedAt } from '../../main-node/pass/own-predictions.js';
import { announcedByPrediction } from '../../main-node/pass/announcements.js';
import { assignPredictedExperts } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { ArrivalVerdict } from '../../main-node/decode/sequence-predictions.js';
import { answerRows, memberOf, PassCluster, type TestMember } from './pass-cluster.js';
import { RecordingWorkers } from './recording-workers.js';
import { plainPrediction } from './wire-messages.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';

const LAYERS = 4;
const EXPERTS = 8;

function placementOf(workers: number, epoch = 1): Placement {
  return planPlacement({
    epoch,
    workers: Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 })),
    layers: LAYERS,
    experts: EXPERTS,
    expertsPerToken: 2,
    groupSize: 'auto',
  });
}

const predicted = (position: number, layer: number, experts: number[], workers: number[]): Predict =>
  plainPrediction({ sequence: 7, position, layer, experts, workers });

describe('main: the experts that a pass activates', () => {
  it('are listed once each, with every row and rank that chose them', () => {
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

describe('main: the workers that received a prediction', () => {
  it('are none under another placement, or where the prediction names unknown workers', () => {
    const placement = placementOf(4);
    assert.deepEqual(
      announcedByPrediction(placement, predicted(3, 0, [1, 2], [3, 0])),
      new Map([
        [1, 'w3'],
        [2, 'w0'],
      ]),
    );
    assert.deepEqual(
      announcedByPrediction(placement, predicted(3, 0, [1, 2], [])),
      assignPredictedExperts(placement, 0, [1, 2]),
    );
    assert.equal(announcedByPrediction(placement, predicted(3, 0, [1, 2], [3, 4])), null);
    assert.equal(announcedByPrediction(placementOf(4, 2), predicted(3, 0, [1, 2], [3, 0])), null);
    assert.equal(announcedByPrediction(placement, null), null);
  });
});

describe('main: the announced first layer of the next token', () => {
  it('gives each worker one expert, when the worker has no more work for the current token', () => {
    const targets = new RecordingWorkers(placementOf(4));
    const ahead = new FirstLayerAhead(7, 20, targets, null);
    ahead.afterRouter(10, null);
    assert.deepEqual(targets.predicted, []);
    ahead.afterRouter(10, [predicted(10, 2, [4, 5], [0, 1]), predicted(10, 3, [1, 2], [2, 0])]);
    assert.deepEqual(targets.predicted, ['w3 11/0 3']);
    ahead.afterRouter(10, [predicted(10, 3, [1, 2], [2, 0])]);
    assert.deepEqual(targets.predicted.slice(1), ['w1 11/0 1']);
    ahead.afterRouter(10, []);
    assert.deepEqual(targets.predicted.slice(2), ['w0 11/0 0', 'w2 11/0 2']);
    assert.deepEqual(
      ahead.take(placementOf(4), 11),
      new Map([
        [3, 'w3'],
        [1, 'w1'],
        [0, 'w0'],
        [2, 'w2'],
      ]),
    );
  });

  it('counts only for its own token and placement, once, and not behind the last token', () => {
    const targets = new RecordingWorkers(placementOf(2));
    const ahead = new FirstLayerAhead(7, 11, targets, null);
    ahead.afterRouter(10, []);
    assert.equal(ahead.take(placementOf(2, 2), 11).size, 0);
    assert.equal(ahead.take(placementOf(2), 12).size, 0);
    assert.equal(ahead.take(placementOf(2), 11).size, 2);
    assert.equal(ahead.take(placementOf(2), 11).size, 0);
    const before = targets.predicted.length;
    ahead.afterRouter(11, []);
    assert.equal(targets.predicted.length, before);
  });

  it('is released where the next pass of the sequence is another one', () => {
    const targets = new RecordingWorkers(placementOf(2));
    const ahead = new FirstLayerAhead(7, 20, targets, null);
    const announcedAt = (position: number): void => {
      ahead.afterRouter(position, []);
      targets.releases.length = 0;
    };
    announcedAt(10);
    ahead.passBegins(11);
    assert.deepEqual(targets.released, []);
    assert.equal(ahead.take(placementOf(2), 11).size, 2);

    announcedAt(11);
    ahead.passBegins(4);
    assert.deepEqual(targets.released.sort(), ['w0 12/0 0', 'w1 12/0 1']);
    assert.equal(ahead.take(placementOf(2), 12).size, 0);

    announcedAt(12);
    ahead.passBegins(null);
    assert.deepEqual(targets.released.sort(), ['w0 13/0 0', 'w1 13/0 1']);

    announcedAt(13);
    targets.placement = placementOf(2, 2);
    ahead.passBegins(3);
    assert.deepEqual(targets.released, []);
  });
});

describe('main: random prefetch', () => {
  const shape = { layers: LAYERS, experts: EXPERTS };

  it('chooses distinct experts, always the same for a position, and all of them about equally often', () => {
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

  const random = { source: 'random', layersAhead: 1 } as const;

  it('announces the next layer to each group, into the next token, and not behind the last', async () => {
    const cluster = new PassCluster({ workers: 6, experts: EXPERTS, layers: LAYERS, engine: { prediction: random } });
    const member = memberOf(7, { promptTokens: 10, layers: LAYERS, lastPosition: 11 });
    const places = (): string[] => {
      const announced = cluster.workers.predictions.splice(0);
      return [...new Set(announced.map(([, { pass, layer }]) => `${pass.position}/${layer}`))];
    };
    await cluster.run([answerRows(member, 10, [1])]);
    assert.deepEqual(places(), ['10/0', '10/1', '10/2', '10/3', '11/0', '11/1', '11/2']);
    await cluster.run([answerRows(member, 11, [1])]);
    assert.deepEqual(places(), ['11/3']);
  });

  it('announces nothing for layers that a pass decided before it failed: nobody would release it', async () => {
    let fails = true;
    const cluster = new PassCluster({
      experts: EXPERTS,
      layers: LAYERS,
      engine: { prediction: random },
      onAttend: (layer) => {
        if (fails && layer === LAYERS - 1) throw new Error('the device gives no memory');
      },
    });
    const member = memberOf(7, { promptTokens: 10, layers: LAYERS, lastPosition: 10 });
    await assert.rejects(cluster.run([answerRows(member, 10, [1])]), /no memory/);
    fails = false;
    for (const said of [cluster.workers.predictions, cluster.workers.works, cluster.workers.releases]) said.length = 0;
    await cluster.run([answerRows(member, 10, [1])]);
    const done = [...cluster.workers.asked, ...cluster.workers.releasedExperts];
    assert.deepEqual(
      cluster.workers.announcedExperts.filter((announced) => !done.includes(announced)),
      [],
    );
  });

  it('announces to workers what it records at main, alone and with rows of another sequence', async () => {
    for (const together of [false, true]) {
      const heard: Predict[] = [];
      const cluster = new PassCluster({ experts: EXPERTS, layers: LAYERS, engine: { prediction: random } });
      const members = [7, 8].map((id) => {
        const member = memberOf(id, { layers: LAYERS, lastPosition: 10 });
        const arrive = (prediction: Predict): ArrivalVerdict => {
          heard.push(prediction);
          return member.predictions.arrive(prediction);
        };
        const { predictions } = member;
        return {
          ...member,
          predictions: {
            arrive,
            foretell: (prediction: Predict) => predictions.foretell(prediction),
            know: (prediction: Predict) => predictions.know(prediction),
            foretold: (position: number, layer: number) => predictions.foretold(position, layer),
            isSpoken: (position: number, layer: number) => predictions.isSpoken(position, layer),
            expected: (position: number, layer: number) => predictions.expected(position, layer),
            decide: (position: number, layer: number, experts: readonly number[]) =>
              predictions.decide(position, layer, experts),
            upcoming: (position: number, layer: number) => predictions.upcoming(position, layer),
          },
        };
      });
      await cluster.run(members.slice(0, together ? 2 : 1).map((member) => answerRows(member, 10, [1])));
      const said = new Set(heard.flatMap(({ layer, experts }) => experts.map((expert) => `${layer} ${expert}`)));
      const announced = cluster.workers.announcedExperts.map((text) => text.replace(/^.*\//, ''));
      assert.deepEqual([...announced].sort(), [...said].sort());
      assert.ok(heard.every(({ mainAnnounces }) => (mainAnnounces === true) === together));
    }
  });
});

describe('main: routers ahead', () => {
  it('asks each router but the first once, a fixed number of layers ahead', () => {
    const askedBy = (layersAhead: number): number[][] =>
      Array.from({ length: 4 }, (_, layer) => layersAskedAt(layer, 4, layersAhead));
    assert.deepEqual(askedBy(1), [[1], [2], [3], []]);
    assert.deepEqual(askedBy(2), [[1, 2], [3], [], []]);
    assert.deepEqual(askedBy(8), [[1, 2, 3], [], [], []]);
  });

  it('announces once the choice for all rows to workers, and its own choice to each sequence', async () => {
    const router = (token: number, layer: number): number[] => [layer, 4 + token];
    const prediction = { source: 'router-ahead', layersAhead: 2 } as const;
    const cluster = new PassCluster({ experts: EXPERTS, layers: LAYERS, router, engine: { prediction } });
    const members = [memberOf(7, { layers: LAYERS }), memberOf(8, { layers: LAYERS })];
    await cluster.run([answerRows(members[0] as TestMember, 10, [1, 2]), answerRows(members[1] as TestMember, 5, [3])]);
    const layers = [1, 2, 3];
    const announced = layers.flatMap((layer) => [layer, 5, 6, 7].map((expert) => `10/${layer} ${expert}`));
    assert.deepEqual(cluster.workers.announcedExperts.map((text) => text.slice(3)).sort(), announced.sort());
    assert.deepEqual(cluster.workers.releases, []);
    assert.deepEqual(
      members.map(({ predictions }) => predictions.metrics().predictedCorrectly),
      [9, 6],
    );
  });
});
