/**
 * Larger messages for one call. grpc-js has one limit for all calls of a server or a channel. That limit is small, and a call with a known peer gets
 * a larger one. No public way leads there: `grpc.max_receive_message_length` is an option of the server and of the channel, and interceptors see the
 * messages that passed the limit. A second server or channel for known peers does not help, because a peer is known only after its hello or welcome
 * on that very call. So these functions set private fields.
 */
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import type { RawServerStream } from './server-handlers.js';

const MOVED = 'grpc-js keeps the largest message of a call where it has always been.';

interface Decoder {
  maxReadMessageLength?: unknown;
}

/** Fields in which a server stores the largest message of a call: as received, and decompressed. */
interface ReceivingCall {
  maxReceiveMessageSize?: unknown;
  decoder?: Decoder;
}

/** The layers of a client's call, down to that of the HTTP/2 stream. They exist once a message has come. */
interface OpenedCall {
  call?: {
    call?: { child?: { underlyingCalls?: readonly { call?: { child?: { decoder?: Decoder } | null } }[] } | null };
  };
}

/** Lets a call of a server receive requests of up to this many bytes from now on. */
export function raiseRequestLimit(call: RawServerStream, bytes: number): void {
  const { call: receiving } = call as unknown as { call?: ReceivingCall };
  raise(receiving?.decoder, bytes);
  assertInvariant(typeof receiving?.maxReceiveMessageSize === 'number', MOVED);
  receiving.maxReceiveMessageSize = bytes;
}

/** Lets a client's call, of which a message has come, receive replies of up to this many bytes from now on. Compressed replies stay small. */
export function raiseReplyLimit(call: ClientDuplexStream<Buffer, Buffer>, bytes: number): void {
  const [attempt] = (call as unknown as OpenedCall).call?.call?.child?.underlyingCalls ?? [];
  raise(attempt?.call?.child?.decoder, bytes);
}

function raise(decoder: Decoder | undefined, bytes: number): void {
  assertInvariant(typeof decoder?.maxReadMessageLength === 'number', MOVED);
  decoder.maxReadMessageLength = bytes;
}
