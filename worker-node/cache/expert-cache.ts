import type { PoolCapacities, CachePolicy } from '../../shared/settings/cache-policies.js';
import { CachePools } from './cache-pools.js';
import { entriesOf, spreadCapacities } from '../../shared/decisions/caching/pool-capacities.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { CacheStatus, PoolCounts } from '../../shared/wire/messages.js';
import type { SlotCache } from '../loader/slot-table.js';
import { CacheResidency, type SeenPasses } from './cache-residency.js';

/** delta of ZipMoE section 3.4: an expert that ranks this much behind a pool's last place may still take one there. */
const TOLERANCE_MARGIN = 1;

export interface ExpertCacheOptions {
  policy: CachePolicy;
  /** Experts of a layer. */
  experts: number;
  /** Of all layers together. */
  capacities: PoolCapacities;
  /** Device memory that these take. */
  bytes: number;
  /** Device bytes of one expert, whole and as compressed parts. */
  expertBytes: { full: number; compressed: number };
  /** Of policy residency: passes between two plannings. */
  replanPasses: number;
  /** What was recorded earlier; what is used from now on is added. */
  counts: ActivationCounts;
  /** A number in [0, 1), for Marking. */
  random: () => number;
}

/** What a worker keeps of the experts of the layers that it serves, and the record of which it was asked for. */
export class ExpertCache implements SlotCache {
  readonly decisions: CachePools;
  private readonly options: ExpertCacheOptions;
  /** Null under other policies: capacities stay as they are. */
  private readonly residency: CacheResidency | null;
  /** layer -> what main has been told of it. */
  private readonly told = new Map<number, string>();

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

  /** Passes after which `replan` is to be asked; null: never. */
  get replanPasses(): number | null {
    return this.residency === null ? null : this.options.replanPasses;
  }

  /** The pools of each layer from now on; null: as they are. `lentBytes`: what others have of its memory. */
  replan(seen: SeenPasses, load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null {
    return this.residency?.plan(seen, load, lentBytes) ?? null;
  }

  /** The same where others have taken more than the pools leave, whenever that is. */
  fit(load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null {
    return this.residency?.fit(load, lentBytes) ?? null;
  }

  /** What all layers together may keep now. */
  get capacities(): PoolCapacities {
    return this.residency?.capacities ?? this.options.capacities;
  }

  /** Experts of the layer that are kept now; null: main has been told of just these. It is taken to be told. */
  takeChangedKept(layer: number): number[] | null {
    const kept = this.decisions.keptOf(layer);
    const text = kept.join(' ');
    if (text === (this.told.get(layer) ?? '')) return null;
    this.told.set(layer, text);
    return kept;
  }

  /** Main knows nothing of what is kept. */
  forgetTold(): void {
    this.told.clear();
  }

  /** `uses`: of experts so far, by what of them was in memory. `packed`: whole ones that are held as fixed4. */
  status(uses: Readonly<Record<CompressionState, number>>, packed: number): CacheStatus {
    const kept: PoolCounts = { full: 0, compressed: 0, signMantissa: 0, exponent: 0 };
    for (const { state } of this.decisions.kept()) if (state !== 'missing') kept[state] += 1;
    const { missing: misses, ...hits } = uses;
    const { policy, bytes } = this.options;
    return { policy, bytes, capacities: this.capacities, kept, packed, hits, misses };
  }
}

/** Adds to the counts what the layers with pools are asked for: prefill asks every worker for a share of the other layers, too. */
class RecordedPools extends CachePools {
  private readonly ownCounts: ActivationCounts;
  private served: ReadonlySet<number> = new Set();

  constructor(options: ConstructorParameters<typeof CachePools>[0], counts: ActivationCounts) {
    super(options);
    this.ownCounts = counts;
  }

  override setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    super.setCapacities(capacities);
    this.served = new Set(capacities.keys());
  }

  override activated(layer: number, expert: number, tokens: number): void {
    super.activated(layer, expert, tokens);
    if (this.served.has(layer)) this.ownCounts.add(layer, expert, tokens);
  }
}
