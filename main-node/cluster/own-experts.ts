import type { LayerCosts } from '../../shared/decisions/placement/group-size.js';
import { countKept, keep, keptBytes } from '../../shared/decisions/placement/kept-experts.js';
import { chooseOwnExperts, ownExpertsCost, type OwnExpertsInput } from './choose-own-experts.js';
import { strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import type { Placement } from '../../shared/wire/messages.js';
import { ExpertUses } from './expert-uses.js';
import type { WorkerLink } from './worker-link.js';
import { cachedExperts, type WorkerSpeeds } from './worker-speeds.js';

/** Other experts are kept only if so much smaller a part of the messages remains, or if a token's experts take so much less time. */
export const MOST_MESSAGES_LEFT = 0.9;
const LEAST_GAIN = 1.2;
/** Answers take memory from experts and give it back; for as long as this, and up to twice as long, the least memory counts. */
export const ROOM_KEPT_MS = 60_000;
/** Time between two looks at the counts. */
export const BETWEEN_LOOKS_MS = 5000;

/** Decides which experts main's own worker keeps (main.experts: both, strict homes), by the choices of main's routers. */
export class OwnExperts {
  /** The least number of experts that the worker had room for, in the present span of time and in the one before. */
  private room = { sinceMs: -Infinity, now: Infinity, before: Infinity };
  private lookedMs = -Infinity;
  /** The experts that main has found good enough, and all that this follows from. A main that is idle does not look again. */
  private settled: { kept: Uint8Array | null; basis: string } | null = null;

  constructor(
    readonly workerId: string,
    readonly uses: ExpertUses,
    private readonly costs: LayerCosts,
  ) {}

  /** Main's own worker has sent its status. */
  reported({ status }: WorkerLink, nowMs: number): void {
    if (status === null) return;
    const { sinceMs, now } = this.room;
    const { expertLayers, experts } = this.uses.shape;
    const room = Math.min(cachedExperts(status, expertLayers * experts), status.cache?.capacities?.full ?? 0);
    this.room =
      nowMs - sinceMs < ROOM_KEPT_MS
        ? { ...this.room, now: Math.min(now, room) }
        : { sinceMs: nowMs, now: room, before: now };
  }

  /**
   * The experts that main should keep under a placement of these workers, as a bitmap; null: those that it has now are good enough. `kept`: those that
   * it keeps by an earlier decision.
   */
  better(
    links: readonly WorkerLink[],
    speeds: WorkerSpeeds,
    { placement, kept, nowMs }: { placement: Placement; kept: Uint8Array | null; nowMs: number },
  ): Uint8Array | null {
    const own = links.find(({ id }) => id === this.workerId);
    const room = this.leastRoom;
    if (own === undefined || links.length < 2 || !this.uses.isMeasured) return null;
    // A main that keeps experts gives them up when there is no room left for any.
    if (room === Infinity || (room <= 0 && kept === null)) return null;
    if (nowMs - this.lookedMs < BETWEEN_LOOKS_MS || links.some(({ status }) => status === null)) return null;
    this.lookedMs = nowMs;
    const basis = JSON.stringify([
      room,
      this.uses.countedRows,
      placement.epoch,
      links.map((link) => [link.id, speeds.of(link)]),
    ]);
    if (this.settled?.kept === kept && this.settled.basis === basis) return null;
    const others = links.filter((link) => link !== own);
    const { expertLayers: layers, experts } = this.uses.shape;
    const input = { layers, experts, uses: this.uses.probabilities(), room, ...this.timesOf(own, others, speeds) };
    const held = kept ?? firstHomesOf(placement, this.workerId);
    const chosen = chooseOwnExperts(input, kept);
    const better = isBetter(input, held, chosen, kept !== null) ? chosen : null;
    this.settled = better === null ? { kept, basis } : null;
    return better;
  }

  /** True if answers have taken memory that some of these experts need. Null: main keeps none by choice. */
  isCrowded(kept: Uint8Array | null): boolean {
    return kept !== null && countKept(kept) > this.leastRoom;
  }

  private get leastRoom(): number {
    return Math.min(this.room.now, this.room.before);
  }

  private timesOf(
    own: WorkerLink,
    others: readonly WorkerLink[],
    speeds: WorkerSpeeds,
  ): Pick<OwnExpertsInput, 'workers' | 'workersRoom' | 'ownMs' | 'workerMs' | 'loadMs' | 'reachMs'> {
    const { executeMs, loadMs, reachMs } = this.costs;
    const all = this.uses.shape.expertLayers * this.uses.shape.experts;
    const workersRoom = others.reduce((sum, { status }) => sum + (status === null ? 0 : cachedExperts(status, all)), 0);
    const common = { workers: others.length, workersRoom, reachMs };
    const ownSpeed = speeds.of(own);
    const measured = others.flatMap((link) => speeds.of(link) ?? []);
    if (ownSpeed === null || measured.length < others.length)
      return { ...common, ownMs: executeMs, workerMs: executeMs, loadMs };
    return {
      ...common,
      ownMs: ownSpeed.executeMs,
      workerMs: atOnce(measured.map((speed) => speed.executeMs)),
      loadMs: median(measured.map((speed) => speed.loadMs)),
    };
  }
}

function isBetter(input: OwnExpertsInput, held: Uint8Array, chosen: Uint8Array, isChoice: boolean): boolean {
  // Answers have taken memory: experts beyond it would be loaded anew each time.
  if (isChoice && countKept(held) > input.room) return true;
  // Answers have given memory back. Without executions main's speed would never be measured again.
  if (isChoice && countKept(held) === 0 && countKept(chosen) > 0) return true;
  const [now, then] = [ownExpertsCost(input, held), ownExpertsCost(input, chosen)];
  if (then.ms < now.ms && then.ms * LEAST_GAIN <= now.ms) return true;
  const savesMessages = then.messages < now.messages && then.messages <= MOST_MESSAGES_LEFT * now.messages;
  return savesMessages && then.ms <= now.ms;
}

function firstHomesOf(placement: Placement, id: string): Uint8Array {
  const kept = new Uint8Array(keptBytes(placement));
  for (let layer = 0; layer < placement.layers; layer += 1)
    for (let expert = 0; expert < placement.experts; expert += 1)
      if (strictHomesOf(placement, layer, expert)[0] === id) keep(kept, placement.experts, layer, expert);
  return kept;
}

/** Time of an expert on workers that have experts in proportion to their speed. */
function atOnce(executeMs: readonly number[]): number {
  return executeMs.length / executeMs.reduce((sum, ms) => sum + 1 / ms, 0);
}

/** One worker with a false number changes it little. Of two middle values the lower one. */
function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

/** Null: main has no worker of its own, or homes are not strict. */
export function ownExpertsOf(
  workerId: string,
  shape: ExpertUses['shape'],
  { homes, costs }: { homes: number; costs: LayerCosts },
): OwnExperts | null {
  return homes === 0 || workerId === '' ? null : new OwnExperts(workerId, new ExpertUses(shape), costs);
}
