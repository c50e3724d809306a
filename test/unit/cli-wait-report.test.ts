import assert from 'node:assert/strict';
import { topLines, waitLines } from '../../cli/output/wait-report.js';
import type { LayerWait, StatusReply, WorkerWait } from '../../shared/wire/messages.js';

const layer = (index: number, waitMs: number, stallMs = 0, slowestWorker = ''): LayerWait => ({
  layer: index,
  passes: 10,
  waitMs,
  stallMs,
  slowestWorker,
});

const worker = (id: string, lastShare: number, costMs: number): WorkerWait => ({
  worker: id,
  executes: 10,
  waitMs: 3,
  stallMs: 1,
  executeMs: 1.5,
  otherMs: 0.5,
  lastShare,
  costMs,
});

describe('the view of decode waits in the terminal', () => {
  it('is not shown before any token was decoded', () => {
    assert.deepEqual(waitLines({ layerWaits: [], workerWaits: [] }), []);
  });

  it('names each layer, its share of waiting for loads, and the slowest worker with its cost', () => {
    const layerWaits = [layer(0, 4, 2, 'w2'), layer(1, 2, 0, 'w1')];
    const lines = waitLines({ layerWaits, workerWaits: [worker('w1', 0.25, 0.1), worker('w2', 0.75, 1.25)] });
    assert.equal(lines[1], 'a pass waits 6.0 ms for experts, 2.0 ms of it for loads (#)');
    assert.match(lines[2] ?? '', /^ {2}layer 0 +4\.00 ms {2}#{19}={19} {2}w2$/);
    assert.match(lines[3] ?? '', /^ {2}layer 1 +2\.00 ms {2}={19} +w1$/);
    assert.equal(lines[4], 'slowest: w2, last in 75 % of its layers, costing 1.25 ms each');
    assert.match(lines.join('\n'), /^w2 +3\.00 +1\.00 +1\.50 +0\.50 +75 % +1\.25$/m);
  });

  it('names the worker that costs most, and among equal ones the one with the longest wait', () => {
    const lineOf = (...workerWaits: WorkerWait[]): string | undefined =>
      waitLines({ layerWaits: [layer(0, 4)], workerWaits }).find((line) => line.startsWith('slowest'));
    const [quick, slow] = [worker('w1', 0.5, 0.1), worker('w2', 0.5, 4)];
    assert.match(lineOf(quick, slow) ?? '', /^slowest: w2, last in 50 %/);
    assert.match(lineOf(slow, quick) ?? '', /^slowest: w2,/);
    assert.match(lineOf({ ...quick, lastShare: 0.6 }, { ...slow, lastShare: 0.4 }) ?? '', /^slowest: w2, last in 40 %/);
    assert.match(lineOf(quick, { ...quick, worker: 'w3', waitMs: 9 }) ?? '', /^slowest: w3,/);
    assert.equal(lineOf(worker('w1', 0, 0)), undefined);
  });

  it('fits 80 columns and a screen for many layers, long ids and waits of minutes', () => {
    const id = 'a-worker-with-a-very-long-name-indeed.example.org';
    const layerWaits = Array.from({ length: 94 }, (_, index) => layer(index, 60_000 + index, 60_000, id));
    const slow = { ...worker(id, 1, 60_000), waitMs: 60_000, executeMs: 60_000 };
    const lines = waitLines({ layerWaits, workerWaits: [slow] });
    assert.ok(lines.length <= 20, `${lines.length} lines`);
    for (const line of lines) assert.ok(line.length <= 80, line);
    assert.match(lines[2] ?? '', /^ {2}0 to 7 /);
    assert.match(lines.join('\n'), /^ {2}88 to 93 /m);
  });

  it('follows the nodes of the status', () => {
    const status: StatusReply = {
      nodes: [],
      placement: null,
      groupReason: '',
      httpAddress: '127.0.0.1:7680',
      problems: [],
      links: [],
      activeSequences: 0,
      queuedRequests: 0,
      requests: 0,
      tokens: 0,
      workerWaits: [],
      workerHops: [],
      passes: null,
      ownWorkerId: '',
      layerWaits: [layer(0, 4)],
    };
    const text = topLines(status, { earlier: null, verbose: false }).join('\n');
    assert.match(text, /^cluster .*\n.*\n.*7680\n\nnode .*\n\na pass waits 4\.0 ms/);
  });

  it('draws nothing where decode waits for nothing', () => {
    const lines = waitLines({ layerWaits: [layer(0, 0)], workerWaits: [] });
    assert.equal(lines[2], '  layer 0       0.00 ms');
    assert.equal(lines.length, 3);
  });
});
