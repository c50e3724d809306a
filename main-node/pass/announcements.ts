import type { Predict, Placement, PassRow, RowRange } from '../../shared/wire/messages.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { takersOf, type AnnouncedLayer, assignMoreExperts, neededBy } from './plan-layer.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';
import { prefillAssignment } from '../../shared/decisions/placement/prefill-workers.js';
import { cachingWorkersOf } from '../cluster/cached-layers.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { type MemberRows, decodePosition, rangeOf, expectedBy } from './pass-member.js';
import { assignmentOf } from '../../shared/decisions/placement/assignment-of.js';
import { criticalField, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import { ExpertDealer } from '../../shared/decisions/placement/expert-dealer.js';

/** Experts of a layer that are expected for some rows of a pass. */
export type ExpectedExperts = Pick<Predict, 'experts' | 'rows' | 'critical'>;

/** Main's own announcements of a layer under a placement. */
interface OwnLayer {
  placement: Placement;
  holders: Map<number, string[]>;
  /** expert -> the layer at which main was when it announced the expert, the last time. */
  since: Map<number, number>;
  /** Those of the announced experts that a surer prediction does not name any more. */
  doubted: Set<number>;
  isWholeLayer: boolean;
}

function newLayer(placement: Placement): OwnLayer {
  return {
    placement,
    holders: new Map<number, string[]>(),
    since: new Map<number, number>(),
    doubted: new Set<number>(),
    isWholeLayer: false,
  };
}

export interface AnnouncedPass {
  pass: PassRow;
  rows: readonly RowRange[];
  /** Number of rows that differ in token or position; rows that are equal in both choose the same experts. */
  differentRows: number;
  /** Number of workers to which one expert of a layer may be announced: as many as may run mini-batches of it. */
  copies: number;
  /** expert -> worker: other announcements for rows of the pass, which shadow made, or main before the pass began. */
  announcedByOthers(placement: Placement, layer: number): readonly (ReadonlyMap<number, string> | null)[];
  /** 'all': experts are dealt to all workers, whatever the group of the layer. */
  spread: 'group' | 'all';
  /** The rule by which executions read sliced experts; null: experts are computed exactly. */
  precision: PrecisionRule | null;
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

  /** All experts of the layer are announced. */
  isWholeLayer(layer: number): boolean {
    return this.layers.get(layer)?.isWholeLayer === true;
  }

  /** Experts of the layer that are announced, by anybody, under the present placement, and that main does not doubt. */
  heldAt(layer: number): number[] {
    const { placement } = this.workers;
    if (placement === null) return [];
    // A question leaves no record: a layer with a record counts as announced.
    const own = this.knownOf(layer, placement) ?? newLayer(placement);
    return [...this.heldWithOthers(layer, own).keys()].filter((expert) => !own.doubted.has(expert));
  }

  /** Those of them that main has announced for this pass, each with the number of layers that main has done since. */
  ownAt(layer: number): Map<number, number> {
    const { placement } = this.workers;
    const own = placement === null ? undefined : this.knownOf(layer, placement);
    const announced = [...(own?.since ?? [])].filter(([expert]) => own?.doubted.has(expert) === false);
    return new Map(announced.map(([expert, at]) => [expert, this.atLayer - at]));
  }

  /** The layer whose router chooses next; Infinity: the pass has ended. */
  get atLayer(): number {
    return this.decided + 1;
  }

  /**
   * Says to their workers that main doubts its own announcements of these experts, which then begin no load and give their slots to others. They stay announced: main
   * asks for them there, releases them, or announces them again.
   */
  doubt(layer: number, experts: readonly number[]): void {
    const { placement } = this.workers;
    const own = placement === null ? undefined : this.knownOf(layer, placement);
    if (own === undefined || own.isWholeLayer || layer <= this.decided) return;
    const pairs = holdersOf(
      own,
      experts.filter((expert) => !own.doubted.has(expert)),
    );
    const { pass, rows } = this.of;
    const { epoch } = own.placement;
    for (const [worker, ofWorker] of expertsByWorker(pairs)) {
      for (const expert of ofWorker) own.doubted.add(expert);
      this.workers.worker(worker)?.sendAnnounce({ epoch, pass, rows, layer, experts: ofWorker, doubted: true });
    }
  }

  /** Announces the experts that are not announced yet. Does nothing if the layer's router has chosen. */
  announce(layer: number, expected: readonly ExpectedExperts[]): void {
    const { placement } = this.workers;
    if (placement === null || layer <= this.decided) return;
    const own = this.ownOf(layer, placement);
    if (own.isWholeLayer) return;
    this.announceAgain(layer, own, expected);
    const held = this.heldWithOthers(layer, own);
    const wanted = expected.flatMap(({ experts }) => experts).filter((expert) => !held.has(expert));
    if (wanted.length > 0) this.give(layer, own, this.assign(layer, own, held, wanted), expected);
  }

  /** Announces all experts of a layer that are not announced yet. */
  announceWholeLayer(layer: number): void {
    const { placement } = this.workers;
    if (placement === null || layer <= this.decided) return;
    const own = this.ownOf(layer, placement);
    if (own.isWholeLayer) return;
    this.announceAgain(layer, own, null);
    const held = this.heldWithOthers(layer, own);
    const all = Array.from({ length: placement.experts }, (_, expert) => expert);
    own.isWholeLayer = true;
    const assignment =
      held.size === 0
        ? prefillAssignment(placement, layer, this.of.copies)
        : assignMoreExperts(takersOf(placement, layer, placement.experts), layer, held, all);
    this.give(layer, own, assignment, null);
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
    const doubted = new Set<number>(isValid ? own.doubted : []);
    let isAnnounced = isValid;
    for (const announced of byOthers) {
      if (announced === null) continue;
      isAnnounced = true;
      for (const [expert, worker] of announced) {
        doubted.delete(expert);
        const held = holders.get(expert);
        if (held === undefined) holders.set(expert, [worker]);
        else if (!held.includes(worker)) superseded.push([expert, worker]);
      }
    }
    const isWholeLayer = isValid && own.isWholeLayer;
    return { holders: isAnnounced ? holders : null, superseded, doubted, isWholeLayer };
  }

  /** Takes over the announcements that were made ahead for this same pass. */
  adopt(ahead: Announcements): void {
    for (const [layer, announced] of ahead.layers) this.layers.set(layer, announced);
    this.dealtPass = ahead.dealtPass;
  }

  /** Releases all announced experts: no pass will ask for them. */
  release(): void {
    const { pass, rows } = this.of;
    const { placement: current } = this.workers;
    if (this.dealtPass !== null && current !== null) this.dealer.forget(current, this.dealtPass);
    for (const [layer, { placement, holders }] of this.layers) {
      if (this.workers.placement?.epoch !== placement.epoch) continue;
      for (const [worker, experts] of expertsByWorker(holdersOf({ holders }, holders.keys())))
        this.workers.worker(worker)?.sendRelease({ epoch: placement.epoch, pass, rows, layer, experts });
    }
    this.layers.clear();
  }

  /** The pass has ended: nothing is announced for it any more. */
  close(): void {
    this.decided = Infinity;
  }

  /** The announcements of a layer under this placement. Workers have dropped those of another placement, so the record begins empty again. */
  private ownOf(layer: number, placement: Placement): OwnLayer {
    const known = this.knownOf(layer, placement);
    if (known !== undefined) return known;
    const own = newLayer(placement);
    this.layers.set(layer, own);
    return own;
  }

  private knownOf(layer: number, placement: Placement): OwnLayer | undefined {
    const known = this.layers.get(layer);
    return known?.placement.epoch === placement.epoch ? known : undefined;
  }

  private heldWithOthers(layer: number, { placement, holders }: OwnLayer): Map<number, string> {
    const held = new Map<number, string>();
    for (const announced of this.of.announcedByOthers(placement, layer))
      for (const [expert, worker] of announced ?? []) held.set(expert, worker);
    for (const [expert, [worker]] of holders) if (worker !== undefined) held.set(expert, worker);
    return held;
  }

  private assign(
    layer: number,
    own: OwnLayer,
    held: ReadonlyMap<number, string>,
    experts: readonly number[],
  ): Map<number, string> {
    const { placement } = own;
    const takers = this.takers(layer, own);
    this.dealtPass ??= this.dealer.beginPass();
    const dealt = this.dealer.deal({ placement, takers, pass: this.dealtPass, layer, held }, experts);
    return dealt ?? assignMoreExperts(takers, layer, held, experts, cachingWorkersOf(this.workers, placement, layer));
  }

  private takers(layer: number, { placement }: OwnLayer): Placement {
    const { spread, differentRows } = this.of;
    const needed = spread === 'all' ? Infinity : differentRows === 1 ? 0 : neededBy(placement, differentRows);
    return takersOf(placement, layer, needed);
  }

  /**
   * `expected`: the experts with the rows that they are expected for; null: the experts are for all rows, among which nearly every expert has a
   * critical one.
   */
  private give(
    layer: number,
    own: OwnLayer,
    assignment: Iterable<readonly [expert: number, workerId: string]>,
    expected: readonly ExpectedExperts[] | null,
  ): void {
    const { holders } = own;
    const given = [...assignment];
    for (const [expert, worker] of given) {
      holders.set(expert, [...(holders.get(expert) ?? []), worker]);
      own.since.set(expert, this.atLayer);
    }
    this.send(layer, own, given, expected);
  }

  /** Announces those experts to the same workers again that main had doubted. `expected`: as in `give`; null: all experts. */
  private announceAgain(layer: number, own: OwnLayer, expected: readonly ExpectedExperts[] | null): void {
    const isExpected = (expert: number): boolean =>
      expected === null || expected.some(({ experts }) => experts.includes(expert));
    const again = [...own.doubted].filter(isExpected);
    for (const expert of again) {
      own.doubted.delete(expert);
      own.since.set(expert, this.atLayer);
    }
    this.send(layer, own, holdersOf(own, again), expected);
  }

  private send(
    layer: number,
    { placement }: OwnLayer,
    assignment: Iterable<readonly [expert: number, workerId: string]>,
    expected: readonly ExpectedExperts[] | null,
  ): void {
    const { pass } = this.of;
    for (const [worker, experts] of expertsByWorker(assignment)) {
      const asking = expected?.filter((each) => each.experts.some((expert) => experts.includes(expert)));
      const rows = asking?.flatMap((each) => each.rows) ?? this.of.rows;
      const critical = asking === undefined ? experts : experts.filter((expert) => asking.some(isCriticalIn(expert)));
      this.workers.worker(worker)?.sendAnnounce({
        epoch: placement.epoch,
        pass,
        rows,
        layer,
        experts,
        ...criticalField(this.of.precision, critical),
      });
    }
  }
}

function holdersOf({ holders }: Pick<OwnLayer, 'holders'>, experts: Iterable<number>): (readonly [number, string])[] {
  return [...experts].flatMap((expert) => (holders.get(expert) ?? []).map((id) => [expert, id] as const));
}

function isCriticalIn(expert: number): (expected: ExpectedExperts) => boolean {
  return ({ critical = [] }) => critical.includes(expert);
}

interface AnnouncedRows {
  announcements: Announcements;
  rows: MemberRows;
}

/** The running passes, in which an arriving prediction that main has to announce finds its pass. */
export class AnnouncedPasses {
  private readonly bySequence = new Map<number, AnnouncedRows>();

  /** Announces at once the predictions that have come already for the pass's rows. */
  begin(announcements: Announcements, members: readonly MemberRows[], layers: number): void {
    for (const rows of members) this.bySequence.set(rows.member.id, { announcements, rows });
    for (let layer = 0; layer < layers; layer++) {
      const expected = members.flatMap((rows) => {
        const prediction = expectedBy(rows, layer);
        if (prediction?.mainAnnounces !== true) return [];
        const { experts, critical = [] } = prediction;
        return [{ experts, critical, rows: [rangeOf(rows)] }];
      });
      if (expected.length > 0) announcements.announce(layer, expected);
    }
  }

  end(members: readonly MemberRows[]): void {
    for (const { member } of members) this.bySequence.delete(member.id);
  }

  /** Takes a prediction that has not been announced to the workers. If its pass does not run yet, `begin` announces it later. */
  arrived({ pass, layer, experts, critical = [] }: Predict): void {
    const running = this.bySequence.get(pass.sequence);
    if (running === undefined || decodePosition(running.rows) !== pass.position) return;
    running.announcements.announce(layer, [{ experts, critical, rows: [rangeOf(running.rows)] }]);
  }
}

/**
 * Maps each expert to the worker to which the prediction has announced it. Null: the prediction announces nothing under this placement. It is for
 * main alone, it was made under another placement, whose predictions the workers have dropped, or it names workers that are not in the placement.
 */
export function announcedByPrediction(placement: Placement, prediction: Predict | null): Map<number, string> | null {
  if (prediction?.epoch !== placement.epoch || prediction.mainAnnounces === true) return null;
  if (prediction.workers?.some((place) => place >= placement.workers.length) === true) return null;
  return assignmentOf(placement, prediction);
}

/** A layer of a joint pass, with its announcements so far. */
export interface DealtLayer {
  placement: Placement;
  /** The placement by which the layer's experts are given (takersOf). */
  takers: Placement;
  /** The number that beginPass returned. */
  pass: number;
  layer: number;
  /** expert -> worker to which it is announced. */
  held: ReadonlyMap<number, string>;
}

/**
 * Deals the experts that are predicted for joint passes. The predictions come several layers ahead, so each expert goes to the worker whose nearest
 * other load is the most layers away (ExpertDealer): this worker has the longest time to load it. Passes are counted in the order in which they
 * begin.
 */
export class JointDealer {
  private dealer: { epoch: number; loads: ExpertDealer } | null = null;
  private nextPass = 0;

  /** `caches`: true if the worker caches experts; these are then to stay at their homes. */
  constructor(private readonly caches: (workerId: string) => boolean) {}

  /** Number of layers, and of loads of layers, that are remembered. */
  get openCount(): number {
    return this.dealer?.loads.openCount ?? 0;
  }

  /** The number of the next pass. */
  beginPass(): number {
    return this.nextPass++;
  }

  /**
   * expert -> worker, for experts that are not announced yet. Null: they are not dealt, because the layer has a smaller group, experts have strict
   * homes, or a worker caches experts.
   */
  deal({ placement, takers, pass, layer, held }: DealtLayer, experts: readonly number[]): Map<number, string> | null {
    const { workers } = placement;
    if (isStrict(placement) || groupForLayer(takers, layer).length < workers.length) return null;
    if (workers.some(({ id }) => this.caches(id))) return null;
    const loads = this.loadsUnder(placement);
    const ordinal = pass * placement.layers + layer;
    const places = new Map(workers.map(({ id }, place) => [id, place]));
    for (const [expert, id] of held) {
      const place = places.get(id);
      if (place !== undefined) loads.give(ordinal, expert, place);
    }
    const fresh = [...new Set(experts)].filter((expert) => !held.has(expert)).sort((left, right) => left - right);
    const dealt = loads.deal(ordinal, fresh);
    return new Map(
      fresh.map((expert, index) => {
        const worker = workers[dealt[index] ?? -1];
        return [expert, requirePresent(worker, 'an expert is dealt to a worker of the placement.').id];
      }),
    );
  }

  /** Forgets the pass, which is not run after all. */
  forget({ epoch, layers }: Placement, pass: number): void {
    if (this.dealer?.epoch === epoch) this.dealer.loads.forget(pass * layers, (pass + 1) * layers);
  }

  /** The loads under this placement. Workers have dropped the announcements of another placement, so the dealer begins anew. */
  private loadsUnder({ epoch, workers, layers }: Placement): ExpertDealer {
    if (this.dealer?.epoch !== epoch) this.dealer = { epoch, loads: new ExpertDealer(workers.length, layers) };
    return this.dealer.loads;
  }
}
