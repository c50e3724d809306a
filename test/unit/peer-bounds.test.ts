import assert from 'node:assert/strict';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import type { MessageDuplex } from '../../shared/transport/peer-stream.js';
import { MessagePeerStream } from '../../shared/transport/peer-stream.js';
import { ConnectionCount } from '../../shared/transport/connection-count.js';
import { StreamAdmission } from '../../shared/transport/stream-admission.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import { METHODS } from '../../shared/transport/methods.js';
import {
  ARRIVALS_OF_PLAIN_PEER,
  ARRIVALS_OF_TENSOR_PEER,
  GREETED_PEERS_LIMIT,
  GREETINGS_OF_PEER,
  SERVED_STREAMS_LIMIT,
  SERVED_STREAMS_OF_PEER_LIMIT,
} from '../../shared/wire/limits.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';

const RATES = { messages: { burst: 3, perSecond: 2 }, bytes: { burst: 100, perSecond: 50 } };
const BYTES = METHODS.worker.serve.request.encode({ kind: 'end', end: { sequence: 1 } });

describe('the bound of what arrives over a stream', () => {
  it('takes bursts and a rate, of messages and of bytes, and says which was broken', () => {
    const clock = { now: 0, nowMs: () => clock.now };
    const bound = new ArrivalBound(RATES, clock);
    for (let message = 0; message < 3; message += 1) assert.equal(bound.arrived(10), null);
    assert.match(bound.arrived(10)?.message ?? '', /more messages came.*3 at once and 2 a second/);
    assert.equal(bound.isBroken, true);
    const other = new ArrivalBound(RATES, clock);
    assert.equal(other.arrived(100), null);
    assert.match(other.arrived(1)?.message ?? '', /more bytes came.*100 at once and 50 a second/);
    const patient = new ArrivalBound(RATES, clock);
    for (let second = 0; second < 100; second += 1) {
      assert.equal(patient.arrived(25), null);
      assert.equal(patient.arrived(25), null);
      clock.now += 1000;
    }
    assert.equal(patient.isBroken, false);
  });

  it('closes the stream in words before the message is decoded, and only where it is set', () => {
    let handler: ((bytes: Buffer) => void) | undefined;
    const duplex: MessageDuplex = {
      readableEnded: false,
      write: () => undefined,
      on: (_event, set) => (handler = set),
    };
    const failures: OdmoeError[] = [];
    const side = {
      certifiedPeer: () => null,
      takeTensors: () => undefined,
      finish: () => undefined,
      fail: (error: OdmoeError) => failures.push(error),
    };
    let decoded = 0;
    const incoming = {
      ...METHODS.worker.serve.request,
      decode: (bytes: Buffer) => {
        decoded += 1;
        return METHODS.worker.serve.request.decode(bytes);
      },
    };
    const stream = new MessagePeerStream(duplex, METHODS.worker.serve.reply, incoming, side);
    stream.onMessage(() => undefined);
    for (let message = 0; message < 10; message += 1) handler?.(BYTES);
    assert.equal(decoded, 10, 'no bound is set yet');
    stream.boundArrivals(new ArrivalBound(RATES, { nowMs: () => 0 }));
    for (let message = 0; message < 10; message += 1) handler?.(BYTES);
    assert.equal(decoded, 13);
    assert.deepEqual(
      failures.map(({ code }) => code),
      ['PROTOCOL_VIOLATION'],
    );
  });

  it('is wider for peers that send tensors than for others', () => {
    for (const kind of ['messages', 'bytes'] as const) {
      assert.ok(ARRIVALS_OF_TENSOR_PEER[kind].burst > ARRIVALS_OF_PLAIN_PEER[kind].burst);
      assert.ok(ARRIVALS_OF_TENSOR_PEER[kind].perSecond > ARRIVALS_OF_PLAIN_PEER[kind].perSecond);
    }
  });
});

