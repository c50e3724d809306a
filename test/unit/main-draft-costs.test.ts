import assert from 'node:assert/strict';
import {
  ACCEPTANCE_WINDOW,
  FORGETTING_WINDOW,
  DraftCostMeter,
  PASS_WINDOW,
  SHADOW_TOKEN_LIMIT_MS,
  type ClusterCosts,
} from '../../main-node/decode/draft-costs.js';

const CLUSTER: ClusterCosts = {
  loadMs: 1,
  optimistic: true,
  workers: 8,
  layerWorkers: 8,
  slots: 1,
  layers: 4,
  experts: 8,
  expertsPerToken: 2,
};

function close(actual: number | undefined, expected: number): void {
  assert.ok(Math.abs((actual ?? NaN) - expected) < 1e-6 * Math.max(1, expected), `${actual} is not ${expected}`);
}

describe('main: the estimated cost of drafts', () => {
  it('is unknown, and a pass has one row, until one has been measured', () => {
    const meter = new DraftCostMeter();
    assert.equal(meter.costs(CLUSTER), null);
    assert.equal(meter.rows(CLUSTER), 1);
  });

  it('is a fitted line through the layers of passes with different rows', () => {
    const meter = new DraftCostMeter();
    for (const rows of [1, 4, 2, 1]) meter.passed(rows, 4, 4 * (10 + 2 * (rows - 1)));
    const costs = meter.costs(CLUSTER);
    close(costs?.layerMs, 10);
    close(costs?.layerRowMs, 2);
  });

  it('is never negative for more rows, nor zero for the first', () => {
    const falling = new DraftCostMeter();
    falling.passed(1, 4, 80);
    falling.passed(4, 4, 40);
    assert.equal(falling.costs(CLUSTER)?.layerRowMs, 0);
    const steep = new DraftCostMeter();
    steep.passed(4, 4, 4);
    steep.passed(8, 4, 400);
    assert.ok((steep.costs(CLUSTER)?.layerMs ?? 0) > 0);
    const alike = new DraftCostMeter();
    alike.passed(4, 4, 40);
    const costs = alike.costs(CLUSTER);
    close((costs?.layerMs ?? 0) + 3 * (costs?.layerRowMs ?? 0), 10);
  });

  it('forgets passes that are long past', () => {
    const meter = new DraftCostMeter();
    meter.passed(1, 4, 4000);
    for (let pass = 0; pass < PASS_WINDOW; pass++) meter.passed(1 + (pass % 2), 4, 40);
    close(meter.costs(CLUSTER)?.layerMs, 10);
    assert.ok((meter.costs(CLUSTER)?.layerRowMs ?? 1) < 1e-6);
  });

  it('follows the acceptance of drafts and the time of shadow', () => {
    const meter = new DraftCostMeter();
    meter.passed(1, 4, 40);
    for (let count = 0; count < 10 * ACCEPTANCE_WINDOW; count++) {
      meter.drafted(true);
      meter.shadowRan(5000);
    }
    const right = meter.costs(CLUSTER);
    assert.ok((right?.acceptance ?? 0) > 0.99);
    close(right?.shadowTokenMs, 5);
    assert.ok(meter.rows(CLUSTER) > 1);
    for (let count = 0; count < 10 * ACCEPTANCE_WINDOW; count++) meter.drafted(false);
    assert.ok((meter.costs(CLUSTER)?.acceptance ?? 1) < 0.01);
    assert.equal(meter.rows(CLUSTER), 1);
  });

  it('makes main try drafts again after a while without any', () => {
    const meter = new DraftCostMeter();
    for (let count = 0; count < 10 * ACCEPTANCE_WINDOW; count++) meter.drafted(false);
    meter.passed(1, 4, 40);
    assert.equal(meter.rows(CLUSTER), 1);
    for (let pass = 0; pass < 4 * FORGETTING_WINDOW; pass++) meter.passed(1, 4, 40);
    assert.ok(meter.rows(CLUSTER) > 1);
  });

  it('ignores positions of shadow beyond the limit, and forgets a replaced shadow', () => {
    const meter = new DraftCostMeter();
    meter.shadowRan(2 ** 32 - 1);
    assert.equal(meter.shadowTokenMs, SHADOW_TOKEN_LIMIT_MS);
    meter.shadowChanged();
    assert.equal(meter.shadowTokenMs, 0);
    meter.shadowRan(4000);
    assert.equal(meter.shadowTokenMs, 4);
  });
});
