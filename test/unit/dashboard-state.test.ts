import assert from 'node:assert/strict';
import {
  EMPTY_STATE,
  EXPERTS_HELD,
  PASSES_HELD,
  pauseBeforeAttempt,
  withEvent,
  withOpenConnection,
  withSilence,
} from '../../dashboard/feed/dashboard-state.js';
import { REMEMBERED_FIGURES_S, type ClusterEvent, type PassTimeline } from '../../shared/wire/cluster-events.js';
import { sampleCluster } from '../dashboard/sample-cluster.js';
import { sampleFigures, sampleHeat, sampleHistory, sampleRecall } from '../dashboard/sample-figures.js';

/** Its experts are in two layers. */
function pass(number: number, experts = 0): PassTimeline {
  const layer = { experts: new Array<unknown>(experts / 2).fill(null) } as never;
  return { number, atMs: 0, members: [], durationMs: 1, layers: [layer, layer], predictions: [] };
}

const stateAfter = (events: readonly ClusterEvent[]) => events.reduce(withEvent, withOpenConnection(EMPTY_STATE));

describe('the state of the page', () => {
  it('is the latest report of main', () => {
    const state = stateAfter([
      { type: 'cluster', cluster: sampleCluster(0) },
      { type: 'recall', recall: sampleRecall() },
      { type: 'heat', heat: sampleHeat() },
      { type: 'cluster', cluster: sampleCluster(7) },
    ]);
    assert.equal(state.connection, 'open');
    assert.deepEqual(state.cluster, sampleCluster(7));
    assert.deepEqual([state.recall, state.heat], [sampleRecall(), sampleHeat()]);
  });

  it('holds the last ten minutes of figures', () => {
    const state = stateAfter([
      { type: 'figures', samples: sampleHistory(0) },
      { type: 'figures', samples: [sampleFigures(1)] },
    ]);
    assert.equal(state.samples.length, REMEMBERED_FIGURES_S);
    assert.deepEqual(state.samples.at(-1), sampleFigures(1));
  });

  it('holds a bounded number of the latest passes', () => {
    const numbers = Array.from({ length: PASSES_HELD + 3 }, (_, number) => number);
    const state = stateAfter(numbers.map((number) => ({ type: 'pass', pass: pass(number) })));
    assert.deepEqual(
      state.passes.map(({ number }) => number),
      numbers.slice(3),
    );
  });

  it('holds fewer passes where they have very many experts, but always the latest', () => {
    const numbers = (experts: readonly number[]): number[] =>
      stateAfter(experts.map((count, number) => ({ type: 'pass', pass: pass(number, count) }))).passes.map(
        ({ number }) => number,
      );
    const half = EXPERTS_HELD / 2;
    assert.deepEqual(numbers([half, half, half]), [1, 2]);
    assert.deepEqual(numbers([half, half, 2 * EXPERTS_HELD]), [2]);
  });

  it('starts again with a new connection, and the cluster stays visible', () => {
    const before = stateAfter([
      { type: 'cluster', cluster: sampleCluster(0) },
      { type: 'figures', samples: sampleHistory(0) },
      { type: 'pass', pass: pass(1) },
    ]);
    const after = withOpenConnection(withSilence(before, 5));
    assert.deepEqual(after, {
      ...EMPTY_STATE,
      connection: 'lost',
      silentSinceMs: 5,
      cluster: sampleCluster(0),
    });
  });

  it('is silent from the last event before a loss until the next event, whatever fails or opens between', () => {
    const told: ClusterEvent = { type: 'cluster', cluster: sampleCluster(0) };
    const before = stateAfter([told]);
    assert.equal(before.silentSinceMs, null);
    const lost = withOpenConnection(withSilence(withSilence(before, 7), 9));
    assert.deepEqual([lost.connection, lost.silentSinceMs], ['lost', 7]);
    const back = withEvent(lost, told);
    assert.deepEqual([back.connection, back.silentSinceMs], ['open', null]);
  });
});

describe('the pauses before the page asks again', () => {
  it('grow up to a bound', () => {
    assert.deepEqual([1, 2, 3, 9, 40].map(pauseBeforeAttempt), [500, 1000, 2000, 5000, 5000]);
  });
});
