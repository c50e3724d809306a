import { assignMoreExperts, neededBy, takersOf } from './joint-assignment.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { prefillAssignment } from '../../shared/decisions/placement/prefill-workers.js';
import type { PassRow, Placement, RowRun } from '../../shared/wire/messages.js';
import { keepersOf } from '../cluster/cached-layers.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { JointDealer } from './joint-dealer.js';

/** Experts of a layer that some rows of a pass are expected to need. */
export interface ExpertWish {
  experts: readonly number[];
  run: RowRun;
}

/** The announcements of a layer at the time when its router chooses. */
export interface AnnouncedLayer {
  /** expert -> workers that load it, first the one that is to run it; null: nothing was announced. */
  holders: ReadonlyMap<number, readonly string[]> | null;
  /** Experts that others have announced to a worker that is not a holder: they are to be released there. */
  superseded: readonly (readonly [expert: number, workerId: string])[];
  /** All experts of the layer were announced. */
  isWholeLayer: boolean;
}

/** Main's own announcements of a layer under a placement. */
interface OwnLayer {
  placement: Placement;
  holders: Map<number, string[]>;
  announced: boolean;
}

export interface AnnouncedPass {
  pass: PassRow;
  rows: readonly RowRun[];
  /** Number of rows that differ in token or position; rows that are equal in both choose the same experts. */
  differentRows: number;
  /** Number of workers to which one expert of a layer may be announced: as many as may run mini-batches of it. */
  copies: number;
  /** expert -> worker: other announcements for rows of the pass, which shadow made, or main before the pass began. */
  toldByOthers(placement: Placement, layer: number): readonly (ReadonlyMap<number, string> | null)[];
  /** 'all': experts are dealt to all workers, whatever the group of the layer. */
  spread: 'group' | 'all';
}

/**
 * Main's announcements for one pass before its routers choose. They name the experts that shadow has predicted for main only, each expert once and
 * spread over workers; or all experts of a layer. Every announcement carries the pass's own sequence and position.
 */
export class Announcements {
  private readonly layers = new Map<number, OwnLayer>();
  private decided = -1;
  /** The dealer's number of the pass; null: the dealer has dealt none of its experts. */
  private dealtPass: number | null = null;

  constructor(
    readonly of: AnnouncedPass,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    private readonly dealer: Pick<JointDealer, 'beginPass' | 'deal' | 'forget'>,
  ) {}

  isAnnounced(layer: number): boolean {
    return this.layers.get(layer)?.announced === true;
  }

  /** Announces the experts that are not announced yet. Does nothing if the layer's router has chosen. */
  tell(layer: number, wishes: readonly ExpertWish[]): void {
    const { placement } = this.workers;
    if (placement === null || layer <= this.decided) return;
    const told = this.toldOf(layer, placement);
    if (told.announced) return;
    const held = this.heldWithOthers(layer, told);
    const wanted = wishes.flatMap(({ experts }) => experts).filter((expert) => !held.has(expert));
    if (wanted.length > 0) this.give(layer, told, this.assign(layer, told, held, wanted), wishes);
  }

  /** Announces all experts of a layer that are not announced yet. */
  announce(layer: number): void {
    const { placement } = this.workers;
    if (placement === null || layer <= this.decided) return;
    const told = this.toldOf(layer, placement);
    if (told.announced) return;
    const held = this.heldWithOthers(layer, told);
    const all = Array.from({ length: placement.experts }, (_, expert) => expert);
    told.announced = true;
    const assignment =
      held.size === 0
        ? prefillAssignment(placement, layer, this.of.copies)
        : assignMoreExperts(takersOf(placement, layer, placement.experts), layer, held, all);
    this.give(layer, told, assignment, null);
  }

