import assert from 'node:assert/strict';
import fc from 'fast-check';
import { LayerWaits, type RacingResult } from '../../main-node/pass/layer-waits.js';
import type { LayerWait, WorkerWait } from '../../shared/wire/messages.js';

/** A result of one expert: the worker, when it comes, and what it cost there. */
type Result = readonly [worker: string, atMs: number, stallMs?: number, executeMs?: number];

function resultOf(fields: Partial<RacingResult>): RacingResult {
  return {
    stallUs: 0,
    executeUs: 0,
    wasLoaded: true,
    calledUs: 0,
    endedUs: 0,
    answeredUs: 0,
    ...fields,
  };
}

function race(waits: LayerWaits, layer: number, results: readonly Result[], begunMs = 0): void {
  const running = waits.begin(layer, begunMs);
  for (const [worker, atMs, stallMs = 0, executeMs = 0] of results) {
    running.take(worker, resultOf({ stallUs: stallMs * 1000, executeUs: executeMs * 1000 }), begunMs + atMs);
  }
  waits.end(running);
}

const layersOf = (waits: LayerWaits): LayerWait[] => waits.report(['a', 'b', 'c'].map((id) => ({ id }))).layerWaits;
const workersOf = (waits: LayerWaits, ...ids: string[]): WorkerWait[] =>
  waits.report(ids.map((id) => ({ id }))).workerWaits;

