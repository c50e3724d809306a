import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { createNetworkTransit, loadDeviceProfile, messageBytes } from '../../shared/emulation/index.js';
import { packageRoot } from '../../shared/config/index.js';
import type { OdmoeError } from '../../shared/errors/index.js';
import { openWorkerStream, startRpcServer } from '../../shared/rpc/index.js';
import type { Execute, NetworkTransit, NodeIdentity, PeerStream, RpcServer } from '../../shared/rpc/index.js';
import type { WorkerReply, WorkerRequest } from '../../shared/rpc/index.js';
import { WORKER_SERVE } from '../../shared/rpc/codecs.js';
import { requireUnstamped, stamped, unstamped } from '../../shared/rpc/network-transit.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const PROFILE = loadDeviceProfile(join(packageRoot(), 'bench', 'profiles', 'rtx3090-testbed.yaml'));
const IDENTITY: NodeIdentity = {
  id: 'worker-1',
  role: 'ROLE_WORKER',
  cluster: 'test',
  protocolVersion: 1,
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'boot',
  address: '127.0.0.1:1',
  device: 'cpu',
};

function execute(requestId: number, rows: number): Execute {
  const fields = { requestId, epoch: 3, sequence: 7, position: 11, layer: 2, expert: 5, rows, hiddenSize: 4 };
  return { ...fields, dtype: 'TENSOR_TYPE_F32', hidden: new Uint8Array(rows * 16).fill(requestId), last: true };
}

/** A clock that goes on when the test says so. */
class TestClock {
  nowMs = 1000;
  private readonly waiting: { atMs: number; resolve: () => void }[] = [];

  readonly waitUntil = (atMs: number): Promise<void> =>
    new Promise((resolve) => {
      this.waiting.push({ atMs, resolve });
      this.wake();
    });

  advance(ms: number): void {
    this.nowMs += ms;
    this.wake();
  }

  /** When the first of those who wait goes on; null: nobody waits. */
  get nextMs(): number | null {
    return this.waiting.length === 0 ? null : Math.min(...this.waiting.map(({ atMs }) => atMs));
  }

  private wake(): void {
    for (const entry of [...this.waiting]) {
      if (entry.atMs > this.nowMs) continue;
      this.waiting.splice(this.waiting.indexOf(entry), 1);
      entry.resolve();
    }
  }
}

async function until(condition: () => boolean, what: string): Promise<void> {
  for (let attempt = 0; attempt < 2000; attempt += 1) {
    if (condition()) return;
    await delay(2);
  }
  throw new Error(`never: ${what}`);
}

describe('bytes of messages on the profiled network', () => {
  it('are those of the profiled model', () => {
    const overhead = PROFILE.network.messageOverheadBytes;
    assert.equal(messageBytes({ kind: 'execute', execute: execute(1, 3) }, PROFILE), 3 * 16384 + overhead);
    const half = { ...execute(1, 3), dtype: 'TENSOR_TYPE_BF16' as const };
    assert.equal(messageBytes({ kind: 'execute', execute: half }, PROFILE), 3 * 8192 + overhead);
    const kvRows = { epoch: 1, sequence: 1, layer: 0, position: 5, rows: 2, keys: Buffer.of(), values: Buffer.of() };
    assert.equal(messageBytes({ kind: 'kvRows', kvRows }, PROFILE), 2 * 8192 + overhead);
    assert.equal(messageBytes({ kind: 'end', end: { sequence: 1 } }, PROFILE), overhead);
  });
});

