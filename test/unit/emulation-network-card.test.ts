import assert from 'node:assert/strict';
import fc from 'fast-check';
import { EmulatedNetworkCard } from '../../engine/emulation/network-card.js';
import type { ProfiledNetwork } from '../../engine/emulation/device-profile.js';

const NETWORK: ProfiledNetwork = { bytesPerS: 1e6, roundTripMs: 2, duplex: 'half', messageOverheadBytes: 0 };
const TOLERANCE_MS = 1e-6;

function near(actual: number, expected: number): void {
  assert.ok(Math.abs(actual - expected) <= TOLERANCE_MS, `${actual}, expected ${expected}`);
}

interface Sent {
  from: number;
  to: number;
  bytes: number;
  atMs: number;
}

/** Nodes that send each other messages. The receiver knows of each message as soon as the sender's card has it. */
function carry(network: ProfiledNetwork, messages: readonly Sent[], lateMs = 0) {
  const cards = [0, 1, 2].map(() => new EmulatedNetworkCard(network));
  let nowMs = 0;
  return messages.map((message) => {
    nowMs += message.atMs;
    const sentMs = cards[message.from]?.sendEnd(message.bytes, nowMs) ?? NaN;
    const receivedMs = cards[message.to]?.receiveEnd(message.bytes, sentMs, nowMs + lateMs) ?? NaN;
    return { ...message, nowMs, sentMs, receivedMs, takesMs: message.bytes / 1000 };
  });
}

const messages = fc.array(
  fc
    .record({
      from: fc.integer({ min: 0, max: 2 }),
      step: fc.integer({ min: 1, max: 2 }),
      bytes: fc.integer({ min: 0, max: 10_000 }),
      atMs: fc.double({ min: 0, max: 5, noNaN: true }),
    })
    .map(({ from, step, bytes, atMs }) => ({ from, to: (from + step) % 3, bytes, atMs })),
  { maxLength: 60 },
);
const duplexes = fc.constantFrom('half' as const, 'full' as const);

describe('an emulated network card', () => {
  it('takes bytes / bandwidth and half a round trip, once, between two free cards', () => {
    const [message] = carry(NETWORK, [{ from: 0, to: 1, bytes: 4000, atMs: 10 }]);
    near(message?.sentMs ?? NaN, 14);
    near(message?.receivedMs ?? NaN, 15);
  });

  it('sends one message after the other, and gives each message to its receiver', () => {
    const carried = carry(NETWORK, [
      { from: 0, to: 1, bytes: 4000, atMs: 0 },
      { from: 0, to: 2, bytes: 4000, atMs: 0 },
    ]);
    near(carried[0]?.receivedMs ?? NaN, 5);
    near(carried[1]?.receivedMs ?? NaN, 9);
  });

  it('receives one message after the other', () => {
    const carried = carry(NETWORK, [
      { from: 1, to: 0, bytes: 4000, atMs: 0 },
      { from: 2, to: 0, bytes: 4000, atMs: 0 },
    ]);
    near(carried[0]?.receivedMs ?? NaN, 5);
    near(carried[1]?.receivedMs ?? NaN, 9);
  });

  it('with half duplex sends while nothing arrives, and waits while something does', () => {
    const half = new EmulatedNetworkCard(NETWORK);
    near(half.receiveEnd(4000, 20, 0), 21);
    near(half.sendEnd(5000, 1), 6);
    near(half.sendEnd(5000, 15), 26);
    const full = new EmulatedNetworkCard({ ...NETWORK, duplex: 'full' });
    near(full.receiveEnd(4000, 20, 0), 21);
    near(full.sendEnd(5000, 15), 20);
  });

  it('is never faster than its bandwidth, and keeps the order of each stream', () => {
    fc.assert(
      fc.property(messages, duplexes, (sent, duplex) => {
        const carried = carry({ ...NETWORK, duplex }, sent);
        for (const [index, message] of carried.entries()) {
          assert.ok(message.sentMs >= message.nowMs + message.takesMs - TOLERANCE_MS);
          assert.ok(message.receivedMs >= message.sentMs + 1 - TOLERANCE_MS);
          const earlier = carried.slice(0, index).filter(({ from }) => from === message.from);
          for (const other of earlier) assert.ok(other.sentMs <= message.sentMs + TOLERANCE_MS);
        }
      }),
    );
  });

  it('with half duplex carries one message at a time', () => {
    fc.assert(
      fc.property(messages, (sent) => {
        const carried = carry(NETWORK, sent);
        for (const node of [0, 1, 2]) {
          const spans = carried
            .flatMap(({ from, to, sentMs, receivedMs, takesMs }) => [
              ...(from === node ? [{ endMs: sentMs, takesMs }] : []),
              ...(to === node ? [{ endMs: receivedMs, takesMs }] : []),
            ])
            .filter(({ takesMs }) => takesMs > 0)
            .sort((left, right) => left.endMs - right.endMs);
          for (const [index, { endMs, takesMs }] of spans.entries()) {
            const before = spans[index - 1]?.endMs ?? -Infinity;
            assert.ok(endMs - takesMs >= before - TOLERANCE_MS, `node ${node}: ${endMs - takesMs} after ${before}`);
          }
        }
      }),
    );
  });

  it('gives the same times however late the receiver handles a message', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 3000 }), { maxLength: 20 }), (sizes) => {
        const sent = sizes.map((bytes) => ({ from: 0, to: 1, bytes, atMs: 1 }));
        const times = (lateMs: number) => carry(NETWORK, sent, lateMs).map(({ receivedMs }) => receivedMs);
        assert.deepEqual(times(20), times(0));
      }),
    );
  });
});
