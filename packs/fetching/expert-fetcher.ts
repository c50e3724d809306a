import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { DamagedBytesError, downloadExpert, type Crc32c, type DownloadState } from './download-expert.js';
import { FileCompletion } from './file-completion.js';
import type { PackPeer, PackPeers } from './pack-peers.js';
import { PeerFailure } from './peer-failure.js';
import type { FetchStore } from './fetch-store.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Most experts that are fetched at a time, and how many more if a load waits for them. */
export const MAX_FETCHES = 4;
export const MAX_URGENT_FETCHES = 4;
/** Longest wait of a load in which nothing arrives, before it fails: less than main waits for an execute. */
export const AWAIT_LIMIT_MS = 20_000;
/** Interval at which peers are asked again, and failed fetches are repeated. */
const TICK_MS = 500;
/** Pause after a failure of the disk. */
const STORAGE_PAUSE_MS = 5000;
/** A disk that still fails is logged again after this time. */
const STORAGE_LOG_AGAIN_MS = 10 * 60_000;
/** A problem is reported only after this time without arrivals. */
const PROBLEM_AFTER_MS = 3000;

export interface FetchProgress {
  /** Bytes of all needed experts, and of those among them that are on the disk. */
  neededBytes: number;
  heldBytes: number;
  /** Bytes from peers since the start. */
  receivedBytes: number;
  /** Every needed expert is on the disk. */
  ready: boolean;
  /** The reason why nothing is fetched; empty: there is no problem. */
  problem: string;
}

export interface ExpertFetcherOptions {
  store: FetchStore;
  peers: PackPeers;
  crc32c: Crc32c;
  /** Throws STORAGE_FULL if the directory's disk has less free space. */
  requireRoom?: (directory: string, bytes: number) => Promise<void>;
  runtime: Runtime;
  log: Logger;
  /** Called when an expert has been fetched, or the directory has become a whole pack. */
  onFetched(): void;
}

interface Waiter {
  resolve(): void;
  reject(error: OdmoeError): void;
}

/** One expert that is needed and missing. */
interface Task extends ExpertId {
  state: DownloadState;
  running: boolean;
  /** Loads that wait for the expert; if there are any, it is fetched first. */
  waiters: Set<Waiter>;
  /** Runs while loads wait and nothing arrives. */
  silence: Timer | null;
}

/**
 * Fetches the experts that a worker needs into its partial pack, or one slice of each into the files of that slice: those for which a load waits first, the others in their order; several at a
 * time, from any peer that has them. A failed fetch is repeated, at another peer if there is one. When every expert of the pack has been
 * fetched, it fetches the other files, too, and the directory becomes an ordinary pack.
 */
export class ExpertFetcher {
  private readonly options: ExpertFetcherOptions;
  private readonly store: FetchStore;
  private readonly completion: FileCompletion | null;
  private readonly tasks = new Map<number, Task>();
  private readonly runningFetches = new Set<Promise<void>>();
  private readonly stop = new AbortController();
  private needed: readonly ExpertId[] = [];
  private timer: Timer | null = null;
  private calm: (() => void)[] = [];
  #receivedBytes = 0;
  private movedMs: number;
  private storage: { error: OdmoeError; untilMs: number } | null = null;
  /** The disk failure that was logged last. */
  private storageLogged: { error: OdmoeError; atMs: number } | null = null;

  constructor(options: ExpertFetcherOptions) {
    this.options = options;
    this.store = options.store;
    this.movedMs = options.runtime.nowMs();
    const { peers, log, requireRoom = requireFreeBytes, runtime } = options;
    const { otherFilesOf } = options.store;
    this.completion = otherFilesOf && new FileCompletion(otherFilesOf, peers, log, requireRoom, runtime);
  }

  get progress(): FetchProgress {
    const held = this.needed.filter(({ layer, expert }) => this.store.held.has(layer, expert));
    return {
      neededBytes: this.bytesOf(this.needed),
      heldBytes: this.bytesOf(held),
      receivedBytes: this.#receivedBytes,
      ready: held.length === this.needed.length,
      problem: this.currentProblem(),
    };
  }

  /** Replaces the list of experts to fetch while no load waits. */
  need(places: readonly ExpertId[]): void {
    this.needed = places;
    const wanted = new Set(places.map((place) => this.key(place)));
    for (const [key, task] of this.tasks) {
      if (!wanted.has(key) && !task.running && task.waiters.size === 0) this.tasks.delete(key);
    }
    for (const place of places) if (!this.store.held.has(place.layer, place.expert)) this.task(place);
    this.pump();
  }