describe('streams on an emulated network', function () {
  this.timeout(20_000);
  let server: RpcServer | null = null;
  const clock = new TestClock();
  const transit = (): NetworkTransit =>
    createNetworkTransit(PROFILE, { waitUntil: clock.waitUntil, now: () => clock.nowMs });

  async function serve(
    worker: (stream: PeerStream<WorkerReply, WorkerRequest>) => void,
    own: NetworkTransit | null = transit(),
  ): Promise<string> {
    const listening = { host: '127.0.0.1', port: 0, network: NETWORK, log: SILENT };
    server = await startRpcServer({ ...listening, identity: () => IDENTITY, worker, transit: own });
    return server.address;
  }

  afterEach(async () => {
    await server?.stop();
    server = null;
  });

  it('hold each message until the receiver card has it, in order', async () => {
    const got: number[] = [];
    const address = await serve((stream) => {
      stream.onMessage((message) => {
        if (message.kind === 'execute') got.push(message.execute.requestId);
      });
    });
    const stream = openWorkerStream(address, NETWORK, transit());
    const startMs = clock.nowMs;
    stream.send({ kind: 'execute', execute: execute(1, 1) });
    stream.send({ kind: 'execute', execute: execute(2, 1) });
    const eachMs = (16384 + 128) / 125_000;
    await until(() => clock.nextMs !== null, 'the first message is held');
    assert.deepEqual(got, []);
    assert.ok(Math.abs((clock.nextMs ?? NaN) - (startMs + eachMs + 0.1)) < 1e-6);
    clock.advance(eachMs + 0.1 + 1e-6);
    await until(() => got.length === 1 && clock.nextMs !== null, 'the second message is held');
    assert.ok(Math.abs((clock.nextMs ?? NaN) - (startMs + 2 * eachMs + 0.1)) < 1e-6);
    clock.advance(eachMs);
    await until(() => got.length === 2, 'both messages have come');
    assert.deepEqual(got, [1, 2]);
    stream.close();
  });

  it('deliver what is held before they end', async () => {
    const got: string[] = [];
    const address = await serve((stream) => {
      stream.onMessage((message) => {
        got.push(message.kind);
        stream.send({ kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'no' } });
        stream.close();
      });
      stream.onClose(() => got.push('closed'));
    });
    const stream = openWorkerStream(address, NETWORK, transit());
    stream.onMessage((reply) => {
      got.push(reply.kind);
    });
    const ended = new Promise<OdmoeError | null>((resolve) => {
      stream.onClose(resolve);
    });
    stream.send({ kind: 'hello', hello: IDENTITY });
    await until(() => clock.nextMs !== null, 'hello is held');
    clock.advance(1000);
    await until(() => got.includes('closed') && clock.nextMs !== null, 'the refusal is held');
    // The stream's status has had time to arrive.
    await delay(50);
    assert.deepEqual(got, ['hello', 'closed']);
    clock.advance(1000);
    assert.equal(await ended, null);
    assert.deepEqual(got, ['hello', 'closed', 'refusal']);
  });

  it('deliver to the server what its peer sent before it ended', async () => {
    const got: string[] = [];
    const address = await serve((stream) => {
      stream.onMessage((message) => {
        got.push(message.kind);
      });
      stream.onClose((error) => got.push(error === null ? 'orderly end' : error.code));
    });
    const stream = openWorkerStream(address, NETWORK, transit());
    stream.send({ kind: 'hello', hello: IDENTITY });
    stream.close();
    await until(() => clock.nextMs !== null, 'hello is held');
    await delay(50);
    assert.deepEqual(got, []);
    clock.advance(1000);
    await until(() => got.length === 2, 'the end');
    assert.deepEqual(got, ['hello', 'orderly end']);
  });

  it('tell a peer that has no emulated network', async () => {
    const closed: string[] = [];
    const address = await serve((stream) => {
      stream.onMessage(() => undefined);
      stream.onClose((error) => closed.push(`${error?.code}: ${error?.message}`));
    });
    const stream = openWorkerStream(address, NETWORK);
    stream.onMessage(() => undefined);
    const ended = new Promise<OdmoeError | null>((resolve) => {
      stream.onClose(resolve);
    });
    stream.send({ kind: 'hello', hello: IDENTITY });
    assert.match((await ended)?.message ?? '', /give all daemons of an emulated cluster the same --profile/);
    assert.match(closed[0] ?? '', /^PROTOCOL_VIOLATION/);
  });

  it('are refused with the same words by who has no emulated network', () => {
    const hello = WORKER_SERVE.request.encode({ kind: 'hello', hello: IDENTITY });
    requireUnstamped(hello);
    assert.throws(() => requireUnstamped(stamped(hello, 1234.5)), {
      code: 'PROTOCOL_VIOLATION',
      message: /give all daemons of an emulated cluster the same --profile/,
    });
    assert.deepEqual(unstamped(stamped(hello, 1234.5), 1200), { sentMs: 1234.5, bytes: hello });
    for (const wrong of [hello, Buffer.alloc(0), stamped(hello, 1e12), stamped(hello, NaN)]) {
      assert.throws(() => unstamped(wrong, 1200), { code: 'PROTOCOL_VIOLATION' });
    }
  });
});
