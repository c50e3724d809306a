import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { PassTimeline } from '../../shared/wire/cluster-events.js';
import { RECORDED_PASSES } from '../../shared/wire/cluster-events.js';
import {
  MAX_WAITING_PREDICTIONS,
  PredictionArrivals,
  MAX_RESULTS_OF_PASS,
  PassRecorder,
} from '../../main-node/events/pass-recorder.js';
import { passTimeline } from '../../main-node/events/pass-timeline.js';
import type { ExpertOutcome } from '../../main-node/pass/expert-dispatcher.js';
import type { MemberRows } from '../../main-node/pass/pass-member.js';
import { NO_TIMES, type ExpertResult } from '../../shared/wire/messages.js';
import { plainPrediction } from './wire-messages.js';

const STARTED_MS = 1000;
const SEQUENCE = 7;

/** Rows of one sequence, all of its answer unless `decodeFrom` says otherwise. */
function rowsAt(position: number, rows = 1, decodeFrom = 0): MemberRows[] {
  const member = { id: SEQUENCE };
  return [{ member, position, tokenIds: new Array<number>(rows).fill(1), decodeFrom, logitsFrom: 0 } as never];
}

interface Setting {
  clock: { ms: number };
  recorder: PassRecorder;
  timelines: PassTimeline[];
  heat: [layer: number, expert: number, rows: number][];
}

function setting(): Setting {
  const clock = { ms: STARTED_MS };
  const timelines: PassTimeline[] = [];
  const heat: Setting['heat'] = [];
  const chosen = (...choice: Setting['heat'][number]): unknown => heat.push(choice);
  const recorder = new PassRecorder(
    () => clock.ms,
    { chosen: (layer, expert, rows) => void chosen(layer, expert, rows) },
    (record) => timelines.push(passTimeline(record, STARTED_MS)),
  );
  return { clock, recorder, timelines, heat };
}

function outcome(expert: number, result: Partial<ExpertResult>, resent = false, workerId = 'w'): ExpertOutcome {
  const ran = { expert, rows: 1, wasLoaded: true, stallUs: 0, executeUs: 0, ...NO_TIMES };
  return {
    work: { layer: 0, expert, rows: [{ row: 0, rank: 0 }], last: true },
    workerId,
    resent,
    result: { ...ran, output: new Uint8Array(), failure: null, ...result },
  };
}

const chosen = (expert: number, outcome: 'predicted' | 'mispredicted') => ({
  expert,
  rows: 1,
  outcome,
  workerIds: ['w'],
});

