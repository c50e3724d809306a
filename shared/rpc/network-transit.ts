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

/** No message of protobuf begins so (field 0, wire type 7): who has no emulated network sees at once what came. */
export const STAMP_MARK = 0x07;
/** The stamp before each message: the mark, then a float64, little-endian. */
export const STAMP_BYTES = 9;

/** A stamp further off than this is none. */
const STAMP_RANGE_MS = 600_000;

export function stamped(bytes: Buffer, sentMs: number): Buffer {
  const whole = Buffer.allocUnsafe(STAMP_BYTES + bytes.length);
  whole[0] = STAMP_MARK;
  whole.writeDoubleLE(sentMs, 1);
  bytes.copy(whole, STAMP_BYTES);
  return whole;
}

const ONE_PROFILE = 'give all daemons of an emulated cluster the same --profile, and others none';

/** For a daemon whose network is real. Throws PROTOCOL_VIOLATION for a message of an emulated one. */
export function requireUnstamped(bytes: Buffer): void {
  if (bytes[0] !== STAMP_MARK) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `a message of an emulated network came, and this daemon has none: ${ONE_PROFILE}`,
  );
}

/** The stamp of a message, and the message. Throws PROTOCOL_VIOLATION where none can be. */
export function unstamped(whole: Buffer, nowMs: number): { sentMs: number; bytes: Buffer } {
  const isStamped = whole.length >= STAMP_BYTES && whole[0] === STAMP_MARK;
  const sentMs = isStamped ? whole.readDoubleLE(1) : NaN;
  if (!(Math.abs(sentMs - nowMs) <= STAMP_RANGE_MS)) {
    throw new OdmoeError('PROTOCOL_VIOLATION', `a message came without a time of sending: ${ONE_PROFILE}`);
  }
  return { sentMs, bytes: whole.subarray(STAMP_BYTES) };
}
