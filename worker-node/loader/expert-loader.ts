import { RegisteredExperts } from '../../engine/loading/registered-experts.js';
import type { ExpertSlots, LoadOutcome, LoadRequest, ExpertOrder } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { CachedPart } from './cache-decisions.js';
import { OverallMean } from './overall-mean.js';
import { partOfPlane, perPart, type PerPart } from '../../shared/model/expert-parts.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ExpertSource, ModelSource } from '../../shared/model/tensor-source.js';
import { type Slice, SLICES } from '../../packs/format/pack-layout.js';
import type { LoadRates } from './host-memory-plan.js';
import type { LoadTimes, PartlyLoadedState } from '../../shared/decisions/caching/load-times.js';
import { LoadCosts } from './load-costs.js';
import type { LoadEnd, SlotLoad } from './slot-events.js';
import { scheduleBlocks, taskPlaces } from '../../shared/decisions/caching/schedule-blocks.js';

/** Fetches experts that are not on the disk yet. `slices`: those that a load wants; of an expert that is not sliced, all is wanted. */
export interface ExpertSupply {
  /** The place where the supply has the expert; null: the supply does not have it, so ask the pack. */
  find(layer: number, expert: number, slices: readonly Slice[]): ExpertSource | null;
  /** Null when the expert is there. Rejects with CANCELLED when the signal aborts, otherwise with the reason why the expert does not come. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal, slices: readonly Slice[]): Promise<void> | null;
  /** The expert's bytes on the disk are wrong: the expert counts as missing and is fetched again. Rejects when that cannot be noted. */
  forget(layer: number, expert: number, slices: readonly Slice[]): Promise<void>;
}

/** Experts in host memory; their loads read fewer bytes from storage. */
export interface HostHeld {
  /** The number of the held expert; null: it is not held. */
  heldNumber(layer: number, expert: number): number | null;
  countLoad(bytes: number): void;
}

/** `error`: the reason of a failed load; null otherwise. `loadMs`: duration of the load, without the wait for its bytes to be fetched. */
export type LoadResult = LoadEnd & { error: OdmoeError | null; loadMs: number };

/** A load under way. The device knows it only when `begun` is true, after its expert has come to the disk. */
interface LoadUnderWay {
  readonly cancelled: AbortController;
  request: LoadRequest;
  begun: boolean;
}

/** The load brings the lower slices of an expert to its upper ones. */
export function isOfLower(parts: PerPart<CachedPart>): boolean {
  return parts[partOfPlane(0)].from === 'notWanted';
}

/** Logged when a load finds damage and the expert is fetched again. */
export const DAMAGE_EVENT = 'an expert on the disk is damaged and is fetched again';

/** Most times that one load fetches a damaged expert again. */
const MAX_RENEWALS = 2;

const NOTHING_CACHED = perPart(() => false);

/** Carries out the loads that the schedule orders, in the best order for all of them together, and counts them. */
export class ExpertLoader {
  private readonly slots: ExpertSlots;
  private readonly experts: RegisteredExperts;
  private readonly supply: ExpertSupply | null;
  private readonly log: Logger;
  private readonly underWay = new Map<number, LoadUnderWay>();
  private readonly loadMs = new OverallMean();
  private readonly costs: LoadCosts;
  /** Null: no experts are in host memory. */
  hostMemory: HostHeld | null = null;
  #loads = 0;
  private readBytes = 0;
  /** Experts that failed and have not been loaded since, with the code of the failure that was logged. */
  private readonly failures = new Map<string, ExpertId & { slices: readonly Slice[]; code: string }>();

  /** `threads`: number of decompression threads. `supply`: null if every expert is on the disk. */
  constructor(
    slots: ExpertSlots,
    source: ModelSource,
    threads: number,
    log: Logger,
    supply: ExpertSupply | null = null,
  ) {
    this.slots = slots;
    this.experts = new RegisteredExperts(
      slots,
      source.shape.experts,
      (layer, expert) => supply?.find(layer, expert, []) ?? source.expert(layer, expert),
    );
    this.supply = supply;
    this.costs = new LoadCosts(source.expert(0, 0), threads);
    this.log = log;
  }

