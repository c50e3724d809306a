import { assertInvariant } from '../base/errors/assert-invariant.js';
import type { RawServerStream } from './server-handlers.js';

/** Fields in which grpc-js keeps the largest message of a call: as it came, and decompressed. */
interface ReceivingCall {
  maxReceiveMessageSize?: unknown;
  decoder?: { maxReadMessageLength?: unknown };
}

/**
 * The call takes messages of up to so many bytes from now on. grpc-js has one limit for all calls of a server. That one is small; a call whose
 * maker we know gets a larger one. grpc-js has no function for that, so its own fields are set.
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
