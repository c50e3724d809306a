/** The experts that workers are told to load with both slices, before a router has chosen. */
import assert from 'node:assert/strict';
import { Announcements, JointDealer } from '../../main-node/pass/announcements.js';
import { FirstLayerAhead } from '../../main-node/pass/own-predictions.js';
import { PassPredictions } from '../../shadow-node/predictor/pass-predictions.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import type { Placement } from '../../shared/wire/messages.js';
import { RecordingWorkers } from './recording-workers.js';

const CRITICAL: PrecisionRule = { kind: 'critical', theta: 0.5 };
const RULES: readonly (PrecisionRule | null)[] = [null, { kind: 'high' }, { kind: 'low' }];

const EXPERTS = 8;

function placementOf(workers: number): Placement {
  const ids = Array.from({ length: workers }, (_, index) => ({ id: `w${index}`, address: '', slots: 1 }));
  return planPlacement({ epoch: 1, workers: ids, layers: 4, experts: EXPERTS, expertsPerToken: 2, groupSize: workers });
}

function announce(precision: PrecisionRule | null): RecordingWorkers {
  const workers = new RecordingWorkers(placementOf(2));
  const announcements = new Announcements(
    {
      pass: { sequence: 7, position: 10 },
      rows: [{ sequence: 7, position: 10, rows: 2 }],
      differentRows: 2,
      copies: 1,
      spread: 'all',
      announcedByOthers: () => [],
      precision,
    },
    workers,
    new JointDealer(() => false),
  );
  const rows = [{ sequence: 7, position: 10, rows: 1 }];
  announcements.announce(0, [
    { experts: [1, 2], critical: [2], rows },
    { experts: [3], rows },
  ]);
  announcements.announceWholeLayer(1);
  return workers;
}

const criticalOf = ({ predictions }: RecordingWorkers, layer: number): number[] =>
  predictions.flatMap(([, message]) => (message.layer === layer ? (message.critical ?? []) : [])).sort();

describe('experts that are expected to be critical', () => {
  it('are named in announcements: those of the predictions, and all of a layer that is announced whole', () => {
    const workers = announce(CRITICAL);
    assert.deepEqual(criticalOf(workers, 0), [2]);
    assert.equal(criticalOf(workers, 1).length, EXPERTS);
    for (const [, { experts: named, critical = [] }] of workers.predictions)
      assert.ok(critical.every((expert) => named.includes(expert)));
  });

  it('are not named under other rules, by which workers know it', () => {
    for (const rule of RULES) {
      const workers = announce(rule);
      assert.ok(workers.predictions.length > 0);
      assert.ok(workers.predictions.every(([, message]) => message.critical === undefined));
    }
  });

  it('are all those of the first layer that load before the token is known', () => {
    for (const [precision, named] of [[CRITICAL, 1] as const, ...RULES.map((rule) => [rule, 0] as const)]) {
      const workers = new RecordingWorkers(placementOf(4));
      new FirstLayerAhead(7, 20, workers, precision).afterRouter(10, []);
      assert.ok(workers.predictions.length > 0);
      for (const [, { critical = [] }] of workers.predictions) assert.equal(critical.length, named);
    }
  });

  it('are news of a pass of several positions, even where its experts are the same', () => {
    const predictions = new PassPredictions(1);
    const pass = { begin: 5, rows: 2 };
    predictions.add(5, 0, { experts: [3, 5], critical: [3], runUs: 1 });
    assert.deepEqual(predictions.news(pass, 0)?.critical, [3]);
    predictions.add(6, 0, { experts: [5, 3], critical: [5], runUs: 2 });
    const news = predictions.news(pass, 0);
    assert.deepEqual([news?.experts, news?.critical, news?.again], [[3, 5], [3, 5], true]);
    assert.equal(predictions.news(pass, 0), null);
  });
});
