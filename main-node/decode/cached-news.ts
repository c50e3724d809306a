import type { WorkerKept } from '../../shared/wire/messages.js';
import type { PlacedWorkers, WorkerOrders } from '../cluster/placed-workers.js';

/** Most layers of workers that one message to shadow reports; the rest goes with the next message. */
export const MAX_NEWS_LAYERS = 256;

interface SentNews {
  epoch: number;
  /** For each worker, the number of the latest change that was reported. */
  changes: WeakMap<WorkerOrders, number>;
}

/**
 * Finds the changes in workers' caches that a shadow has not been sent. Under a new placement all is sent anew, since workers have other places in
 * it.
 */
export class CachedNews<Shadow extends object> {
  private readonly sent = new WeakMap<Shadow, SentNews>();

  constructor(private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>) {}

  /** Takes the changes for a message that leaves now. */
  takeFor(shadow: Shadow): WorkerKept[] {
    const { placement } = this.workers;
    if (placement === null) return [];
    let sent = this.sent.get(shadow);
    if (sent?.epoch !== placement.epoch) {
      sent = { epoch: placement.epoch, changes: new WeakMap() };
      this.sent.set(shadow, sent);
    }
    const news: WorkerKept[] = [];
    for (const [place, { id }] of placement.workers.entries()) {
      const worker = this.workers.worker(id);
      if (worker?.cached === undefined) continue;
      const changed = worker.cached.since(sent.changes.get(worker) ?? 0).slice(0, MAX_NEWS_LAYERS - news.length);
      for (const { layer, experts } of changed) news.push({ worker: place, layer, experts });
      const last = changed.at(-1);
      if (last !== undefined) sent.changes.set(worker, last.change);
    }
    return news;
  }
}
