import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { ExpertDealer } from '../../shared/decisions/placement/expert-dealer.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';
import type { Placement } from '../../shared/wire/messages.js';

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

  /** `keeps`: true if the worker caches experts; these are then to stay at their homes. */
  constructor(private readonly keeps: (workerId: string) => boolean) {}

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
    if (workers.some(({ id }) => this.keeps(id))) return null;
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