describe('the timelines of passes', () => {
  it("place a worker's times on the clock of main, with half of the round trip each way", () => {
    const { clock, recorder, timelines } = setting();
    clock.ms = 1500;
    const pass = recorder.begin(rowsAt(3));
    clock.ms = 1501;
    pass.layerBegun(0);
    clock.ms = 1502;
    pass.routed(0, [chosen(4, 'predicted'), chosen(5, 'mispredicted')]);
    pass.sent(0, 'w', [4, 5]);
    clock.ms = 1512;
    // The load ended 3 ms before the message came, and the message took 2 ms.
    const early = { loadUs: 1000, loadedBeforeUs: 3000, begunUs: 500, executeUs: 2000, answeredUs: 6000 };
    pass.received(0, outcome(4, early));
    clock.ms = 1522;
    const late = { wasLoaded: false, stallUs: 9000, loadUs: 8000, begunUs: 9000, executeUs: 3000, answeredUs: 14_000 };
    pass.received(0, outcome(5, late));
    pass.answered(0);
    clock.ms = 1523;
    pass.layerEnded(0);
    pass.ended(false);
    const [timeline] = timelines;
    assert.deepEqual(
      [timeline?.number, timeline?.atMs, timeline?.durationMs, timeline?.members],
      [1, 500, 23, [{ sequence: SEQUENCE, position: 3, rows: 1, kind: 'decode' }]],
    );
    const [layer] = timeline?.layers ?? [];
    assert.deepEqual([layer?.beginMs, layer?.routedMs, layer?.answeredMs, layer?.endMs], [1, 2, 22, 23]);
    const { worker, rows } = { worker: 'w', rows: 1 };
    assert.deepEqual(layer?.experts, [
      {
        expert: 4,
        worker,
        rows,
        foretold: 'predicted',
        reloaded: false,
        sentMs: 2,
        arrivedMs: 4,
        loadBeginMs: 0,
        loadEndMs: 1,
        executeBeginMs: 4.5,
        executeEndMs: 6.5,
        receivedMs: 12,
      },
      {
        expert: 5,
        worker,
        rows,
        foretold: 'missed',
        reloaded: true,
        sentMs: 2,
        arrivedMs: 5,
        loadBeginMs: 6,
        loadEndMs: 14,
        executeBeginMs: 14,
        executeEndMs: 17,
        receivedMs: 22,
      },
    ]);
  });

  it("distinguish a prediction after the router's choice from one before the pass began", () => {
    const { clock, recorder, timelines } = setting();
    const predict = (position: number, layer: number, experts: number[]): void =>
      recorder.predictionArrived({ ...plainPrediction({ sequence: SEQUENCE, position, layer, experts }), runUs: 1500 });
    predict(3, 0, [1]);
    predict(5, 0, [9]);
    clock.ms += 10;
    const pass = recorder.begin(rowsAt(3));
    pass.layerBegun(0);
    pass.routed(0, [chosen(1, 'predicted'), chosen(2, 'mispredicted'), chosen(3, 'mispredicted')]);
    clock.ms += 1;
    predict(3, 0, [1, 2]);
    for (const expert of [1, 2, 3]) pass.received(0, outcome(expert, {}));
    pass.ended(false);
    const [timeline] = timelines;
    const foretold = timeline?.layers[0]?.experts.map((expert) => expert.foretold);
    assert.deepEqual(foretold, ['predicted', 'late', 'missed']);
    assert.deepEqual(timeline?.predictions, [
      { sequence: SEQUENCE, layer: 0, receivedMs: -10, runMs: 1.5, experts: [1] },
      { sequence: SEQUENCE, layer: 0, receivedMs: 1, runMs: 1.5, experts: [1, 2] },
    ]);
    recorder.begin(rowsAt(4, 2)).ended(false);
    assert.deepEqual(
      timelines[1]?.predictions.map(({ experts }) => experts),
      [[9]],
      'a draft goes before its token',
    );
  });

  it('record repeated sends, and merge the results of mini-batches', () => {
    const { clock, recorder, timelines, heat } = setting();
    const pass = recorder.begin(rowsAt(0, 4, 4));
    pass.layerBegun(0);
    pass.routed(0, [{ expert: 1, rows: 4, outcome: 'announced', workerIds: ['w'] }]);
    pass.sent(0, 'w', [1]);
    clock.ms += 2;
    pass.sent(0, 'w', [1]);
    clock.ms += 8;
    pass.received(0, outcome(1, { loadUs: 1000, executeUs: 1000, begunUs: 3000, answeredUs: 8000 }));
    clock.ms += 2;
    pass.received(0, outcome(1, { executeUs: 1000, begunUs: 4000, answeredUs: 8000 }));
    pass.received(0, outcome(2, { answeredUs: 5000 }, true, 'other'));
    pass.ended(false);
    const [both, again] = timelines[0]?.layers[0]?.experts ?? [];
    assert.deepEqual([both?.rows, both?.sentMs, both?.executeBeginMs, both?.receivedMs], [2, 0, 4, 12]);
    assert.deepEqual([both?.executeEndMs, both?.loadEndMs, both?.reloaded], [8, 1, false]);
    assert.deepEqual([again?.worker, again?.reloaded, again?.sentMs, again?.arrivedMs], ['other', true, 7, 7]);
    assert.equal(timelines[0]?.members[0]?.kind, 'prompt');
    assert.deepEqual(heat, [[0, 1, 4]]);
  });

  it('store no failed pass, a bounded number of passes, and only a part of a huge one', () => {
    const { recorder, timelines } = setting();
    recorder.begin(rowsAt(0)).ended(true);
    for (let pass = 0; pass <= RECORDED_PASSES; pass++) recorder.begin(rowsAt(pass, 3)).ended(false);
    assert.equal(recorder.records.length, RECORDED_PASSES);
    assert.deepEqual(recorder.counts, { passes: RECORDED_PASSES + 1, rows: 3 * (RECORDED_PASSES + 1) });
    assert.deepEqual(
      recorder.records.map(({ number }) => number),
      timelines.slice(1).map(({ number }) => number),
    );
    const huge = recorder.begin(rowsAt(0));
    huge.layerBegun(0);
    for (let result = 0; result < MAX_RESULTS_OF_PASS + 5; result++) huge.received(0, outcome(result, {}));
    huge.ended(false);
    assert.equal(timelines.at(-1)?.layers[0]?.experts.length, MAX_RESULTS_OF_PASS);
  });

  it('have ordered times, whatever a worker reports', () => {
    const us = fc.nat({ max: 100_000 });
    const times = fc.record({
      loadUs: us,
      loadedBeforeUs: us,
      begunUs: us,
      answeredUs: us,
      stallUs: us,
      executeUs: us,
    });
    fc.assert(
      fc.property(times, fc.boolean(), fc.boolean(), fc.nat({ max: 200 }), (result, wasLoaded, resent, tookMs) => {
        const { clock, recorder, timelines } = setting();
        const pass = recorder.begin(rowsAt(0));
        pass.layerBegun(0);
        pass.routed(0, [chosen(1, 'mispredicted')]);
        pass.sent(0, 'w', [1]);
        clock.ms += tookMs;
        pass.received(0, outcome(1, { ...result, wasLoaded }, resent));
        pass.ended(false);
        const [expert] = timelines[0]?.layers[0]?.experts ?? [];
        assert.ok(expert !== undefined);
        assert.ok(expert.sentMs <= expert.arrivedMs && expert.arrivedMs <= expert.executeBeginMs);
        assert.ok(expert.executeBeginMs <= expert.executeEndMs);
        assert.ok((expert.loadBeginMs ?? 0) <= (expert.loadEndMs ?? 0));
        assert.equal(expert.loadBeginMs === null, result.loadUs === 0);
        assert.equal(expert.receivedMs, tookMs);
      }),
    );
  });
});

describe('predictions that are stored until their pass begins', () => {
  it('are bounded: those of the oldest sequence are dropped', () => {
    const arrivals = new PredictionArrivals();
    const arrival = (sequence: number): void =>
      arrivals.add({ sequence, position: 0, layer: 0, receivedMs: 0, runUs: 0, experts: [] });
    arrival(1);
    for (let count = 0; count < MAX_WAITING_PREDICTIONS; count++) arrival(2);
    assert.equal(arrivals.take(1, 0, 1).length, 0);
    assert.equal(arrivals.take(2, 0, 1).length, MAX_WAITING_PREDICTIONS);
    assert.equal(arrivals.take(2, 0, 1).length, 0);
  });
});
