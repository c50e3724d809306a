/**
 * How a worker's cache follows the planner of FluxMoE (section 4.3): every so many passes it plans anew how many experts of each layer are kept
 * whole (plain), kept compressed, or left on the disk (offloaded). The policy `residency`.
 */
import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import { addCapacities, NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import {
  fitResidency,
  type LayerResidency,
  planResidency,
  type ResidencyCosts,
  type ResidencyPlan,
} from '../../shared/decisions/residency/residency-planner.js';

/** Experts of a layer that change at a time (section 6.3). */
const EXPERTS_PER_LAYER = 1;

/** What a worker may keep. */
export interface ResidencyBounds {
  /** Of each layer. */
  experts: number;
  /** Over all layers: entries exist for no more. */
  capacities: PoolCapacities;
  /** Device bytes of all of these, and of one expert. */
  bytes: number;
  expertBytes: { full: number; compressed: number };
}

/** What was seen of the passes since the last planning. */
export interface SeenPasses {
  /** Of a pass: from the first request to the last, without waiting for loads. */
  computeMs: number;
  /** Experts that a layer was asked for at a time. */
  activated: number;
}

export class CacheResidency {
  private layers = new Map<number, LayerResidency>();

  constructor(private readonly bounds: ResidencyBounds) {}

  /** The layers that the worker serves from now on, with what each may keep. */
  begin(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.layers = new Map(
      [...capacities].map(([layer, { full, compressed }]) => {
        return [layer, { plain: full, compressed, offloaded: this.bounds.experts - full - compressed }];
      }),
    );
  }

  /** What all layers together may keep now. */
  get capacities(): PoolCapacities {
    if (this.layers.size === 0) return this.bounds.capacities;
    return [...capacitiesOf(this.layers).values()].reduce(addCapacities);
  }

  /** What each layer may keep from now on; null: as before. `load`: what loading has cost here; `lentBytes`: what others have of `bytes`. */
  plan(
    { computeMs, activated }: SeenPasses,
    load: LoadTimes,
    lentBytes: number,
  ): ReadonlyMap<number, PoolCapacities> | null {
    if (this.layers.size === 0) return null;
    const { experts, expertBytes } = this.bounds;
    // A pass loads what it is asked for, not the whole layer: an expert's share of that.
    const { change, layers } = planResidency({
      layers: [...this.layers.values()],
      costs: residencyCosts(load, expertBytes, activated / experts),
      layerComputeMs: [...this.layers.keys()].map(() => computeMs / this.layers.size),
      ...this.room(lentBytes),
      expertsPerLayer: EXPERTS_PER_LAYER,
      keepsPlain: true,
    });
    return change === 'none' ? null : this.adopt(layers, change === 'raised');
  }

  /** As `plan`, but only what others have taken counts: kept experts give way to it at once. */
  fit(load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null {
    const costs = residencyCosts(load, this.bounds.expertBytes, 1);
    const layers = fitResidency({ layers: [...this.layers.values()], costs, ...this.room(lentBytes) });
    return layers === null ? null : this.adopt(layers, false);
  }

  private room(lentBytes: number): { deviceBytes: number; cacheBytes: number; keepsCompressed: boolean } {
    const { bytes, capacities } = this.bounds;
    return {
      deviceBytes: bytes,
      cacheBytes: Math.min(bytes, lentBytes),
      keepsCompressed: capacities.compressed > 0,
    };
  }

  private adopt(layers: readonly LayerResidency[], exchanges: boolean): ReadonlyMap<number, PoolCapacities> {
    const fitting = withinEntries(layers, this.bounds.capacities, exchanges);
    this.layers = new Map([...this.layers.keys()].map((layer, index) => [layer, fitting[index] ?? NOTHING_KEPT]));
    return capacitiesOf(this.layers);
  }
}

const NOTHING_KEPT: LayerResidency = { plain: 0, compressed: 0, offloaded: 0 };

/**
 * The most that a budget holds, as pays most where nothing hides the loads: from nothing kept on, the planner raises until it comes to rest. Of all
 * layers together.
 */
export function fillBudget(
  { experts, layers, bytes }: { experts: number; layers: number; bytes: number },
  costs: ResidencyCosts,
): PoolCapacities {
  let plan: Pick<ResidencyPlan, 'layers' | 'change'> = {
    layers: Array.from({ length: layers }, () => ({ plain: 0, compressed: 0, offloaded: experts })),
    change: 'raised',
  };
  const layerComputeMs = plan.layers.map(() => 0);
  const request = {
    deviceBytes: bytes,
    cacheBytes: 0,
    expertsPerLayer: EXPERTS_PER_LAYER,
    keepsPlain: true,
    keepsCompressed: true,
  };
  while (plan.change !== 'none') plan = planResidency({ layers: plan.layers, costs, layerComputeMs, ...request });
  return plan.layers.reduce(
    (sum, { plain, compressed }) => ({ ...sum, full: sum.full + plain, compressed: sum.compressed + compressed }),
    NO_CAPACITIES,
  );
}

/** What an expert takes in each state. `share`: of the passes that need it. */
export function residencyCosts(
  { tensors, shards, threads, decompressMs, signMantissaReadMs, exponentReadMs }: LoadTimes,
  { full, compressed }: { full: number; compressed: number },
  share: number,
): ResidencyCosts {
  const recoverMs = (tensors * shards * decompressMs) / threads;
  const readMs = tensors * (signMantissaReadMs + shards * exponentReadMs);
  return {
    // Parts of a pack without a codec take as much as the expert, and no less is expected of keeping them.
    bytes: { plain: full, compressed: Math.min(compressed, full - 1) },
    loadMs: { compressed: share * recoverMs, offloaded: share * (readMs + recoverMs) },
  };
}

/**
 * The same, with no more of either state than there are entries. What has no entry of its state is left on the disk; where `exchanges`, it takes an
 * entry of the other state, if one is left. Pure.
 */
export function withinEntries(
  layers: readonly LayerResidency[],
  entries: PoolCapacities,
  exchanges: boolean,
): LayerResidency[] {
  const free = { plain: entries.full, compressed: entries.compressed };
  const take = (state: 'plain' | 'compressed', wanted: number): number => {
    const taken = Math.min(wanted, free[state]);
    free[state] -= taken;
    return taken;
  };
  const own = layers.map(({ plain, compressed }) => {
    return { plain: take('plain', plain), compressed: take('compressed', compressed) };
  });
  return layers.map(({ plain, compressed, offloaded }, index) => {
    const kept = own[index] ?? { plain: 0, compressed: 0 };
    const [lackPlain, lackCompressed] = [plain - kept.plain, compressed - kept.compressed];
    const morePlain = exchanges ? take('plain', lackCompressed) : 0;
    const moreCompressed = exchanges ? take('compressed', lackPlain) : 0;
    return {
      plain: kept.plain + morePlain,
      compressed: kept.compressed + moreCompressed,
      offloaded: offloaded + lackPlain + lackCompressed - morePlain - moreCompressed,
    };
  });
}

function capacitiesOf(layers: ReadonlyMap<number, LayerResidency>): Map<number, PoolCapacities> {
  return new Map(
    [...layers].map(([layer, { plain, compressed }]) => [layer, { ...NO_CAPACITIES, full: plain, compressed }]),
  );
}
