import { formatByteSize } from '../../shared/base/text/byte-size.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { PACK_SOURCES_LIMIT } from '../../shared/wire/limits.js';
import type { Placement } from '../../shared/wire/messages.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { placedAddress } from './placed-address.js';
import type { ShadowLink } from './shadow-link.js';
import { WorkerLink } from './worker-link.js';

/**
 * Longest time that workers that are ready wait for others that are still fetching, so that they are placed together. For as long as this after a worker
 * has come, homes are not planned anew either.
 */
export const COHORT_WAIT_MS = 30_000;

interface Published {
  number: number;
  /** The groups that the needs follow from, and the sources to ask: an equal prospect is not sent twice. */
  groups: string;
  sources: string;
}

export interface FetchingWorkersOptions {
  /** The placement that these workers would have, with the homes that are planned or the present ones. */
  plan(workers: readonly WorkerLink[], homes: 'planned' | 'present'): Placement;
  /** The workers of the placement, and those that come into it next. */
  used(): readonly WorkerLink[];
  /** True: it is to get no work, though others may fetch from it. */
  isDrained(link: WorkerLink): boolean;
  /** Connected daemons that others may fetch from, beside those that fetch. */
  sources(): readonly (ShadowLink | WorkerLink)[];
  /** These workers have all that they need: they have left this class, and are to be placed. */
  onReady(workers: readonly WorkerLink[]): void;
  runtime: Runtime;
  log: Logger;
}

/**
 * Workers that hold only part of the pack. Sends each of them, placed or not, the prospect that names the experts it is going to need, and finds out
 * when the workers that are not placed have these experts.
 */
export class FetchingWorkers {
  /** With the time at which each has come. */
  private readonly waiting = new Map<WorkerLink, number>();
  private readonly late = new WeakSet<WorkerLink>();
  private readonly published = new WeakMap<WorkerLink, Published>();
  private nextNumber = 1;
  private timer: Timer | null = null;