describe('the streams that a daemon serves', () => {
  const clock = { now: 0, nowMs: () => clock.now };

  function open(
    admission: StreamAdmission,
    host: string,
    caller: PeerContext['caller'] = null,
  ): { left: (() => void) | null; why: string } {
    const stream = new MemoryStream<never, unknown>();
    const left = admission.admit(stream, { host, caller });
    assert.equal(left === null, stream.closedWith !== undefined, 'a refused stream is closed');
    assert.equal(stream.arrivals === null, left === null, 'an admitted one is bounded');
    return { left, why: stream.closedWith?.message ?? '' };
  }

  it('are bounded by host and in all, and a place that was left is free', () => {
    const admission = new StreamAdmission(clock);
    const places: (() => void)[] = [];
    for (let host = 0; places.length < SERVED_STREAMS_LIMIT; host += 1) {
      for (let stream = 0; stream < SERVED_STREAMS_OF_PEER_LIMIT; stream += 1) {
        const { left } = open(admission, `10.0.0.${host}`);
        assert.ok(left !== null);
        places.push(left);
      }
      const { why } = open(admission, `10.0.0.${host}`);
      assert.match(why, new RegExp(`${SERVED_STREAMS_OF_PEER_LIMIT} from one peer`));
    }
    assert.equal(open(admission, '10.1.0.1').left, null, 'no place is left for another host');
    places[0]?.();
    assert.notEqual(open(admission, '10.1.0.1').left, null);
  });

  it('may be opened so often by one host, whatever other hosts do', () => {
    const admission = new StreamAdmission(clock);
    for (let stream = 0; stream < GREETINGS_OF_PEER.burst; stream += 1) open(admission, 'eager').left?.();
    assert.match(open(admission, 'eager').why, /opens streams too often/);
    assert.notEqual(open(admission, 'calm').left, null);
    clock.now += 1000;
    assert.notEqual(open(admission, 'eager').left, null);
  });

  it('are counted by certificate where peers have one: daemons of one host do not share, and more addresses give no more', () => {
    const admission = new StreamAdmission(clock);
    const first = { cluster: 'test', role: 'main', id: 'box-1' } as const;
    const second = { ...first, id: 'box-2' };
    for (let stream = 0; stream < SERVED_STREAMS_OF_PEER_LIMIT; stream += 1) {
      assert.notEqual(open(admission, 'router', first).left, null);
    }
    assert.match(
      open(admission, 'router', first).why,
      new RegExp(`${SERVED_STREAMS_OF_PEER_LIMIT} of them from main box-1`),
    );
    assert.notEqual(open(admission, 'router', second).left, null);
    assert.equal(open(admission, 'another address', first).left, null);
  });

  it('leave no trace of hosts that are gone, however many there were', () => {
    const admission = new StreamAdmission(clock);
    for (let host = 0; host < 2 * GREETED_PEERS_LIMIT; host += 1) open(admission, `host ${host}`).left?.();
    const held = [...collectionSizes([admission]).values()].reduce((sum, size) => sum + size, 0);
    assert.ok(held <= GREETED_PEERS_LIMIT, `${held} entries are held`);
  });
});

describe('the connections to a daemon', () => {
  it('are counted by host until the peer is known, then by its name, and end by the name that they have', () => {
    const count = new ConnectionCount({ all: 5, ofHost: 2 });
    assert.deepEqual([count.begin('router'), count.move('router', 'worker a')], [true, true]);
    assert.deepEqual([count.begin('router'), count.move('router', 'worker b')], [true, true]);
    assert.deepEqual([count.begin('router'), count.begin('router')], [true, true]);
    assert.equal(count.begin('router'), false, 'strangers of that host have their own share');
    assert.equal(count.move('router', 'worker a'), true);
    assert.equal(count.move('router', 'worker a'), false, 'one peer has one share, whatever its addresses');
    assert.equal(count.begin('elsewhere'), true);
    assert.equal(count.begin('another'), false, 'all count together');
    count.end('worker a');
    assert.equal(count.move('router', 'worker a'), true);
  });
});
