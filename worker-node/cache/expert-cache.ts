import type { PoolCapacities, ExpertPolicy } from '../../shared/settings/cache-policies.js';
import { CachePools } from './cache-pools.js';
import { entriesOf, spreadCapacities } from '../../shared/decisions/caching/pool-capacities.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { CacheStatus } from '../../shared/wire/messages.js';
import { CacheResidency } from './cache-residency.js';
import { countCached, type Replanning, ReportedExperts, type WorkerCache } from './worker-cache.js';

/** delta of ZipMoE section 3.4: an expert ranked up to this many places behind a pool's last place may still take a place there. */
const TOLERANCE_MARGIN = 1;

export interface ExpertCacheOptions {
  policy: ExpertPolicy;
  /** Experts of a layer. */
  experts: number;
  /** Total of all layers. */
  capacities: PoolCapacities;
  /** Device memory that these take. */
  bytes: number;
  /** Device bytes of one expert, whole and as compressed parts. */
  expertBytes: { full: number; compressed: number };
  /** For the policy residency: passes between two plannings. */
  replanPasses: number;
  /** Counts recorded in earlier runs; uses in this run are added to them. */
  counts: ActivationCounts;
  /** A number in [0, 1), for Marking. */
  random: () => number;
}

/** The cache of a worker for the layers that it serves, with a record of the experts that main asked for. */
export class ExpertCache implements WorkerCache {
  readonly decisions: CachePools;
  private readonly options: ExpertCacheOptions;
  /** Null under other policies: then the capacities do not change. */
  private readonly residency: CacheResidency | null;
  private readonly reported = new ReportedExperts();

  constructor(options: ExpertCacheOptions) {
    const { policy, experts, capacities, counts, random } = options;
    const pools = { policy, experts, entries: entriesOf(capacities), toleranceMargin: TOLERANCE_MARGIN, random };
    this.decisions = new RecordedPools(pools, counts);
    for (const layer of counts.layers) this.decisions.seedCounts(layer, counts.of(layer));
    this.options = options;
    this.residency = policy === 'residency' ? new CacheResidency(options) : null;
  }

  get slots(): number {
    return this.options.capacities.full;
  }

  capacitiesFor(layers: readonly number[]): Map<number, PoolCapacities> {
    const capacities = spreadCapacities(this.options.capacities, layers, this.options.experts);
    this.residency?.begin(capacities);
    return capacities;
  }

  get replanning(): Replanning | null {
    const { residency } = this;
    if (residency === null) return null;
    return {
      passes: this.options.replanPasses,
      replan: (seen, load, lentBytes) => residency.plan(seen, load, lentBytes),
      fit: (load, lentBytes) => residency.fit(load, lentBytes),
    };
  }

  get capacities(): PoolCapacities {
    return this.residency?.capacities ?? this.options.capacities;
  }

  takeChanged(layer: number): number[] | null {
    return this.reported.takeChanged(layer, this.decisions.cachedOf(layer));
  }

  forgetReported(): void {
    this.reported.forget();
  }

  status({ missing: misses, ...hits }: Readonly<Record<CompressionState, number>>, recoded: number): CacheStatus {
    const { policy, bytes } = this.options;
    const kept = countCached(this.decisions.cached());
    return { policy, bytes, capacities: this.capacities, kept, packed: recoded, hits, misses };
  }
}

/** Counts the activations of layers with pools only: in prefill every worker also gets a share of the other layers. */
class RecordedPools extends CachePools {
  private readonly activationCounts: ActivationCounts;
  private served: ReadonlySet<number> = new Set();

  constructor(options: ConstructorParameters<typeof CachePools>[0], counts: ActivationCounts) {
    super(options);
    this.activationCounts = counts;
  }

  override setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    super.setCapacities(capacities);
    this.served = new Set(capacities.keys());
  }

  override activated(layer: number, expert: number, tokens: number): void {
    super.activated(layer, expert, tokens);
    if (this.served.has(layer)) this.activationCounts.add(layer, expert, tokens);
  }
}