  /**
   * Returns the announcements of a layer whose router has chosen, under this placement. `byOthers`: announcements of shadow, and others that main did
   * not make here. If two of them name different workers for one expert, the worker of the first is asked.
   */
  settle(
    placement: Placement,
    layer: number,
    byOthers: readonly (ReadonlyMap<number, string> | null)[],
  ): AnnouncedLayer {
    this.decided = Math.max(this.decided, layer);
    const own = this.layers.get(layer);
    this.layers.delete(layer);
    const isValid = own?.placement.epoch === placement.epoch;
    const holders = new Map<number, readonly string[]>(isValid ? own.holders : []);
    const superseded: [number, string][] = [];
    let isTold = isValid;
    for (const told of byOthers) {
      if (told === null) continue;
      isTold = true;
      for (const [expert, worker] of told) {
        const held = holders.get(expert);
        if (held === undefined) holders.set(expert, [worker]);
        else if (!held.includes(worker)) superseded.push([expert, worker]);
      }
    }
    return { holders: isTold ? holders : null, superseded, isWholeLayer: isValid && own.announced };
  }

  /** Takes over the announcements that were made ahead for this same pass. */
  adopt(ahead: Announcements): void {
    for (const [layer, told] of ahead.layers) this.layers.set(layer, told);
    this.dealtPass = ahead.dealtPass;
  }

  /** Releases all announced experts: no pass will ask for them. */
  release(): void {
    const { pass, rows } = this.of;
    const { placement: current } = this.workers;
    if (this.dealtPass !== null && current !== null) this.dealer.forget(current, this.dealtPass);
    for (const [layer, { placement, holders }] of this.layers) {
      if (this.workers.placement?.epoch !== placement.epoch) continue;
      const pairs = [...holders].flatMap(([expert, ids]) => ids.map((id) => [expert, id] as const));
      for (const [worker, experts] of expertsByWorker(pairs))
        this.workers.worker(worker)?.sendRelease({ epoch: placement.epoch, pass, rows, layer, experts });
    }
    this.layers.clear();
  }

  /** The announcements of a layer under this placement. Workers have dropped those of another placement, so the record begins empty again. */
  private toldOf(layer: number, placement: Placement): OwnLayer {
    const known = this.layers.get(layer);
    if (known?.placement.epoch === placement.epoch) return known;
    const told = { placement, holders: new Map<number, string[]>(), announced: false };
    this.layers.set(layer, told);
    return told;
  }

  private heldWithOthers(layer: number, { placement, holders }: OwnLayer): Map<number, string> {
    const held = new Map<number, string>();
    for (const told of this.of.toldByOthers(placement, layer))
      for (const [expert, worker] of told ?? []) held.set(expert, worker);
    for (const [expert, [worker]] of holders) if (worker !== undefined) held.set(expert, worker);
    return held;
  }

  private assign(
    layer: number,
    told: OwnLayer,
    held: ReadonlyMap<number, string>,
    experts: readonly number[],
  ): Map<number, string> {
    const { placement } = told;
    const takers = this.takers(layer, told);
    this.dealtPass ??= this.dealer.beginPass();
    const dealt = this.dealer.deal({ placement, takers, pass: this.dealtPass, layer, held }, experts);
    return dealt ?? assignMoreExperts(takers, layer, held, experts, keepersOf(this.workers, placement, layer));
  }

  private takers(layer: number, { placement }: OwnLayer): Placement {
    const { spread, differentRows } = this.of;
    const needed = spread === 'all' ? Infinity : differentRows === 1 ? 0 : neededBy(placement, differentRows);
    return takersOf(placement, layer, needed);
  }

  /** `wishes`: the expected experts with their rows; null: the experts are for all rows. */
  private give(
    layer: number,
    { placement, holders }: OwnLayer,
    assignment: Iterable<readonly [expert: number, workerId: string]>,
    wishes: readonly ExpertWish[] | null,
  ): void {
    const { pass } = this.of;
    for (const [worker, experts] of expertsByWorker(assignment)) {
      for (const expert of experts) holders.set(expert, [...(holders.get(expert) ?? []), worker]);
      const asking = wishes?.filter((wish) => wish.experts.some((expert) => experts.includes(expert)));
      const rows = asking?.map(({ run }) => run) ?? this.of.rows;
      this.workers.worker(worker)?.sendAnnounce({
        epoch: placement.epoch,
        pass,
        rows,
        layer,
        experts,
      });
    }
  }
}
