import { assertInvariant } from '../base/errors/assert-invariant.js';
import type { RawServerStream } from './server-handlers.js';

/** Fields in which grpc-js stores the largest message of a call: as received, and decompressed. */
interface ReceivingCall {
  maxReceiveMessageSize?: unknown;
  decoder?: { maxReadMessageLength?: unknown };
}

/**
 * Lets the call receive messages of up to this many bytes from now on. grpc-js has one limit for all calls of a server. That limit is small; a
 * call from a known peer gets a larger one. No public way leads there: `grpc.max_receive_message_length` is an option of the server,
 * server interceptors see a call and the messages that passed the limit. A second server for known peers does not help, because a peer is known only
 * after its hello on that very call. So this sets private fields.
 */
export function raiseReceiveLimit(call: RawServerStream, bytes: number): void {
  const { call: receiving } = call as unknown as { call?: ReceivingCall };
  const decoder = receiving?.decoder;
  assertInvariant(
    typeof receiving?.maxReceiveMessageSize === 'number' && typeof decoder?.maxReadMessageLength === 'number',
    'grpc-js keeps the largest message of a call where it has always been.',
  );
  receiving.maxReceiveMessageSize = bytes;
  decoder.maxReadMessageLength = bytes;
}
