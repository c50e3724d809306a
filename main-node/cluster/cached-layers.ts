import type { CachingWorkers } from '../../shared/decisions/placement/cached-assignment.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';
import type { Placement } from '../../shared/wire/messages.js';

/** The experts that one worker has reported as cached, with the latest report of each layer. */
export class CachedLayers {
  private readonly layers = new Map<number, { experts: ReadonlySet<number>; change: number }>();
  private latest = 0;

  /** Number of the latest change; 0: nothing was reported. */
  get changes(): number {
    return this.latest;
  }

  take(layer: number, experts: readonly number[]): void {
    this.latest += 1;
    this.layers.set(layer, { experts: new Set(experts), change: this.latest });
  }

  has(layer: number, expert: number): boolean {
    return this.layers.get(layer)?.experts.has(expert) === true;
  }

  /** Layers that have changed since `change`, the earliest change first. */
  since(change: number): { layer: number; experts: number[]; change: number }[] {
    if (change === this.latest) return [];
    return [...this.layers]
      .filter(([, cached]) => cached.change > change)
      .map(([layer, cached]) => ({ layer, experts: [...cached.experts], change: cached.change }))
      .sort((left, right) => left.change - right.change);
  }
}

/** The workers of the placement that cache experts of the layer; null: no worker caches any, or homes are strict. */
export function cachingWorkersOf(
  workers: { worker(id: string): { readonly cached?: CachedLayers } | null },
  placement: Placement,
  layer: number,
): CachingWorkers<string> | null {
  if (isStrict(placement)) return null;
  const caching = placement.workers.flatMap(({ id }) => {
    const cached = workers.worker(id)?.cached;
    return cached === undefined || cached.changes === 0 ? [] : [{ id, cached }];
  });
  if (caching.length === 0) return null;
  return (expert) => caching.flatMap(({ id, cached }) => (cached.has(layer, expert) ? [id] : []));
}
