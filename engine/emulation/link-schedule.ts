import type { ExpertOrder } from '../../native/index.js';
import { PARTS, type PerPart } from '../../shared/model/expert-parts.js';

/** The three matrices of an expert. */
const TENSORS = 3;

/** One load on the link. Only the schedule changes it. */
export interface LinkLoad {
  /** Time on the link for each part of the expert; 0: the part is not read. */
  readonly partMs: PerPart<number>;
  /**
   * Time to recover plain values: the load takes at least this long after the link has begun it. The recovering threads belong to the device,
   * so loads share them: time spent for one load delays the others.
   */
  readonly recoverMs: number;
  urgent: boolean;
  order: ExpertOrder | null;
}

/** One read on the link: one part of one matrix. */
interface LinkRead {
  readonly part: number;
  readonly tensor: number;
  readonly ms: number;
}

interface Entry {
  readonly load: LinkLoad;
  readonly arrival: number;
  left: LinkRead[];
  began: Began | null;
  /** Time when the load ends; null: the load still has to be read. */
  endMs: number | null;
}

/** State at the begin of a load, on the link or from an entry. */
interface Began {
  readonly ms: number;
  /** Recovery time still due for loads that were read before. */
  readonly behindMs: number;
  /** Total recovery time of all loads read until then. */
  readonly recoveredMs: number;
}

interface Working {
  readonly entry: Entry;
  readonly read: LinkRead;
  readonly endMs: number;
}

/**
 * Decides which load's bytes go over a device's link next, and when each load ends (ZipMoE, Algorithm 1; the same order as native's
 * load_schedule.cc). Urgent loads come first, then loads by schedule block; each load without an order is one by itself, in the order of the
 * requests. In a schedule block, exponents come first. A read that has begun is finished. Pure: the caller passes the times, which must not go back.
 */
export class LinkSchedule {
  private entries: Entry[] = [];
  private working: Working | null = null;
  private timeMs = -Infinity;
  private arrivals = 0;
  /** Total recovery time of all loads that have been read, and the time when it ends. */
  private recoveredMs = 0;
  private recoverEndMs = -Infinity;

  get size(): number {
    return this.entries.length;
  }

  begin(load: LinkLoad, nowMs: number): void {
    this.advance(nowMs);
    const left = PARTS.flatMap((name, part) =>
      load.partMs[name] > 0
        ? Array.from({ length: TENSORS }, (_, tensor) => ({ part, tensor, ms: load.partMs[name] / TENSORS }))
        : [],
    );
    const entry: Entry = { load, arrival: this.arrivals++, left, began: null, endMs: null };
    this.entries.push(entry);
    if (left.length === 0) this.end(entry);
  }

  /** The load has ended or was cancelled: other loads can use the link at once. */
  remove(load: LinkLoad, nowMs: number): void {
    this.advance(nowMs);
    this.entries = this.entries.filter((entry) => entry.load !== load);
    if (this.working?.entry.load === load) this.working = null;
  }

  change(load: LinkLoad, changes: Partial<Pick<LinkLoad, 'urgent' | 'order'>>, nowMs: number): void {
    this.advance(nowMs);
    Object.assign(load, changes);
  }

  /** The load that ends next if nothing else happens; if several end together, the one requested first. Null: no load is left. */
  next(): { load: LinkLoad; endMs: number } | null {
    const ahead = this.clone();
    let first: { load: LinkLoad; endMs: number } | null = null;
    for (;;) {
      first = ahead.firstEnd();
      const read = ahead.working ?? ahead.beginRead();
      // A later read ends later.
      if (read === null || (first !== null && read.endMs > first.endMs)) return first;
      ahead.advance(read.endMs);
    }
  }

  private firstEnd(): { load: LinkLoad; endMs: number } | null {
    let first: { load: LinkLoad; endMs: number } | null = null;
    for (const { load, endMs } of this.entries) {
      if (endMs !== null && (first === null || endMs < first.endMs)) first = { load, endMs };
    }
    return first;
  }

  private advance(nowMs: number): void {
    while (true) {
      const read = this.working ?? this.beginRead();
      if (read === null || read.endMs > nowMs) break;
      this.timeMs = read.endMs;
      this.working = null;
      if (read.entry.left.length === 0) this.end(read.entry);
    }
    if (nowMs !== Infinity) this.timeMs = Math.max(this.timeMs, nowMs);
  }

  private beginRead(): Working | null {
    let entry: Entry | null = null;
    let read: LinkRead | null = null;
    for (const other of this.entries) {
      for (const candidate of other.left) {
        if (entry !== null && read !== null && orderOf(other, candidate, entry, read) >= 0) continue;
        [entry, read] = [other, candidate];
      }
    }
    if (entry === null || read === null) return null;
    const begun = read;
    entry.left = entry.left.filter((other) => other !== begun);
    entry.began ??= this.beganNow();
    this.working = { entry, read, endMs: this.timeMs + read.ms };
    return this.working;
  }

  private end(entry: Entry): void {
    const { recoverMs } = entry.load;
    const { ms, behindMs, recoveredMs } = entry.began ?? this.beganNow();
    const othersMs = behindMs + this.recoveredMs - recoveredMs;
    entry.endMs = recoverMs === 0 ? this.timeMs : Math.max(this.timeMs, ms + othersMs + recoverMs);
    if (recoverMs === 0) return;
    this.recoveredMs += recoverMs;
    this.recoverEndMs = Math.max(this.recoverEndMs, ms + othersMs + recoverMs);
  }

  private beganNow(): Began {
    const { timeMs, recoverEndMs, recoveredMs } = this;
    return { ms: timeMs, behindMs: Math.max(0, recoverEndMs - timeMs), recoveredMs };
  }

  private clone(): LinkSchedule {
    const copy = new LinkSchedule();
    const copies = new Map(this.entries.map((entry) => [entry, { ...entry }]));
    copy.entries = [...copies.values()];
    copy.timeMs = this.timeMs;
    copy.recoveredMs = this.recoveredMs;
    copy.recoverEndMs = this.recoverEndMs;
    if (this.working !== null) {
      const { entry } = this.working;
      copy.working = { ...this.working, entry: copies.get(entry) ?? entry };
    }
    return copy;
  }
}

/** Negative: the first read comes before the second. Called for every pair of waiting reads, so it allocates no arrays. */
function orderOf(left: Entry, leftRead: LinkRead, right: Entry, rightRead: LinkRead): number {
  const leftPlace = left.load.order?.[leftRead.tensor];
  const rightPlace = right.load.order?.[rightRead.tensor];
  const block = (leftPlace?.block ?? Number.MAX_SAFE_INTEGER) - (rightPlace?.block ?? Number.MAX_SAFE_INTEGER);
  return (
    Number(right.load.urgent) - Number(left.load.urgent) ||
    block ||
    (leftPlace === undefined ? left.arrival : 0) - (rightPlace === undefined ? right.arrival : 0) ||
    leftRead.part - rightRead.part ||
    (leftPlace?.position ?? 0) - (rightPlace?.position ?? 0) ||
    left.arrival - right.arrival ||
    leftRead.tensor - rightRead.tensor
  );
}
