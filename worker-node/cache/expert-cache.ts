import type { PoolCapacities, CachePolicy } from '../../shared/settings/cache-policies.js';
import { CachePools } from './cache-pools.js';
import { entriesOf, perPool, spreadCapacities } from '../../shared/decisions/caching/pool-capacities.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { CacheStatus, PoolCounts } from '../../shared/wire/messages.js';
import type { SlotCache } from '../loader/slot-table.js';
import { CacheResidency, type SeenPasses } from './cache-residency.js';

/** delta of ZipMoE section 3.4: an expert ranked up to this many places behind a pool's last place may still take a place there. */
const TOLERANCE_MARGIN = 1;

export interface ExpertCacheOptions {
  policy: CachePolicy;
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
export class ExpertCache implements SlotCache {
  readonly decisions: CachePools;
  private readonly options: ExpertCacheOptions;
  /** Null under other policies: then the capacities do not change. */
  private readonly residency: CacheResidency | null;
  /** layer -> the cached experts that were last reported to main. */
  private readonly reported = new Map<number, string>();

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

  /** The pools of each of these layers. */
  capacitiesFor(layers: readonly number[]): Map<number, PoolCapacities> {
    const capacities = spreadCapacities(this.options.capacities, layers, this.options.experts);
    this.residency?.begin(capacities);
    return capacities;
  }

  /** Passes after which the caller should call `replan`; null: never. */
  get replanPasses(): number | null {
    return this.residency === null ? null : this.options.replanPasses;
  }

  /** The new pools of each layer; null: no change. `lentBytes`: cache memory that others have. */
  replan(seen: SeenPasses, load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null {
    return this.residency?.plan(seen, load, lentBytes) ?? null;
  }

  /** The same, at any time, when others have taken more memory than the pools leave. */
  fit(load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null {
    return this.residency?.fit(load, lentBytes) ?? null;
  }

  /** The capacities of all layers together now. */
  get capacities(): PoolCapacities {
    return this.residency?.capacities ?? this.options.capacities;
  }

  /** The cached experts of the layer; null: the last report to main still holds. The returned list counts as reported. */
  takeChanged(layer: number): number[] | null {
    const cached = this.decisions.cachedOf(layer);
    const text = cached.join(' ');
    if (text === (this.reported.get(layer) ?? '')) return null;
    this.reported.set(layer, text);
    return cached;
  }

  /** Forgets all reports, because main does not know what is cached. */
  forgetReported(): void {
    this.reported.clear();
  }

  /** `uses`: uses of experts so far, by the state in memory when the use began. `recoded`: full experts that are stored as fixed4. */
  status(uses: Readonly<Record<CompressionState, number>>, recoded: number): CacheStatus {
    const cached: PoolCounts = perPool(() => 0);
    for (const { state } of this.decisions.cached()) if (state !== 'missing') cached[state] += 1;
    const { missing: misses, ...hits } = uses;
    const { policy, bytes } = this.options;
    return { policy, bytes, capacities: this.capacities, kept: cached, packed: recoded, hits, misses };
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
