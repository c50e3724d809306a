import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PassEngine } from '../../main-node/pass/run-layer.js';
import { TokenExperts } from '../../main-node/pass/token-experts.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { answerRows, memberOf, PassCluster, promptRows, type Router, type TestMember } from './pass-cluster.js';
import { plainShape } from './plain-shape.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { plainPrediction } from './wire-messages.js';

const LAYERS = 4;
const EXPERTS = 8;
const POSITION = 10;
const TOKENS = 4;

const router: Router = (token, layer) => [layer, 4 + token];

/** The first two layers choose by token. */
function byToken(): TokenExperts {
  const table = (layer: number): number[] => Array.from({ length: TOKENS }, (_, token) => router(token, layer)).flat();
  return new TokenExperts(new Map([0, 1].map((layer) => [layer, table(layer)])), 2);
}

function clusterOf(source: PassEngine['prediction']['source']): PassCluster {
  return new PassCluster({
    experts: EXPERTS,
    layers: LAYERS,
    router,
    engine: { prediction: { source, layersAhead: 1 }, tokenExperts: byToken() },
  });
}

const member = (id: number, fed = false): TestMember => memberOf(id, { fed, layers: LAYERS });
const withoutWorkers = (said: readonly string[]): string[] => said.map((text) => text.replace(/^w\d+ /, '')).sort();
const due = (layers: readonly number[], tokens: readonly number[]): string[] => {
  const named = layers.flatMap((layer) =>
    tokens.flatMap((token) => router(token, layer).map((expert) => `${POSITION}/${layer} ${expert}`)),
  );
  return [...new Set(named)].sort();
};

describe('main: experts by token', () => {
  it('are announced before the pass, those of drafts too, and no others', async () => {
    const cluster = clusterOf('sep');
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1, 3, 0])]);
    assert.deepEqual(withoutWorkers(cluster.workers.announcedExperts), due([0, 1], [1, 3, 0]));
    assert.deepEqual(cluster.workers.releases, []);
    assert.deepEqual(withoutWorkers(cluster.workers.unannounced), due([2, 3], [1, 3, 0]));
    assert.equal(one.predictions.metrics().predictedCorrectly, 2 * 4);
  });

  it('of several sequences are announced once, and counted for each', async () => {
    const cluster = clusterOf('sep');
    const [seven, eight] = [member(7), member(8)];
    await cluster.run([promptRows(member(6), 0, 2), answerRows(seven, 5, [1]), answerRows(eight, 9, [1, 2])]);
    const announced = withoutWorkers(cluster.workers.announcedExperts);
    assert.deepEqual(new Set(announced).size, announced.length);
    assert.deepEqual(
      [seven, eight].map(({ predictions }) => predictions.metrics().predictedCorrectly),
      [2 * 2, 2 * 3],
    );
  });

  it('count by themselves where nothing predicts the other layers', async () => {
    const cluster = clusterOf('sep');
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [1, 3])]);
    const { predictions } = one;
    const ofToken = 2 * 3;
    assert.deepEqual(predictions.activations(false), {
      inTime: 2 * new Set([...router(1, 0), ...router(3, 0)]).size,
      late: 0,
      missed: 0,
      unpredicted: predictions.metrics().activated - ofToken,
    });
    assert.equal(predictions.activations(true).unpredicted, 0);
  });

  it('are announced alone where many answers use nearly all experts of the other layers', async () => {
    const cluster = clusterOf('sep');
    const members = Array.from({ length: 24 }, (_, index) => member(7 + index));
    await cluster.run(members.map((one, index) => answerRows(one, POSITION + index, [index % 2])));
    const ofLayers = (layers: readonly number[]): string[] =>
      withoutWorkers(cluster.workers.announcedExperts).filter((said) =>
        layers.some((layer) => said.startsWith(`${POSITION}/${layer} `)),
      );
    assert.deepEqual(ofLayers([0, 1]), due([0, 1], [0, 1]));
    assert.equal(ofLayers([2, 3]).length, 2 * EXPERTS);
    assert.deepEqual(
      cluster.workers.releases.filter(([, { layer }]) => layer < 2),
      [],
    );
  });

  it('are not asked of routers ahead', async () => {
    const cluster = clusterOf('router-ahead');
    const asked: number[] = [];
    const chooseAhead = cluster.pass.chooseAhead.bind(cluster.pass);
    cluster.pass.chooseAhead = (layer) => {
      asked.push(layer);
      return chooseAhead(layer);
    };
    const one = member(7);
    await cluster.run([answerRows(one, POSITION, [2])]);
    assert.deepEqual(asked, [2, 3]);
    assert.deepEqual(cluster.workers.unannounced, []);
    assert.deepEqual(cluster.workers.releases, []);
    assert.equal(one.predictions.metrics().predictedCorrectly, LAYERS * 2);
  });

  it("count in place of a shadow's word, whose wrong experts are released", async () => {
    const cluster = clusterOf('sep');
    const one = member(7, true);
    for (const layer of [0, 1])
      one.predictions.arrive(
        plainPrediction({ sequence: 7, position: POSITION, layer, experts: [layer, 7], workers: [0, 1] }),
      );
    await cluster.run([answerRows(one, POSITION, [1])]);
    assert.deepEqual(withoutWorkers(cluster.workers.announcedExperts), [`${POSITION}/0 5`, `${POSITION}/1 5`]);
    assert.deepEqual(withoutWorkers(cluster.workers.releasedExperts), [`${POSITION}/0 7`, `${POSITION}/1 7`]);
    assert.equal(one.predictions.metrics().predictedCorrectly, 2 * 2);
    assert.ok(one.predictions.isSpoken(POSITION + 1, 0) === false);
  });

  it('are read from the tables of a model, and refused where they name others', () =>
    withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'table');
      const plain = plainShape({ expertLayers: 3, experts: EXPERTS, vocabSize: TOKENS });
      const layers = plain.layers.map((layer, number) =>
        number !== 1 || layer.routed === null
          ? layer
          : { ...layer, routed: { ...layer.routed, byToken: true as const } },
      );
      const columns = plain.expertsPerToken;
      const dense = (): TensorSource => {
        const size = TOKENS * columns * 4;
        const chunk = { plane: 0, path, offsetBytes: 0, storedBytes: size, plainBytes: size } as const;
        return {
          rows: TOKENS,
          columns,
          split: 'none-fp32',
          chunks: [{ ...chunk, codec: 'raw', crc32c: null }],
          view: null,
        };
      };
      const named = Int32Array.from({ length: TOKENS * columns }, (_, index) => index % EXPERTS);
      await writeFile(path, new Uint8Array(named.buffer));
      const source = { directory, dense, shape: { ...plain, layers } };
      const read = await TokenExperts.read(source);
      assert.ok(read !== null);
      assert.deepEqual(
        [0, 1, 2].map((layer) => read.knows(layer)),
        [false, true, false],
      );
      assert.equal(await TokenExperts.read({ ...source, shape: plain }), null);
      named[0] = EXPERTS;
      await writeFile(path, new Uint8Array(named.buffer));
      await assert.rejects(
        TokenExperts.read(source),
        (error) => error instanceof OdmoeError && error.code === 'MODEL_CORRUPT' && /layer 1 names/.test(error.message),
      );
    }));
});