  /** The measured costs of loading. */
  get loadTimes(): LoadTimes {
    return this.costs.loadTimes;
  }

  get loadRates(): LoadRates {
    return this.costs.rates;
  }

  get loads(): number {
    return this.#loads;
  }

  get storageReadBytes(): number {
    return this.readBytes;
  }

  /** Time of all loads, divided by the number of loaded experts: the two loads of an expert's slices count as one, with the sum of their times. */
  get loadMsMean(): number {
    return this.loadMs.mean;
  }

  /** Number of experts whose bytes were damaged and that have neither been loaded nor fetched again since. */
  get damagedExperts(): number {
    let damaged = 0;
    for (const { layer, expert, slices, code } of this.failures.values()) {
      if (code === 'PACK_CORRUPT' && (this.supply?.find(layer, expert, slices) ?? null) === null) damaged += 1;
    }
    return damaged;
  }

  /** The number by which the slots know the expert. */
  numberOf(layer: number, expert: number): number {
    return this.experts.numberOf(layer, expert);
  }

  /** Never rejects: a failure is a result. */
  async load({ slot, layer, expert, parts, urgent }: SlotLoad): Promise<LoadResult> {
    const held = this.hostMemory?.heldNumber(layer, expert) ?? null;
    const request: LoadRequest = { parts, order: null, urgent, ...(held === null ? {} : { held }) };
    const load: LoadUnderWay = { cancelled: new AbortController(), request, begun: false };
    this.underWay.set(slot, load);
    try {
      const outcome = await this.carryOut(slot, layer, expert, load);
      if (outcome === null) return { outcome: 'cancelled', cached: NOTHING_CACHED, error: null, loadMs: 0 };
      const { loaded, cached, loadMs } = outcome;
      const hostBytes = outcome.hostBytes ?? 0;
      this.costs.add(hostBytes > 0 ? withoutHeld(parts) : parts, outcome);
      this.hostMemory?.countLoad(hostBytes);
      this.readBytes += outcome.readBytes;
      if (loaded) this.succeeded(keyOf(layer, expert, parts), parts, outcome);
      return { outcome: loaded ? 'loaded' : 'cancelled', cached, error: null, loadMs };
    } catch (thrown) {
      const { code, message } = toOdmoeError(thrown);
      const what = isOfLower(parts) ? 'The lower slices of expert' : 'Expert';
      const error = new OdmoeError(code, `${what} ${expert} of layer ${layer} could not be loaded: ${message}`, {
        cause: thrown,
      });
      this.report(keyOf(layer, expert, parts), { layer, expert, slices: slicesOf(parts) }, error);
      return { outcome: 'failed', cached: NOTHING_CACHED, error, loadMs: 0 };
    } finally {
      this.underWay.delete(slot);
    }
  }

  cancel(slot: number): void {
    const load = this.underWay.get(slot);
    if (load?.begun === true) this.slots.cancel(slot);
    else load?.cancelled.abort();
  }

  /** Main waits for this load: it goes before all loads that main does not wait for. */
  prioritize(slot: number): void {
    const load = this.underWay.get(slot);
    if (load === undefined) return;
    load.request = { ...load.request, urgent: true };
    if (load.begun) this.slots.prioritize(slot);
  }

  /** Puts loads that are needed together in order. */
  order(loads: readonly PendingLoad[]): void {
    // Every message whose experts are all loaded comes here with no loads.
    if (loads.length === 0) return;
    const left = loads.map((load) => {
      const isHeld = this.underWay.get(load.slot)?.request.held !== undefined;
      return isHeld && load.state === 'missing' ? { ...load, state: 'compressed' as const } : load;
    });
    for (const [slot, order] of orderLoads(left, this.costs.loadTimes)) {
      const load = this.underWay.get(slot);
      if (load === undefined) continue;
      load.request = { ...load.request, order };
      if (load.begun) this.slots.reorder(slot, order);
    }
  }