  /** Null if the expert is on the disk. Rejects with CANCELLED if the signal aborts, else with the reason why the expert does not arrive. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal): Promise<void> | null {
    if (this.store.held.has(layer, expert)) return null;
    const task = this.task({ layer, expert });
    const arrival = new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        task.waiters.delete(waiter);
        if (task.waiters.size === 0) this.endSilence(task);
        stopListening();
        this.wakeOthers();
      };
      const cancelled = (): void => {
        waiter.reject(new OdmoeError('CANCELLED', 'the load that waited for the expert was cancelled'));
      };
      const waiter: Waiter = {
        resolve: () => {
          leave();
          resolve();
        },
        reject: (error) => {
          leave();
          reject(error);
        },
      };
      const stopListening = onAbort(signal, cancelled);
      task.waiters.add(waiter);
      if (task.silence === null) this.awaitBytes(task);
      this.wakeOthers();
      if (signal.aborted) cancelled();
      else if (this.stop.signal.aborted) waiter.reject(stopped());
    });
    this.pump();
    return arrival;
  }

  /** The expert's bytes on the disk are wrong: it is fetched again. @throws LockHeldError, STORAGE_FULL, STORAGE_FAILED */
  async forget(layer: number, expert: number): Promise<void> {
    this.completion?.postpone(this.options.runtime.nowMs());
    await this.store.forget(layer, expert);
    this.task({ layer, expert });
    this.pump();
  }

  /** Resolves when no fetch is in progress any more. Fetched experts stay on the disk. */
  async close(): Promise<void> {
    this.stop.abort();
    this.timer?.cancel();
    this.timer = null;
    for (const task of this.tasks.values()) for (const waiter of task.waiters) waiter.reject(stopped());
    this.wakeOthers();
    await this.options.peers.close();
    while (this.runningFetches.size > 0) await Promise.all(this.runningFetches);
    await this.store.close();
  }

  /** The peers have changed: one of them may have missing experts. */
  peersChanged(): void {
    this.pump();
  }

  private task(place: ExpertId): Task {
    const key = this.key(place);
    const known = this.tasks.get(key);
    if (known !== undefined) return known;
    const { layer, expert } = place;
    const task: Task = {
      layer,
      expert,
      state: { chunksDone: 0 },
      running: false,
      waiters: new Set<Waiter>(),
      silence: null,
    };
    // No arrival was expected until now, so the time without arrivals begins now.
    if (this.tasks.size === 0) this.movedMs = this.options.runtime.nowMs();
    this.tasks.set(key, task);
    return task;
  }

  /** Starts the fetches that can start, and sets a timer for the rest. */
  private pump(): void {
    if (this.stop.signal.aborted) return;
    const nowMs = this.options.runtime.nowMs();
    if (this.storage === null || this.storage.untilMs <= nowMs) {
      this.startAll([...this.tasks.values()].filter(isUrgent), MAX_FETCHES + MAX_URGENT_FETCHES);
      if (this.urgentRunning() === 0) this.startAll([...this.tasks.values()], MAX_FETCHES);
      this.completeFiles();
    }
    const unfinished = this.tasks.size > 0 || this.completion?.isPending === true;
    if (!unfinished || this.timer !== null) return;
    this.timer = this.options.runtime.after(TICK_MS, () => {
      this.timer = null;
      this.options.peers.refresh();
      this.pump();
    });
  }

  private startAll(tasks: readonly Task[], limit: number): void {
    for (const task of tasks) {
      if (this.runningFetches.size >= limit) return;
      if (task.running) continue;
      const peer = this.options.peers.choose(task.layer, task.expert);
      if (peer !== null) this.track(this.fetch(task, peer));
    }
  }

  private completeFiles(): void {
    const { completion } = this;
    if (this.runningFetches.size > 0 || completion?.isDue(this.options.runtime.nowMs()) !== true) return;
    const signal = this.stop.signal;
    this.track(
      completion.run(signal, this.options.runtime.nowMs()).then((whole) => {
        if (whole) this.options.onFetched();
      }),
    );
  }

  private track(work: Promise<void>): void {
    const tracked = work.finally(() => {
      this.runningFetches.delete(tracked);
      this.wakeOthers();
      this.pump();
    });
    this.runningFetches.add(tracked);
  }

  /** Never rejects. */
  private async fetch(task: Task, peer: PackPeer): Promise<void> {
    task.running = true;
    peer.streams += 1;
    try {
      await this.download(task, peer);
      this.options.peers.succeeded(peer);
      this.storage = null;
      this.tasks.delete(this.key(task));
      for (const waiter of task.waiters) waiter.resolve();
      this.options.onFetched();
    } catch (thrown) {
      this.failed(task, peer, toOdmoeError(thrown));
    } finally {
      task.running = false;
      peer.streams -= 1;
    }
  }

