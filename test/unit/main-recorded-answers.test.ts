import assert from 'node:assert/strict';
import { MapsTime } from '../../main-node/pass/maps-time.js';
import { RecordedRow } from '../../engine/recording/recorded-row.js';
import type { StateRecorder } from '../../engine/recording/state-recorder.js';
import type { MemberRows } from '../../main-node/pass/pass-member.js';
import { answerRows, memberOf, PassCluster, promptRows, type Router } from './pass-cluster.js';

const LAYERS = 3;
const SIZES = { expertLayers: LAYERS, hiddenSize: 1, expertsPerToken: 2 };
const router: Router = (token, layer) => [layer % 4, (layer + 1 + token) % 4];

interface TestRecorder extends StateRecorder {
  readonly rows: RecordedRow[];
}

function recorderOf(isOpen = true): TestRecorder {
  const rows: RecordedRow[] = [];
  return { sizes: SIZES, isOpen, rows, add: (row) => void rows.push(row), close: async () => undefined };
}

/** The state of a row is its token plus a half. */
function clusterOf(recorder: StateRecorder | null, onAttend?: (layer: number) => void): PassCluster {
  return new PassCluster({
    layers: LAYERS,
    router,
    residual: (tokens) => Float32Array.from(tokens, (token) => token + 0.5),
    engine: { recorder },
    ...(onAttend === undefined ? {} : { onAttend }),
  });
}

const shown = (row: RecordedRow): unknown[] => [
  row.answer,
  ...[0, 1, 2].map((layer) => [[...row.states(layer)], [...row.choices(layer)]]),
];

describe('main: recorded answers', () => {
  it("are the first rows of each answer, with each layer's state and choice, and no rows of prompts or drafts", async () => {
    const recorder = recorderOf();
    const members = [
      promptRows(memberOf(6, { layers: LAYERS }), 0, 2),
      answerRows(memberOf(7, { layers: LAYERS }), 10, [1, 2, 3]),
      { ...answerRows(memberOf(8, { layers: LAYERS }), 4, [0, 3]), decodeFrom: 1 },
    ];
    const plain = await clusterOf(null).run(
      members.map((rows) => ({ ...rows, member: memberOf(rows.member.id, { layers: LAYERS }) })),
    );
    assert.deepEqual(await clusterOf(recorder).run(members), plain);
    const wanted = (answer: number, token: number): unknown[] => [
      answer,
      ...[0, 1, 2].map((layer) => [[token + 0.5], [...router(token, layer)]]),
    ];
    assert.deepEqual(recorder.rows.map(shown), [wanted(7, 1), wanted(8, 3)]);
    assert.ok(recorder.rows.every(({ isWhole }) => isWhole));
  });

  it('are none of a pass that failed at its end, and runs again', async () => {
    const recorder = recorderOf();
    const cluster = clusterOf(recorder);
    const rows = (): MemberRows[] => [answerRows(memberOf(7, { layers: LAYERS }), 10, [1])];
    const logits = cluster.pass.logits.bind(cluster.pass);
    cluster.pass.logits = () => Promise.reject(new Error('no logits'));
    await assert.rejects(cluster.run(rows()), /no logits/);
    assert.equal(recorder.rows.length, 0);
    cluster.pass.logits = logits;
    await cluster.run(rows());
    assert.equal(recorder.rows.length, 1);
  });

  it('copy the states of a pass once for them and for a trained predictor', async () => {
    const recorder = recorderOf();
    let copies = 0;
    const cluster = new PassCluster({
      layers: LAYERS,
      router,
      residual: (tokens) => {
        copies += 1;
        return Float32Array.from(tokens, (token) => token + 0.5);
      },
      engine: {
        recorder,
        trained: {
          maps: {
            mappedAt: () => [],
            predict: () => assert.fail(),
            predictHere: () => assert.fail(),
            failed: () => assert.fail(),
          },
          costs: () => ({ loadLayers: 1, workers: 1, slots: 1, groups: 1 }),
          time: new MapsTime(
            () => 0,
            () => 0,
          ),
        },
      },
    });
    await cluster.run([answerRows(memberOf(7, { layers: LAYERS }), 10, [1])]);
    assert.deepEqual([copies, recorder.rows.length], [LAYERS, 1]);
  });

  it('are none of a pass that failed, of prompts alone, and of a file that is full', async () => {
    const recorder = recorderOf();
    const failing = clusterOf(recorder, (layer) => {
      if (layer === 2) throw new Error('no attention');
    });
    await assert.rejects(failing.run([answerRows(memberOf(7, { layers: LAYERS }), 10, [1])]), /no attention/);
    await clusterOf(recorder).run([promptRows(memberOf(6, { layers: LAYERS }), 0, 3)]);
    const full = recorderOf(false);
    await clusterOf(full).run([answerRows(memberOf(7, { layers: LAYERS }), 10, [1])]);
    assert.deepEqual([recorder.rows.length, full.rows.length], [0, 0]);
  });
});
