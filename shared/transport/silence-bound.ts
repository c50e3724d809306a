import { RecentMap } from '../base/runtime/recent-map.js';

/** Longest wait for a peer, unless the settings ask for more. A machine whose processes stand still for longer is useless for an answer. */
export const SILENCE_CEILING_MS = 5000;
/** Most peers whose pace is remembered between connections. Beyond it, the peers that were met least recently are forgotten. */
export const REMEMBERED_PEERS_LIMIT = 1024;

/** Weights of the latest sample in the mean of round trips and in their mean deviation, and the number of deviations in the wait: as in TCP. */
const ROUND_TRIP_WEIGHT = 1 / 8;
const DEVIATION_WEIGHT = 1 / 4;
const DEVIATIONS = 4;
/** A peer that took a certain time once may take this many times as long. */
const LATEST_FACTOR = 2;
/** Factor of the learnt time after each answer. With two answers a second, half of the learnt time is left after about ten seconds. */
const LEARNT_DECAY = 31 / 32;

/**
 * The longest time that a peer may take to answer a question of the keepalive. On a quiet link it is the floor from the settings. It rises, up
 * to SILENCE_CEILING_MS, if answers come late or unevenly, if this process itself is woken late (its machine is busy, and the peer may run on
 * the same one), or if the peer reports that it is woken late. It falls again when all is quiet.
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

  /** `latenessMs`: the delay with which this process was woken to ask, or the peer's longest recent standstill, whichever is longer. */
  answered(roundTripMs: number, latenessMs: number): void {
    this.follow(roundTripMs);
    const likelyMs = this.roundTripMs + DEVIATIONS * this.deviationMs;
    this.learn(Math.max(likelyMs, LATEST_FACTOR * roundTripMs) + LATEST_FACTOR * latenessMs);
  }

  /** Records that the peer has not answered in time. If it still runs, it gets longer for its next answers. */
  silent(): void {
    this.learn(LATEST_FACTOR * this.limitMs);
  }

  private learn(ms: number): void {
    this.learntMs = Math.min(this.ceilingMs, Math.max(ms, LEARNT_DECAY * this.learntMs));
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

/** Times from the settings for the keepalive. */
interface KeepaliveTimes {
  /** From an answer to the next question. */
  keepaliveIntervalMs: number;
  /** Time for an answer, on a quiet link. */
  keepaliveTimeoutMs: number;
}

/** Keepalive times for the peer at the other end of a connection. */
export interface StreamKeepalive extends Pick<KeepaliveTimes, 'keepaliveIntervalMs'> {
  /** Time that the peer has for an answer. The bound learns from each answer. */
  bound: SilenceBound;
}

/** The learnt bounds of all peers of a process. They outlast connections, so that a busy peer is not lost again and again. */
export class SilenceBounds {
  private readonly bounds = new RecentMap<string, { floorMs: number; bound: SilenceBound }>(REMEMBERED_PEERS_LIMIT);

  keepaliveOf(address: string, { keepaliveIntervalMs, keepaliveTimeoutMs }: KeepaliveTimes): StreamKeepalive {
    return { keepaliveIntervalMs, bound: this.of(address, keepaliveTimeoutMs) };
  }

  /** `address`: the peer's; `floorMs`: its time for an answer on a quiet link. */
  of(address: string, floorMs: number): SilenceBound {
    const known = this.bounds.get(address);
    if (known?.floorMs === floorMs) return known.bound;
    const bound = new SilenceBound(floorMs);
    this.bounds.set(address, { floorMs, bound });
    return bound;
  }
}
