import assert from 'node:assert/strict';
import { MAX_RECONNECT_DELAY_MS, PeerDial, serveStream } from '../../main-node/cluster/peer-dial.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { dialAddress } from '../../shared/wire/addresses.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { NodeIdentity, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { plainIdentity } from './plain-identity.js';

const identity = (id: string, packDigest = 'digest'): NodeIdentity => plainIdentity({ id, packDigest });

const OWN = identity('main');

function greet(stream: MemoryStream<WorkerRequest, WorkerReply>, received: WorkerReply[] = []) {
  const ends: (OdmoeError | null)[] = [];
  const served = serveStream(stream, { kind: 'hello', hello: OWN }, OWN, RUNTIME, () => ({
    receive: (reply) => received.push(reply),
    streamClosed: (error) => ends.push(error),
  }));
  return { served, ends };
}

describe('main: greeting a peer', () => {
  it('says hello, takes the welcome, and hands the rest to the link until the stream ends', async () => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const received: WorkerReply[] = [];
    const { served, ends } = greet(stream, received);
    assert.equal(stream.sent[0]?.kind, 'hello');
    stream.arrive({ kind: 'welcome', welcome: { identity: identity('worker'), partialPack: false, highestEpoch: 0 } });
    await new Promise((resolve) => setImmediate(resolve));
    stream.arrive({ kind: 'error', error: { code: 'INTERNAL', message: 'x', requestId: 0, epoch: 0 } });
    stream.close();
    await served;
    assert.deepEqual(
      received.map(({ kind }) => kind),
      ['error'],
    );
    assert.deepEqual(ends, [null]);
  });

  it('passes on messages that arrived together with the welcome', async () => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const received: WorkerReply[] = [];
    const { served } = greet(stream, received);
    stream.arrive({ kind: 'welcome', welcome: { identity: identity('worker'), partialPack: false, highestEpoch: 0 } });
    for (const code of ['first', 'second']) {
      stream.arrive({ kind: 'error', error: { code, message: 'x', requestId: 0, epoch: 0 } });
    }
    await new Promise((resolve) => setImmediate(resolve));
    stream.close();
    await served;
    assert.deepEqual(
      received.map((reply) => reply.kind === 'error' && reply.error.code),
      ['first', 'second'],
    );
  });

  it('fails with the reason of a refusal', async () => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const { served, ends } = greet(stream);
    stream.arrive({ kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'another pack' } });
    await assert.rejects(served, { code: 'NODE_REFUSED', message: 'another pack' });
    assert.deepEqual(ends, []);
    assert.equal(stream.closedWith?.code, 'NODE_REFUSED');
  });

  it('refuses a peer that does not belong to the cluster, though it said welcome', async () => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    const { served } = greet(stream);
    stream.arrive({
      kind: 'welcome',
      welcome: { identity: identity('worker', 'other digest'), partialPack: false, highestEpoch: 0 },
    });
    await assert.rejects(served, { code: 'NODE_REFUSED' });
    assert.equal(stream.closedWith?.code, 'NODE_REFUSED');
  });

  it('fails for an answer that is no welcome, and for a stream that ends first', async () => {
    const talkative = new MemoryStream<WorkerRequest, WorkerReply>();
    const first = greet(talkative);
    talkative.arrive({ kind: 'error', error: { code: 'INTERNAL', message: 'x', requestId: 0, epoch: 0 } });
    await assert.rejects(first.served, { code: 'PROTOCOL_VIOLATION' });
    assert.equal(talkative.closedWith?.code, 'PROTOCOL_VIOLATION');
    const silent = new MemoryStream<WorkerRequest, WorkerReply>();
    const second = greet(silent);
    silent.close(new OdmoeError('WORKER_LOST', 'reset'));
    await assert.rejects(second.served, { code: 'WORKER_LOST' });
  });
});

describe('main: dialling a peer', () => {
  it('dials again after a failure and after an end', async () => {
    const events: string[] = [];
    let dial: PeerDial | null = null;
    await new Promise<void>((resolve) => {
      dial = new PeerDial({
        address: 'x:1',
        reconnectDelayMs: 1,
        forgetAfterMs: null,
        runtime: RUNTIME,
        attempt: async (connected) => {
          events.push('attempt');
          if (events.length === 1) throw new OdmoeError('TIMEOUT', 'none there');
          connected();
          if (events.filter((event) => event === 'attempt').length === 3) resolve();
        },
        onFailure: (error) => events.push(error.code),
        onForgotten: () => events.push('forgotten'),
      });
    });
    const running = dial as unknown as PeerDial;
    running.stop();
    await running.finished;
    assert.deepEqual(events, ['attempt', 'TIMEOUT', 'attempt', 'attempt']);
  });

  it('pauses longer after each failure, up to a bound, and starts again when the peer advertises itself', async () => {
    const clock = new VirtualClock();
    const attempts: number[] = [];
    const dial = new PeerDial({
      address: 'x:1',
      reconnectDelayMs: 100,
      forgetAfterMs: null,
      runtime: new VirtualRuntime(clock, 1),
      attempt: async () => {
        attempts.push(clock.nowMs);
        throw new OdmoeError('TIMEOUT', 'none there');
      },
      onFailure: () => undefined,
      onForgotten: () => assert.fail('it was forgotten'),
    });
    const pauses = (): number[] => attempts.slice(1).map((atMs, index) => atMs - (attempts[index] ?? 0));
    await clock.run(() => false, { untilMs: 20_000 });
    assert.deepEqual(pauses().slice(0, 6), [100, 200, 400, 800, 1600, MAX_RECONNECT_DELAY_MS]);
    assert.equal(Math.max(...pauses()), MAX_RECONNECT_DELAY_MS);
    assert.ok(attempts.length >= 13);
    const before = attempts.length;
    dial.wake();
    await clock.run(() => attempts.length >= before + 3, { untilMs: 40_000 });
    assert.deepEqual(pauses().slice(before, before + 2), [100, 200]);
    dial.stop();
    await dial.finished;
  });

  it('forgets an address that has been dead for too long', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const events: string[] = [];
    const dial = new PeerDial({
      address: 'x:1',
      reconnectDelayMs: 1,
      forgetAfterMs: 60_000,
      runtime,
      attempt: async () => {
        await runtime.sleep(25_000);
        throw new OdmoeError('TIMEOUT', 'none there');
      },
      onFailure: () => events.push('failure'),
      onForgotten: () => events.push('forgotten'),
    });
    let finished = false;
    void dial.finished.then(() => (finished = true));
    await clock.run(() => finished, { untilMs: 200_000 });
    assert.deepEqual(events, ['failure', 'failure', 'failure', 'forgotten']);
  });
});

describe('main: the address of a peer that joins', () => {
  it('is the advertised one, with the host of the connection where the peer cannot know its own', () => {
    assert.equal(dialAddress('10.0.0.5:7601', '10.0.0.9'), '10.0.0.5:7601');
    assert.equal(dialAddress('0.0.0.0:7601', '10.0.0.9'), '10.0.0.9:7601');
    assert.equal(dialAddress(':7601', '10.0.0.9'), '10.0.0.9:7601');
    assert.equal(dialAddress('[::]:7601', 'fe80::1'), '[fe80::1]:7601');
  });
});
