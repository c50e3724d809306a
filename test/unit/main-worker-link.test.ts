import assert from 'node:assert/strict';
import { NO_TIMES } from '../../shared/wire/messages.js';
import type { ExecuteWork } from '../../main-node/cluster/placed-workers.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ExpertResult, NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { plainExecute, plainResult } from './wire-messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { RUNTIME } from '../wall.js';
import { onVirtualClock } from './virtual-run.js';
import { plainIdentity } from './plain-identity.js';

const HIDDEN_SIZE = 4;
const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

const IDENTITY: NodeIdentity = plainIdentity();

function openLink(executeTimeoutMs = 1000, runtime: Runtime = RUNTIME) {
  const stream = new MemoryStream<WorkerRequest, WorkerReply>();
  const link = new WorkerLink(
    IDENTITY,
    IDENTITY.address,
    stream,
    { hiddenSize: HIDDEN_SIZE, experts: 8, executeTimeoutMs, runtime },
    SILENT,
  );
  stream.onMessage((reply) => link.receive(reply));
  stream.onClose((error) => link.streamClosed(error));
  return { stream, link };
}

/** Experts 1, 2, ... each on all rows. */
const work = (experts: number, rows = 1): ExecuteWork => {
  const {
    pass,
    rows: runs,
    layer,
    hidden,
  } = plainExecute({
    position: 2,
    layer: 3,
    expert: 0,
    rows,
    hidden: new Uint8Array(rows * HIDDEN_SIZE * 4),
  });
  const asked = Array.from({ length: experts }, (_, index) => ({ expert: index + 1, rows: [], last: true }));
  return { pass, rows: runs, layer, hidden, experts: asked };
};

const output = (fill: number): Uint8Array => new Uint8Array(HIDDEN_SIZE * 4).fill(fill);
const result = (requestId: number, changes: Parameters<typeof plainResult>[0]['expert'] = {}): WorkerReply => ({
  kind: 'result',
  result: plainResult({
    requestId,
    hiddenSize: HIDDEN_SIZE,
    expert: { expert: 1, output: output(requestId), ...changes },
  }),
});
/** Runs the work and returns the results that came so far, by expert. */
function run(
  link: WorkerLink,
  wanted = work(1),
  signal = new AbortController().signal,
): { done: Promise<void>; results: Map<number, ExpertResult> } {
  const results = new Map<number, ExpertResult>();
  const onPart = (part: readonly ExpertResult[]): void => {
    for (const expert of part) results.set(expert.expert, expert);
  };
  const done = link.execute(wanted, 1, onPart, signal);
  return { done, results };
}

function requestIds(stream: MemoryStream<WorkerRequest, WorkerReply>): number[] {
  return stream.sent.flatMap((message) => (message.kind === 'execute' ? [message.execute.requestId] : []));
}

