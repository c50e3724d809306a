import assert from 'node:assert/strict';
import fc from 'fast-check';
import { PAINTS, paintOf } from '../../dashboard/token-view/bar-paint.js';
import { figureDifferences, passFigures } from '../../dashboard/token-view/pass-figures.js';
import { drawingWidth, drawTimeline, roundStep } from '../../dashboard/token-view/timeline-drawing.js';
import { timelineOf, type Bar } from '../../dashboard/token-view/timeline.js';
import { samplePass } from '../dashboard/sample-passes.js';

const EVERYTHING = { from: -1e9, to: 1e9 };

function bars(kind: Bar['kind'], pass = samplePass()): Bar[] {
  return timelineOf(pass, []).lanes.flatMap((lane) => lane.bars.filter((bar) => bar.kind === kind));
}

describe('the timeline of a pass', () => {
  it('has lanes of main, shadow and each worker, the named ones first and in their order', () => {
    const { lanes } = timelineOf(samplePass({ workers: 3, expertsPerLayer: 3 }), ['worker-2', 'idle']);
    assert.deepEqual(
      lanes.map(({ name }) => name),
      ['main', 'shadow', 'worker-2', 'idle', 'worker-0', 'worker-1'],
    );
    assert.deepEqual(lanes[3]?.bars, []);
  });

  it('has no lane of shadow without predictions', () => {
    const { lanes } = timelineOf({ ...samplePass(), predictions: [] }, []);
    assert.ok(lanes.every(({ role }) => role !== 'shadow'));
  });

  it('shows attention, waiting and sum of each layer, and the LM head', () => {
    const pass = samplePass();
    for (const kind of ['attention', 'wait', 'sum'] as const) assert.equal(bars(kind).length, pass.layers.length);
    const [head] = bars('head');
    assert.deepEqual([head?.fromMs, head?.toMs], [pass.layers.at(-1)?.endMs, pass.durationMs]);
  });

  it('draws loads with their fate, and the time that a worker waits for them', () => {
    const pass = samplePass({ expertsPerLayer: 1, workers: 1, layers: 5 });
    const experts = pass.layers.flatMap((layer) => layer.experts);
    const byBegin = [...experts].sort((left, right) => (left.loadBeginMs ?? 0) - (right.loadBeginMs ?? 0));
    assert.deepEqual(
      bars('load', pass).map(({ foretold, reloaded }) => [foretold, reloaded]),
      byBegin.map(({ foretold, reloaded }) => [foretold, reloaded]),
    );
    const waited = experts.filter(({ foretold }) => foretold !== 'predicted');
    assert.ok(waited.length > 0);
    assert.equal(bars('stall', pass).length, waited.length);
  });

  it('marks an expert that was already loaded, and draws no load of it', () => {
    const pass = samplePass({ layers: 1, expertsPerLayer: 1 });
    const [expert] = pass.layers[0]?.experts ?? [];
    assert.ok(expert !== undefined);
    Object.assign(expert, { loadBeginMs: null, loadEndMs: null });
    assert.deepEqual(bars('load', pass), []);
    assert.match(bars('execute', pass)[0]?.text ?? '', /earlier pass/);
  });

  it('cuts off the work of shadow that is older than the length of the pass', () => {
    const pass = samplePass();
    const [prediction] = pass.predictions;
    assert.ok(prediction !== undefined);
    prediction.receivedMs = -1e6;
    const { beginMs, endMs } = timelineOf(pass, []);
    assert.equal(beginMs, -pass.durationMs);
    assert.equal(endMs, pass.durationMs);
  });

  it('draws one bar for a computation of shadow for several sequences', () => {
    const pass = samplePass({ layers: 3 });
    pass.predictions.push(...pass.predictions.map((one) => ({ ...one, sequence: 9, experts: [15] })));
    assert.equal(bars('shadow', pass).length, 3);
    const marks = timelineOf(pass, []).lanes[1]?.predictions ?? [];
    assert.match(marks[0]?.text ?? '', /layer 0: experts .*15/);
  });

  it('separates the bars in one row of a worker, whatever is loaded at a time', () => {
    const plans = fc.record({
      layers: fc.integer({ min: 1, max: 8 }),
      workers: fc.integer({ min: 1, max: 4 }),
      expertsPerLayer: fc.integer({ min: 1, max: 4 }),
      loadMs: fc.double({ min: 0.1, max: 4, noNaN: true }),
    });
    fc.assert(
      fc.property(plans, (plan) => {
        for (const lane of timelineOf(samplePass(plan), []).lanes.filter(
          ({ role, rows }) => role === 'worker' && rows < 5,
        )) {
          const loads = lane.bars.filter(({ kind }) => kind === 'load');
          for (const one of loads) {
            const others = loads.filter((other) => other !== one && other.row === one.row);
            assert.ok(others.every((other) => other.fromMs >= one.toMs - 1e-6 || other.toMs <= one.fromMs + 1e-6));
          }
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe('the drawing of a timeline', () => {
  it('distinguishes every fate by more than colour, and every paint has its own name', () => {
    const fates = (['predicted', 'late', 'missed', 'announced'] as const).map((foretold) =>
      paintOf({ kind: 'load', foretold }),
    );
    assert.equal(new Set(fates.map(({ pattern }) => pattern)).size, fates.length);
    assert.equal(new Set(PAINTS.map(({ name }) => name)).size, PAINTS.length);
  });

  it('draws only visible bars, and every bar where there is room', () => {
    const timeline = timelineOf(samplePass({ layers: 32, workers: 8, expertsPerLayer: 8 }), []);
    const scale = { beginMs: timeline.beginMs, pixelsPerMs: 200 };
    const count = timeline.lanes.reduce((sum, lane) => sum + lane.bars.length, 0);
    assert.equal(drawTimeline(timeline, scale, EVERYTHING).bars.length, count);
    const seen = drawTimeline(timeline, scale, { from: 1000, to: 1400 });
    assert.ok(seen.bars.length > 0 && seen.bars.length < count / 4);
    assert.ok(seen.bars.every(({ x, width }) => x <= 1400 && x + width >= 1000));
    assert.ok(seen.ticks.length >= 3 && seen.ticks.length <= 8);
  });

  it('merges bars that are too narrow to distinguish, so that a long pass stays small', () => {
    const pass = samplePass({ layers: 100, workers: 1, expertsPerLayer: 16, loadMs: 0.05 });
    const timeline = timelineOf(pass, []);
    const scale = { beginMs: timeline.beginMs, pixelsPerMs: 300 / (timeline.endMs - timeline.beginMs) };
    const { bars: drawn } = drawTimeline(timeline, scale, EVERYTHING);
    const count = timeline.lanes.reduce((sum, lane) => sum + lane.bars.length, 0);
    assert.ok(drawn.length < count / 2, `${drawn.length} of ${count}`);
    const width = drawingWidth(timeline, scale.pixelsPerMs) + 1;
    assert.ok(drawn.every((bar) => bar.x + bar.width >= 0 && bar.x + bar.width <= width + 1));
  });

  it('has ticks at round steps', () => {
    assert.deepEqual([0.03, 1, 1.2, 3, 7, 84].map(roundStep), [0.05, 1, 2, 5, 10, 100]);
  });
});

describe('the figures of a pass', () => {
  it('divide the wait into stall, execution and the rest, and sum up', () => {
    const figures = passFigures(samplePass());
    for (const layer of figures.layers) {
      assert.ok(Math.abs(layer.waitMs - layer.stallMs - layer.executeMs - layer.otherMs) < 1e-9);
      assert.ok(layer.otherMs >= 0 && layer.stallMs >= 0);
    }
    const wait = figures.layers.reduce((sum, { waitMs }) => sum + waitMs, 0);
    assert.ok(Math.abs(figures.total.waitMs - wait) < 1e-9);
    const { total, headMs, durationMs } = figures;
    assert.ok(Math.abs(total.attentionMs + total.waitMs + total.sumMs + headMs + 0.25 - durationMs) < 1e-9);
  });

  it('include the stall of the worker that main waited for', () => {
    const pass = samplePass({ layers: 1, expertsPerLayer: 1, number: 4, loadMs: 5 });
    assert.equal(pass.layers[0]?.experts[0]?.foretold, 'missed');
    const { stallMs, executeMs, otherMs } = passFigures(pass).total;
    assert.deepEqual(
      [stallMs, executeMs, otherMs].map((ms) => Number(ms.toFixed(6))),
      [5, 0.7, 0.32],
    );
  });

  it('show loads, reloads and recall', () => {
    const figures = passFigures(samplePass({ layers: 5, expertsPerLayer: 1, number: 0 }));
    assert.deepEqual([figures.loads, figures.reloads, figures.recall], [5, 1, 0.6]);
    const unpredicted = samplePass({ layers: 1 });
    for (const expert of unpredicted.layers[0]?.experts ?? []) expert.foretold = 'unpredicted';
    assert.equal(passFigures(unpredicted).recall, null);
  });

  it('show the difference of two passes for each layer and in total', () => {
    const [fast, slow] = [samplePass({ loadMs: 1 }), samplePass({ loadMs: 6 })].map(passFigures);
    assert.ok(fast !== undefined && slow !== undefined);
    const [all, ...layers] = figureDifferences(fast, slow);
    assert.deepEqual(
      layers.map(({ layer }) => layer),
      fast.layers.map((_, index) => index),
    );
    assert.ok(all !== undefined && all.layer === null && all.difference.stallMs > 0);
    assert.ok(Math.abs(all.difference.waitMs - (slow.total.waitMs - fast.total.waitMs)) < 1e-9);
    const layerSum = layers.reduce((sum, { difference }) => sum + difference.stallMs, 0);
    assert.ok(Math.abs(layerSum - all.difference.stallMs) < 1e-9);
  });
});
