import { gainOfShares, sharesBySpeed, type MeasuredSpeed } from './shares-by-speed.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import type { WorkerLink } from './worker-link.js';

/** Shares change only if the slowest worker would then take so much less time: each change costs an epoch, and loads of the experts that move. */
export const LEAST_GAIN = 1.2;
/** Shortest time between two changes. */
export const BETWEEN_CHANGES_MS = 60_000;
/** A worker's speed counts from so many executions of experts on. */
export const LEAST_EXECUTIONS = 64;
/** Number of statuses over which a speed is taken, and number of them from which on it counts. A working daemon sends one each second. */
const STATUSES_OF_MEAN = 8;
export const LEAST_STATUSES = 4;

interface Measure {
  statuses: number;
  executions: number;
  speed: MeasuredSpeed;
}

/**
 * The shares of workers in strict homes, by the speeds that they report: equal ones until all workers are measured. They are kept until others
 * would be much better, so that a placement stays. A worker that comes gets the mean share of the others.
 */
export class WorkerShares {
  private readonly measures = new WeakMap<WorkerLink, Measure>();
  private kept: ReadonlyMap<string, number> = new Map();
  private planned: ReadonlyMap<string, number> | null = null;
  private changedMs = -Infinity;

  /** @param homes experts of all layers, times their homes; 0: homes are not strict, and there are no shares */
  constructor(
    private readonly homes: number,
    private readonly nowMs: () => number,
  ) {}

  /** A worker has sent its status. */
  reported(link: WorkerLink): void {
    const { status } = link;
    if (status === null || this.homes === 0 || !isMeasured(status)) return;
    const before = this.measures.get(link);
    if (before?.executions === status.executions) return;
    const statuses = Math.min((before?.statuses ?? 0) + 1, STATUSES_OF_MEAN);
    const now = speedOf(status);
    const executeMs = before === undefined ? now.executeMs : before.speed.executeMs;
    const speed = { ...now, executeMs: executeMs + (now.executeMs - executeMs) / statuses };
    this.measures.set(link, { statuses, executions: status.executions, speed });
  }

  /** Plans other shares if these workers would be much faster with them. Returns true if it has planned some now. */
  plan(links: readonly WorkerLink[]): boolean {
    const { homes, planned } = this;
    if (homes === 0 || planned !== null || links.length < 2) return false;
    if (this.nowMs() - this.changedMs < BETWEEN_CHANGES_MS) return false;
    const speeds = new Map(links.map((link) => [link.id, this.speed(link)]));
    if ([...speeds.values()].includes(null)) return false;
    const shares = sharesBySpeed(speeds, homes);
    if (gainOfShares(speeds, homes, this.of(links), shares) < LEAST_GAIN) return false;
    this.planned = shares;
    return true;
  }

  private speed(link: WorkerLink): MeasuredSpeed | null {
    const measure = this.measures.get(link);
    return measure !== undefined && measure.statuses >= LEAST_STATUSES ? measure.speed : null;
  }

  /** Shares are planned that no published placement has. */
  get isPlanned(): boolean {
    return this.planned !== null;
  }

  /** A placement is published: it has the planned shares. */
  published(): void {
    if (this.planned === null) return;
    this.kept = this.planned;
    this.planned = null;
    this.changedMs = this.nowMs();
  }

  /** The share of each worker in the next placement; 0: all are equal. */
  of(links: readonly WorkerLink[]): Map<string, number> {
    const shares = this.planned ?? this.kept;
    const known = links.flatMap(({ id }) => shares.get(id) ?? []);
    const sum = known.reduce((all, share) => all + share, 0);
    const mean = known.length === 0 ? 0 : Math.max(1, Math.round(sum / known.length));
    return new Map(links.map(({ id }) => [id, shares.get(id) ?? mean]));
  }
}

function isMeasured({ executions, shortExecuteMsMean }: NodeStatus): boolean {
  return shortExecuteMsMean > 0 && executions >= LEAST_EXECUTIONS;
}

function speedOf({ shortExecuteMsMean, loadMsMean, cache, slotBytes }: NodeStatus): MeasuredSpeed {
  const cached = cache === null || slotBytes === 0 ? 0 : Math.floor(cache.bytes / slotBytes);
  return { executeMs: shortExecuteMsMean, loadMs: loadMsMean, cached };
}