  private async download(task: Task, peer: PackPeer): Promise<void> {
    const { layer, expert, state } = task;
    const { source } = peer;
    if (source === null) throw new PeerFailure('WORKER_LOST', `the connection to ${peer.address} is gone`);
    const { pack } = this.store;
    const extent = this.store.extent(layer, expert);
    const { runtime, requireRoom = requireFreeBytes } = this.options;
    await runtime.outside(() => requireRoom(pack.directory, extent.storedBytes));
    const file = await this.store.openExpertFile(extent.file);
    try {
      await downloadExpert({
        extent,
        packDigest: pack.packDigest,
        slicesDigest: this.store.slicesDigest,
        source,
        file,
        path: `${pack.directory}/${extent.file}`,
        state,
        crc32c: this.options.crc32c,
        runtime,
        turn: () => this.turn(task),
        onReceived: (bytes) => {
          this.#receivedBytes += bytes;
          this.moved();
        },
        signal: this.stop.signal,
      });
      await runtime
        .outside(() => file.datasync())
        .catch((thrown: unknown) => {
          throw writeFailure(thrown, `${pack.directory}/${extent.file}`, null);
        });
    } finally {
      await runtime.outside(() => file.close());
    }
    await this.store.record(layer, expert);
  }

  private failed(task: Task, peer: PackPeer, error: OdmoeError): void {
    if (this.stop.signal.aborted) return;
    const { peers } = this.options;
    if (error instanceof DamagedBytesError) {
      peers.damaged(peer, task.layer, task.expert, error);
    } else if (error instanceof PeerFailure) {
      peers.failed(peer, error);
    } else {
      // Bytes written earlier may not have reached the disk.
      task.state.chunksDone = 0;
      this.storageFailed(error);
      for (const { waiters } of this.tasks.values()) for (const waiter of waiters) waiter.reject(error);
    }
  }

  /** Logs one line and reports one problem for a full disk, though each expert fails with a different message. */
  private storageFailed(error: OdmoeError): void {
    const nowMs = this.options.runtime.nowMs();
    const logged = this.storageLogged;
    if (logged === null || logged.error.code !== error.code || nowMs - logged.atMs >= STORAGE_LOG_AGAIN_MS) {
      this.options.log.error('experts cannot be kept', { error });
      this.storageLogged = { error, atMs: nowMs };
    }
    this.storage = { error: this.storageLogged?.error ?? error, untilMs: nowMs + STORAGE_PAUSE_MS };
  }

  /** Waits while loads need other experts whose fetches are running. */
  private async turn(task: Task): Promise<void> {
    while (!isUrgent(task) && this.urgentRunning() > 0 && !this.stop.signal.aborted) {
      await new Promise<void>((resolve) => this.calm.push(resolve));
    }
  }

  private wakeOthers(): void {
    for (const wake of this.calm.splice(0)) wake();
  }

  private urgentRunning(): number {
    return [...this.tasks.values()].filter((task) => task.running && isUrgent(task)).length;
  }

  /** Something has arrived: the waits of all loads begin anew. */
  private moved(): void {
    this.movedMs = this.options.runtime.nowMs();
    for (const task of this.tasks.values()) if (isUrgent(task)) this.awaitBytes(task);
  }

  /** Limits the time that loads wait without arrivals. */
  private awaitBytes(task: Task): void {
    this.endSilence(task);
    task.silence = waitForPeer(this.options.runtime, AWAIT_LIMIT_MS, () => {
      const error = new OdmoeError(
        'PACK_INCOMPLETE',
        `expert ${task.expert} of layer ${task.layer} is not here and does not come: ${this.options.peers.problem(task)}`,
      );
      for (const waiter of task.waiters) waiter.reject(error);
    });
  }

  private endSilence(task: Task): void {
    task.silence?.cancel();
    task.silence = null;
  }

  private currentProblem(): string {
    if (this.storage !== null) return this.storage.error.message;
    const [missing] = this.tasks.values();
    if (missing === undefined || this.options.runtime.nowMs() - this.movedMs < PROBLEM_AFTER_MS) return '';
    return this.options.peers.problem(missing);
  }

  private bytesOf(places: readonly ExpertId[]): number {
    return places.reduce((sum, { layer, expert }) => sum + this.store.extent(layer, expert).storedBytes, 0);
  }

  private key({ layer, expert }: ExpertId): number {
    return layer * this.store.pack.shape.experts + expert;
  }
}

function isUrgent(task: Task): boolean {
  return task.waiters.size > 0;
}

function stopped(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the worker is being stopped');
}
