import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { PeerKeepalive } from '../../shared/transport/peer-keepalive.js';
import { OWN_STANDSTILL_MS } from '../../shared/base/runtime/peer-wait.js';
import { SilenceBound, type StreamKeepalive } from '../../shared/transport/silence-bound.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { generate, openWorkerStream } from '../../shared/transport/node-clients.js';
import { plainRequest } from './wire-messages.js';

const TIMES = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700 };
const times = (): StreamKeepalive => ({ keepaliveIntervalMs: 500, bound: new SilenceBound(700) });

/** A runtime whose timers all come too late, as after a standstill of the event loop. */
class LateRuntime {
  lateMs = 0;

  constructor(private readonly inner: VirtualRuntime) {}

  asRuntime(): Runtime {
    const after: Runtime['after'] = (delayMs, run) => this.inner.after(delayMs + this.lateMs, run);
    return Object.assign(Object.create(this.inner) as VirtualRuntime, { after });
  }
}

describe('the keepalive of a peer', () => {
  let clock: VirtualClock;
  let runtime: VirtualRuntime;
  let late: LateRuntime;
  let asked: number;
  let answers: boolean;
  let silences: number[];
  beforeEach(() => {
    clock = new VirtualClock();
    runtime = new VirtualRuntime(clock, 1);
    late = new LateRuntime(runtime);
    asked = 0;
    answers = true;
    silences = [];
  });

  function keepalive(): PeerKeepalive {
    const asking = new PeerKeepalive({
      ...times(),
      runtime: late.asRuntime(),
      ask: () => {
        asked += 1;
        return answers ? runtime.sleep(10).then(() => 0) : new Promise(() => undefined);
      },
      onSilent: (silentMs) => silences.push(silentMs),
    });
    asking.start();
    return asking;
  }
  const passes = (untilMs: number): Promise<void> => clock.run(() => clock.nowMs >= untilMs, { untilMs });

  it('goes on for as long as the peer answers', async () => {
    const asking = keepalive();
    await passes(10_000);
    assert.equal(asked, Math.floor(10_000 / 510));
    assert.deepEqual(silences, []);
    asking.stop();
    await passes(11_000);
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  it('reports once that the peer does not answer in time', async () => {
    answers = false;
    keepalive();
    await passes(1199);
    assert.deepEqual(silences, []);
    await passes(10_000);
    assert.deepEqual(silences, [700]);
    assert.equal(asked, 1);
    assert.equal(runtime.openCounts.timers, 0);
  });

  it('gives it the whole time once more after a standstill of our own event loop', async () => {
    answers = false;
    const asking = keepalive();
    late.lateMs = OWN_STANDSTILL_MS;
    await passes(700);
    late.lateMs = 0;
    await passes(1400);
    assert.deepEqual(silences, []);
    await passes(1499);
    assert.deepEqual(silences, []);
    await passes(1501);
    assert.deepEqual(silences, [1000]);
    asking.stop();
  });

  it('ignores an answer when the connection is not open', async () => {
    const failing = new PeerKeepalive({
      ...times(),
      runtime,
      ask: () => Promise.reject(new Error('reset')),
      onSilent: (silentMs) => silences.push(silentMs),
    });
    failing.start();
    await passes(1201);
    assert.deepEqual(silences, [700]);
    failing.stop();
  });
});

const IDENTITY: NodeIdentity = {
  id: 'main',
  role: 'ROLE_MAIN',
  cluster: 'test',
  protocolVersion: 1,
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'boot',
  address: '127.0.0.1:1',
  device: 'cpu',
  release: '1.0.0',
};
const REQUEST = plainRequest();

describe('a busy daemon', function () {
  this.timeout(20_000);
  const quiet = (): void => undefined;
  const log = { error: quiet, warn: quiet, info: quiet, debug: quiet };
  const network = { ...TIMES, executeTimeoutMs: 1000, reconnectDelayMs: 100 };

  /** Stops the event loop for this time. */
  function standStill(durationMs: number): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, durationMs);
  }

  it('keeps its clients and its peers through a standstill of its event loop', async () => {
    const runtime = new WallRuntime();
    const transport = new GrpcTransport(runtime);
    const script = fileURLToPath(new URL('../../bench/hop/echo-process.js', import.meta.url));
    const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
    const main = await transport.serve({
      host: '127.0.0.1',
      port: 0,
      network,
      log,
      node: { identify: () => IDENTITY },
      inference: {
        generate: async function* () {
          yield { kind: 'started', started: { promptTokenIds: [1], seed: 1 } };
          for (let round = 0; round < 3; round += 1) {
            await runtime.sleep(600);
            standStill(1500);
          }
          const rest = {
            timing: null,
            sep: null,
            reloads: 0,
            nodes: [],
            drafts: null,
            stopString: '',
            cachedTokens: 0,
          };
          yield { kind: 'finished', finished: { finishReason: 'length', text: 'all', ...rest } };
        },
      },
    });
    try {
      const [line] = (await once(child.stdout, 'data')) as [Buffer];
      const { rpcAddress } = JSON.parse(line.toString()) as { rpcAddress: string };
      const stream = openWorkerStream(transport, rpcAddress, network);
      const ends: unknown[] = [];
      stream.onClose((error) => ends.push(error));
      const kinds: string[] = [];
      for await (const reply of generate(transport, main.address, REQUEST)) kinds.push(reply.kind);
      assert.deepEqual(kinds, ['started', 'finished']);
      assert.deepEqual(ends, []);
      stream.close();
    } finally {
      child.kill('SIGKILL');
      await main.stop();
    }
  });
});
