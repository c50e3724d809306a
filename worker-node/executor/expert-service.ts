import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { ExpertSlots } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { CacheStatus, HostMemoryStatus } from '../../shared/wire/messages.js';
import type { Announce, Execute, Release, Restart, WorkerReply } from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { WorkerCache } from '../cache/worker-cache.js';
import { ExpertRecoder } from '../cache/expert-recoder.js';
import { HostMemory, type HostMemoryOptions } from '../cache/host-memory.js';
import type { WorkerSlots } from '../cache/make-slots.js';
import { ExpertLoader, type ExpertSupply, isOfLower } from '../loader/expert-loader.js';
import type { SlotAction, SlotEvent, SlotLoad } from '../loader/slot-events.js';
import { SlotMemory } from '../loader/slot-memory.js';
import { type ExpertLoads, SlotSchedule } from '../loader/slot-schedule.js';
import { rowsOfExpert } from '../../shared/wire/pass-rows.js';
import { readsBothWays, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import { ExpertExecutor, type SlotLoadTimes } from './expert-executor.js';
import { PassTiming } from './pass-timing.js';

/** While another execute waits for a slot, an expert of main's current layer stays this long, so that main can still ask for it or release it. */
export const DECISION_WAIT_MS = 2;

export interface ExpertCounters {
  slots: number;
  slotsInUse: number;
  slotBytes: number;
  loads: number;
  /** Unannounced loads, under the name that NodeStatus has for them. */
  reloads: number;
  /** The loads of experts of the model's own head. */
  headLoads: number;
  evictions: number;
  executions: number;
  storageReadBytes: number;
  loadMsMean: number;
  executeMsMean: number;
  shortExecuteMsMean: number;
  latePredictions: number;
  droppedPredictions: number;
  damagedExperts: number;
  cache: CacheStatus | null;
  hostMemory: HostMemoryStatus | null;
}

export interface ExpertServiceOptions {
  source: ModelSource;
  runtime: Runtime;
  log: Logger;
  /** Null if every expert is on the disk. */
  supply: ExpertSupply | null;
  /** The layer of the model's own head, whose experts `source` has, too; left out, or null: they are not served. */
  headLayer?: number | null;
  /** How executes read sliced experts; left out, or null: experts are not sliced. */
  rule?: PrecisionRule | null;
  /** Left out: host memory holds no experts. */
  hostMemory?: HostMemoryOptions | null;
  /** Free bytes of the device's budget, for a worker that shares its memory with others; left out: it shares nothing. */
  freeDeviceBytes?: () => number;
  /** The device no longer works; every held execute has been answered with the error. Called once. */
  onDeviceLost?: (error: OdmoeError) => void;
}

/** Executes that read all of an expert need it whole. Otherwise the upper slices serve some or all of them, and come first. */
function loadsOf(rule: PrecisionRule | null): ExpertLoads {
  return rule === null || rule.kind === 'high' ? 'whole' : 'slices';
}

/**
 * The experts of a worker. Asks the schedule how to react to each message; the loader and the executor carry that out. Callers pass valid
 * requests only, and requests of the current epoch.
 */
export class ExpertService {
  /** How executes read sliced experts; null: experts are not sliced. */
  readonly rule: PrecisionRule | null;
  private readonly slots: ExpertSlots;
  private readonly lowerBytes: number | null;
  private readonly cache: WorkerCache | null;
  private readonly schedule: SlotSchedule;
  private readonly loader: ExpertLoader;
  private readonly hostMemory: HostMemory | null;
  /** Null: experts stay in the format in which they were loaded. */
  private readonly recoder: ExpertRecoder | null;
  /** Memory of the slots, which others on the same device may take. */
  readonly memory: SlotMemory;
  private readonly executor: ExpertExecutor;
  private readonly log: Logger;
  private readonly runtime: Runtime;
  /** The last load into each slot, or both loads of an expert whose lower slices came after its upper ones. */
  private readonly slotLoads: (SlotLoadTimes & { layer: number })[];
  private readonly timing = new PassTiming();
  private readonly underWay = new Set<Promise<void>>();
  private readonly events: { event: SlotEvent; loadError: OdmoeError | null }[] = [];
  private handling = false;
  private nextTicket = 1;
  private evictions = 0;
  private headLoads = 0;
  private deviceLost: OdmoeError | null = null;
  private readonly headLayer: number | null;
  /** Slots of the cache that only the experts of the head need: they have memory only while main asks for these. */
  private readonly headSlots: number;
  /** Main has asked for experts of the head: only from then on the cache keeps any. */
  private usesHead = false;
  /** The layers that the worker's group serves in the present placement, the head's with them. */
  private servedLayers: readonly number[] = [];
  private readonly freeDeviceBytes: (() => number) | null;
  private readonly onDeviceLost: (error: OdmoeError) => void;
  private turnEnd: Timer | null = null;
  private decisionWaitEnd: Timer | null = null;
  private ordering: Timer | null = null;
  private onSlotsEmpty: (() => void) | null = null;
  private closing: Promise<void> | null = null;

  constructor(workerSlots: WorkerSlots, options: ExpertServiceOptions) {
    const { slots, maxRows, cache, packs, decompressionThreads, lowerBytes = null, headSlots = 0 } = workerSlots;
    const { source, runtime, log, supply, rule = null, hostMemory = null, onDeviceLost } = options;
    this.rule = rule;
    this.headLayer = options.headLayer ?? null;
    this.headSlots = headSlots;
    this.lowerBytes = lowerBytes;
    this.freeDeviceBytes = options.freeDeviceBytes ?? null;
    this.log = log;
    this.onDeviceLost = onDeviceLost ?? (() => undefined);
    this.slots = slots;
    this.cache = cache;
    this.schedule = new SlotSchedule(slots.count - (cache?.slots ?? 0), cache, loadsOf(rule));
    this.loader = new ExpertLoader(slots, source, decompressionThreads, log, supply);
    this.hostMemory = hostMemory === null ? null : this.openHostMemory(hostMemory, options);
    this.loader.hostMemory = this.hostMemory;
    this.executor = new ExpertExecutor(
      slots,
      maxRows,
      () => runtime.nowMs(),
      log,
      (error) => {
        this.loseDevice(error);
      },
    );
    this.runtime = runtime;
    this.recoder = packs === true ? this.makeRecoder() : null;
    this.memory = new SlotMemory({
      slots,
      lowerBytes,
      log,
      room: this.schedule.room,
      cacheSlots: () => cache?.capacities.full ?? 0,
      handle: (event) => this.guard(() => this.handle(event)),
    });
    this.slotLoads = Array.from({ length: slots.count }, () => ({ layer: 0, endedMs: 0, tookMs: 0 }));
    if (cache !== null && headSlots > 0) this.memory.fitCache(cache.slots - headSlots);
  }

  get counters(): ExpertCounters {
    const { latePredictions, droppedPredictions, unannouncedLoads, uses } = this.schedule.counters;
    return {
      slots: this.slots.count - (this.cache?.slots ?? 0),
      slotsInUse: this.schedule.slotsInUse,
      slotBytes: this.slotBytes,
      evictions: this.evictions,
      loads: this.loader.loads,
      storageReadBytes: this.loader.storageReadBytes,
      loadMsMean: this.loader.loadMsMean,
      executions: this.executor.executions,
      executeMsMean: this.executor.executeMsMean,
      shortExecuteMsMean: this.executor.shortExecuteMsMean,
      latePredictions,
      droppedPredictions,
      damagedExperts: this.loader.damagedExperts,
      reloads: unannouncedLoads,
      headLoads: this.headLoads,
      cache: this.cacheStatus(uses),
      hostMemory: this.hostMemory?.status ?? null,
    };
  }

  /** Memory that others hold has no room for the cache's experts. What they have given back has, though its slots come back later. */
  private cacheStatus(uses: Parameters<WorkerCache['status']>[0]): CacheStatus | null {
    const status = this.cache?.status(uses, this.recoder?.recoded ?? 0) ?? null;
    const { room } = this.schedule;
    if (status === null || room.absent.length === 0) return status;
    const lent = Math.ceil(this.lentBytes / this.slotBytes);
    const ofHead = this.headSlots > 0 ? room.cacheAbsent.length : 0;
    const back = Math.max(0, room.absent.length - lent - ofHead);
    const full = Math.min(status.capacities?.full ?? 0, room.cachePresent + back);
    const bytes = status.bytes - ofHead * this.slotBytes;
    return { ...status, bytes, capacities: { ...status.capacities, full } };
  }

  /** Shadow predicts these experts, or main announces them or doubts its announcement. */
  expect(source: 'main' | 'shadow', { pass, rows, layer, experts, critical, doubted = false }: Announce): void {
    if (doubted) return this.handle({ kind: 'doubt', pass, rows, layer, experts });
    this.handle({
      kind: 'predict',
      source,
      pass,
      rows,
      layer,
      experts,
      critical: this.expectedLower(experts, critical),
    });
  }

  /** The experts whose lower slices are expected to be read. */
  private expectedLower(experts: readonly number[], critical: readonly number[] = []): readonly number[] {
    if (this.rule?.kind === 'high') return experts;
    // Under 'low' the lower slices are not even on the disk.
    return this.rule !== null && readsBothWays(this.rule) ? critical : [];
  }

  restart({ sequence, position }: Restart): void {
    this.handle({ kind: 'restart', sequence, position });
  }

  /**
   * Sends the reply for each expert by `reply`, once: a result or an error, in one part or in several. Throws QUEUE_FULL, and DEVICE_LOST when the
   * device is lost.
   */
  execute(request: Execute, reply: (reply: WorkerReply) => void): void {
    if (this.deviceLost !== null) throw this.deviceLost;
    const { pass, rows, layer, experts } = request;
    const isOfHead = layer === this.headLayer;
    if (isOfHead) this.useHead();
    // The head's layer is no part of a pass of the model.
    else if (this.timing.asked(request, experts.length, this.runtime.nowMs())) this.tryToReplan();
    const firstTicket = this.nextTicket;
    this.executor.hold(firstTicket, request, (message) => reply(this.withCached(layer, message)));
    // Rows that come in several messages count as one use.
    if (this.cache === null) for (const each of experts) if (each.last) this.hostMemory?.countUse(layer, each.expert);
    this.nextTicket += experts.length;
    try {
      experts.forEach((asked, index) => {
        const { expert, last } = asked;
        const readsLower = this.rule !== null && (asked.upper ?? []).length < rowsOfExpert(asked, rows);
        const ticket = firstTicket + index;
        this.handle({ kind: 'execute', ticket, pass, rows, layer, expert, last, readsLower, isOfHead });
      });
    } catch (thrown) {
      this.executor.forget(firstTicket, request);
      throw thrown;
    }
  }

  /** If the cached experts of the layer have changed, the last part of a result lists them for main. */
  private withCached(layer: number, message: WorkerReply): WorkerReply {
    if (this.cache === null || message.kind !== 'result' || !message.result.last) return message;
    const experts = this.cache.takeChanged(layer);
    return experts === null ? message : { ...message, result: { ...message.result, kept: { experts } } };
  }

  release({ pass, rows, layer, experts }: Release): void {
    this.handle({ kind: 'release', pass, rows, layer, experts });
  }

  /** The sequence has ended. */
  end(sequence: number): void {
    this.handle({ kind: 'end', sequence });
  }

  /** Calls `listener` once, when no slot is in use any more: an unwanted load takes a moment to stop. A new listener replaces the earlier one. */
  whenSlotsEmpty(listener: () => void): void {
    this.onSlotsEmpty = listener;
    this.tellEmptySlots();
  }

  private tellEmptySlots(): void {
    const { onSlotsEmpty } = this;
    if (onSlotsEmpty === null || this.schedule.slotsInUse > 0) return;
    this.onSlotsEmpty = null;
    onSlotsEmpty();
  }

  /**
   * Counts of open work: experts that main waits for and the bytes held for them, loads and executions under way, working slots that are not
   * empty, expectations and their sequences.
   */
  get openCounts(): Record<string, number> {
    const { experts: executes, bytes: heldBytes } = this.executor.held;
    const { slotsInUse, openCounts } = this.schedule;
    return { executes, heldBytes, underWay: this.underWay.size, slotsInUse, ...openCounts };
  }

  /** A new placement, in which the worker's group serves these layers, the head's with them. */
  changeEpoch(layers: readonly number[]): void {
    this.handle({ kind: 'epochChanged' });
    this.timing.take();
    this.servedLayers = layers;
    this.serveLayers();
  }

  private useHead(): void {
    if (this.usesHead) return;
    this.usesHead = true;
    if (this.servedLayers.some((layer) => layer === this.headLayer)) this.serveLayers();
  }

  private serveLayers(): void {
    const { headLayer, usesHead } = this;
    const isServed = (layer: number): boolean => headLayer === null || layer < headLayer || usesHead;
    const layers = this.servedLayers.filter(isServed);
    const capacities = this.cache?.capacitiesFor(layers);
    if (capacities !== undefined) this.changeCapacities(capacities);
    this.hostMemory?.serve(layers);
  }

  /** The slots of the head's experts have memory as long as a layer needs them. */
  private changeCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.handle({ kind: 'capacitiesChanged', capacities });
    const { cache, headSlots } = this;
    if (cache === null || headSlots === 0) return;
    const needed = [...capacities.values()].reduce((sum, { full }) => sum + full, 0);
    // The expert that a slot has lost may still be recoded there.
    const mayLetGo = this.recoder === null;
    this.memory.fitCache(Math.max(cache.slots - headSlots, needed), mayLetGo);
  }

  /** If the cache cannot be planned again, it stays as it is: answers do not need a new plan. */
  private tryToReplan(): void {
    try {
      this.replan();
    } catch (thrown) {
      this.log.warn('the cache could not be planned anew and stays as it is', { error: toOdmoeError(thrown) });
    }
  }

  /** Runs between two passes: plans the capacities of each layer again, from measurements of the last passes. */
  private replan(): void {
    const replanning = this.cache?.replanning ?? null;
    if (replanning === null || this.cache === null) return;
    const { loadTimes } = this.loader;
    const capacities =
      this.timing.seen > replanning.passes
        ? replanning.replan(this.timing.take(), loadTimes, this.lentBytes)
        : replanning.fit(loadTimes, this.lentBytes);
    if (capacities === null) return;
    this.log.debug('the cache was planned anew', { capacities: [...capacities.values()] });
    this.changeCapacities(capacities);
    if (this.freeDeviceBytes === null) return;
    // Memory of experts that the cache no longer needs is given to rows, even before they ask for it.
    const spare = this.schedule.room.cachePresent - this.cache.capacities.full;
    if (spare > 0) this.handle({ kind: 'memoryWanted', slots: spare, spareOnly: true });
  }

  /** Memory of the slots that others have. */
  private get lentBytes(): number {
    const absent = this.schedule.room.absent.length;
    if (absent === 0 || this.freeDeviceBytes === null) return 0;
    return Math.max(0, absent * this.slotBytes - this.freeDeviceBytes());
  }

  /** Memory of one slot, with that of its lower slices. */
  private get slotBytes(): number {
    return this.slots.slotBytes + (this.lowerBytes ?? 0);
  }

  loseMain(): void {
    this.usesHead = false;
    this.executor.abandonAll();
    this.cache?.forgetReported();
    this.handle({ kind: 'mainLost' });
  }

  /** Stops all work under way, waits until nothing uses the slots, and disposes of them. Idempotent. */
  close(): Promise<void> {
    return (this.closing ??= this.closeAll());
  }

  private async closeAll(): Promise<void> {
    this.loseMain();
    await this.hostMemory?.close();
    await this.recoder?.close();
    while (this.underWay.size > 0) await Promise.all(this.underWay);
    this.turnEnd?.cancel();
    this.decisionWaitEnd?.cancel();
    this.ordering?.cancel();
    this.slots.dispose();
  }

  private openHostMemory(hostMemory: HostMemoryOptions, { runtime, log }: ExpertServiceOptions): HostMemory {
    return new HostMemory(hostMemory, {
      slots: this.slots,
      runtime,
      log,
      numberOf: (layer, expert) => this.loader.numberOf(layer, expert),
      rates: () => ((this.cache?.replanning ?? null) === null ? null : this.loader.loadRates),
      cached: () => this.cache?.decisions.cached().filter(({ state }) => state === 'full') ?? [],
    });
  }

  private makeRecoder(): ExpertRecoder {
    const { slots, runtime, log } = this;
    return new ExpertRecoder({
      slots,
      runtime,
      log,
      isCached: (slot) => this.schedule.room.keeps(slot),
      isIdle: () => Object.values(this.openCounts).every((count) => count === 0),
    });
  }

  /**
   * Handles one event after the other: a reply to main may end main's stream, which is a new event. An error goes to the caller that brought
   * the event; the next event is still handled.
   */
  private handle(event: SlotEvent, loadError: OdmoeError | null = null): void {
    this.events.push({ event, loadError });
    this.recoder?.worked();
    if (this.handling) return;
    this.handling = true;
    try {
      for (let next = this.events.shift(); next !== undefined; next = this.events.shift()) {
        for (const action of this.schedule.handle(next.event)) this.carryOut(action, next.loadError);
        if (next.event.kind === 'execute') this.orderSoon();
      }
    } finally {
      this.handling = false;
    }
    this.tellEmptySlots();
    this.awaitMoreMessages();
  }

  /** Orders the loads after all executes of this turn have come in. */
  private orderSoon(): void {
    this.ordering ??= this.runtime.nextTurn(() => {
      this.ordering = null;
      this.loader.order(
        this.schedule.waitedLoads.map(({ slot, state, tickets }) => ({
          slot,
          state,
          executeMs: this.executor.expectedMs(tickets),
        })),
      );
    });
  }

  private awaitMoreMessages(): void {
    if (this.schedule.wantsTurnEnd && this.turnEnd === null) {
      this.turnEnd = this.runtime.nextTurn(() => {
        this.turnEnd = null;
        if (this.schedule.wantsTurnEnd) this.guard(() => this.handle({ kind: 'turnEnded' }));
      });
    }
    if (this.schedule.wantsDecisionWaitEnd && this.decisionWaitEnd === null) {
      this.decisionWaitEnd = this.runtime.after(DECISION_WAIT_MS, () => {
        this.decisionWaitEnd = null;
        if (this.schedule.wantsDecisionWaitEnd) this.guard(() => this.handle({ kind: 'decisionWaitEnded' }));
      });
    }
  }

  private carryOut(action: SlotAction, loadError: OdmoeError | null): void {
    switch (action.kind) {
      case 'load':
        return this.track(this.load(action));
      case 'prioritize':
        return this.loader.prioritize(action.slot);
      case 'cancelLoad':
        return this.loader.cancel(action.slot);
      case 'evict':
        this.evictions += 1;
        this.recoder?.emptied(action.slot);
        return;
      case 'letGo':
        return this.slots.letGo(action.slot);
      case 'execute':
        return this.track(this.runExpert(action.slot, action.ticket, action.wasLoaded));
      case 'withdraw':
        return this.executor.fail(action.ticket, new OdmoeError('CANCELLED', 'the sequence has ended'));
      case 'fail':
        return this.executor.fail(
          action.ticket,
          action.refusal ?? requirePresent(loadError, 'a load that fails says why.'),
        );
    }
  }

  private async load(load: SlotLoad): Promise<void> {
    const { error, loadMs, ...end } = await this.loader.load(load);
    if (error?.code === 'DEVICE_LOST') this.loseDevice(error);
    this.noteLoad(load, loadMs, end.outcome === 'loaded');
    // The head's experts are not sliced: an expert comes in one load.
    if (end.outcome === 'loaded' && load.layer === this.headLayer) this.headLoads += 1;
    if (end.outcome === 'loaded') this.recoder?.loaded(load.slot);
    this.handle({ kind: 'loadSettled', slot: load.slot, ...end }, error);
  }

  /** Slices that come in two loads follow one another in a slot, so the expert has taken the sum of both times. */
  private noteLoad({ slot, layer, parts }: SlotLoad, loadMs: number, loaded: boolean): void {
    const earlier = requirePresent(this.slotLoads[slot], () => `slot ${slot} is one of the worker's.`);
    const tookMs = !isOfLower(parts) ? loadMs : earlier.tookMs + (loaded ? loadMs : 0);
    this.slotLoads[slot] = { layer, endedMs: this.runtime.nowMs(), tookMs };
  }

  private async runExpert(slot: number, ticket: number, wasLoaded: boolean): Promise<void> {
    const load = requirePresent(this.slotLoads[slot], () => `slot ${slot} is one of the worker's.`);
    if (!wasLoaded) this.timing.stalled(load.layer, load.endedMs);
    // A later use of the same expert finds it in the slot.
    this.slotLoads[slot] = { ...load, tookMs: 0 };
    await this.executor.run(ticket, slot, wasLoaded, load);
    this.handle({ kind: 'executeSettled', slot });
  }

  /** From now on no call to the device succeeds: all requests that wait for a call fail at once. */
  private loseDevice(error: OdmoeError): void {
    if (this.deviceLost !== null) return;
    this.deviceLost = error;
    this.executor.failAll(error);
    this.onDeviceLost(error);
  }

  private track(work: Promise<void>): void {
    const guarded = work.catch((thrown: unknown) => this.failAll(thrown)).finally(() => this.underWay.delete(guarded));
    this.underWay.add(guarded);
  }

  private guard(work: () => void): void {
    try {
      work();
    } catch (thrown) {
      this.failAll(thrown);
    }
  }

  /** The handling of an event failed, and no message can carry the error. All requests that main waits for fail with it, and the worker continues. */
  private failAll(thrown: unknown): void {
    const error = toOdmoeError(thrown);
    this.log.error('the slots of this worker are not as they should be: all that main waits for has failed', {
      error,
    });
    this.executor.failAll(error);
  }
}
