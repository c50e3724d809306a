import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';

import { once } from 'node:events';

import { connect } from 'node:net';

import { setTimeout as delay } from 'node:timers/promises';

import { fileURLToPath } from 'node:url';

import { setFlagsFromString } from 'node:v8';

import { runInNewContext } from 'node:vm';

import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

import type { Logger } from '../../shared/base/log/logger.js';

import { rowCount } from '../../shared/wire/pass-rows.js';

import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';

import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';

import type { Execute } from '../../shared/wire/messages.js';

import { CLOSE_GRACE_MS } from '../../shared/wire/limits.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { identifyPeer, openWorkerStream, RUNTIME, startRpcServer } from '../wall.js';

import { plainExecute, plainResult } from './wire-messages.js';
import * as clients from '../../shared/transport/node-clients.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const IDENTITY: NodeIdentity = plainIdentity({ modelName: 'demo', packDigest: 'abc', bootId: 'boot' });
const WAIT_LIMIT_MS = 8000;

interface LogLine {
  level: string;
  event: string;
  fields: Record<string, unknown>;
}

function recordingLog(): { log: Logger; lines: LogLine[] } {
  const lines: LogLine[] = [];
  const write =
    (level: string) =>
    (event: string, fields: Record<string, unknown> = {}) => {
      lines.push({ level, event, fields });
    };
  return { log: { error: write('error'), warn: write('warn'), info: write('info'), debug: write('debug') }, lines };
}

function execute(requestId: number, rows: number, hiddenSize = 16): Execute {
  const hidden = new Uint8Array(rows * hiddenSize * 4).map((_, index) => (index * 31 + requestId) & 255);
  return plainExecute({ requestId, layer: 2, expert: 5, rows, hiddenSize, hidden });
}

/** Output of the only expert in a result. */
function outputOf(reply: WorkerReply): Uint8Array {
  assert.ok(reply.kind === 'result');
  return reply.result.experts[0]?.output ?? assert.fail('no expert');
}

function echo(stream: PeerStream<WorkerReply, WorkerRequest>): void {
  stream.takeTensors();
  stream.onMessage((message) => {
    if (message.kind === 'hello') {
      stream.send({ kind: 'welcome', welcome: { identity: IDENTITY, partialPack: false, highestEpoch: 0 } });
      return;
    }
    if (message.kind !== 'execute') return;
    const { requestId, rows, hiddenSize, hidden } = message.execute;
    const expert = { rows: rowCount(rows), output: hidden };
    stream.send({ kind: 'result', result: plainResult({ requestId, hiddenSize, expert }) });
  });
}

function closing(stream: { onClose(handler: (error: OdmoeError | null) => void): void }): Promise<OdmoeError | null> {
  return Promise.race([
    new Promise<OdmoeError | null>((resolve) => {
      stream.onClose(resolve);
    }),
    delay(WAIT_LIMIT_MS, undefined, { ref: false }).then(() => {
      throw new Error('the stream did not close');
    }),
  ]);
}

