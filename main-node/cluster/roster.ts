import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { chooseGroupSize } from '../../shared/decisions/placement/group-size.js';
import { planPlacement, type PlacementInput } from '../../shared/decisions/placement/plan-placement.js';
import { PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import type { LinkBytes, PeerProblem, Placement } from '../../shared/wire/messages.js';
import { timeForPeers, waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { ARITHMETIC_VERSION } from '../../shared/wire/limits.js';
import { DamagedWorkers } from './damaged-workers.js';
import { FailingWorkers } from './failing-workers.js';
import { FetchingWorkers } from './fetching-workers.js';
import { OtherArithmetic } from './other-arithmetic.js';
import { PeerTotals, type PeerCounts } from './peer-totals.js';
import { isBeyondShadow, placedAddress } from './placed-address.js';
import type { PlacedWorkers, WorkerOrders } from './placed-workers.js';
import type { ShadowLink } from './shadow-link.js';
import type { WorkerLink } from './worker-link.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';

/** Most starts of workers that are remembered as distrusted. A full map forgets the one that came least recently. */
export const MAX_DISTRUSTED = 256;

const ADVICE =
  'it is asked no more until it is started again, and rows that it took part in are computed anew: look at its memory, its device and its network';

/** Workers whose values others have proved wrong. They are set aside until they are started again: a new process has another boot id. */
export class DistrustedWorkers {
  /** Distrusted starts of workers by boot id. */
  private readonly starts = new RecentMap<string, { id: string; address: string; why: string }>(MAX_DISTRUSTED);
  private readonly aside = new Set<WorkerLink>();

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.aside];
  }

  /** Ids of all remembered workers, connected or not. */
  get ids(): Set<string> {
    return new Set([...this.starts.values()].map(({ id }) => id));
  }

  /** True if this start of the worker is distrusted. */
  has({ identity }: WorkerLink): boolean {
    return this.starts.get(identity.bootId) !== undefined;
  }

  /** This start of the worker is distrusted, also if it is not connected. */
  note({ id, address, identity }: WorkerLink, why: string): void {
    this.starts.set(identity.bootId, { id, address, why });
  }

  setAside(link: WorkerLink, why: string): void {
    this.note(link, why);
    this.aside.add(link);
  }

  /** A worker has connected. Returns true if this start of it is distrusted: it is set aside then. Earlier starts of the worker do not count. */
  joined(link: WorkerLink): boolean {
    const { bootId } = link.identity;
    for (const [known, { id }] of this.starts) if (id === link.id && known !== bootId) this.starts.delete(known);
    if (this.starts.get(bootId) === undefined) return false;
    this.aside.add(link);
    return true;
  }

  /** Returns false if it was not set aside. */
  remove(link: WorkerLink): boolean {
    return this.aside.delete(link);
  }

  problems(): PeerProblem[] {
    return [...this.starts.values()].map(({ id, address, why }) => {
      return { address, id, code: 'WORKER_DISTRUSTED', message: `${why}; ${ADVICE}` };
    });
  }
}

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
  /** Every connection that passes have known, also when it has ended. */
  private readonly met = new WeakMap<WorkerOrders, WorkerLink>();
  /** Workers to which the current placement has been published. */
  private placed: ReadonlyMap<string, WorkerLink> = new Map();
  private readonly shadows: ShadowLink[] = [];
  private readonly totals = new PeerTotals();
  private readonly waiting = new Set<() => void>();
  private current: Placement | null = null;
  private joinTimer: Timer | null = null;
  private stopped = false;
  private latestEpoch: number;
  /** Workers for which the log has already warned that the shadow in use cannot reach them. */
  private beyondShadow: { shadow: ShadowLink; workers: WeakSet<WorkerLink> } | null = null;

  constructor(
    private readonly shape: Pick<ModelShape, 'expertLayers' | 'experts' | 'expertsPerToken'>,
    private readonly grouping: Grouping,
    firstEpoch: number,
    private readonly runtime: Runtime,
    private readonly log: Logger,
    private readonly observer: RosterObserver = NOBODY,
    arithmeticVersion = ARITHMETIC_VERSION,
  ) {
    this.otherArithmetic = new OtherArithmetic(arithmeticVersion);
    this.latestEpoch = firstEpoch;
    this.failing = new FailingWorkers(runtime, (link) => {
      log.info('worker is placed again, after it was left alone', { worker: link.id });
      this.place(link);
    });
    this.fetching = new FetchingWorkers({
      plan: (links) => this.plan(links, PROSPECT_EPOCH),
      placed: () => [...this.workers.values()],
      shadows: () => this.shadows,
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
    const aside = [...damaged.unplaced, ...distrusted.unplaced, ...failing.unplaced];
    for (const link of new Set([...placed.values(), ...aside])) link.sendEnd(sequence);
  }

  /** The reason for the size of the groups; empty without a placement. */
  get groupReason(): string {
    const { groupSize, costs, homes } = this.grouping;
    if (this.current === null) return '';
    if (homes > 0)
      return `placement.homes is strict: each expert has ${homes === 1 ? 'one worker' : `${homes} workers`}`;
    if (groupSize !== 'auto') return `placement.group_size is ${groupSize}`;
    return chooseGroupSize(this.workers.size, this.shape.expertsPerToken, costs).reason;
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
    return this.shadows;
  }

  /** Bytes between main and each connected daemon, over all connections to it. */
  links(): LinkBytes[] {
    return [...this.shadows, ...this.connectedWorkers()].map((link) => this.totals.bytes(link));
  }

  /** Counts of connected daemons over all their starts, by id. Daemons that have sent no status yet are left out. */
  peerCounts(): Map<string, PeerCounts> {
    const counts = new Map<string, PeerCounts>();
    for (const link of [...this.shadows, ...this.connectedWorkers()]) {
      const ofPeer = this.totals.counts(link);
      if (ofPeer !== null) counts.set(link.id, ofPeer);
    }
    return counts;
  }

  /** Resolves when every connected daemon has sent a new status, or after limitMs. */
  async nextStatuses(limitMs: number): Promise<void> {
    const statuses = [...this.connectedWorkers(), ...this.shadows].map((link) => link.latestStatus.next());
    const limit = new AbortController();
    try {
      await Promise.race([Promise.all(statuses), timeForPeers(this.runtime, limitMs, limit.signal)]);
    } finally {
      limit.abort();
    }
  }

  /** Boot id of the connected daemon of that id; null: none is connected. */
  connectedBootId(id: string): string | null {
    const link =
      this.connectedWorkers().find((worker) => worker.id === id) ?? this.shadows.find((shadow) => shadow.id === id);
    return link?.identity.bootId ?? null;
  }

  /** Number of callers that wait for a placement, or for a daemon's next status. */
  get waiterCount(): number {
    const links = [...this.connectedWorkers(), ...this.shadows];
    return links.reduce((sum, { latestStatus }) => sum + latestStatus.waiterCount, this.waiting.size);
  }

  /** Number of experts that are not answered, by worker. */
  outstanding(): Map<string, number> {
    return new Map(this.connectedWorkers().map((link) => [link.id, link.outstanding]));
  }

  addWorker(link: WorkerLink): void {
    const { id, address, identity, partialPack } = link;
    this.met.set(link, link);
    this.log.info('worker joined', {
      worker: id,
      address,
      device: identity.device,
      release: identity.release,
      ...(partialPack && { partialPack }),
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
    return [...own, ...(this.grouping.homes > 0 ? this.workersWithoutCache() : [])];
  }

  private workersWithoutCache(): PeerProblem[] {
    const forgetful = [...this.workers.values()].filter(({ status }) => status !== null && status.cache === null);
    const message =
      'keeps none of its experts and loads each anew, though they are its own (placement.homes: strict): ' +
      'start it with --homes strict, or with a larger memory budget';
    return forgetful.map(({ id, address }) => ({ address, id, code: 'CONFIG_INVALID', message }));
  }

  removeWorker(link: WorkerLink, reason: string): void {
    this.totals.ended(link);
    const wasAside = [this.damaged, this.distrusted, this.failing, this.otherArithmetic]
      .map((set) => set.remove(link))
      .includes(true);
    const isUnplaced = this.fetching.remove(link) || wasAside;
    if (!isUnplaced && this.workers.get(link.id) !== link) return;
    if (!isUnplaced) this.workers.delete(link.id);
    this.log[this.lossLevel]('worker lost', {
      worker: link.id,
      address: link.address,
      reason,
      left: this.workers.size,
    });
    this.observer.lost(link, reason, !isUnplaced);
    if (!isUnplaced) this.replan();
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
    this.shadows.push(link);
    const used = this.shadow === link;
    this.log.info('shadow joined', { shadow: link.id, address: link.address, standby: !used });
    if (used) this.publishToShadow();
    this.fetching.publish();
    this.observer.changed();
  }

  removeShadow(link: ShadowLink, reason: string): void {
    const index = this.shadows.indexOf(link);
    if (index < 0) return;
    this.totals.ended(link);
    this.shadows.splice(index, 1);
    this.log[this.lossLevel]('shadow lost', { shadow: link.id, address: link.address, reason });
    this.observer.lost(link, reason, index === 0);
    if (index === 0) this.publishToShadow();
    this.fetching.publish();
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

  /** Peers that disconnect because main ends are no problem. */
  private get lossLevel(): 'info' | 'warn' {
    return this.stopped ? 'info' : 'warn';
  }

  private place(link: WorkerLink): void {
    this.workers.set(link.id, link);
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
    const links = [...this.workers.values()];
    const placement = links.length === 0 ? null : this.plan(links, this.latestEpoch);
    this.current = placement;
    this.placed = new Map(this.workers);
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

  private plan(links: readonly WorkerLink[], epoch: number): Placement {
    const workers = links
      .map((link) => ({ id: link.id, address: placedAddress(link), slots: link.status?.slots ?? DEFAULT_SLOTS }))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
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
    this.warnOfUnreachable(shadow, current);
  }

  /** Warns once for each worker that shadow's predictions will not reach. */
  private warnOfUnreachable(shadow: ShadowLink, placement: Placement): void {
    if (this.beyondShadow?.shadow !== shadow) this.beyondShadow = { shadow, workers: new WeakSet() };
    const { workers } = this.beyondShadow;
    for (const { id, address } of placement.workers) {
      const link = this.placed.get(id);
      if (link === undefined || workers.has(link) || !isBeyondShadow(shadow.address, address)) continue;
      workers.add(link);
      this.log.warn('shadow cannot reach worker', {
        shadow: shadow.id,
        worker: id,
        address,
        reason:
          'main knows the worker by a loopback address, and the shadow is on another machine: start the worker with ' +
          "--advertise-host and its machine's address (host in cluster.yaml)",
      });
    }
  }
}
