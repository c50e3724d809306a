import { RegisteredExperts } from '../../engine/loading/registered-experts.js';
import { type Device, type ExpertOrder, type ExpertSlots } from '../../native/index.js';
import type { SlotSizes } from '../../engine/planning/slot-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { CachePools } from '../../shared/planner/cache-pools.js';
import { entriesOf, type PoolCapacities, spreadCapacities } from '../../shared/planner/pool-capacities.js';
import { scheduleBlocks, taskPlaces } from '../../shared/planner/schedule-blocks.js';
import type { ActivationCounts } from '../../shared/planner/activation-counts.js';
import type { CachePolicy, CacheUse } from '../../shared/planner/cache-decisions.js';
import type { LoadTask } from '../../shared/planner/load-task.js';
import type { MachineProfile } from '../../engine/planning/fit-profile.js';
import { counterRandom } from '../../shared/sampling/counter-random.js';

/** As a worker's. */
const TOLERANCE_MARGIN = 1;
const MARKING_SEED = 7;

export interface CachedLayersSetting {
  policy: CachePolicy;
  /** Of all layers together. */
  capacities: PoolCapacities;
  sizes: SlotSizes;
  profile: MachineProfile;
  /** Recorded earlier; null: the policy has none. */
  counts: ActivationCounts | null;
}

/** A worker's slots, loader and cache under one policy, without a cluster: runs the experts of one layer after the other. */
export class CachedLayers {
  readonly pools: CachePools;
  private readonly slots: ExpertSlots;
  private readonly experts: RegisteredExperts;
  private readonly ownProfile: MachineProfile;
  private readonly fullEntries: number;
  private readonly hidden: Uint8Array;

  constructor(device: Device, source: ModelSource, setting: CachedLayersSetting) {
    const { policy, capacities, sizes, profile, counts } = setting;
    const { expertLayers: layers, experts, expertsPerToken, hiddenSize } = source.shape;
    const entries = entriesOf(capacities);
    this.ownProfile = profile;
    this.fullEntries = entries.full;
    this.hidden = new Uint8Array(hiddenSize * Float32Array.BYTES_PER_ELEMENT);
    let draws = 0;
    const random = (): number => counterRandom(MARKING_SEED, draws++);
    this.pools = new CachePools({ policy, experts, entries, toleranceMargin: TOLERANCE_MARGIN, random });
    const all = Array.from({ length: layers }, (_, layer) => layer);
    this.pools.setCapacities(spreadCapacities(capacities, all, experts));
    for (const layer of counts?.layers ?? []) this.pools.seedCounts(layer, counts?.of(layer) ?? []);
    this.slots = device.createExpertSlots(sizes.shape, entries.full + expertsPerToken, 1, {
      ...sizes.loader,
      exponentEntries: entries.exponent,
      signMantissaEntries: entries.signMantissa,
    });
    this.experts = new RegisteredExperts(this.slots, experts, (layer, expert) => source.expert(layer, expert));
  }

  /** Until the last of the layer's experts has run. */
  async run(layer: number, experts: readonly number[], nowMs: () => number): Promise<number> {
    const startMs = nowMs();
    for (const expert of experts) this.pools.activated(layer, expert, 1);
    const uses = this.pools.acquire(layer, experts);
    const orders = this.orders(uses);
    const settled = await Promise.allSettled(
      uses.map((use, index) => this.loadAndExecute(use, use.fullEntry ?? this.fullEntries + index, orders)),
    );
    const makespanMs = nowMs() - startMs;
    for (const use of uses) this.pools.release(use);
    for (const result of settled) if (result.status === 'rejected') throw result.reason;
    return makespanMs;
  }

  dispose(): void {
    this.slots.dispose();
  }

  private async loadAndExecute(use: CacheUse, slot: number, orders: ReadonlyMap<number, ExpertOrder>): Promise<void> {
    const { layer, expert, exponents, signMantissa } = use;
    if (use.state !== 'full') {
      const nothing = { loaded: false, exponentsKept: false, signMantissaKept: false };
      const request = { exponents, signMantissa, order: orders.get(expert) ?? null, urgent: false };
      const outcome = await this.slots
        .load(slot, this.experts.numberOf(layer, expert), request)
        .catch((thrown: unknown) => {
          this.pools.loaded(use, nothing);
          throw thrown;
        });
      this.pools.loaded(use, outcome);
    }
    await this.slots.execute(slot, 1, this.hidden, this.hidden.slice());
  }

  private orders(uses: readonly CacheUse[]): Map<number, ExpertOrder> {
    const { load, costs } = this.ownProfile;
    const { executeMs } = costs;
    const tasks = uses.flatMap(({ expert, state }): LoadTask[] =>
      state === 'full'
        ? []
        : Array.from({ length: load.tensors }, (_, tensor) => ({ expert, tensor, state, executeMs })),
    );
    const orders = new Map<number, ExpertOrder>();
    for (const [expert, [gate, up, down]] of taskPlaces(scheduleBlocks(tasks, load))) {
      if (gate !== undefined && up !== undefined && down !== undefined) orders.set(expert, [gate, up, down]);
    }
    return orders;
  }
}
