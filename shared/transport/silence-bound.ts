import { RecentMap } from '../base/runtime/recent-map.js';

/**
 * The most that a peer is ever waited for, where the settings ask for less. A machine whose processes stand still for longer is of no use to
 * an answer.
 */
export const SILENCE_CEILING_MS = 5000;
/** Peers whose pace is remembered between connections; of more, those that were met least recently are forgotten. */
export const REMEMBERED_PEERS_LIMIT = 1024;

/** Of the latest sample in the mean of round trips and in their mean deviation, and how many deviations are waited for: as TCP does it. */
const ROUND_TRIP_WEIGHT = 1 / 8;
const DEVIATION_WEIGHT = 1 / 4;
const DEVIATIONS = 4;
/** A peer that has taken so long once may take so many times that. */
const LATEST_FACTOR = 2;
/** How much of what was learnt is left after each answer: half of it after ten seconds of two answers each. */
const KEPT = 31 / 32;

/**
 * How long a peer may owe the answer to a question of the keepalive. On a quiet link it is the floor, which the settings give. Where answers
 * come late or unevenly, where this process itself is woken late (its machine is busy, and the peer's may be the same one) or the peer says
 * that it is, it rises with them, up to SILENCE_CEILING_MS, and comes down again when all is quiet.
 */
export class SilenceBound {
  private roundTripMs = 0;
  private deviationMs = 0;
  private answers = 0;
  private learntMs = 0;
  private readonly ceilingMs: number;

  constructor(private readonly floorMs: number) {
    this.ceilingMs = Math.max(floorMs, SILENCE_CEILING_MS);
  }

  get limitMs(): number {
    return Math.min(this.ceilingMs, Math.max(this.floorMs, this.learntMs));
  }

  /** `latenessMs`: how late this process was woken to ask, or how long the peer has lately stood still, whichever is more. */
  answered(roundTripMs: number, latenessMs: number): void {
    this.follow(roundTripMs);
    const likelyMs = this.roundTripMs + DEVIATIONS * this.deviationMs;
    this.learn(Math.max(likelyMs, LATEST_FACTOR * roundTripMs) + LATEST_FACTOR * latenessMs);
  }

  /** The peer has not answered in time. If it is there after all, it has longer for its next answers. */
  silent(): void {
    this.learn(LATEST_FACTOR * this.limitMs);
  }

  private learn(ms: number): void {
    this.learntMs = Math.min(this.ceilingMs, Math.max(ms, KEPT * this.learntMs));
  }

  private follow(roundTripMs: number): void {
    this.answers += 1;
    if (this.answers === 1) {
      this.roundTripMs = roundTripMs;
      this.deviationMs = roundTripMs / 2;
      return;
    }
    const offMs = Math.abs(roundTripMs - this.roundTripMs);
    this.deviationMs += (offMs - this.deviationMs) * DEVIATION_WEIGHT;
    this.roundTripMs += (roundTripMs - this.roundTripMs) * ROUND_TRIP_WEIGHT;
  }
}

/** What the settings say of asking a peer. */
interface KeepaliveTimes {
  /** Between an answer and the next question. */
  keepaliveIntervalMs: number;
  /** For an answer, on a quiet link. */
  keepaliveTimeoutMs: number;
}

/** How the peer at the other end of a connection is asked. */
export interface StreamKeepalive extends Pick<KeepaliveTimes, 'keepaliveIntervalMs'> {
  /** How long it has for an answer; learns from each. */
  bound: SilenceBound;
}

/** What a process has learnt of its peers: it outlasts a connection, so that a busy peer is not lost again and again. */
export class SilenceBounds {
  private readonly bounds = new RecentMap<string, { floorMs: number; bound: SilenceBound }>(REMEMBERED_PEERS_LIMIT);

  keepaliveOf(address: string, { keepaliveIntervalMs, keepaliveTimeoutMs }: KeepaliveTimes): StreamKeepalive {
    return { keepaliveIntervalMs, bound: this.of(address, keepaliveTimeoutMs) };
  }

  /** `address`: the peer's; `floorMs`: what it has on a quiet link. */
  of(address: string, floorMs: number): SilenceBound {
    const known = this.bounds.get(address);
    if (known?.floorMs === floorMs) return known.bound;
    const bound = new SilenceBound(floorMs);
    this.bounds.set(address, { floorMs, bound });
    return bound;
  }
}
