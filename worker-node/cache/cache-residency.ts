/**
 * The planner of FluxMoE (section 4.3) for a worker's cache. After a set number of passes it plans again how many experts of each layer are
 * cached whole (plain), cached compressed, or left on the disk (offloaded). The policy `residency`.
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

/** Limits of a worker's cache. */
export interface ResidencyBounds {
  /** Experts of one layer. */
  experts: number;
  /** Total over all layers: no more entries exist. */
  capacities: PoolCapacities;
  /** Device bytes of all pools together, and of one expert. */
  bytes: number;
  expertBytes: { full: number; compressed: number };
}

/** Measurements of the passes since the last planning. */
export interface SeenPasses {
  /** Time of one pass from its first request to its last, without waiting for loads. */
  computeMs: number;
  /** Mean number of experts that main asked for in one layer of a pass. */
  activated: number;
}

export class CacheResidency {
  private layers = new Map<number, LayerResidency>();

  constructor(private readonly bounds: ResidencyBounds) {}

  /** Sets the layers that the worker serves from now on, and the capacities of each. */
  begin(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.layers = new Map(
      [...capacities].map(([layer, { full, compressed }]) => {
        return [layer, { plain: full, compressed, offloaded: this.bounds.experts - full - compressed }];
      }),
    );
  }

  /** The capacities of all layers together now. */
  get capacities(): PoolCapacities {
    if (this.layers.size === 0) return this.bounds.capacities;
    return [...capacitiesOf(this.layers).values()].reduce(addCapacities);
  }

  /**
   * The new capacities of each layer; null: no change. `load`: measured costs of loading; `lentBytes`: the part of `bytes` that other users
   * of the device have.
   */
  plan(
    { computeMs, activated }: SeenPasses,
    load: LoadTimes,
    lentBytes: number,
  ): ReadonlyMap<number, PoolCapacities> | null {
    if (this.layers.size === 0) return null;
    const { experts, expertBytes } = this.bounds;
    // A pass loads only the activated experts of a layer, so each expert's cost counts with that share.
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

  /** Like `plan`, but reacts only to memory that others have taken: cached experts yield to it at once. */
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
    this.layers = new Map([...this.layers.keys()].map((layer, index) => [layer, fitting[index] ?? NOTHING_CACHED]));
    return capacitiesOf(this.layers);
  }
}

const NOTHING_CACHED: LayerResidency = { plain: 0, compressed: 0, offloaded: 0 };

/**
 * The most useful capacities that a budget holds, when nothing hides the loads. The planner starts with an empty cache and adds experts until
 * its plan stops changing. The result is the total over all layers.
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

/** Bytes and load time of an expert in each state. `share`: the part of the passes that need the expert. */
export function residencyCosts(
  { tensors, shards, threads, decompressMs, signMantissaReadMs, exponentReadMs }: LoadTimes,
  { full, compressed }: { full: number; compressed: number },
  share: number,
): ResidencyCosts {
  const recoverMs = (tensors * shards * decompressMs) / threads;
  const readMs = tensors * (signMantissaReadMs + shards * exponentReadMs);
  return {
    // Parts of a pack without a codec take as many bytes as the expert. The planner needs a smaller number for compressed experts.
    bytes: { plain: full, compressed: Math.min(compressed, full - 1) },
    loadMs: { compressed: share * recoverMs, offloaded: share * (readMs + recoverMs) },
  };
}

/**
 * Returns the same plan with no more experts in either state than there are entries. An expert without an entry for its state is left on the
 * disk; with `exchanges` it takes an entry of the other state, if one is left. Pure.
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
    const held = own[index] ?? { plain: 0, compressed: 0 };
    const [lackPlain, lackCompressed] = [plain - held.plain, compressed - held.compressed];
    const morePlain = exchanges ? take('plain', lackCompressed) : 0;
    const moreCompressed = exchanges ? take('compressed', lackPlain) : 0;
    return {
      plain: held.plain + morePlain,
      compressed: held.compressed + moreCompressed,
      offloaded: offloaded + lackPlain + lackCompressed - morePlain - moreCompressed,
    };
  });
}

function capacitiesOf(layers: ReadonlyMap<number, LayerResidency>): Map<number, PoolCapacities> {
  return new Map(
    [...layers].map(([layer, { plain, compressed }]) => [layer, { ...NO_CAPACITIES, full: plain, compressed }]),
  );
}