describe('streams between peers', function () {
  this.timeout(20_000);
  let server: RpcServer | null = null;
  let recorded = recordingLog();

  async function serve(options: Partial<RpcServerOptions>): Promise<string> {
    recorded = recordingLog();
    server = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: recorded.log,
      node: { identify: () => IDENTITY },
      ...options,
    });
    return server.address;
  }

  afterEach(async () => {
    await server?.stop();
    server = null;
  });

  it('close where more comes than their bound, in words at both sides and in the log', async () => {
    const numbers: number[] = [];
    const ends: Promise<OdmoeError | null>[] = [];
    const address = await serve({
      worker: {
        serve: (stream) => {
          const messages = { burst: 10, perSecond: 1e-9 };
          stream.boundArrivals(new ArrivalBound({ messages, bytes: { burst: 1e9, perSecond: 1e9 } }, RUNTIME));
          ends.push(closing(stream));
          stream.onMessage((message) => {
            if (message.kind === 'execute') numbers.push(message.execute.requestId);
          });
        },
      },
    });
    const stream = openWorkerStream(address, NETWORK);
    const closed = closing(stream);
    for (let number = 0; number < 100; number += 1) stream.send({ kind: 'execute', execute: execute(number, 1) });
    const words = /more messages came over this stream than work needs: 10 at once/;
    assert.match((await closed)?.message ?? '', words);
    assert.match((await ends[0])?.message ?? '', words);
    assert.equal(numbers.length, 10);
    assert.equal(recorded.lines.filter(({ event }) => event === 'a peer stream was closed').length, 1);
  });

  it('carry requests and results both ways in order, to the byte', async () => {
    const address = await serve({ worker: { serve: echo } });
    const stream = openWorkerStream(address, NETWORK);
    const replies: WorkerReply[] = [];
    const done = new Promise<void>((resolve) => {
      stream.onMessage((reply) => {
        replies.push(reply);
        if (replies.length === 51) resolve();
      });
    });
    stream.send({ kind: 'hello', hello: { ...IDENTITY, role: 'ROLE_MAIN', id: 'main' } });
    const sent = Array.from({ length: 50 }, (_, index) => execute(index + 1, index + 1));
    for (const request of sent) stream.send({ kind: 'execute', execute: request });
    await done;
    assert.deepEqual(replies[0], {
      kind: 'welcome',
      welcome: { identity: IDENTITY, partialPack: false, highestEpoch: 0 },
    });
    for (const [index, reply] of replies.slice(1).entries()) {
      assert.equal(reply.kind, 'result');
      assert.equal(reply.result.requestId, index + 1);
      assert.deepEqual(Buffer.from(outputOf(reply)), Buffer.from(sent[index]?.hidden ?? []));
    }
    assert.equal(stream.backlogBytes, 0);
    const closed = closing(stream);
    stream.close();
    assert.equal(await closed, null);
  });

  it('carry a message of 32 MiB', async () => {
    const address = await serve({ worker: { serve: echo } });
    const stream = openWorkerStream(address, NETWORK);
    const welcome = new Promise((resolve) => stream.onMessage(resolve));
    stream.send({ kind: 'hello', hello: IDENTITY });
    await welcome;
    stream.takeTensors();
    const reply = new Promise<WorkerReply>((resolve) => {
      stream.onMessage(resolve);
    });
    const big = execute(1, 2048, 4096);
    stream.send({ kind: 'execute', execute: big });
    const received = await reply;
    assert.equal(received.kind, 'result');
    assert.equal(Buffer.compare(outputOf(received), big.hidden), 0);
    stream.close();
  });

  it('carry the code and message of an OdmoeError', async () => {
    const address = await serve({
      worker: {
        serve: (stream) => {
          stream.onMessage(() => {
            stream.close(new OdmoeError('STALE_EPOCH', 'epoch 1 is over \ud800 ünïcode'));
          });
        },
      },
    });
    const stream = openWorkerStream(address, NETWORK);
    stream.onMessage(() => undefined);
    stream.send({ kind: 'hello', hello: IDENTITY });
    const error = await closing(stream);
    assert.equal(error?.code, 'STALE_EPOCH');
    assert.match(error?.message ?? '', /^epoch 1 is over .* ünïcode$/);
  });

  it('end with an INTERNAL error and a log line when a handler throws, and the server serves on', async () => {
    const address = await serve({
      worker: {
        serve: (stream) => {
          stream.onMessage(() => {
            throw new Error('handler broke');
          });
        },
      },
    });
    const stream = openWorkerStream(address, NETWORK);
    stream.send({ kind: 'hello', hello: IDENTITY });
    assert.equal((await closing(stream))?.code, 'INTERNAL');
    assert.ok(recorded.lines.some(({ level }) => level === 'warn'));
    assert.equal((await identifyPeer(address, 2000)).id, 'worker-1');
  });

  it('end with PROTOCOL_VIOLATION on a tensor whose size lies', async () => {
    const handled: WorkerRequest[] = [];
    const address = await serve({
      worker: {
        serve: (stream) => {
          stream.onMessage((message) => handled.push(message));
        },
      },
    });
    const stream = openWorkerStream(address, NETWORK);
    stream.send({ kind: 'execute', execute: { ...execute(1, 2), rows: execute(1, 3).rows } });
    const error = await closing(stream);
    assert.equal(error?.code, 'PROTOCOL_VIOLATION');
    assert.match(error?.message ?? '', /128 bytes .* 3 x 16/);
    assert.deepEqual(handled, []);
  });

  it('report the loss once when the connection breaks', async () => {
    const address = await serve({ worker: { serve: echo } });
    const stream = openWorkerStream(address, NETWORK);
    const first = new Promise((resolve) => {
      stream.onMessage(resolve);
    });
    stream.send({ kind: 'hello', hello: IDENTITY });
    await first;
    let calls = 0;
    const closed = new Promise<OdmoeError | null>((resolve) => {
      stream.onClose((error) => {
        calls += 1;
        resolve(error);
      });
    });
    await server?.stop();
    await closed;
    stream.close();
    stream.send({ kind: 'execute', execute: execute(1, 1) });
    await delay(20);
    assert.equal(calls, 1);
  });

  it('end in order, and the pending forced end is cancelled at both sides', async () => {
    let [begun, left] = [0, 0];
    const runtime = Object.assign(new WallRuntime(), {
      after: (delayMs: number, run: () => void): Timer => {
        if (delayMs !== CLOSE_GRACE_MS) return RUNTIME.after(delayMs, run);
        [begun, left] = [begun + 1, left + 1];
        let isOpen = true;
        const cancel = (): void => {
          if (isOpen) left -= 1;
          isOpen = false;
        };
        return { cancel, unref: () => undefined };
      },
    });
    const transport = new GrpcTransport(runtime);
    const identify = (): NodeIdentity => IDENTITY;
    const own = {
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: recorded.log,
      node: { identify },
      worker: { serve: echo },
    };
    const serving = await transport.serve(own);
    const stream = clients.openWorkerStream(transport, serving.address, NETWORK);
    const first = new Promise((resolve) => stream.onMessage(resolve));
    stream.send({ kind: 'hello', hello: IDENTITY });
    await first;
    const closed = closing(stream);
    stream.close();
    assert.equal(await closed, null);
    await waitUntil('nothing waits to end by force', () => left === 0);
    assert.equal(begun, 3, "the client's call, its connection, and the server's call");
    await serving.stop();
  });

  it('are released by the server when they have ended', async () => {
    const served: WeakRef<object>[] = [];
    const address = await serve({
      worker: {
        serve: (stream) => {
          served.push(new WeakRef(stream));
          echo(stream);
        },
      },
    });
    for (let count = 0; count < 20; count += 1) {
      const stream = openWorkerStream(address, NETWORK);
      const first = new Promise((resolve) => stream.onMessage(resolve));
      stream.send({ kind: 'hello', hello: IDENTITY });
      await first;
      const closed = closing(stream);
      stream.close();
      await closed;
    }
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    let held = served.length;
    for (let round = 0; round < 20 && held > 2; round += 1) {
      await delay(50);
      collect();
      held = served.filter((stream) => stream.deref() !== undefined).length;
    }
    assert.ok(held <= 2, `${held} of ${served.length} streams that have ended are still held`);
  });

  it('refuse to send a message over the size limit', async () => {
    const address = await serve({ worker: { serve: echo } });
    const stream = openWorkerStream(address, NETWORK);
    stream.send({ kind: 'execute', execute: execute(1, 4097, 4096) });
    assert.equal((await closing(stream))?.code, 'INTERNAL');
  });

  it('survive garbage, an HTTP/1 client and a silent connection', async () => {
    const address = await serve({ worker: { serve: echo } });
    const port = server?.port ?? 0;
    const idle = connect(port, '127.0.0.1');
    const garbage = Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 7919) & 255));
    for (const bytes of [
      garbage,
      Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
      Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxx'),
    ]) {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write(bytes);
      await Promise.race([new Promise((resolve) => socket.once('close', resolve)), delay(300)]);
      socket.destroy();
    }
    assert.equal((await identifyPeer(address, 2000)).id, 'worker-1');
    idle.destroy();
  });

  it('report a peer that is stopped, and one that is killed', async () => {
    for (const signal of ['SIGSTOP', 'SIGKILL'] as const) {
      const script = fileURLToPath(new URL('../../bench/hop/echo-process.js', import.meta.url));
      const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
      try {
        const [line] = (await once(child.stdout, 'data')) as [Buffer];
        const { rpcAddress } = JSON.parse(line.toString()) as { rpcAddress: string };
        const stream = openWorkerStream(rpcAddress, NETWORK);
        const first = new Promise((resolve) => {
          stream.onMessage(resolve);
        });
        stream.send({ kind: 'execute', execute: execute(1, 1) });
        await first;
        const closed = closing(stream);
        child.kill(signal);
        assert.equal((await closed)?.code, 'WORKER_LOST', signal);
      } finally {
        child.kill('SIGKILL');
      }
    }
  });

  it('fail with PORT_UNAVAILABLE on a port in use or an address of another machine', async () => {
    await serve({});
    const options = { network: NETWORK, log: recorded.log, node: { identify: () => IDENTITY } };
    await assert.rejects(startRpcServer({ ...options, host: '127.0.0.1', port: server?.port ?? 0 }), {
      code: 'PORT_UNAVAILABLE',
    });
    await assert.rejects(startRpcServer({ ...options, host: '192.0.2.1', port: 0 }), { code: 'PORT_UNAVAILABLE' });
  });

  it('warn exactly once when the address is reachable from other machines', async () => {
    await serve({ host: '0.0.0.0' });
    const warnings = recorded.lines.filter(({ level }) => level === 'warn');
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]?.event ?? '', /^insecure: /);
    await server?.stop();
    await serve({ host: '127.0.0.1' });
    assert.deepEqual(recorded.lines, []);
  });
});