  constructor(private readonly options: FetchingWorkersOptions) {}

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.waiting.keys()];
  }

  add(link: WorkerLink): void {
    this.waiting.set(link, this.options.runtime.nowMs());
    this.publish();
  }

  /** Returns false if it is not one of the waiting workers. */
  remove(link: WorkerLink): boolean {
    if (!this.waiting.delete(link)) return false;
    this.publish();
    this.takeIn();
    return true;
  }

  /** A worker has sent its status. */
  reported(link: WorkerLink): void {
    if (!this.waiting.has(link)) return;
    this.publish();
    this.takeIn();
  }

  /** Sends each fetching worker its prospect, if that has changed. */
  publish(): void {
    const placed = this.options.used();
    const fetching = this.workers();
    const together = cohort(fetching).map(({ link }) => link);
    for (const link of [...placed.filter(({ partialPack }) => partialPack), ...fetching.map(({ link }) => link)]) {
      const workers = [...new Set([...placed, ...together, link])];
      // A plan is dropped when other workers come: these fetch for the present homes.
      this.publishTo(link, this.options.plan(workers, this.waiting.has(link) ? 'present' : 'planned'));
    }
  }

  /** True if workers are to be placed soon: they are ready, or have come a moment ago. A fetch may take days; homes do not stay for so long. */
  get isGathering(): boolean {
    const nowMs = this.options.runtime.nowMs();
    const isNew = (link: WorkerLink): boolean => nowMs - (this.waiting.get(link) ?? -Infinity) < COHORT_WAIT_MS;
    return cohort(this.workers()).some(({ link, ready }) => ready || isNew(link));
  }

  /** True if each of these workers that fetches has what its latest prospect needs. */
  haveAll(links: readonly WorkerLink[]): boolean {
    return links.every((link) => !link.partialPack || this.isReady(link));
  }

  /** "2 workers are fetching ...": for requests that wait for a worker; empty when none fetches. */
  describe(): string {
    const fetching = this.workers();
    if (fetching.length === 0) return '';
    const parts = fetching.map(({ link: { id, status } }) => {
      if (status === null || status.fetchNeededBytes === 0) return id;
      const { fetchHeldBytes, fetchNeededBytes, fetchProblem } = status;
      if (fetchHeldBytes >= fetchNeededBytes && fetchProblem === '') {
        return `${id}: has its ${formatByteSize(fetchNeededBytes)} and is about to be placed`;
      }
      const done = `${formatByteSize(fetchHeldBytes)} of ${formatByteSize(fetchNeededBytes)}`;
      return `${id}: ${done}${fetchProblem === '' ? '' : `, held up: ${fetchProblem}`}`;
    });
    const what = fetching.length === 1 ? '1 worker is' : `${fetching.length} workers are`;
    return `${what} still fetching the experts that they need (${parts.join('; ')})`;
  }

  stop(): void {
    this.timer?.cancel();
    this.timer = null;
  }

  /** Those that are to be placed. */
  private workers(): (FetchingWorker & { link: WorkerLink })[] {
    const wanted = this.unplaced.filter((link) => !this.options.isDrained(link));
    return wanted.map((link) => ({
      link,
      id: link.id,
      ready: this.isReady(link),
      late: this.late.has(link),
      troubled: (link.status?.fetchProblem ?? '') !== '',
    }));
  }

  private isReady(link: WorkerLink): boolean {
    const number = this.published.get(link)?.number;
    return number !== undefined && link.status?.fetchReadyFor === number;
  }

  private takeIn(): void {
    const ready = admitted(this.workers()).map(({ link }) => link);
    for (const link of ready) this.waiting.delete(link);
    this.watchWaiting();
    if (ready.length > 0) this.options.onReady(ready);
  }

  private watchWaiting(): void {
    if (!isWaiting(this.workers())) {
      this.stop();
      return;
    }
    this.timer ??= waitForPeer(this.options.runtime, COHORT_WAIT_MS, () => {
      this.timer = null;
      const slow = this.workers().filter(({ ready }) => !ready);
      for (const { link } of slow) this.late.add(link);
      this.options.log.info('workers that are ready wait no longer', { for: slow.map(({ id }) => id) });
      this.publish();
      this.takeIn();
    });
  }

  private publishTo(link: WorkerLink, placement: Placement): void {
    const sources = this.sourcesFor(link);
    const homes = placement.workers.map(({ id, homeShare, keptExperts }) => [
      id,
      homeShare,
      Buffer.from(keptExperts ?? []).toString('base64'),
    ]);
    const groups = JSON.stringify([homes, placement.groups]);
    const before = this.published.get(link);
    const isSame = before?.groups === groups;
    if (isSame && before.sources === sources.join(' ')) return;
    const number = isSame ? before.number : this.nextNumber++;
    this.published.set(link, { number, groups, sources: sources.join(' ') });
    link.sendProspect({ number, placement, sources });
  }

  private sourcesFor(link: WorkerLink): string[] {
    const others = [...this.options.sources(), ...this.unplaced].filter((other) => other !== link);
    const addresses = others.map((other) => (other instanceof WorkerLink ? placedAddress(other) : other.address));
    return [...new Set(addresses)].slice(0, PACK_SOURCES_LIMIT - 1);
  }
}

/** A connected worker that fetches its experts and is not placed yet. */
export interface FetchingWorker {
  id: string;
  /** It holds all that the prospect sent to it needs. */
  ready: boolean;
  /** Other workers that were ready have waited for it long enough. */
  late: boolean;
  /** It reports that it cannot go on. */
  troubled: boolean;
}

/** The workers that come into the placement together. A worker that lags behind comes later, when it is ready. */
export function cohort<Worker extends FetchingWorker>(workers: readonly Worker[]): Worker[] {
  return workers.filter(({ ready, late, troubled }) => ready || (!late && !troubled));
}

/**
 * The workers that are taken into the placement now: the whole cohort once all of it is ready. If they were taken one by one, the first ones would
 * get more work than they have fetched experts for.
 */
export function admitted<Worker extends FetchingWorker>(workers: readonly Worker[]): Worker[] {
  const together = cohort(workers);
  return together.every(({ ready }) => ready) ? together : [];
}

/** True if some workers are ready and wait for others. The wait has a limit. */
export function isWaiting(workers: readonly FetchingWorker[]): boolean {
  const together = cohort(workers);
  return together.some(({ ready }) => ready) && !together.every(({ ready }) => ready);
}
