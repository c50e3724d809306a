import { type Rate, TokenBuckets } from '../runtime/token-buckets.js';

export type Level = 'error' | 'warn' | 'info' | 'debug';

/** Lines of one event, whoever they are about. What others bring about is a warning; errors are mostly matters of our own. */
export const LINES_OF_EVENT: Readonly<Record<Level, Rate>> = {
  error: { burst: 500, perSecond: 10 },
  warn: { burst: 100, perSecond: 2 },
  info: { burst: 1000, perSecond: 100 },
  debug: { burst: 1000, perSecond: 100 },
};
/** Of these, lines about one peer. */
export const LINES_OF_PEER: Readonly<Record<Level, Rate>> = {
  error: { burst: 20, perSecond: 0.2 },
  warn: { burst: 20, perSecond: 0.2 },
  info: { burst: 100, perSecond: 10 },
  debug: { burst: 100, perSecond: 10 },
};
/** Events are phrases of our code; a few hundred there are. */
const MOST_EVENTS = 1024;
/** Events and peers that are remembered: peers are whoever comes. */
export const MOST_PEERS_TOLD = 1024;
/** What was left out is told this often. */
export const LEFT_OUT_PERIOD_MS = 30_000;

/** Lines of an event that were not written. */
export interface LeftOutLines {
  event: string;
  lines: number;
  /** Since the first of them. */
  seconds: number;
}

/** Which lines of a log are written, so that nobody else decides how much that is. The first of an event always is. */
export class LineLimits {
  private readonly events: Record<Level, TokenBuckets>;
  private readonly peers: Record<Level, TokenBuckets>;
  private readonly leftOut = new Map<string, { lines: number; sinceMs: number }>();

  constructor(private readonly nowMs: () => number) {
    const bucketsOf = (rates: Readonly<Record<Level, Rate>>, most: number): Record<Level, TokenBuckets> => ({
      error: new TokenBuckets(rates.error, most, nowMs),
      warn: new TokenBuckets(rates.warn, most, nowMs),
      info: new TokenBuckets(rates.info, most, nowMs),
      debug: new TokenBuckets(rates.debug, most, nowMs),
    });
    this.events = bucketsOf(LINES_OF_EVENT, MOST_EVENTS);
    this.peers = bucketsOf(LINES_OF_PEER, MOST_PEERS_TOLD);
  }

  /** `peer`: whom the line is about; null: nobody. False: the line is left out, and counted. */
  admits(level: Level, event: string, peer: string | null): boolean {
    const isAdmitted = (peer === null || this.peers[level].take(`${event}\n${peer}`)) && this.events[level].take(event);
    if (isAdmitted) return true;
    const left = this.leftOut.get(event) ?? { lines: 0, sinceMs: this.nowMs() };
    left.lines += 1;
    this.leftOut.set(event, left);
    return false;
  }

  /** What has been left out since this was asked last. */
  takeLeftOut(): LeftOutLines[] {
    const nowMs = this.nowMs();
    const told = [...this.leftOut].map(([event, { lines, sinceMs }]) => ({
      event,
      lines,
      seconds: Math.max(1, Math.round((nowMs - sinceMs) / 1000)),
    }));
    this.leftOut.clear();
    return told;
  }
}

/** Fields that name whom a line is about, the surest first. */
const PEER_FIELDS = ['peer', 'worker', 'shadow', 'main', 'id', 'from', 'address'] as const;
const PEER_LENGTH_LIMIT = 128;

/** Null: nobody. A peer that comes from another port each time is the same one. Pure. */
export function peerOf(fields: Readonly<Record<string, unknown>>): string | null {
  for (const name of PEER_FIELDS) {
    const value = fields[name];
    if (typeof value === 'string' && value !== '') return value.replace(/:\d+$/, '').slice(0, PEER_LENGTH_LIMIT);
  }
  return null;
}
