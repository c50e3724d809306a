import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { drainState, usedWorkers } from '../../shared/decisions/draining/drain-state.js';
import { chooseGroupSize } from '../../shared/decisions/placement/group-size.js';
import { countKept } from '../../shared/decisions/placement/kept-experts.js';
import { planPlacement, type PlacementInput } from '../../shared/decisions/placement/plan-placement.js';
import { PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import type { DrainedNode, LinkBytes, PeerProblem, Placement } from '../../shared/wire/messages.js';
import { timeForPeers, waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { ARITHMETIC_VERSION } from '../../shared/wire/limits.js';
import { DamagedWorkers } from './damaged-workers.js';
import { DistrustedWorkers } from './distrusted-workers.js';
import { DrainedNodes } from './drained-nodes.js';
import { FailingWorkers } from './failing-workers.js';
import { FetchingWorkers } from './fetching-workers.js';
import { workersWithoutCache } from './forgetful-workers.js';
import { HomesPlan } from './homes-plan.js';
import { OtherArithmetic } from './other-arithmetic.js';
import type { OwnExperts } from './own-experts.js';
import { PeerTotals, type PeerCounts } from './peer-totals.js';
import { placedAddress } from './placed-address.js';
import type { PlacedWorkers, WorkerOrders } from './placed-workers.js';
import { ShadowLink } from './shadow-link.js';
import { UnreachableWorkers } from './unreachable-workers.js';
import type { WorkerLink } from './worker-link.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** The number of workers in a group, the costs of a layer if these decide it, and whether homes are strict. */
export type Grouping = Required<Pick<PlacementInput, 'groupSize' | 'costs' | 'homes'>> & Pick<PlacementInput, 'spread'>;

/** Notified of daemons that come and go. Its methods must not throw. */
export interface RosterObserver {
  /** A daemon has connected, or the placement has changed. */
  changed(): void;
  /** The daemon is not connected any more. `wasUsed`: it was in the placement, or main's shadow. */
  lost(link: WorkerLink | ShadowLink, reason: string, wasUsed: boolean): void;
  /** The worker of this id has given values that others prove wrong. It has left the placement before this call. */
  distrusted(id: string): void;
}

const NOBODY: RosterObserver = { changed: () => undefined, lost: () => undefined, distrusted: () => undefined };

/** Workers that connect within this time make one new placement together. */
export const JOIN_BATCH_MS = 20;

/** The log's message about a distrusted worker. */
export const DISTRUST_EVENT = 'worker is not asked any more: it gave values that another one proves wrong';

const DEFAULT_SLOTS = 1;
/** Epoch of placements that are only planned, for prospects. */
const PROSPECT_EPOCH = 0;

/**
 * The connected daemons, and the placement that follows from them. Every change of the set of workers makes a placement of a new epoch, which is
 * published to all before anything of that epoch is sent.
 */
export class Roster implements PlacedWorkers {
  /** Workers that have all that they need to be placed. */
  private readonly workers = new Map<string, WorkerLink>();
  private readonly fetching: FetchingWorkers;
  private readonly damaged = new DamagedWorkers();
  private readonly distrusted = new DistrustedWorkers();
  private readonly failing: FailingWorkers;
  private readonly otherArithmetic: OtherArithmetic;
  private readonly homes: HomesPlan;
  private readonly unreachable: UnreachableWorkers;
  private readonly drained = new DrainedNodes();
  /** Every connection that passes have known, also when it has ended. */
  private readonly met = new WeakMap<WorkerOrders, WorkerLink>();
  /** Workers to which the current placement has been published. */
  private placed: ReadonlyMap<string, WorkerLink> = new Map();
  private readonly shadows: ShadowLink[] = [];
  private readonly drainedShadows: ShadowLink[] = [];
  private readonly totals = new PeerTotals();
  private readonly waiting = new Set<() => void>();
  private current: Placement | null = null;
  private joinTimer: Timer | null = null;
  private stopped = false;
  private latestEpoch: number;

  constructor(
    private readonly shape: Pick<ModelShape, 'expertLayers' | 'experts' | 'expertsPerToken'>,
    private readonly grouping: Grouping,
    firstEpoch: number,
    private readonly runtime: Runtime,
    private readonly log: Logger,
    private readonly observer: RosterObserver = NOBODY,
    arithmeticVersion = ARITHMETIC_VERSION,
    ownExperts: OwnExperts | null = null,
  ) {
    this.otherArithmetic = new OtherArithmetic(arithmeticVersion);
    this.latestEpoch = firstEpoch;
    const homes = shape.expertLayers * shape.experts * grouping.homes;
    this.homes = new HomesPlan(homes, ownExperts, () => runtime.nowMs());
    this.unreachable = new UnreachableWorkers(log);
    this.failing = new FailingWorkers(runtime, (link) => {
      log.info('worker is placed again, after it was left alone', { worker: link.id });
      this.place(link);
    });
    this.fetching = new FetchingWorkers({
      plan: (links, homes) => this.plan(links, PROSPECT_EPOCH, homes),
      used: () => this.usedWorkers(),
      isDrained: (link) => this.drained.has(link),
      sources: () => [...this.connectedShadows(), ...this.workers.values()],
      onReady: (links) => {
        for (const link of links) this.place(link);
      },
      runtime,
      log,
    });
  }

  /** null: no worker is connected. */
  get placement(): Placement | null {
    return this.current;
  }

  /** Epoch of the latest placement, also when no worker is left. */
  get epoch(): number {
    return this.latestEpoch;
  }

  /** The shadow in use; other shadows stand by. */
  get shadow(): ShadowLink | null {
    return this.shadows[0] ?? null;
  }

  endSequence(sequence: number): void {
    const { placed, damaged, distrusted, failing } = this;
    const aside = [...damaged.unplaced, ...distrusted.unplaced, ...failing.unplaced, ...this.sparedWorkers()];
    for (const link of new Set([...placed.values(), ...aside])) link.sendEnd(sequence);
  }

  /** The reason for the size of the groups; empty without a placement. */
  get groupReason(): string {
    const { groupSize, costs, homes } = this.grouping;
    if (this.current === null) return '';
    if (homes > 0)
      return `placement.homes is strict: each expert has ${homes === 1 ? 'one worker' : `${homes} workers`}`;
    if (groupSize !== 'auto') return `placement.group_size is ${groupSize}`;
    return chooseGroupSize(this.placed.size, this.shape.expertsPerToken, costs).reason;
  }

  /** A worker of the current placement. */
  worker(id: string): WorkerLink | null {
    return this.placed.get(id) ?? null;
  }

  connectedWorkers(): WorkerLink[] {
    const { fetching, damaged, distrusted, failing, otherArithmetic } = this;
    const aside = [fetching, damaged, distrusted, failing, otherArithmetic].flatMap(({ unplaced }) => unplaced);
    return [...this.workers.values(), ...aside];
  }

  connectedShadows(): readonly ShadowLink[] {
    return [...this.shadows, ...this.drainedShadows];
  }

  /** Gives the connected node of this id no new work. Its experts, or its predictions, are others' from now on. Returns null if none is connected. */
  drain(id: string): DrainedNode | null {
    const link = this.connected(id);
    if (link === null) return null;
    if (!this.drained.has(link)) {
      this.drained.add(link);
      this.log.info('node is drained: it gets no new work', { node: id });
      if (link instanceof ShadowLink) this.spareShadow(link);
      else this.usedChanged();
      this.observer.changed();
    }
    return this.drainedNode(link);
  }

  /** The node of this id gets work again. Returns false if it was not drained. */
  undoDrain(id: string): boolean {
    const link = this.connected(id);
    if (!this.drained.undo(id)) return false;
    this.log.info('node is not drained any more', { node: id });
    if (link instanceof ShadowLink) {
      this.drainedShadows.splice(this.drainedShadows.indexOf(link), 1);
      this.useShadow(link);
    } else if (link !== null) this.usedChanged();
    this.observer.changed();
    return true;
  }

  /** Connected nodes that are drained. */
  drainedNodes(): DrainedNode[] {
    const links = [...this.connectedShadows(), ...this.connectedWorkers()];
    const drained = links.filter((link) => this.drained.has(link)).map((link) => this.drainedNode(link));
    return drained.sort((left, right) => (left.id < right.id ? -1 : 1));
  }

  private connected(id: string): WorkerLink | ShadowLink | null {
    return [...this.connectedWorkers(), ...this.connectedShadows()].find((link) => link.id === id) ?? null;
  }

  private drainedNode(link: WorkerLink | ShadowLink): DrainedNode {
    if (link instanceof ShadowLink)
      return { id: link.id, role: 'shadow', state: drainState({ isUsed: false, openExperts: 0 }), openExperts: 0 };
    const openExperts = link.outstanding;
    const isUsed = this.placed.get(link.id) === link;
    return { id: link.id, role: 'worker', state: drainState({ isUsed, openExperts }), openExperts };
  }

  private usedWorkers(): WorkerLink[] {
    const isDrained = (link: WorkerLink): boolean => this.drained.has(link);
    return usedWorkers([...this.workers.values()], isDrained, (link) => this.placed.get(link.id) === link);
  }

  /** Drained workers that could run experts, and get none because others can. */
  private sparedWorkers(): WorkerLink[] {
    return [...this.workers.values()].filter((link) => this.isSpared(link));
  }

  private isSpared(link: WorkerLink): boolean {
    return this.drained.has(link) && this.placed.get(link.id) !== link;
  }

  /** A worker is drained, or is not any more: a new placement is made if other workers get work now. */
  private usedChanged(): void {
    const used = this.usedWorkers();
    if (used.length === this.placed.size && used.every((link) => this.placed.get(link.id) === link)) {
      this.fetching.publish();
      return;
    }
    this.replan();
  }

  /** Bytes between main and each connected daemon, over all connections to it. */
  links(): LinkBytes[] {
    return [...this.connectedShadows(), ...this.connectedWorkers()].map((link) => this.totals.bytes(link));
  }

  /** A daemon of this id was connected since main started, and has left. */
  hasMet(id: string): boolean {
    return this.totals.has(id);
  }

  /** Counts of connected daemons over all their starts, by id. Daemons that have sent no status yet are left out. */
  peerCounts(): Map<string, PeerCounts> {
    const counts = new Map<string, PeerCounts>();
    for (const link of [...this.connectedShadows(), ...this.connectedWorkers()]) {
      const ofPeer = this.totals.counts(link);
      if (ofPeer !== null) counts.set(link.id, ofPeer);
    }
    return counts;
  }

  /** Resolves when every connected daemon has sent a new status, or after limitMs. */
  async nextStatuses(limitMs: number): Promise<void> {
    const statuses = [...this.connectedWorkers(), ...this.connectedShadows()].map((link) => link.latestStatus.next());
    const limit = new AbortController();
    try {
      await Promise.race([Promise.all(statuses), timeForPeers(this.runtime, limitMs, limit.signal)]);
    } finally {
      limit.abort();
    }
  }

  /** Boot id of the connected daemon of that id; null: none is connected. */
  connectedBootId(id: string): string | null {
    return this.connected(id)?.identity.bootId ?? null;
  }

  /** Number of callers that wait for a placement, or for a daemon's next status. */
  get waiterCount(): number {
    const links = [...this.connectedWorkers(), ...this.connectedShadows()];
    return links.reduce((sum, { latestStatus }) => sum + latestStatus.waiterCount, this.waiting.size);
  }

  /** Number of experts that are not answered, by worker. */
  outstanding(): Map<string, number> {
    return new Map(this.connectedWorkers().map((link) => [link.id, link.outstanding]));
  }

  addWorker(link: WorkerLink): void {
    const { id, address, identity, partialPack } = link;
    this.met.set(link, link);
    this.drained.joined(link);
    this.log.info('worker joined', {
      worker: id,
      address,
      device: identity.device,
      release: identity.release,
      ...(partialPack && { partialPack }),
      ...(this.drained.has(link) && { drained: true }),
    });
    if (this.distrusted.joined(link))
      this.log.warn('worker is not asked: it has not been started again', { worker: id });
    else if (this.otherArithmetic.joined(link))
      this.log.warn('worker is not asked: it computes other bits', {
        worker: id,
        code: 'ARITHMETIC_DIFFERS',
        reason: this.otherArithmetic.why(link),
      });
    else if (partialPack) this.fetching.add(link);
    else this.place(link);
    this.observer.changed();
  }

  /** A worker has sent its status. */
  workerReported(link: WorkerLink): void {
    if (this.damaged.reported(link)) {
      this.log.info('worker is placed again: its pack is whole', { worker: link.id });
      this.place(link);
      return;
    }
    if (link.partialPack) this.fetching.reported(link);
    this.homes.reported(link);
    this.followHomes();
  }

  /**
   * Divides strict homes anew if measurements ask for it, as soon as workers have fetched what they then need. Nothing is planned while other workers are
   * to be placed soon: they fetch for the present homes.
   */
  private followHomes(): void {
    const { homes, fetching, current } = this;
    if (current === null || this.joinTimer !== null || fetching.isGathering || homes.isOutdated)
      return this.dropHomesPlan();
    const used = this.usedWorkers();
    if (homes.plan(used, current)) fetching.publish();
    if (!homes.isPlanned || !fetching.haveAll(used)) return;
    homes.takePlan();
    const divided = [...homes.of(used, 'present')];
    this.log.info('experts are divided anew, by measured speeds and uses', {
      shares: Object.fromEntries(divided.map(([id, { homeShare }]) => [id, homeShare])),
      kept: divided.reduce((sum, [, { keptExperts }]) => sum + countKept(keptExperts ?? new Uint8Array()), 0),
    });
    this.replan();
  }

  /** Workers that have begun to fetch for planned homes are told that the present ones stay. */
  private dropHomesPlan(): void {
    const overdue = this.homes.isOverdue;
    if (!this.homes.dropPlan()) return;
    if (overdue) this.log.warn('experts stay where they are: workers could not fetch in time what others would need');
    this.fetching.publish();
  }

  /** A worker has answered PACK_CORRUPT. One that keeps doing so leaves the placement, unless it is the last one. */
  workerDamaged(link: WorkerLink, message: string): void {
    const isToGo = this.damaged.answered(link, message);
    if (!isToGo || this.workers.size === 1 || this.workers.get(link.id) !== link) return;
    this.workers.delete(link.id);
    this.damaged.setAside(link);
    this.log.warn('worker is not asked any more: its pack is damaged', { worker: link.id, message });
    this.replan();
  }

  /** A worker has run an expert. */
  workerSucceeded(link: WorkerLink): void {
    this.failing.succeeded(link);
  }

  /** A worker has answered an execute with an error. One that only answers with errors leaves the placement for a while, unless it is the last one. */
  workerFailed(link: WorkerLink, code: string, message: string): void {
    const isToRest = this.failing.failed(link, code, message);
    if (!isToRest || this.workers.size === 1 || this.workers.get(link.id) !== link) return;
    this.workers.delete(link.id);
    const restMs = this.failing.rest(link);
    this.log.warn('worker is left alone: it answers with errors', { worker: link.id, code, message, restMs });
    this.replan();
  }

  /**
   * A worker with wrong values leaves the placement, also if it is the last one: no answer is better than a wrong one. It may have disconnected since,
   * and come back: it is known by its start. Of a worker that was started again since only the earlier rows are dropped.
   */
  distrust(worker: WorkerOrders, why: string): void {
    const known = this.met.get(worker);
    if (known === undefined) return;
    const { id, address, identity } = known;
    const present = this.connectedWorkers().find((link) => link.id === id);
    if (present !== undefined && present.identity.bootId !== identity.bootId) return this.observer.distrusted(id);
    if (this.distrusted.has(known)) return;
    this.log.warn(DISTRUST_EVENT, { worker: id, address, why });
    if (present === undefined) this.distrusted.note(known, why);
    else this.setAside(present, why);
    this.observer.distrusted(id);
    present?.disbelieve(why);
  }

  private setAside(link: WorkerLink, why: string): void {
    for (const set of [this.fetching, this.damaged, this.failing]) set.remove(link);
    this.distrusted.setAside(link, why);
    if (this.workers.delete(link.id)) this.replan();
  }

  /** Ids of distrusted workers. */
  get distrustedIds(): Set<string> {
    return this.distrusted.ids;
  }

  /** Problems of workers that are connected, or that are distrusted. */
  problems(): PeerProblem[] {
    const { damaged, distrusted, failing, otherArithmetic } = this;
    const own = [damaged, distrusted, failing, otherArithmetic].flatMap((set) => set.problems());
    return [...own, ...(this.grouping.homes > 0 ? workersWithoutCache(this.usedWorkers()) : [])];
  }

  removeWorker(link: WorkerLink, reason: string): void {
    this.totals.ended(link);
    const wasAside = [this.damaged, this.distrusted, this.failing, this.otherArithmetic]
      .map((set) => set.remove(link))
      .includes(true);
    const isUnplaced = this.fetching.remove(link) || wasAside;
    if (!isUnplaced && this.workers.get(link.id) !== link) return;
    const wasUsed = !isUnplaced && !this.isSpared(link);
    if (!isUnplaced) this.workers.delete(link.id);
    const why = this.reasonOfLoss(link, reason);
    this.log[this.lossLevel(link)]('worker lost', {
      worker: link.id,
      address: link.address,
      reason: why,
      left: this.workers.size,
    });
    this.observer.lost(link, why, wasUsed);
    if (wasUsed) this.replan();
    else if (!isUnplaced) this.fetching.publish();
  }

  private reasonOfLoss(link: WorkerLink | ShadowLink, reason: string): string {
    return this.drained.has(link) ? `it was drained, and has left (${reason})` : reason;
  }

  /**
   * A peer has seen placements up to this epoch, perhaps from an earlier main: placements from now on have higher ones. An epoch above the limit
   * cannot come from a main of this cluster: it is ignored, and the peer takes the next placement as its first one.
   */
  goAbove(epoch: number, peer: string): void {
    if (!(epoch > this.latestEpoch)) return;
    if (epoch > PEER_EPOCH_LIMIT) {
      this.log.warn('a peer has seen a placement epoch that no main gives; it is passed over', {
        peer,
        epoch,
        limit: PEER_EPOCH_LIMIT,
      });
      return;
    }
    this.log.info('placement epochs go on above those of a main before this one', { epoch });
    this.latestEpoch = epoch;
    if (this.current !== null) this.replan();
  }

  addShadow(link: ShadowLink): void {
    this.drained.joined(link);
    const drained = this.drained.has(link);
    const standby = drained || this.shadow !== null;
    this.log.info('shadow joined', { shadow: link.id, address: link.address, standby, ...(drained && { drained }) });
    if (drained) this.drainedShadows.push(link);
    else this.useShadow(link);
    this.fetching.publish();
    this.observer.changed();
  }

  /** The shadow is used, or stands by if there is one before it. */
  private useShadow(link: ShadowLink): void {
    this.shadows.push(link);
    if (this.shadow === link) this.publishToShadow();
  }

  removeShadow(link: ShadowLink, reason: string): void {
    const drainedIndex = this.drainedShadows.indexOf(link);
    const index = this.shadows.indexOf(link);
    if (index < 0 && drainedIndex < 0) return;
    if (index < 0) this.drainedShadows.splice(drainedIndex, 1);
    else this.shadows.splice(index, 1);
    this.totals.ended(link);
    const why = this.reasonOfLoss(link, reason);
    this.log[this.lossLevel(link)]('shadow lost', { shadow: link.id, address: link.address, reason: why });
    this.observer.lost(link, why, index === 0);
    if (index === 0) this.publishToShadow();
    this.fetching.publish();
  }

  /** Sequences that the shadow follows go on without it. */
  private spareShadow(link: ShadowLink): void {
    link.drained();
    const index = this.shadows.indexOf(link);
    this.shadows.splice(index, 1);
    this.drainedShadows.push(link);
    if (index === 0) this.publishToShadow();
  }

  /** Resolves to the placement; waits up to graceMs for a worker. Rejects with NO_WORKERS or CANCELLED. */
  async waitForPlacement(graceMs: number, signal: AbortSignal): Promise<Placement> {
    if (this.current === null) await this.waitForChange(graceMs, signal);
    if (signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled while it waited for a worker');
    if (this.current !== null) return this.current;
    const fetching = this.fetching.describe();
    if (fetching !== '') throw new OdmoeError('NO_WORKERS', `no worker is ready yet: ${fetching}; ask again later`);
    const [different] = this.otherArithmetic.problems();
    if (different !== undefined)
      throw new OdmoeError('NO_WORKERS', `no worker may be asked: ${different.id} ${different.message}`);
    throw new OdmoeError(
      'NO_WORKERS',
      `no worker has been connected for ${graceMs} ms; start one ("odmoe worker") or see "odmoe status" for ` +
        'the peers that do not answer or were refused, then ask again',
    );
  }

  /** Resolves when a placement is published, after graceMs, or when the signal aborts. */
  waitForChange(graceMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        leave();
        this.waiting.delete(done);
        resolve();
      };
      const timer = waitForPeer(this.runtime, graceMs, done);
      const leave = onAbort(signal, done);
      this.waiting.add(done);
      if (signal.aborted) done();
    });
  }

  /** Ends all waits and timers. Daemons that disconnect from now on do not change the placement. */
  stop(): void {
    this.stopped = true;
    this.joinTimer?.cancel();
    this.joinTimer = null;
    this.failing.stop();
    this.fetching.stop();
    this.wake();
  }

  /** Peers that disconnect because main ends, or after they were drained, are no problem. */
  private lossLevel(link: WorkerLink | ShadowLink): 'info' | 'warn' {
    return this.stopped || this.drained.has(link) ? 'info' : 'warn';
  }

  private place(link: WorkerLink): void {
    this.workers.set(link.id, link);
    this.dropHomesPlan();
    this.joinTimer ??= this.runtime.after(JOIN_BATCH_MS, () => {
      this.replan();
    });
  }

  private wake(): void {
    for (const done of [...this.waiting]) done();
  }

  private replan(): void {
    this.joinTimer?.cancel();
    this.joinTimer = null;
    if (this.stopped) return;
    this.latestEpoch += 1;
    this.homes.dropPlan();
    const links = this.usedWorkers();
    const placement = links.length === 0 ? null : this.plan(links, this.latestEpoch, 'present');
    this.current = placement;
    this.placed = new Map(links.map((link) => [link.id, link]));
    this.observer.changed();
    if (placement === null) {
      this.fetching.publish();
      return;
    }
    const groups = placement.groups.map((group) => group.workerIds.join(' '));
    this.log.info('placement published', { epoch: placement.epoch, groups, why: this.groupReason });
    for (const link of links) {
      link.sendPlacement(placement);
      // A stream that breaks during the write has already made a newer placement.
      if (this.current !== placement) return;
    }
    this.publishToShadow();
    this.fetching.publish();
    this.wake();
  }

  private plan(links: readonly WorkerLink[], epoch: number, which: 'planned' | 'present'): Placement {
    const homes = this.homes.of(links, which);
    const workers = links.map((link) => ({
      id: link.id,
      address: placedAddress(link),
      slots: link.status?.slots ?? DEFAULT_SLOTS,
      ...homes.get(link.id),
    }));
    return planPlacement({
      epoch,
      workers,
      layers: this.shape.expertLayers,
      experts: this.shape.experts,
      expertsPerToken: this.shape.expertsPerToken,
      ...this.grouping,
    });
  }

  private publishToShadow(): void {
    const { shadow, current } = this;
    if (shadow === null || current === null) return;
    shadow.send({ kind: 'placement', placement: current });
    this.unreachable.check(shadow, current, this.placed);
  }
}