describe('main: the link to a worker', () => {
  it('matches each answer to its execute, in any order', async () => {
    const { stream, link } = openLink();
    const [first, second] = [run(link), run(link)];
    assert.equal(link.outstanding, 2);
    const [firstId, secondId] = requestIds(stream) as [number, number];
    stream.arrive(result(secondId));
    stream.arrive(result(firstId));
    await Promise.all([first.done, second.done]);
    assert.equal(first.results.get(1)?.output[0], firstId);
    assert.equal(second.results.get(1)?.output[0], secondId);
    assert.equal(link.outstanding, 0);
  });

  it('takes an answer in parts, failures of single experts among them', async () => {
    const { stream, link } = openLink();
    const { done, results } = run(link, work(3));
    assert.equal(link.outstanding, 3);
    const requestId = 1;
    const ran = { rows: 1, wasLoaded: true, stallUs: 0, executeUs: 1, ...NO_TIMES, output: output(1), failure: null };
    const failed = { ...ran, output: new Uint8Array(), failure: { code: 'PACK_CORRUPT', message: 'bytes' } };
    const part = (experts: ExpertResult[], last: boolean): WorkerReply => ({
      kind: 'result',
      result: { ...plainResult({ requestId, hiddenSize: HIDDEN_SIZE }), experts, last },
    });
    stream.arrive(part([{ expert: 2, ...ran }], false));
    assert.deepEqual([[...results.keys()], link.outstanding], [[2], 2]);
    stream.arrive(part([{ expert: 1, ...failed }], false));
    stream.arrive(part([{ expert: 3, ...ran }], true));
    await done;
    assert.equal(results.get(1)?.failure?.code, 'PACK_CORRUPT');
    assert.equal(link.outstanding, 0);
  });

  for (const [what, experts, last] of [
    ['an expert that was not asked for', [4], false],
    ['an expert twice', [1, 1], false],
    ['too few experts at the end', [1], true],
  ] as const) {
    it(`gives a worker up that answers with ${what}`, async () => {
      const { stream, link } = openLink();
      const { done } = run(link, work(3));
      for (const expert of experts) {
        const ran = {
          expert,
          rows: 1,
          wasLoaded: true,
          stallUs: 0,
          executeUs: 1,
          ...NO_TIMES,
          output: output(1),
          failure: null,
        };
        const answer = { ...plainResult({ requestId: 1, hiddenSize: HIDDEN_SIZE }), experts: [ran], last };
        stream.arrive({ kind: 'result', result: answer });
      }
      await assert.rejects(done, { code: 'WORKER_LOST' });
      assert.equal(stream.closedWith?.code, 'PROTOCOL_VIOLATION');
    });
  }

  it('drops the answers to cancelled requests', async () => {
    const { stream, link } = openLink();
    const gone = new AbortController();
    const { done, results } = run(link, work(2), gone.signal);
    const kept = run(link);
    gone.abort();
    await assert.rejects(done, { code: 'CANCELLED' });
    assert.equal(link.outstanding, 1);
    stream.arrive({ kind: 'result', result: plainResult({ requestId: 1, hiddenSize: HIDDEN_SIZE }) });
    assert.deepEqual([results.size, stream.closedWith], [0, undefined]);
    const [, requestId] = requestIds(stream) as [number, number];
    stream.arrive({ kind: 'error', error: { code: 'STORAGE_FAILED', message: 'disk', requestId, epoch: 5 } });
    await assert.rejects(kept.done, { code: 'STORAGE_FAILED' });
  });

  it("fails an execute with the code in the worker's answer", async () => {
    const { stream, link } = openLink();
    const failing = run(link).done;
    const [requestId] = requestIds(stream) as [number];
    stream.arrive({ kind: 'error', error: { code: 'STORAGE_FAILED', message: 'disk', requestId, epoch: 5 } });
    await assert.rejects(failing, { code: 'STORAGE_FAILED', message: 'worker worker-1: disk' });
  });

  for (const requestId of [0, 1]) {
    it(`gives a worker up that says, in request ${requestId}, that its device is lost: all its work goes to others`, async () => {
      const { stream, link } = openLink();
      const pending = [run(link).done, run(link).done];
      stream.arrive({ kind: 'error', error: { code: 'DEVICE_LOST', message: 'the GPU is gone', requestId, epoch: 1 } });
      for (const execute of pending) {
        await assert.rejects(execute, {
          code: 'WORKER_LOST',
          message: /^worker worker-1 at \S+ is lost: the GPU is gone$/,
        });
      }
      assert.equal(stream.closedWith?.code, 'WORKER_LOST');
    });
  }

  it('fails everything pending with WORKER_LOST when the stream ends, and every execute after it', async () => {
    const { stream, link } = openLink();
    const pending = [run(link).done, run(link).done];
    stream.close(new OdmoeError('WORKER_LOST', 'reset'));
    for (const execute of pending) {
      await assert.rejects(execute, { code: 'WORKER_LOST', message: /^worker worker-1 at \S+ is lost: reset$/ });
    }
    await assert.rejects(run(link).done, { code: 'WORKER_LOST' });
  });

  it('gives up a worker that does not answer in time', async () => {
    const { stream, link } = openLink(5);
    await assert.rejects(run(link).done, { code: 'WORKER_LOST', message: /within 5 ms/ });
    assert.equal(stream.closedWith?.code, 'WORKER_LOST');
  });

  it('keeps waiting for a worker that makes progress, however long the last answer takes', async () => {
    await onVirtualClock(async (runtime) => {
      const { stream, link } = openLink(1000, runtime);
      const executes = Array.from({ length: 4 }, () => run(link).done);
      for (const requestId of requestIds(stream)) {
        await runtime.sleep(900);
        stream.arrive(result(requestId));
      }
      assert.equal((await Promise.all(executes)).length, 4);
      await runtime.sleep(5000);
      assert.equal(stream.closedWith, undefined, 'a worker that owes nothing was given up');
      await assert.rejects(run(link).done, { code: 'WORKER_LOST', message: /within 1000 ms/ });
    });
  });

  it('keeps a worker that answered while main itself was stopped for longer than any bound', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const { stream, link } = openLink(1000, runtime);
    const { done } = run(link);
    const [requestId] = requestIds(stream) as [number];
    runtime.pause();
    clock.schedule(500, () => runtime.happen(() => stream.arrive(result(requestId))));
    await clock.run(() => false, { untilMs: 200_000 });
    runtime.resume();
    await clock.run(() => false, { untilMs: 300_000 });
    await done;
    assert.equal(stream.closedWith, undefined);
    assert.equal(link.unresponsive, false);
  });

  for (const kept of [[8], [1, 1]]) {
    it(`gives a worker up that keeps experts ${kept.join(', ')} of a layer of 8`, async () => {
      const { stream, link } = openLink();
      const failing = run(link).done;
      const [requestId] = requestIds(stream) as [number];
      const answer = plainResult({ hiddenSize: HIDDEN_SIZE, expert: { expert: 1 }, requestId });
      stream.arrive({ kind: 'result', result: { ...answer, kept: { experts: kept } } });
      await assert.rejects(failing, { code: 'WORKER_LOST' });
      assert.equal(stream.closedWith?.code, 'PROTOCOL_VIOLATION');
      assert.equal(link.cached.changes, 0);
    });
  }

  for (const [what, changes] of [
    ['rows', { expert: { expert: 1, rows: 2 } }],
    ['row size', { hiddenSize: 8, expert: { expert: 1 } }],
    ['type', { dtype: 'TENSOR_TYPE_BF16', expert: { expert: 1 } }],
  ] satisfies [string, Partial<Parameters<typeof plainResult>[0]>][]) {
    it(`gives a worker up that answers with other ${what}`, async () => {
      const { stream, link } = openLink();
      const failing = run(link).done;
      const [requestId] = requestIds(stream) as [number];
      stream.arrive({ kind: 'result', result: plainResult({ hiddenSize: HIDDEN_SIZE, ...changes, requestId }) });
      await assert.rejects(failing, { code: 'WORKER_LOST' });
      assert.equal(stream.closedWith?.code, 'PROTOCOL_VIOLATION');
    });
  }

  it('ignores an answer that matches no request', () => {
    const { stream } = openLink();
    stream.arrive(result(77));
    stream.arrive({ kind: 'error', error: { code: 'NO_SUCH_CODE', message: 'x', requestId: 0, epoch: 0 } });
    assert.equal(stream.closedWith, undefined);
  });
});
