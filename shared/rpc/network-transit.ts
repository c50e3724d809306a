import { OdmoeError } from '../errors/index.js';
import type { ShadowReply, ShadowRequest, WorkerReply, WorkerRequest } from './messages.js';

/** What goes over the streams between daemons. */
export type PeerMessage = WorkerRequest | WorkerReply | ShadowRequest | ShadowReply;

/**
 * A network that takes longer than the real one. Each message leaves at once with the time at which the sender's emulated card will
 * have sent it; the receiver holds it until its own has received it. Times are ms of CLOCK_MONOTONIC: all daemons are on one machine.
 */
export interface NetworkTransit {
  now(): number;
  waitUntil(monotonicMs: number): Promise<void>;
  /** When the card will have sent a message that is given to it now. */
  sent(message: PeerMessage): number;
  /** When the card will have received a message that was sent at sentMs. */
  received(message: PeerMessage, sentMs: number): number;
}

/** The stamp before each message: float64, little-endian. */
export const STAMP_BYTES = 8;

/** A stamp further off than this is none. */
const STAMP_RANGE_MS = 600_000;

export function stamped(bytes: Buffer, sentMs: number): Buffer {
  const whole = Buffer.allocUnsafe(STAMP_BYTES + bytes.length);
  whole.writeDoubleLE(sentMs, 0);
  bytes.copy(whole, STAMP_BYTES);
  return whole;
}

/** The stamp of a message, and the message. Throws PROTOCOL_VIOLATION where none can be. */
export function unstamped(whole: Buffer, nowMs: number): { sentMs: number; bytes: Buffer } {
  const sentMs = whole.length < STAMP_BYTES ? NaN : whole.readDoubleLE(0);
  if (!(Math.abs(sentMs - nowMs) <= STAMP_RANGE_MS)) {
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      'a message came without a time of sending: give all daemons of an emulated cluster the same --profile',
    );
  }
  return { sentMs, bytes: whole.subarray(STAMP_BYTES) };
}
