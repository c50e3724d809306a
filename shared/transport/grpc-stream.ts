/** Streams that main and shadow open to their peers. */
import { Metadata, status, type ClientDuplexStream } from '@grpc/grpc-js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../base/runtime/runtime.js';
import { openChannel, type Channel } from './channel.js';
import { CLOSE_GRACE_MS, CONNECT_TIMEOUT_MS, MESSAGE_SIZE_LIMIT_BYTES } from '../wire/limits.js';
import type { StreamMethod } from './methods.js';
import { silenceMessage, watchPeer, type PeerKeepalive } from './peer-keepalive.js';
import type { StreamKeepalive } from './silence-bound.js';
import type { TlsMismatches } from './tls-mismatch.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import { MessagePeerStream, type PeerStream, type StreamSide } from './peer-stream.js';
import { raiseReplyLimit } from './receive-limit.js';
import { carrierOf, type PeerMessage, type StreamPace } from './stream-pace.js';
import { fromServiceError } from './rpc-errors.js';

type RawStream = ClientDuplexStream<Buffer, Buffer>;

const raw = (bytes: Buffer): Buffer => bytes;

interface StreamSetup {
  readonly runtime: Runtime;
  readonly keepalive: StreamKeepalive;
  readonly pace: StreamPace | null;
  readonly trust: ClusterTrust | null;
  readonly mismatches: TlsMismatches;
}

export function openGrpcStream<Out extends PeerMessage, In extends PeerMessage>(
  address: string,
  method: StreamMethod<Out, In>,
  { runtime, keepalive, pace, trust, mismatches }: StreamSetup,
): PeerStream<Out, In> {
  const { lostCode } = method;
  const channel = openChannel(address, runtime, method, trust);
  const { client } = channel;
  const call: RawStream = client.makeBidiStreamRequest(method.path, raw, raw, new Metadata());
  const { ending, cancelForce } = endingOf(call, runtime);
  const side = {
    ...ending,
    takeTensors: () => raiseReplyLimit(call, MESSAGE_SIZE_LIMIT_BYTES),
    certifiedPeer: () => channel.peer(),
  };
  const carrier = carrierOf(call, pace);
  const stream = new MessagePeerStream(
    carrier,
    pace?.codec(method.request) ?? method.request,
    pace?.codec(method.reply) ?? method.reply,
    side,
  );
  const watch = watchPeer(
    runtime,
    channel,
    keepalive,
    (silentMs) => stream.close(new OdmoeError(lostCode, silenceMessage(address, silentMs))),
    (roundTripMs) => stream.answeredIn(roundTripMs),
  );
  channel.onRefused((reason) => stream.finish(reason));
  const settle = (error: OdmoeError | null): void => {
    connecting.end();
    cancelForce();
    watch.stop();
    channel.close();
    // Messages that arrived before the status must be delivered first.
    const end = (): void => {
      carrier.afterDelivery(() => stream.ended(error));
    };
    if (stream.delivering && !call.readableEnded) call.once('end', end);
    else end();
  };
  call.on('error', (thrown: unknown) => {
    const error = fromServiceError(thrown, method, address);
    // A stream that stood ends at once: its connection is of one kind on both sides.
    if (connecting.hasStood) settle(error);
    else void mismatches.explained(error, address, method).then(settle);
  });
  call.on('status', ({ code }) => {
    if (code === status.OK) settle(null);
  });
  const connecting = awaitConnection(runtime, channel, watch, () => {
    stream.close(new OdmoeError(lostCode, `no connection to ${address} within ${CONNECT_TIMEOUT_MS} ms`));
  });
  return stream;
}

/** The ways in which our side of a call ends. If the peer has not ended the call after the grace time, the call is cancelled. */
function endingOf(
  call: RawStream,
  runtime: Runtime,
): { ending: Pick<StreamSide, 'finish' | 'fail'>; cancelForce: () => void } {
  let forceTimer: Timer | null = null;
  const cancel = (): void => call.cancel();
  const finish = (): void => {
    call.end();
    forceTimer = runtime.after(CLOSE_GRACE_MS, cancel);
    forceTimer.unref();
  };
  return { ending: { finish, fail: cancel }, cancelForce: () => forceTimer?.cancel() };
}

/** A wait for a connection. */
interface Connecting {
  readonly hasStood: boolean;
  end(): void;
}

/** Starts the keepalive once the connection stands. */
function awaitConnection(
  runtime: Runtime,
  { client }: Channel,
  keepalive: PeerKeepalive,
  onSilent: () => void,
): Connecting {
  let hasStood = false;
  const silence = waitForPeer(runtime, CONNECT_TIMEOUT_MS, onSilent);
  client.waitForReady(Infinity, (error) => {
    silence.cancel();
    if (error !== undefined) return;
    hasStood = true;
    keepalive.start();
  });
  return {
    get hasStood() {
      return hasStood;
    },
    end: () => silence.cancel(),
  };
}
