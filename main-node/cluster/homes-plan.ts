import { countKept } from '../../shared/decisions/placement/kept-experts.js';
import type { PlacedWorker, Placement } from '../../shared/wire/messages.js';
import type { OwnExperts } from './own-experts.js';
import { gainOfShares, sharesBySpeed } from './shares-by-speed.js';
import type { WorkerLink } from './worker-link.js';
import { WorkerSpeeds } from './worker-speeds.js';

/** Shares change only if the slowest worker would then take so much less time: each change costs an epoch, and loads of the experts that move. */
export const LEAST_GAIN = 1.2;
/** Shortest time between two changes. */
export const BETWEEN_CHANGES_MS = 60_000;
/**
 * Longest time in which workers fetch what planned homes need. The plan is given up then, and no other one is made for as long. The time doubles with each
 * plan that is given up after another, up to the greatest: what was fetched for them stays on disks.
 */
export const PLAN_LIMIT_MS = 30 * 60_000;
export const GREATEST_PLAN_LIMIT_MS = 24 * 60 * 60_000;

/** Strict homes follow from these, and from the workers' ids. */
interface Homes {
  /** By worker; a worker that is missing has the mean of the others. */
  shares: ReadonlyMap<string, number>;
  /** The experts that main's own worker keeps (PlacedWorker.kept_experts); null: it has a share as others do. */
  kept: Uint8Array | null;
}

export type HomesOfWorker = { homeShare: number } & Pick<PlacedWorker, 'keptExperts'>;

/**
 * The homes of experts (placement.homes: strict): shares by the speeds that workers report, and the experts that main keeps itself. They are equal until
 * all workers are measured, and stay until others would be much better. Other homes are planned first, so that workers that fetch their experts fetch
 * them before a placement has those homes. Only takePlan makes a plan the present homes: any other change of the placement drops it.
 */
export class HomesPlan {
  private readonly speeds = new WorkerSpeeds();
  private present: Homes = { shares: new Map(), kept: null };
  private planned: (Homes & { sinceMs: number }) | null = null;
  private nextMs = -Infinity;
  private pauseEndsMs = -Infinity;
  private limitMs = PLAN_LIMIT_MS;

  /**
   * @param homes experts of all layers, times their homes; 0: homes are not strict, and nothing is planned
   * @param own null: main runs no experts itself
   */
  constructor(
    private readonly homes: number,
    private readonly own: OwnExperts | null,
    private readonly nowMs: () => number,
  ) {}

  /** A worker has sent its status. */
  reported(link: WorkerLink): void {
    if (this.homes === 0) return;
    this.speeds.reported(link);
    if (link.id === this.own?.workerId) this.own.reported(link, this.nowMs());
  }

  /** Homes are planned that no placement has yet. */
  get isPlanned(): boolean {
    return this.planned !== null;
  }

  /** Plans other homes if these workers would be much faster with them. Returns true if it has planned some now. `placement`: of these workers. */
  plan(links: readonly WorkerLink[], placement: Placement): boolean {
    const nowMs = this.nowMs();
    if (this.homes === 0 || this.isPlanned || links.length < 2 || nowMs < this.nextMs) return false;
    const present = this.keptBy(links);
    const isCrowded = this.own?.isCrowded(present) === true;
    if (nowMs < this.pauseEndsMs && !isCrowded) return false;
    const better =
      (this.canKeep(links) && this.own?.better(links, this.speeds, { placement, kept: present, nowMs })) || null;
    if (isCrowded && better === null) return false;
    const kept = better ?? present;
    const sharing = kept === null ? links : links.filter(({ id }) => id !== this.own?.workerId);
    const shares = this.betterShares(sharing, kept === null ? this.homes : this.homes - countKept(kept));
    if (better === null && shares === null) return false;
    // An earlier choice of main is not forgotten beside a worker that does not know of it.
    this.planned = { shares: shares ?? this.present.shares, kept: kept ?? this.present.kept, sinceMs: nowMs };
    return true;
  }

  private keptBy(links: readonly WorkerLink[]): Uint8Array | null {
    return this.canKeep(links) ? this.present.kept : null;
  }

  /** Main can keep experts beside these workers: it has a worker of its own among others, and all know what it keeps. */
  private canKeep(links: readonly WorkerLink[]): boolean {
    return links.length > 1 && links.every(knowsKeptExperts) && links.some(({ id }) => id === this.own?.workerId);
  }

  private betterShares(links: readonly WorkerLink[], homes: number): Map<string, number> | null {
    const speeds = new Map(links.map((link) => [link.id, this.speeds.of(link)]));
    if (links.length < 2 || [...speeds.values()].includes(null)) return null;
    const shares = sharesBySpeed(speeds, homes);
    return gainOfShares(speeds, homes, sharesOf(this.present, links), shares) < LEAST_GAIN ? null : shares;
  }

  /** True if workers have not fetched in time what the plan needs. */
  get isOverdue(): boolean {
    return this.planned !== null && this.nowMs() - this.planned.sinceMs >= this.limitMs;
  }

  /** True if the plan is overdue, or if main has no memory any more for the experts that it would keep: it is to be dropped. */
  get isOutdated(): boolean {
    return this.isOverdue || (this.planned !== null && this.own?.isCrowded(this.planned.kept) === true);
  }

  /** The plan decides the homes from now on. */
  takePlan(): void {
    if (this.planned === null) return;
    const { shares, kept } = this.planned;
    this.present = { shares, kept };
    this.planned = null;
    this.limitMs = PLAN_LIMIT_MS;
    this.nextMs = this.nowMs() + BETWEEN_CHANGES_MS;
  }

  /** Gives the plan up. Returns false if there was none. */
  dropPlan(): boolean {
    if (this.planned === null) return false;
    if (this.isOverdue) {
      this.pauseEndsMs = this.nowMs() + this.limitMs;
      this.limitMs = Math.min(GREATEST_PLAN_LIMIT_MS, 2 * this.limitMs);
    }
    this.planned = null;
    return true;
  }

  /** The shares and kept experts of these workers in a placement: the 'planned' ones if there are some, else the present ones. */
  of(links: readonly WorkerLink[], which: 'planned' | 'present'): Map<string, HomesOfWorker> {
    const homes = (which === 'planned' ? this.planned : null) ?? this.present;
    const shares = sharesOf(homes, links);
    const keeper = this.canKeep(links) ? this.own?.workerId : undefined;
    return new Map(
      links.map(({ id }) => [
        id,
        {
          homeShare: shares.get(id) ?? 0,
          // Left out where it is empty, because release 0.2 cannot skip it.
          ...(id === keeper && homes.kept !== null && { keptExperts: Buffer.from(homes.kept) }),
        },
      ]),
    );
  }
}

/** A worker that fetches its experts must know which others main keeps. Releases up to 0.2 do not; they state no newest protocol either. */
function knowsKeptExperts({ partialPack, identity }: WorkerLink): boolean {
  return !partialPack || (identity.newestProtocol ?? 0) > 0;
}

/** The share of each worker; 0: all are equal. */
function sharesOf({ shares }: Homes, links: readonly WorkerLink[]): Map<string, number> {
  const known = links.flatMap(({ id }) => shares.get(id) ?? []);
  const sum = known.reduce((all, share) => all + share, 0);
  const mean = known.length === 0 ? 0 : Math.max(1, Math.round(sum / known.length));
  return new Map(links.map(({ id }) => [id, shares.get(id) ?? mean]));
}
