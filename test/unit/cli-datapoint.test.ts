import assert from 'node:assert/strict';
import { datapointOf, datapointText, type MeasuredAnswer } from '../../cli/output/datapoint.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeStatus, RoleName } from '../../shared/wire/messages.js';
import { plainIdentity } from './plain-identity.js';

function node(role: RoleName, id: string, counters: Partial<NodeStatus> = {}): NodeStatus {
  const identity = plainIdentity({
    id,
    role,
    cluster: 'annas-attic',
    modelName: 'storyteller',
    bootId: `boot-${id}`,
    address: '10.0.0.1:7000',
    device: 'cpu avx2, 2 threads',
    release: '0.9.1',
  });
  return { ...emptyNodeStatus(identity), deviceMemoryBudgetBytes: 4e6, ...counters };
}

const MEASURED: MeasuredAnswer = {
  before: {
    nodes: [node('ROLE_WORKER', 'anna-1', { loads: 30, executions: 50 }), node('ROLE_WORKER', 'gone', { loads: 9 })],
  },
  after: {
    arithmetic: 'exact',
    nodes: [
      node('ROLE_WORKER', 'anna-1', { loads: 40, executions: 80, loadMsMean: 2, executeMsMean: 1, slots: 2 }),
      node('ROLE_WORKER', 'anna-2', { loads: 20, executions: 20, loadMsMean: 5, executeMsMean: 3, slots: 2 }),
      node('ROLE_WORKER', 'anna-3', { deviceName: 'Orin | 8 GB', slots: 4 }),
      node('ROLE_MAIN', 'anna-main', { deviceMemoryBudgetBytes: 0 }),
    ],
    placement: {
      epoch: 3,
      workers: [],
      groups: [{ workerIds: ['anna-1', 'anna-2'] }, { workerIds: ['anna-3'] }],
      layers: 8,
      experts: 8,
      expertsPerToken: 2,
      homes: 0,
      spread: false,
    },
  },
  finished: {
    timing: { ttftMs: 120.4, tpotMs: 50, decodeTokensPerS: 20.126, outputTokensPerS: 18, queuedMs: 0, ioStallMs: 33.3 },
    sep: {
      recall: 0.75,
      activated: 8,
      predictedCorrectly: 6,
      late: 0,
      correctByIteration: [],
      activatedByIteration: [],
    },
  },
  promptTokens: 32,
  tokens: 128,
};

describe('a report of a cluster', () => {
  it('has the speed, and the loads and executions of this answer alone', () => {
    const point = datapointOf(MEASURED);
    assert.deepEqual([point.release, point.model, point.arithmetic], ['0.9.1', 'storyteller', 'exact']);
    assert.deepEqual(
      [point.decodeTokensPerS, point.ttftMs, point.ioStallMs, point.recall],
      [20.126, 120.4, 33.3, 0.75],
    );
    assert.deepEqual([point.loads, point.executions], [10 + 20, 30 + 20]);
    assert.deepEqual([point.loadMsMean, point.executeMsMean], [(40 * 2 + 20 * 5) / 60, (80 + 20 * 3) / 100]);
    assert.deepEqual(point.groups, [2, 1]);
  });

  it('counts boxes that are alike, main first', () => {
    const kinds = datapointOf(MEASURED).nodes.map(({ count, role, device }) => `${count} ${role} ${device}`);
    assert.deepEqual(kinds, ['1 main cpu avx2, 2 threads', '2 worker cpu avx2, 2 threads', '1 worker Orin | 8 GB']);
  });

  it('is a text for an issue, in which no machine, cluster or address is named', () => {
    const text = datapointText(datapointOf(MEASURED));
    assert.doesNotMatch(text, /anna|attic|10\.0\.0\.1|boot-/);
    assert.match(text, /^\*\*Model\*\* storyteller, arithmetic exact, odmoe 0\.9\.1$/m);
    assert.match(text, /^\| 2 \| worker \| cpu avx2, 2 threads \| 4\.00 MB \| 2 \|$/m);
    assert.match(text, /^\| 1 \| worker \| Orin \/ 8 GB \|/m);
    assert.match(text, /^\| 1 \| main \| cpu avx2, 2 threads \| no limit \| {2}\|$/m);
    assert.match(text, /^\| then \| 20\.13 tokens\/s \|$/m);
    assert.match(text, /^\| workers in groups \| 2 \+ 1 \|$/m);
  });

  it('says where there are no predictions and no groups', () => {
    const bare = {
      ...MEASURED,
      finished: { ...MEASURED.finished, sep: null },
      after: { ...MEASURED.after, placement: null },
    };
    const text = datapointText(datapointOf(bare));
    assert.match(text, /recall of predictions \| no predictions/);
    assert.match(text, /workers in groups \| no groups/);
  });
});
