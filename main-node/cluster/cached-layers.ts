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
      .filter(([, kept]) => kept.change > change)
      .map(([layer, kept]) => ({ layer, experts: [...kept.experts], change: kept.change }))
      .sort((left, right) => left.change - right.change);
  }
}

/** The workers of the placement that cache experts of the layer; null: no worker caches any, or homes are strict. */
export function cachingWorkersOf(
  workers: { worker(id: string): { readonly kept?: CachedLayers } | null },
  placement: Placement,
  layer: number,
): CachingWorkers<string> | null {
  if (isStrict(placement)) return null;
  const keeping = placement.workers.flatMap(({ id }) => {
    const kept = workers.worker(id)?.kept;
    return kept === undefined || kept.changes === 0 ? [] : [{ id, kept }];
  });
  if (keeping.length === 0) return null;
  return (expert) => keeping.flatMap(({ id, kept }) => (kept.has(layer, expert) ? [id] : []));
}
