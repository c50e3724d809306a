import { type Rate, TokenBuckets } from '../runtime/token-buckets.js';

export type Level = 'error' | 'warn' | 'info' | 'debug';

/** Most lines of one event, over all peers. Other parties can cause warnings; errors mostly come from this process. */
export const LINES_OF_EVENT: Readonly<Record<Level, Rate>> = {
  error: { burst: 500, perSecond: 10 },
  warn: { burst: 100, perSecond: 2 },
  info: { burst: 1000, perSecond: 100 },
  debug: { burst: 1000, perSecond: 100 },
};
/** Most lines of one event about one peer. They count towards LINES_OF_EVENT, too. */
export const LINES_OF_PEER: Readonly<Record<Level, Rate>> = {
  error: { burst: 20, perSecond: 0.2 },
  warn: { burst: 30, perSecond: 0.2 },
  info: { burst: 100, perSecond: 10 },
  debug: { burst: 100, perSecond: 10 },
};
/** Most events. Events are phrases of our code, of which there are a few hundred. */
const MOST_EVENTS = 1024;
/** Most pairs of event and peer that are remembered. Any program that connects is a peer, so their number needs a bound. */
export const MOST_LOGGED_PEERS = 1024;
/** Period between two reports of the lines that were left out. */
export const LEFT_OUT_PERIOD_MS = 30_000;

/** Lines of an event that were not written. */
export interface LeftOutLines {
  event: string;
  lines: number;
  /** Seconds since the first of these lines. */
  seconds: number;
}

/** Decides which lines of a log are written, so that no other code must bound their number. The first line of an event is always written. */
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
    this.peers = bucketsOf(LINES_OF_PEER, MOST_LOGGED_PEERS);
  }

  /** `peer`: the peer that the line is about; null: no peer. False: the line is left out and counted. */
  admits(level: Level, event: string, peer: string | null): boolean {
    const isAdmitted = (peer === null || this.peers[level].take(`${event}\n${peer}`)) && this.events[level].take(event);
    if (isAdmitted) return true;
    const left = this.leftOut.get(event) ?? { lines: 0, sinceMs: this.nowMs() };
    left.lines += 1;
    this.leftOut.set(event, left);
    return false;
  }

  /** The lines that were left out since the last call. */
  takeLeftOut(): LeftOutLines[] {
    const nowMs = this.nowMs();
    const counted = [...this.leftOut].map(([event, { lines, sinceMs }]) => ({
      event,
      lines,
      seconds: Math.max(1, Math.round((nowMs - sinceMs) / 1000)),
    }));
    this.leftOut.clear();
    return counted;
  }
}

/** Fields that name the peer of a line, the most reliable first. */
const PEER_FIELDS = ['peer', 'worker', 'shadow', 'main', 'id', 'from', 'address'] as const;
const PEER_LENGTH_LIMIT = 128;

/** The peer that a line is about; null: none. The port is cut off, so a peer that connects from another port each time stays the same peer. Pure. */
export function peerOf(fields: Readonly<Record<string, unknown>>): string | null {
  for (const name of PEER_FIELDS) {
    const value = fields[name];
    if (typeof value === 'string' && value !== '') return value.replace(/:\d+$/, '').slice(0, PEER_LENGTH_LIMIT);
  }
  return null;
}