  /** Null: it was cancelled before its expert had come. */
  private async carryOut(slot: number, layer: number, expert: number, load: LoadUnderWay): Promise<LoadOutcome | null> {
    const { signal } = load.cancelled;
    const slices = slicesOf(load.request.parts);
    for (let renewals = 0; ; renewals += 1) {
      const arrival = this.supply?.awaitExpert(layer, expert, signal, slices) ?? null;
      try {
        if (arrival !== null) await arrival;
      } catch (thrown) {
        if (!signal.aborted) throw thrown;
      }
      if (signal.aborted) return null;
      load.begun = true;
      try {
        return await this.slots.load(slot, this.experts.numberOf(layer, expert), load.request);
      } catch (thrown) {
        load.begun = false;
        await this.renew({ layer, expert, slices }, toOdmoeError(thrown), renewals);
      }
    }
  }

  /** If a damaged expert can be fetched again, that is not a failure yet. @throws the failure when it is one */
  private async renew(
    { layer, expert, slices }: ExpertId & { slices: readonly Slice[] },
    failure: OdmoeError,
    renewals: number,
  ): Promise<void> {
    if (this.supply === null || failure.code !== 'PACK_CORRUPT' || renewals >= MAX_RENEWALS) throw failure;
    this.log.warn(DAMAGE_EVENT, { layer, expert, error: failure });
    try {
      await this.supply.forget(layer, expert, slices);
      // The expert may be stored at another place when it comes again.
      this.experts.forget(layer, expert);
    } catch (thrown) {
      this.log.warn('a damaged expert cannot be fetched again', { layer, expert, error: toOdmoeError(thrown) });
      throw failure;
    }
  }

  private succeeded(key: string, parts: PerPart<CachedPart>, { loadMs }: LoadOutcome): void {
    this.failures.delete(key);
    // Lower slices are no further expert. They follow the load of their upper ones, and its time is theirs together.
    if (isOfLower(parts)) return this.loadMs.addToLast(loadMs);
    this.#loads += 1;
    this.loadMs.add(loadMs);
  }

  /** Logs a failure once until the expert can be loaded again: with a damaged pack a load may fail at every token. */
  private report(key: string, failed: ExpertId & { slices: readonly Slice[] }, error: OdmoeError): void {
    const { layer, expert } = failed;
    if (this.failures.get(key)?.code === error.code) return;
    this.failures.set(key, { ...failed, code: error.code });
    this.log.error('loading an expert failed', { layer, expert, error });
  }
}

/** The slices that a load wants, where the expert is sliced. */
function slicesOf(parts: PerPart<CachedPart>): readonly Slice[] {
  return SLICES.filter((_slice, plane) => parts[partOfPlane(plane)].from !== 'notWanted');
}

/** The lower slices of an expert may fail by themselves. */
function keyOf(layer: number, expert: number, parts: PerPart<CachedPart>): string {
  return isOfLower(parts) ? `${layer} ${expert} lower` : `${layer} ${expert}`;
}

/** The parts that a load has read from storage: without parts that host memory held and that no entry was to cache. */
function withoutHeld(parts: PerPart<CachedPart>): PerPart<CachedPart> {
  return perPart((part) => {
    const plan = parts[part];
    return plan.entry < 0 ? { from: 'entry', entry: plan.entry } : plan;
  });
}

/** Only this many experts are put in order; the others are loaded after them, in the order of the requests. */
export const MAX_ORDERED_LOADS = 16;

/** A load that main waits for. */
export interface PendingLoad {
  slot: number;
  state: PartlyLoadedState;
  /** p_n: time to execute the expert on the rows that wait for it. */
  executeMs: number;
}

/** The order of each load's tensors when all are needed together (ZipMoE Algorithm 1), by slot. A single load needs no order. */
export function orderLoads(loads: readonly PendingLoad[], loadTimes: LoadTimes): Map<number, ExpertOrder> {
  if (loads.length < 2) return new Map();
  const ordered = loads.slice(0, MAX_ORDERED_LOADS);
  const tasks = ordered.flatMap(({ slot, state, executeMs }) =>
    Array.from({ length: loadTimes.tensors }, (_, tensor) => ({ expert: slot, tensor, state, executeMs })),
  );
  const orders = new Map<number, ExpertOrder>();
  for (const [slot, places] of taskPlaces(scheduleBlocks(tasks, loadTimes))) {
    const [gate, up, down] = places;
    if (gate !== undefined && up !== undefined && down !== undefined) orders.set(slot, [gate, up, down]);
  }
  return orders;
}
