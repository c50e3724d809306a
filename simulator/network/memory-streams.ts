import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { MessageCodec } from '../../shared/wire/codecs.js';
import type { StreamMethod } from '../../shared/transport/methods.js';
import { PeerKeepalive, silenceMessage } from '../../shared/transport/peer-keepalive.js';
import type { StreamKeepalive } from '../../shared/transport/silence-bound.js';
import {
  type MessageDuplex,
  MessagePeerStream,
  type PeerStream,
  type StreamSide,
} from '../../shared/transport/peer-stream.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import { CLOSE_GRACE_MS, CONNECT_TIMEOUT_MS, REMOVAL_GRACE_MS } from '../../shared/wire/limits.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { ScheduledEvent } from '../../shared/base/runtime/virtual-clock.js';
import type { ChannelSide } from './channel.js';

/** The reason for the end of a connection to a peer that a newer roster does not admit. */
export const NOT_ADMITTED = 'the peer is not admitted any more';

/** Message bytes over a side; they wait until a handler is set. */
export class SideDuplex implements MessageDuplex {
  readonly readableEnded = false;
  private handler: ((bytes: Buffer) => void) | null = null;
  private readonly early: Buffer[] = [];
  /** The message whose bytes are written next; the link model needs it. */
  outgoing: PeerMessage | null = null;

  constructor(private readonly side: ChannelSide) {}

  write(bytes: Buffer, written: () => void): void {
    this.side.send({ kind: 'message', bytes }, this.outgoing, written);
  }

  on(_event: 'data', handler: (bytes: Buffer) => void): void {
    this.handler = handler;
    for (const bytes of this.early.splice(0)) handler(bytes);
  }

  arrive(bytes: Buffer): void {
    if (this.handler === null) this.early.push(bytes);
    else this.handler(bytes);
  }
}

/** A stream of this process to a peer. */
export function openMemoryStream<Out extends PeerMessage, In extends PeerMessage>(
  side: ChannelSide,
  method: StreamMethod<Out, In>,
  times: StreamKeepalive,
): PeerStream<Out, In> {
  const { lostCode } = method;
  const { runtime } = side.owner;
  let grace: ScheduledEvent | null = null;
  const keepalive = keepaliveOf(side, times, (roundTripMs) => stream.answeredIn(roundTripMs));
  const connecting = waitForPeer(runtime, CONNECT_TIMEOUT_MS, () =>
    side.lose(`no connection within ${CONNECT_TIMEOUT_MS} ms`),
  );
  const endWaits = (): void => {
    connecting.cancel();
    keepalive.stop();
  };
  const over = (error: OdmoeError | null): void => {
    endWaits();
    grace?.cancel();
    side.close();
    stream.ended(error);
  };
  const cancel = (): void => {
    endWaits();
    side.send({ kind: 'cancel' });
    side.close();
  };
  const ending = {
    takeTensors: () => undefined,
    certifiedPeer: () => side.certified,
    finish: () => {
      endWaits();
      side.send({ kind: 'end' });
      grace = runtime.background(CLOSE_GRACE_MS, cancel);
    },
    fail: cancel,
  };
  const { stream, duplex } = messageStream(side, method.request, method.reply, ending);
  side.dialled?.watch((refusal) => {
    stream.finish(refusal);
    runtime.background(REMOVAL_GRACE_MS, () => side.lose(NOT_ADMITTED));
  });
  side.onLost = (reason) => over(new OdmoeError(lostCode, `the connection to ${side.label} failed: ${reason}`));
  side.onFrame = (frame) => {
    if (frame.kind === 'message') duplex.arrive(frame.bytes);
    else if (frame.kind === 'accepted') {
      connecting.cancel();
      keepalive.start();
    } else if (frame.kind === 'end') over(null);
    else if (frame.kind === 'failed') over(new OdmoeError(frame.code, frame.text));
    else if (frame.kind === 'cancel')
      over(new OdmoeError(lostCode, `the connection to ${side.label} failed: it was reset`));
  };
  return stream;
}

/** Sends pings over the side to find out whether the process at its other end is there. */
function keepaliveOf(
  side: ChannelSide,
  times: StreamKeepalive,
  onAnswer: (roundTripMs: number) => void,
): PeerKeepalive {
  return new PeerKeepalive({
    ...times,
    runtime: side.owner.runtime,
    ask: () =>
      new Promise<number>((resolve) => {
        side.onPong = resolve;
        side.send({ kind: 'ping' });
      }),
    onAnswer,
    onSilent: (silentMs) => side.lose(silenceMessage(side.peerHost, silentMs)),
  });
}

/** A stream that a peer has opened to this process. `onOver`: called when it has ended. */
export function acceptMemoryStream<Out extends PeerMessage, In extends PeerMessage>(
  side: ChannelSide,
  method: StreamMethod<In, Out>,
  onOver: () => void,
): PeerStream<Out, In> {
  const ending = {
    takeTensors: () => undefined,
    certifiedPeer: () => side.certified,
    finish: () => {
      side.send({ kind: 'end' });
      side.close();
      onOver();
    },
    fail: (error: OdmoeError) => {
      side.send({ kind: 'failed', code: error.code, text: error.message });
      side.close();
      onOver();
    },
  };
  const { stream, duplex } = messageStream(side, method.reply, method.request, ending);
  const gone = (): void => {
    side.close();
    onOver();
    stream.ended(new OdmoeError('CANCELLED', `the peer at ${side.peerHost} went away`));
  };
  side.onLost = gone;
  side.onFrame = (frame) => {
    if (frame.kind === 'message') duplex.arrive(frame.bytes);
    else if (frame.kind === 'end') stream.endedByPeer();
    else if (frame.kind === 'cancel') gone();
  };
  return stream;
}

function messageStream<Out extends PeerMessage, In extends PeerMessage>(
  side: ChannelSide,
  outgoing: MessageCodec<Out>,
  incoming: MessageCodec<In>,
  ending: StreamSide,
): { stream: MessagePeerStream<Out, In>; duplex: SideDuplex } {
  const duplex = new SideDuplex(side);
  const toPeer = {
    encode: (message: Out): Buffer => {
      duplex.outgoing = message;
      const bytes = outgoing.encode(message);
      side.tell('sent', message, bytes.length);
      return bytes;
    },
    decode: (bytes: Buffer): Out => outgoing.decode(bytes),
  };
  const fromPeer = {
    encode: (message: In): Buffer => incoming.encode(message),
    decode: (bytes: Buffer): In => {
      const message = incoming.decode(bytes);
      side.tell('arrived', message, bytes.length);
      return message;
    },
  };
  return { stream: new MessagePeerStream(duplex, toPeer, fromPeer, ending), duplex };
}
