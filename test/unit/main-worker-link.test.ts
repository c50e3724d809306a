import assert from 'node:assert/strict';
import { mock } from 'node:test';
import { WorkerLink, type ExpertWork } from '../../main-node/cluster/worker-link.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { ExecuteResult, NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/rpc/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';

const HIDDEN_SIZE = 4;
const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

const IDENTITY: NodeIdentity = {
  id: 'worker-1',
  role: 'ROLE_WORKER',
  cluster: 'test',
  protocolVersion: 1,
  modelName: 'm',
  packDigest: 'd',
  bootId: 'b',
  address: '127.0.0.1:1',
  device: 'cpu',
};

function openLink(executeTimeoutMs = 1000) {
  const stream = new MemoryStream<WorkerRequest, WorkerReply>();
  const link = new WorkerLink(
    IDENTITY,
    IDENTITY.address,
    stream,
    { hiddenSize: HIDDEN_SIZE, executeTimeoutMs, runtime: RUNTIME },
    SILENT,
  );
  stream.onMessage((reply) => link.receive(reply));
  stream.onClose((error) => link.streamClosed(error));
  return { stream, link };
}

const work = (expert: number, rows = 1): ExpertWork => ({
  sequence: 1,
  position: 2,
  layer: 3,
  expert,
  rows,
  hidden: new Uint8Array(rows * HIDDEN_SIZE * 4),
  last: true,
});

const result = (requestId: number, changes: Partial<ExecuteResult> = {}): WorkerReply => ({
  kind: 'result',
  result: {
    requestId,
    epoch: 1,
    rows: 1,
    hiddenSize: HIDDEN_SIZE,
    dtype: 'TENSOR_TYPE_F32',
    output: new Uint8Array(HIDDEN_SIZE * 4).fill(requestId),
    wasLoaded: true,
    stallUs: 0,
    executeUs: 1,
    ...changes,
  },
});

function requestIds(stream: MemoryStream<WorkerRequest, WorkerReply>): number[] {
  return stream.sent.flatMap((message) => (message.kind === 'execute' ? [message.execute.requestId] : []));
}

describe('main: the link to a worker', () => {
  it('brings each answer to the execute it belongs to, in whatever order they come', async () => {
    const { stream, link } = openLink();
    const first = link.execute(work(1), 1);
    const second = link.execute(work(2), 1);
    assert.equal(link.outstanding, 2);
    const [firstId, secondId] = requestIds(stream) as [number, number];
    stream.arrive(result(secondId));
    stream.arrive(result(firstId));
    assert.equal((await first).output[0], firstId);
    assert.equal((await second).output[0], secondId);
    assert.equal(link.outstanding, 0);
  });

  it('fails an execute with the code that the worker answers', async () => {
    const { stream, link } = openLink();
    const failing = link.execute(work(1), 5);
    const [requestId] = requestIds(stream) as [number];
    stream.arrive({ kind: 'error', error: { code: 'STORAGE_FAILED', message: 'disk', requestId, epoch: 5 } });
    await assert.rejects(failing, { code: 'STORAGE_FAILED', message: 'worker worker-1: disk' });
  });

  for (const requestId of [0, 1]) {
    it(`gives a worker up that says, in request ${requestId}, that its device is lost: all its work goes to others`, async () => {
      const { stream, link } = openLink();
      const pending = [link.execute(work(1), 1), link.execute(work(2), 1)];
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
    const pending = [link.execute(work(1), 1), link.execute(work(2), 1)];
    stream.close(new OdmoeError('WORKER_LOST', 'reset'));
    for (const execute of pending) {
      await assert.rejects(execute, { code: 'WORKER_LOST', message: /^worker worker-1 at \S+ is lost: reset$/ });
    }
    await assert.rejects(link.execute(work(3), 1), { code: 'WORKER_LOST' });
  });

  it('gives a worker up that does not answer in time', async () => {
    const { stream, link } = openLink(5);
    await assert.rejects(link.execute(work(1), 1), { code: 'WORKER_LOST', message: /within 5 ms/ });
    assert.equal(stream.closedWith?.code, 'WORKER_LOST');
  });

  it('waits on for a worker that works off what it holds, however long the last answer takes', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { stream, link } = openLink(1000);
      const executes = Array.from({ length: 4 }, (_, expert) => link.execute(work(expert), 1));
      for (const requestId of requestIds(stream)) {
        mock.timers.tick(900);
        stream.arrive(result(requestId));
      }
      assert.equal((await Promise.all(executes)).length, 4);
      mock.timers.tick(5000);
      assert.equal(stream.closedWith, undefined, 'a worker that owes nothing was given up');
      const unanswered = link.execute(work(9), 1);
      mock.timers.tick(1000);
      await assert.rejects(unanswered, { code: 'WORKER_LOST', message: /within 1000 ms/ });
    } finally {
      mock.timers.reset();
    }
  });

  for (const [what, changes] of [
    ['rows', { rows: 2 }],
    ['row size', { hiddenSize: 8 }],
    ['type', { dtype: 'TENSOR_TYPE_BF16' }],
    ['bytes', { output: new Uint8Array(3) }],
  ] satisfies [string, Partial<ExecuteResult>][]) {
    it(`gives a worker up that answers with other ${what}`, async () => {
      const { stream, link } = openLink();
      const failing = link.execute(work(1), 1);
      const [requestId] = requestIds(stream) as [number];
      stream.arrive(result(requestId, changes));
      await assert.rejects(failing, { code: 'WORKER_LOST' });
      assert.equal(stream.closedWith?.code, 'PROTOCOL_VIOLATION');
    });
  }

  it('lets an answer to nothing pass', () => {
    const { stream } = openLink();
    stream.arrive(result(77));
    stream.arrive({ kind: 'error', error: { code: 'NO_SUCH_CODE', message: 'x', requestId: 0, epoch: 0 } });
    assert.equal(stream.closedWith, undefined);
  });
});
