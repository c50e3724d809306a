import assert from 'node:assert/strict';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { messageBytes } from '../../engine/emulation/message-bytes.js';
import { NetworkPace } from '../../engine/emulation/network-pace.js';
import { type MessageDuplex, MessagePeerStream } from '../../shared/transport/peer-stream.js';
import type { WorkerRequest } from '../../shared/wire/messages.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { plainExecute, plainRelease, plainResult } from './wire-messages.js';
import { METHODS } from '../../shared/transport/methods.js';

const PROFILE = loadDeviceProfile(join(packageRoot(), 'bench', 'profiles', 'rtx3090-testbed.yaml'));
const release = (position: number): WorkerRequest => ({
  kind: 'release',
  release: plainRelease({ position, layer: 0, experts: [1] }),
});

/** Hands the bytes over at once, as a fast network does. */
function wire(): { near: MessageDuplex; far: MessageDuplex } {
  let handler: (bytes: Buffer) => void = () => undefined;
  const duplex: MessageDuplex = {
    write: (bytes, written) => {
      handler(bytes);
      written();
    },
    on: (_, added) => (handler = added),
    readableEnded: false,
  };
  return { near: duplex, far: duplex };
}

const NO_ENDING = {
  certifiedPeer: () => null,
  takeTensors: () => undefined,
  finish: () => undefined,
  fail: () => undefined,
};

describe('a stream on an emulated network', () => {
  it('delivers each message when the cards have carried it, in order', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const [sender, receiver] = [new NetworkPace(PROFILE, runtime), new NetworkPace(PROFILE, runtime)];
    const { near, far } = wire();
    const { request, reply } = METHODS.worker.serve;
    const sending = new MessagePeerStream(sender.duplex(near), sender.codec(request), reply, NO_ENDING);
    const carrier = receiver.duplex(far);
    const receiving = new MessagePeerStream(carrier, receiver.codec(reply), receiver.codec(request), NO_ENDING);
    const got: { position: number; atMs: number }[] = [];
    receiving.onMessage((message) => {
      if (message.kind === 'release') got.push({ position: message.release.pass.position, atMs: clock.nowMs });
    });
    sending.send(release(1));
    sending.send(release(2));
    let empty = false;
    carrier.afterDelivery(() => (empty = true));
    assert.equal(empty, false);
    await clock.run(() => got.length === 2);
    const eachMs = (messageBytes(release(1), PROFILE) / PROFILE.network.bytesPerS) * 1000;
    const firstMs = eachMs + PROFILE.network.roundTripMs / 2;
    assert.deepEqual(
      got.map(({ position }) => position),
      [1, 2],
    );
    assert.ok(Math.abs((got[0]?.atMs ?? NaN) - firstMs) < 1e-9);
    assert.ok(Math.abs((got[1]?.atMs ?? NaN) - (firstMs + eachMs)) < 1e-9);
    assert.equal(empty, true);
  });

  it('ends when a message has no time of sending', () => {
    const runtime = new VirtualRuntime(new VirtualClock(), 1);
    const { near, far } = wire();
    const { request, reply } = METHODS.worker.serve;
    const sending = new MessagePeerStream(near, request, reply, NO_ENDING);
    const pace = new NetworkPace(PROFILE, runtime);
    const receiving = new MessagePeerStream(pace.duplex(far), pace.codec(reply), pace.codec(request), NO_ENDING);
    const ends: (string | null)[] = [];
    receiving.onClose((error) => ends.push(error?.code ?? null));
    receiving.onMessage(() => assert.fail('nothing is to come'));
    sending.send(release(1));
    assert.deepEqual(ends, ['PROTOCOL_VIOLATION']);
  });

  it('counts each hidden state of a message once, in the size of the profiled model', () => {
    const { messageOverheadBytes: overhead } = PROFILE.network;
    const execute = plainExecute({ layer: 0, expert: 1, rows: 3 });
    const experts = [1, 2].map((expert) => ({ expert, rows: [], last: true }));
    assert.equal(messageBytes({ kind: 'execute', execute: { ...execute, experts } }, PROFILE), 3 * 16384 + overhead);
    const half = { ...execute, dtype: 'TENSOR_TYPE_BF16' as const };
    assert.equal(messageBytes({ kind: 'execute', execute: half }, PROFILE), 3 * 8192 + overhead);
    const [answered] = plainResult({ requestId: 1, expert: { rows: 2 } }).experts;
    assert.ok(answered !== undefined);
    const failed = { ...answered, failure: { code: 'PACK_CORRUPT', message: 'bytes' } };
    const result = { ...plainResult({ requestId: 1 }), experts: [answered, { ...answered, expert: 1 }, failed] };
    assert.equal(messageBytes({ kind: 'result', result }, PROFILE), 4 * 16384 + overhead);
  });
});