describe('main: the record of decode waits', () => {
  it('is empty before a layer was waited for', () => {
    const waits = new LayerWaits(2);
    assert.deepEqual([layersOf(waits), workersOf(waits, 'a')], [[], []]);
  });

  it('has, for a layer, the time to the last result and the longest stall', () => {
    const waits = new LayerWaits(3);
    race(
      waits,
      1,
      [
        ['a', 4, 1, 2],
        ['a', 6, 2, 1],
        ['b', 9, 3, 5],
      ],
      100,
    );
    assert.deepEqual(layersOf(waits), [{ layer: 1, passes: 1, waitMs: 9, stallMs: 3, slowestWorker: 'b' }]);
  });

  it('has, for a worker, the time to its own last result, and the waits for it alone', () => {
    const waits = new LayerWaits(1);
    race(waits, 0, [
      ['a', 4, 1, 1],
      ['a', 6, 2, 1],
      ['b', 9, 3, 5],
    ]);
    const [a, b] = workersOf(waits, 'a', 'b');
    assert.deepEqual(a, {
      worker: 'a',
      executes: 1,
      waitMs: 6,
      stallMs: 2,
      executeMs: 2,
      otherMs: 2,
      lastShare: 0,
      costMs: 0,
    });
    assert.deepEqual(b, {
      worker: 'b',
      executes: 1,
      waitMs: 9,
      stallMs: 3,
      executeMs: 5,
      otherMs: 1,
      lastShare: 1,
      costMs: 3,
    });
  });

  it('blames no worker where one worker does all of a layer', () => {
    const waits = new LayerWaits(1);
    race(waits, 0, [['a', 5]]);
    assert.equal(layersOf(waits)[0]?.slowestWorker, '');
    assert.deepEqual(
      workersOf(waits, 'a').map(({ lastShare, costMs }) => [lastShare, costMs]),
      [[0, 0]],
    );
  });

  it('has the stages of hops that loaded nothing', () => {
    const waits = new LayerWaits(1);
    const result = resultOf({ executeUs: 1000, calledUs: 100, endedUs: 1500, answeredUs: 1600 });
    for (const wasLoaded of [false, true]) {
      const running = waits.begin(0, 0);
      running.take('a', { ...result, wasLoaded }, 2);
      running.take('b', resultOf({}), 2);
      waits.end(running);
    }
    const { workerHops } = waits.report([{ id: 'a' }, { id: 'b' }]);
    assert.deepEqual(
      workerHops.map(({ worker, hops }) => [worker, hops]),
      [['a', 1]],
      'b tells nothing of them',
    );
    const { roundTripMs = 0, transitMs = 0, handOffMs = 0 } = workerHops[0]?.median ?? {};
    assert.deepEqual(
      [roundTripMs, transitMs, handOffMs].map((ms) => Math.round(ms * 1000)),
      [2000, 400, 400],
    );
  });

  it('counts the wait, but for no worker, where work was sent again', () => {
    const waits = new LayerWaits(1);
    const running = waits.begin(0, 0);
    running.disturbed = true;
    running.take('b', resultOf({}), 500);
    waits.end(running);
    assert.equal(layersOf(waits)[0]?.waitMs, 500);
    assert.deepEqual(workersOf(waits, 'b'), []);
    race(waits, 0, [['b', 1]]);
    assert.equal(workersOf(waits, 'b')[0]?.waitMs, 1, 'a race is clean when it is used again');
  });

  it('follows a change within some hundred passes, and forgets workers that have left', () => {
    const waits = new LayerWaits(1);
    for (let pass = 0; pass < 1000; pass++)
      race(waits, 0, [
        ['a', 1],
        ['b', 20],
      ]);
    for (let pass = 0; pass < 400; pass++)
      race(waits, 0, [
        ['b', 2],
        ['a', 3],
      ]);
    const [layer] = layersOf(waits);
    assert.equal(layer?.passes, 1400);
    assert.ok(Math.abs(layer.waitMs - 3) < 0.1, `${layer.waitMs}`);
    assert.equal(layer.slowestWorker, 'a');
    const [a, b] = workersOf(waits, 'a', 'b');
    assert.ok(a !== undefined && a.lastShare > 0.99 && Math.abs(a.costMs - 1) < 0.01);
    assert.ok(b !== undefined && b.lastShare < 0.01);
    assert.deepEqual(
      workersOf(waits, 'b').map(({ worker }) => worker),
      ['b'],
    );
    assert.deepEqual(
      workersOf(waits, 'a', 'b').map(({ worker }) => worker),
      ['b'],
    );
  });

  it('names the worker that costs most where two are last equally often', () => {
    const waits = new LayerWaits(1);
    for (let pass = 0; pass < 101; pass++) {
      const [a, b] = pass % 2 === 0 ? [2, 1] : [1, 9];
      const results: Result[] = [
        ['a', a],
        ['b', b],
      ];
      race(
        waits,
        0,
        results.sort((left, right) => left[1] - right[1]),
      );
      if (pass > 0) assert.equal(layersOf(waits)[0]?.slowestWorker, 'b', `pass ${pass}`);
    }
  });

  it('never names a worker that has left as the slowest of a layer', () => {
    const waits = new LayerWaits(1);
    race(waits, 0, [
      ['a', 1],
      ['b', 2],
    ]);
    const slowest = (...ids: string[]): unknown =>
      waits.report(ids.map((id) => ({ id }))).layerWaits.map(({ slowestWorker }) => slowestWorker);
    assert.deepEqual(slowest('a', 'b'), ['b']);
    assert.deepEqual(slowest('a'), ['']);
  });

  it('agrees with a plain count for any order of results', () => {
    const results = fc.array(
      fc
        .tuple(fc.constantFrom('a', 'b', 'c'), fc.integer({ min: 0, max: 50 }))
        .map(([worker, ms]): Result => [worker, ms]),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(results, (unsorted) => {
        const inOrder = [...unsorted].sort((left, right) => left[1] - right[1]);
        const waits = new LayerWaits(1);
        race(waits, 0, inOrder);
        const ends = new Map(inOrder.map(([worker, ms]) => [worker, ms]));
        const sorted = [...ends.values()].sort((left, right) => right - left);
        const result = workersOf(waits, 'a', 'b', 'c');
        assert.deepEqual(new Map(result.map(({ worker, waitMs }) => [worker, waitMs])), ends);
        assert.equal(layersOf(waits)[0]?.waitMs, sorted[0]);
        const lost = result.reduce((sum, { costMs }) => sum + costMs, 0);
        assert.equal(lost, sorted.length === 1 ? 0 : (sorted[0] ?? 0) - (sorted[1] ?? 0));
        assert.equal(
          result.reduce((sum, { lastShare }) => sum + lastShare, 0),
          sorted.length === 1 ? 0 : 1,
        );
      }),
    );
  });
});
