/** What one hostile message may cost a daemon, and whether it cost more. Pure. */
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';

/** Memory above that of the quiet daemon, at the worst moment. */
export const GROWTH_LIMIT_BYTES = 100 * MEGABYTE_BYTES;
/** Of all threads, for each message. */
export const PROCESSOR_LIMIT_MS = 1000;
/** Of the daemon's event loop, from a question to its answer: in so long a stretch it answers nobody. */
export const STALL_LIMIT_MS = 250;
/** A small request beside it. */
export const BESIDE_LIMIT_MS = 10_000;
/** What a peer can make a daemon write to its log. */
export const LOG_LIMIT_BYTES_PER_S = 64 * 1024;

/** What happened while a case ran. */
export interface CaseFigures {
  /** What the daemon answered, in words. */
  answer: string;
  /** The daemon answered as it should. */
  expected: boolean;
  messages: number;
  elapsedMs: number;
  /** Less what it takes to be asked for its health and for small requests. */
  processorMs: number;
  growthBytes: number;
  /** Longest wait for the daemon's answer; on a busy machine most of it is the machine's. */
  stallMs: number;
  /** The same in the second before, when nobody was hostile. */
  quietStallMs: number;
  /** Most processor time of the daemon's event loop in such a wait. */
  busyMs: number;
  /** Longest wait for a small request that was asked beside it; null: one was not answered. */
  besideMs: number | null;
  logBytesPerS: number;
  /** The daemon runs still. */
  alive: boolean;
}

/** Bounds of a case that differ from the others'. */
export interface CaseBounds {
  growthBytes?: number;
  /** For each message. */
  processorMs?: number;
  besideMs?: number;
}

/** Names of the bounds that were passed; none: all is well. */
export function passedBounds(figures: CaseFigures, bounds: CaseBounds = {}): string[] {
  const growthLimit = bounds.growthBytes ?? GROWTH_LIMIT_BYTES;
  const processorLimit = bounds.processorMs ?? PROCESSOR_LIMIT_MS;
  const besideLimit = bounds.besideMs ?? BESIDE_LIMIT_MS;
  const passed: [name: string, isPassed: boolean][] = [
    ['alive', !figures.alive],
    ['answer', !figures.expected],
    ['memory', figures.growthBytes > growthLimit],
    ['processor', figures.processorMs > processorLimit * figures.messages],
    ['stall', figures.busyMs > STALL_LIMIT_MS],
    ['beside', figures.besideMs === null || figures.besideMs > besideLimit],
    ['log', figures.logBytesPerS > LOG_LIMIT_BYTES_PER_S],
  ];
  return passed.filter(([, isPassed]) => isPassed).map(([name]) => name);
}
