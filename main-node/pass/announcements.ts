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

/** What the workers have been told of a layer when its router chooses. */
export interface AnnouncedLayer {
  /** expert -> workers that load it, the one that is to run it first; null: nobody was told anything. */
  holders: ReadonlyMap<number, readonly string[]> | null;
  /** Told by somebody else, too, who named another worker: to be released. */
  superseded: readonly (readonly [expert: number, workerId: string])[];
  /** All experts of the layer were. */
  isWholeLayer: boolean;
}

/** What main itself has told the workers of a layer under a placement. */
interface OwnLayer {
  placement: Placement;
  holders: Map<number, string[]>;
  announced: boolean;
}

export interface AnnouncedPass {
  pass: PassRow;
  rows: readonly RowRun[];
  /** Rows that differ in token or position: equal ones choose alike. */
  differentRows: number;
  /** Workers that an expert of a layer may be announced to: as many as may run mini-batches of it. */
  copies: number;
  /** expert -> worker, of what workers have been told for rows of the pass otherwise: by shadow, or before the pass began. */
  toldByOthers(placement: Placement, layer: number): readonly (ReadonlyMap<number, string> | null)[];
  /** Dealt to all workers, whatever the group of the layer. */
  spread: 'group' | 'all';
}

/**
 * What main tells the workers to load for one pass before its routers choose: what shadow has predicted for its rows and told main alone, each
 * expert once, spread over workers; or all experts of a layer. Everything is told under the pass's own name.
 */
export class Announcements {
  private readonly layers = new Map<number, OwnLayer>();
  private decided = -1;
  /** The dealer's number of the pass; null: nothing of it has been dealt. */
  private dealtPass: number | null = null;

  constructor(
    readonly of: AnnouncedPass,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    private readonly dealer: Pick<JointDealer, 'beginPass' | 'deal' | 'forget'>,
  ) {}

  isAnnounced(layer: number): boolean {
    return this.layers.get(layer)?.announced === true;
  }

  /** Tells the workers of those experts that nobody has told them of; none where the layer's router has chosen. */
  tell(layer: number, wishes: readonly ExpertWish[]): void {
    const { placement } = this.workers;
    if (placement === null || layer <= this.decided) return;
    const told = this.toldOf(layer, placement);
    if (told.announced) return;
    const held = this.heldWithOthers(layer, told);
    const wanted = wishes.flatMap(({ experts }) => experts).filter((expert) => !held.has(expert));
    if (wanted.length > 0) this.give(layer, told, this.assign(layer, told, held, wanted), wishes);
  }

  /** Tells the workers of all experts of a layer that they have not been told of. */
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
   * What the workers were told of a layer whose router has chosen, under this placement. `byOthers`: what shadow has told them, and what
   * else; where two name a worker each for one expert, the first one's is asked.
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

  /** Goes on from what was told ahead for this very pass. */
  adopt(ahead: Announcements): void {
    for (const [layer, told] of ahead.layers) this.layers.set(layer, told);
    this.dealtPass = ahead.dealtPass;
  }

  /** Nothing of all this will be asked for. */
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

  /** What was told under another placement the workers have forgotten. */
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

  /** `wishes`: whose experts these are; null: they are for all rows. */
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
