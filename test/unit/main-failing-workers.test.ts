import assert from 'node:assert/strict';
import { FIRST_PAUSE_MS, LONGEST_REST_MS, MAX_FAILURES_IN_A_ROW } from '../../main-node/cluster/failing-workers.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { MAX_STRAY_ERRORS, WorkerLink } from '../../main-node/cluster/worker-link.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { GROUPING, plainShape } from './plain-shape.js';
import { plainIdentity } from './plain-identity.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const SHAPE = plainShape({ expertLayers: 4, experts: 8, hiddenSize: 4 });

const identity = (id: string): NodeIdentity => plainIdentity({ id, bootId: `boot of ${id}`, address: '' });

describe('main: a worker that answers with errors only', () => {
  const clock = new VirtualClock();
  const runtime = new VirtualRuntime(clock, 1);
  let roster: Roster;

  beforeEach(() => {
    roster = new Roster(SHAPE, GROUPING, 100, runtime, SILENT);
  });

  afterEach(() => {
    roster.stop();
    assert.equal(runtime.openCounts.timers, 0, 'no timer is left');
  });

  function linkOf(id: string): WorkerLink {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const limits = { hiddenSize: 4, experts: 8, executeTimeoutMs: 1000, runtime };
    return new WorkerLink(identity(id), `${id}:1`, stream, limits, SILENT);
  }
  async function join(...ids: string[]): Promise<WorkerLink[]> {
    const links = ids.map(linkOf);
    for (const link of links) roster.addWorker(link);
    await pass(100);
    return links;
  }
  const pass = (ms: number): Promise<void> => clock.run(() => false, { untilMs: clock.nowMs + ms });
  const placed = (): string[] => roster.placement?.workers.map(({ id }) => id).sort() ?? [];
  const fail = (link: WorkerLink, times: number): void => {
    for (let time = 0; time < times; time += 1) roster.workerFailed(link, 'INTERNAL', 'no');
  };

  it('gets no work for a growing time, is shown in status, and is then tried again', async () => {
    const [liar] = (await join('liar', 'w1')) as [WorkerLink, WorkerLink];
    fail(liar, MAX_FAILURES_IN_A_ROW - 1);
    assert.deepEqual(placed(), ['liar', 'w1']);
    fail(liar, 1);
    assert.deepEqual(placed(), ['w1']);
    assert.match(roster.problems()[0]?.message ?? '', /32 experts in a row failed there, the last one so: no/);
    assert.equal(roster.connectedWorkers().length, 2, 'it is connected still');
    for (
      let restMs = FIRST_PAUSE_MS;
      restMs < 2 * LONGEST_REST_MS;
      restMs = Math.min(2 * restMs, 2 * LONGEST_REST_MS)
    ) {
      const boundedMs = Math.min(restMs, LONGEST_REST_MS);
      await pass(boundedMs - 100);
      assert.deepEqual(placed(), ['w1'], `after less than ${boundedMs} ms`);
      await pass(200);
      assert.deepEqual(placed(), ['liar', 'w1'], `after ${boundedMs} ms`);
      assert.deepEqual(roster.problems(), []);
      fail(liar, 1);
      assert.deepEqual(placed(), ['w1'], 'one failure more is enough');
    }
    roster.removeWorker(liar, 'it has gone');
  });

  it('keeps its work where it has succeeded between, is the last one, or is not at fault', async () => {
    const [mixed] = (await join('mixed', 'w1')) as [WorkerLink, WorkerLink];
    for (let time = 0; time < 3; time += 1) {
      fail(mixed, MAX_FAILURES_IN_A_ROW - 1);
      roster.workerSucceeded(mixed);
    }
    for (let time = 0; time < 3 * MAX_FAILURES_IN_A_ROW; time += 1) roster.workerFailed(mixed, 'STALE_EPOCH', 'old');
    assert.deepEqual(placed(), ['mixed', 'w1']);
    for (const link of roster.connectedWorkers()) if (link !== mixed) roster.removeWorker(link, 'it has gone');
    fail(mixed, 3 * MAX_FAILURES_IN_A_ROW);
    assert.deepEqual(placed(), ['mixed']);
  });

  it('is given up where its errors match no request, except for requests that were cancelled', async () => {
    const link = linkOf('liar');
    const error = { requestId: 999, epoch: 1, code: 'INTERNAL', message: 'no' };
    const gone = new AbortController();
    const work = { sequence: 1, layer: 0, position: 0, rows: new Float32Array(4), experts: [] };
    const execute = link.execute(work as never, 1, () => undefined, gone.signal);
    gone.abort();
    await assert.rejects(execute, { code: 'CANCELLED' });
    for (let sent = 0; sent < MAX_STRAY_ERRORS + 1; sent += 1) link.receive({ kind: 'error', error });
    assert.equal(link.unresponsive, false);
    link.receive({ kind: 'error', error });
    assert.equal(link.unresponsive, true);
    link.streamClosed(null);
  });
});
