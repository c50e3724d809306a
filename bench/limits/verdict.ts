/** Limits for the cost of one hostile message, and the check of a case against them. Pure. */
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';

/** Most memory above that of the quiet daemon. */
export const GROWTH_LIMIT_BYTES = 100 * MEGABYTE_BYTES;
/** Most processor time of all threads, per message. */
export const PROCESSOR_LIMIT_MS = 1000;
/** Most time of the daemon's event loop from a request to its answer; during it, the daemon answers no other request. */
export const STALL_LIMIT_MS = 250;
/** Longest wait for a small request at the same time. */
export const BESIDE_LIMIT_MS = 10_000;
/** Most log output that a peer can cause. */
export const LOG_LIMIT_BYTES_PER_S = 64 * 1024;

/** Measurements during a case. */
export interface CaseFigures {
  /** The daemon's answer as text. */
  answer: string;
  /** True: the answer is the right one. */
  expected: boolean;
  messages: number;
  elapsedMs: number;
  /** Processor time without the share for health checks and small requests. */
  processorMs: number;
  growthBytes: number;
  /** Longest wait for the daemon's answer; on a busy machine, most of it is due to the machine. */
  stallMs: number;
  /** The same in the second before, without hostile messages. */
  quietStallMs: number;
  /** Most processor time of the daemon's event loop during such a wait. */
  busyMs: number;
  /** Longest wait for a small request at the same time; null: one was not answered. */
  besideMs: number | null;
  logBytesPerS: number;
  /** True: the daemon is still running. */
  alive: boolean;
}

/** Bounds of a case that differ from the defaults. */
export interface CaseBounds {
  growthBytes?: number;
  /** Limit per message. */
  processorMs?: number;
  besideMs?: number;
}

/** Names of the bounds that were passed; empty: none. */
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
