/**
 * Decides which experts the slots of a worker load, run, cache and drop (OD-MoE section 3: load just before use, evict right after; ZipMoE
 * section 3.4: cache experts that are used often). Pure: events in, actions out. Its caller carries the actions out and reports their results.
 *
 * - An execute always gets a slot: if none is free, a prediction makes room, the one that is needed latest first.
 * - An expert with a waiting or running execute is never dropped; after its last mini-batch it is dropped at once, unless the cache keeps it.
 * - An expert that main has announced and then doubts is not loaded while others wait for a slot, and gives up its own for them.
 * - Predictions at or behind main's progress in their sequence are late and are not loaded.
 * - With a cache, no expert is in two slots: all expectations of an expert share the slot that has it or loads it. Full experts of the cache
 *   have separate slots, so that there are always enough working slots.
 * - Sliced experts may come in two loads: the upper slices first, with which executes of rows that read no more can run, and then the lower ones,
 *   if they are expected to be read or an execute that reads them waits. A cache of slices decides where there is room for lower ones; executes
 *   that wait for them come before predictions.
 */
import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CacheDecisions, CacheUse, SliceDecisions } from './cache-decisions.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PassLayer } from '../../shared/wire/messages.js';
import { Expectations, isPinned, isSamePass, isShadowsAlone, wantsLower, type Expectation } from './expectations.js';
import { MainProgress } from './main-progress.js';
import type { LayerExperts, LoadEnd, PredictedExperts, SlotAction, SlotCounters, SlotEvent } from './slot-events.js';
import { SlotRoom, type SlotYielding } from './slot-room.js';
import {
  isSlotPinned,
  LOADED_PARTS,
  loadOf,
  SlotTable,
  type Slot,
  type SlotCache,
  type WaitedLoad,
} from './slot-table.js';
import { PARTS } from '../../shared/model/expert-parts.js';
import { QUEUED_PREDICTIONS_LIMIT } from '../../shared/wire/limits.js';
import { perState } from '../../shared/decisions/caching/load-times.js';

/** One load brings all that the worker has of an expert; or the upper slices come first, and the lower ones by a load of their own if needed. */
export type ExpertLoads = 'whole' | 'slices';

export class SlotSchedule implements SlotYielding {
  private readonly slots: SlotTable;
  private readonly cache: CacheDecisions | null;
  /** The same cache if it keeps slices. */
  private readonly sliced: SliceDecisions | null;
  /** Slots of the sliced cache whose expert lacks lower slices that somebody wants. */
  private readonly wantingLower = new Set<Slot>();
  private readonly expectations = new Expectations();
  private readonly progress = new MainProgress();
  readonly room: SlotRoom;
  /** Slots in which an execute may have become ready, or the expert may have become unneeded. */
  private readonly touched = new Set<number>();
  private readonly uses = perState(() => 0);
  private actions: SlotAction[] = [];
  private latePredictions = 0;
  private droppedPredictions = 0;
  private unannouncedLoads = 0;

  /** Without `cache` nothing is cached. The cache's slots have the numbers after the working ones. */
  constructor(
    workingSlots: number,
    cache: SlotCache | null = null,
    private readonly loads: ExpertLoads = 'whole',
  ) {
    this.slots = new SlotTable(workingSlots, cache?.slots ?? 0, cache !== null);
    this.cache = cache?.decisions ?? null;
    this.sliced = this.cache?.keeps === 'slices' ? this.cache : null;
    this.room = new SlotRoom(this.slots, this.expectations, this.progress, this.cache);
  }

  get counters(): SlotCounters {
    const { latePredictions, droppedPredictions, unannouncedLoads } = this;
    return { latePredictions, droppedPredictions, unannouncedLoads, uses: { ...this.uses } };
  }

  /** `sequences`: sequences with expectations. The progress of ended ones is remembered for a while and not counted. */
  get openCounts(): { expectations: number; sequences: number } {
    return this.expectations.openCounts;
  }

  /** Number of working slots in use. */
  get slotsInUse(): number {
    return this.slots.working.length - this.slots.workingIn('empty') - this.slots.workingIn('absent');
  }

  /** Loads under way that main waits for. */
  get waitedLoads(): WaitedLoad[] {
    return this.slots.waitedLoads();
  }

  /**
   * An execute needs the slot of a prediction. The choice waits for 'turnEnded', because messages that came together may still tell which
   * prediction was wrong.
   */
  get wantsTurnEnd(): boolean {
    return this.room.missingSlots() > 0 && this.room.victims('of other layers').length > 0;
  }

  /** An execute needs the slot of an expert of main's current layer. Main may still request that expert, which would then be loaded twice. */
  get wantsDecisionWaitEnd(): boolean {
    return this.room.missingSlots() > 0 && this.room.victims('all').length > 0;
  }

  handle(event: SlotEvent): SlotAction[] {
    this.actions = [];
    this.apply(event);
    do {
      this.runLoaded();
      this.addLowers();
      this.yieldDoubted();
      this.startLoads();
    } while (this.touched.size > 0);
    this.emptyLeft();
    return this.actions;
  }

  letGo(slot: Slot): void {
    if (slot.phase === 'loaded') this.empty(slot);
    this.slots.enter(slot, 'absent');
    this.actions.push({ kind: 'letGo', slot: slot.index });
  }

  displace(victim: Slot): void {
    const displaced = [...victim.attached];
    victim.attached.clear();
    this.abandon(victim);
    const winner = this.expectations.longestWaiting()?.pass.sequence;
    for (const expectation of displaced) {
      this.expectations.takeSlot(expectation);
      if (expectation.pass.sequence !== winner) this.expectations.moveToEnd(expectation);
    }
  }

  private apply(event: SlotEvent): void {
    switch (event.kind) {
      case 'predict':
        return this.predict(event.source, event);
      case 'doubt':
        return this.doubt(event);
      case 'restart':
        return this.restart(event);
      case 'execute':
        return this.execute(event);
      case 'release':
        return this.release(event);
      case 'end':
        return this.end(event.sequence);
      case 'loadSettled':
        return this.loadSettled(this.slots.at(event.slot), event);
      case 'executeSettled':
        return this.executeSettled(this.slots.at(event.slot));
      case 'turnEnded':
        return this.makeRoom(this.room.victims('of other layers'));
      case 'decisionWaitEnded':
        return this.makeRoom(this.room.victims('all'));
      case 'epochChanged':
        return this.dropAll(this.expectations.all().filter(({ claim }) => claim === 'none'));
      case 'capacitiesChanged':
        return this.changeCapacities(event.capacities);
      case 'memoryWanted':
        return this.room.yieldSlots(event.slots, this, event.spareOnly);
      case 'memoryTaken':
        return this.room.memoryTaken(this.slots.at(event.slot));
      case 'mainLost':
        return this.abandonAll();
    }
  }

  private predict(source: 'main' | 'shadow', prediction: PredictedExperts): void {
    const { rows, experts, critical = [] } = prediction;
    const late = this.progress.isLate(source, prediction);
    this.forgetOldSequences();
    if (late) {
      this.latePredictions += experts.length;
      return;
    }
    if (source === 'shadow') this.dropReplaced(prediction);
    for (const expert of experts) {
      const known = this.expectations.find(prediction, expert) ?? this.expectations.findJoint(prediction, expert);
      if (known !== undefined) {
        if (source === 'main') this.expectations.announcedByMain(known);
        this.expectations.doubt(known, false);
        this.expectations.addRows(known, rows);
        if (critical.includes(expert)) this.expectLower(known);
        continue;
      }
      const added = this.expectations.add(prediction, expert, source);
      if (critical.includes(expert)) this.expectLower(added);
      if (this.shareSlot(added)) continue;
      this.droppedPredictions += this.expectations.dropBeyond(QUEUED_PREDICTIONS_LIMIT, source);
    }
  }

  /** An expert that is loaded, or loads, stays where nothing else waits for its slot. */
  private doubt({ experts, ...here }: LayerExperts): void {
    for (const expert of experts) {
      const known = this.expectations.find(here, expert);
      if (known?.source === 'main' && known.claim === 'none') this.expectations.doubt(known, true);
    }
  }

  /** Experts that main doubts leave their slots to those that wait for one. */
  private yieldDoubted(): void {
    if (this.expectations.doubtedCount === 0) return;
    for (const slot of this.room.doubted) {
      if (this.room.missingForAll() <= 0) return;
      this.displace(slot);
    }
  }

  private expectLower(expectation: Expectation): void {
    expectation.expectsLower = true;
    if (expectation.slot !== null) this.touched.add(expectation.slot);
  }

  private dropReplaced({ pass, layer, experts }: LayerExperts): void {
    const earlier = this.expectations.ofLayer(pass, layer);
    this.dropAll(earlier.filter((old) => isShadowsAlone(old) && !experts.includes(old.expert)));
  }

  private restart({ sequence, position }: { sequence: number; position: number }): void {
    const shadows = this.expectations.concerning(sequence).filter(isShadowsAlone);
    this.dropAll(this.expectations.withdraw(shadows, { sequence, from: position, end: Infinity }));
  }

  private execute(event: Extract<SlotEvent, { kind: 'execute' }>): void {
    const { ticket, expert, last, readsLower = false, isOfHead = false, ...here } = event;
    this.progress.executed(here, isOfHead);
    this.dropPassed(here);
    let expectation = this.expectations.find(here, expert);
    if (expectation === undefined) {
      expectation = this.expectations.add(here, expert, 'main');
      // Nobody announces experts of the head.
      if (!this.shareSlot(expectation) && !isOfHead) this.unannouncedLoads += 1;
    } else this.expectations.addRows(expectation, here.rows);
    // A use costs one load, with any number of tokens and mini-batches.
    if (expectation.claim === 'none') this.cache?.activated(here.layer, expert, 1);
    this.expectations.doubt(expectation, false);
    const slot = expectation.slot === null ? null : this.slots.at(expectation.slot);
    const wasLoaded = slot?.phase === 'loaded' && (!readsLower || slot.lower === 'loaded');
    this.expectations.wait(expectation, { ticket, wasLoaded, readsLower });
    expectation.claim = last ? 'last' : 'held';
    if (slot !== null) this.touched.add(slot.index);
    for (const sequence of this.progress.idleSequences()) this.dropAll(this.expectations.ofSequence(sequence));
    this.forgetOldSequences();
  }

  private release({ experts, ...here }: LayerExperts): void {
    this.progress.released(here);
    this.dropPassed(here);
    for (const expert of experts) {
      const expectation = this.expectations.find(here, expert);
      if (expectation !== undefined) this.dropAll([expectation]);
    }
    this.forgetOldSequences();
  }

  /** Main is at this layer: expectations of the rows' sequences at earlier layers and positions will not be requested. */
  private dropPassed({ pass, rows, layer }: PassLayer): void {
    this.dropAll(this.expectations.before({ pass, layer }));
    for (const { sequence, position } of rows) {
      if (sequence !== pass.sequence)
        this.dropAll(this.expectations.before({ pass: { sequence, position }, layer: 0 }));
      const joined = this.expectations.joined(sequence).filter((other) => !isSamePass(other.pass, pass));
      if (joined.length > 0) this.dropAll(this.expectations.withdraw(joined, { sequence, from: 0, end: position }));
    }
  }

  private end(sequence: number): void {
    this.progress.end(sequence);
    const concerned = this.expectations.concerning(sequence);
    const ended = this.expectations.withdraw(concerned, { sequence, from: 0, end: Infinity });
    for (const { ticket } of this.endAll(ended)) this.actions.push({ kind: 'withdraw', ticket });
    this.forgetOldSequences();
  }

  private forgetOldSequences(): void {
    const inUse = (sequence: number): boolean => this.expectations.concerning(sequence).some(isPinned);
    for (const sequence of this.progress.forgetOldest(inUse)) this.dropAll(this.expectations.ofSequence(sequence));
  }

  private loadSettled(slot: Slot, { outcome, cached }: LoadEnd): void {
    if (slot.lower === 'loading') return this.lowerSettled(slot, outcome);
    const wasCancelled = slot.phase === 'cancelling';
    if (slot.use !== null) this.cache?.loaded(slot.use, { loaded: outcome === 'loaded', cached });
    if (outcome === 'loaded') {
      this.slots.enter(slot, 'loaded');
      if (bringsAll(slot)) this.lowerLoaded(slot, true);
      this.touched.add(slot.index);
      if (slot.attached.size === 0) this.endUse(slot);
      return;
    }
    const attached = [...slot.attached];
    slot.attached.clear();
    this.endUse(slot);
    for (const expectation of attached) {
      if (wasCancelled) {
        this.expectations.takeSlot(expectation);
        continue;
      }
      for (const { ticket } of expectation.waiting) this.actions.push({ kind: 'fail', slot: slot.index, ticket });
      this.expectations.remove(expectation);
    }
  }

  /** The upper slices are in the slot, however the load of the lower ones has ended. */
  private lowerSettled(slot: Slot, outcome: LoadEnd['outcome']): void {
    const wasCancelled = slot.phase === 'cancelling';
    this.lowerLoaded(slot, outcome === 'loaded');
    this.slots.enter(slot, 'loaded');
    this.touched.add(slot.index);
    if (slot.attached.size === 0) return this.endUse(slot);
    if (outcome === 'failed' && !wasCancelled) this.failLower(slot);
  }

  private lowerLoaded(slot: Slot, loaded: boolean): void {
    this.slots.setLower(slot, loaded ? 'loaded' : 'missing');
    if (slot.use !== null) this.sliced?.lowerLoaded(slot.use, loaded);
  }

  private failLower(slot: Slot, refusal?: OdmoeError): void {
    this.touched.add(slot.index);
    for (const expectation of slot.attached) {
      // The next execute that reads the lower slices tries again.
      expectation.expectsLower = false;
      const failed = this.expectations.takeWaiting(expectation, ({ readsLower }) => readsLower);
      for (const { ticket } of failed) {
        this.actions.push({ kind: 'fail', slot: slot.index, ticket, ...(refusal === undefined ? {} : { refusal }) });
      }
    }
  }

  private executeSettled(slot: Slot): void {
    const expectation = requirePresent(slot.running.shift(), () => `slot ${slot.index} runs what has ended in it.`);
    expectation.running -= 1;
    this.touched.add(slot.index);
  }

  private changeCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.cache?.setCapacities(capacities);
    for (const slot of this.slots.slots) {
      if (slot.phase === 'loaded' && slot.attached.size === 0 && !this.isCached(slot)) this.empty(slot);
    }
  }

  private abandonAll(): void {
    this.endAll(this.expectations.all());
    this.progress.clear();
  }

  /** Marks that no further mini-batch comes; a running expert is dropped after it has run. Returns the waiting executes, which nobody wants now. */
  private endAll(expectations: readonly Expectation[]): { ticket: number }[] {
    const waiting = expectations.flatMap((expectation) => this.expectations.takeWaiting(expectation));
    for (const expectation of expectations) expectation.claim = 'last';
    this.dropAll(expectations);
    return waiting;
  }

  private makeRoom(victims: Slot[]): void {
    while (this.room.missingSlots() > 0) {
      const victim = victims.shift();
      if (victim === undefined) return;
      this.displace(victim);
    }
  }

  private runLoaded(): void {
    for (const index of [...this.touched].sort((left, right) => left - right)) {
      const slot = this.slots.at(index);
      if (slot.phase === 'loaded') this.run(slot);
      if (this.slots.isAwaited(slot) && !slot.urgent) {
        slot.urgent = true;
        this.actions.push({ kind: 'prioritize', slot: index });
      }
    }
    this.touched.clear();
  }

  private run(slot: Slot): void {
    const started = [...slot.attached].flatMap((expectation) =>
      this.expectations
        .takeWaiting(expectation, ({ readsLower }) => !readsLower || slot.lower === 'loaded')
        .map((waiting) => ({ expectation, ...waiting })),
    );
    const cachedUse = this.useInCache(slot);
    if (cachedUse !== null && started.some(({ readsLower }) => readsLower)) this.sliced?.takeLower(cachedUse);
    for (const { expectation, ticket, wasLoaded } of started.sort((left, right) => left.ticket - right.ticket)) {
      this.actions.push({ kind: 'execute', slot: slot.index, ticket, wasLoaded });
      expectation.running += 1;
      slot.running.push(expectation);
    }
    this.dropAll([...slot.attached].filter(({ claim }) => claim === 'last'));
    if (!lacksLower(slot)) return;
    if (this.sliced === null || this.slots.isWorking(slot)) this.loadLower(slot);
    else this.wantingLower.add(slot);
  }

  /** Gives room for lower slices to slots of the sliced cache: first to those for which executes wait. */
  private addLowers(): void {
    const wanting = [...this.wantingLower].filter(lacksLower);
    this.wantingLower.clear();
    const [awaited, expected]: [Slot[], Slot[]] = [[], []];
    for (const slot of wanting) (isLowerAwaited(slot) ? awaited : expected).push(slot);
    for (const slot of [...awaited, ...expected]) {
      if (!this.addLower(slot, isLowerAwaited(slot))) this.wantingLower.add(slot);
    }
  }

  /** False: there is no room until another use ends. `mayDisplace`: an expert that is only expected may lose its lower slices for it. */
  private addLower(slot: Slot, mayDisplace: boolean): boolean {
    const use = this.useInCache(slot);
    if (this.sliced === null || use === null) return true;
    let memory = this.sliced.takeLower(use);
    const [victim] = memory === 'noRoom' && mayDisplace ? this.room.lowerVictims() : [];
    if (victim !== undefined) {
      this.sliced.giveUpLower(requirePresent(victim.use, 'an expert that somebody expects is in use.'));
      this.slots.setLower(victim, 'missing');
      if (lacksLower(victim)) this.wantingLower.add(victim);
      memory = this.sliced.takeLower(use);
    }
    if (memory === 'noRoom') return false;
    if (memory === 'taken') this.loadLower(slot);
    else this.failLower(slot, memory);
    return true;
  }

  /** Adds the lower slices to the expert in the slot. */
  private loadLower(slot: Slot): void {
    this.slots.setLower(slot, 'loading');
    slot.parts = LOADED_PARTS.lower;
    slot.urgent = this.slots.isAwaited(slot);
    this.actions.push({ kind: 'load', ...loadOf(slot) });
  }

  private startLoads(): void {
    for (let empty = this.slots.firstEmpty(); empty !== undefined; empty = this.slots.firstEmpty()) {
      const next = this.expectations.nextToLoad();
      if (next === undefined) return;
      if (!this.shareSlot(next)) this.load(next, empty);
    }
  }

  private load(next: Expectation, empty: Slot): void {
    const { layer, expert } = next;
    const use = this.cache?.acquire(layer, [expert])[0] ?? null;
    const fullEntry = use?.fullEntry ?? null;
    const slot = fullEntry === null ? empty : this.slots.ofCache(fullEntry);
    if (slot.phase === 'loaded') this.empty(slot);
    this.slots.enter(slot, 'loading', next);
    this.beginUse(slot, use);
    const sharing = this.cache === null ? [next] : this.expectations.wanting(next);
    for (const expectation of sharing) this.attach(expectation, slot);
    slot.urgent = isSlotPinned(slot);
    const loadsAll = this.loads === 'whole' && this.hasLowerRoom(slot);
    slot.parts = loadsAll ? (use?.parts ?? LOADED_PARTS.all) : LOADED_PARTS.upper;
    this.actions.push({ kind: 'load', ...loadOf(slot) });
  }

  private hasLowerRoom(slot: Slot): boolean {
    const use = this.useInCache(slot);
    return this.sliced === null || use === null || this.sliced.takeLower(use) === 'taken';
  }

  /** The use of the expert in a slot of the cache; null for a working slot, and where nothing uses the expert. */
  private useInCache(slot: Slot): CacheUse | null {
    return this.slots.isWorking(slot) ? null : slot.use;
  }

  /** With a cache: gives the expectation the slot that has its expert or loads it. False: there is none. */
  private shareSlot(expectation: Expectation): boolean {
    if (this.cache === null) return false;
    let slot = this.slots.holding(expectation);
    if (slot === undefined) {
      const { layer, expert } = expectation;
      if (!this.cache.isInSlot(layer, expert)) return false;
      const use = requirePresent(this.cache.acquire(layer, [expert])[0], 'a use is acquired for each expert.');
      slot = this.slots.ofCache(requirePresent(use.fullEntry, 'an expert that is cached whole has an entry.'));
      const isIts = slot.phase === 'loaded' && slot.layer === layer && slot.expert === expert;
      assertInvariant(isIts, 'the slot of an expert that is cached whole holds it.');
      this.beginUse(slot, use);
      if (this.sliced !== null) this.slots.setLower(slot, this.sliced.hasLower(use) ? 'loaded' : 'missing');
    }
    this.attach(expectation, slot);
    return true;
  }

  private attach(expectation: Expectation, slot: Slot): void {
    this.expectations.giveSlot(expectation, slot.index);
    slot.attached.add(expectation);
    this.touched.add(slot.index);
  }

  private beginUse(slot: Slot, use: CacheUse | null): void {
    slot.use = use;
    this.uses[use?.state ?? 'missing'] += 1;
    this.slots.markInUse(slot, true);
  }

  /** Ends the use of the slot's expert: nothing wants it, or its load failed. */
  private endUse(slot: Slot): void {
    this.slots.markInUse(slot, false);
    if (slot.use !== null) this.cache?.endUse(slot.use);
    slot.use = null;
    if (slot.phase !== 'loaded') this.slots.enter(slot, 'empty');
    else if (!this.isCached(slot)) this.empty(slot);
  }

  private isCached(slot: Slot): boolean {
    return !this.slots.isWorking(slot) && this.cache?.isInSlot(slot.layer, slot.expert) === true;
  }

  /** Empties the slots whose experts have left the sliced cache. */
  private emptyLeft(): void {
    for (const entry of this.sliced?.takeLeft() ?? []) {
      const slot = this.slots.ofCache(entry);
      if (slot.phase === 'loaded' && slot.attached.size === 0 && !this.isCached(slot)) this.empty(slot);
    }
  }

  private empty(slot: Slot): void {
    assertInvariant(slot.running.length === 0, () => `nothing runs in slot ${slot.index}, whose expert goes.`);
    this.actions.push({ kind: 'evict', slot: slot.index });
    this.slots.enter(slot, 'empty');
  }

  /** Called when no expectation is attached to the slot. */
  private abandon(slot: Slot): void {
    if (slot.phase === 'loading' || (slot.phase === 'loaded' && slot.lower === 'loading')) {
      this.actions.push({ kind: 'cancelLoad', slot: slot.index });
      this.slots.enter(slot, 'cancelling');
    } else if (slot.phase === 'loaded') {
      this.endUse(slot);
    }
  }

  /** Drops these expectations, except those with waiting or running executes. */
  private dropAll(expectations: readonly Expectation[]): void {
    for (const expectation of expectations) {
      if (isPinned(expectation)) continue;
      this.expectations.remove(expectation);
      if (expectation.slot === null) continue;
      const slot = this.slots.at(expectation.slot);
      slot.attached.delete(expectation);
      if (slot.attached.size === 0) this.abandon(slot);
    }
  }
}

/** The slot's load brings all that the worker has of the expert. */
function bringsAll({ parts }: Slot): boolean {
  return PARTS.every((part) => parts[part].from !== 'notWanted');
}

/** Somebody wants the lower slices of the expert in the slot, and no load brings them. */
function lacksLower({ phase, lower, attached }: Slot): boolean {
  return phase === 'loaded' && lower === 'missing' && [...attached].some(wantsLower);
}

function isLowerAwaited({ attached }: Slot): boolean {
  return [...attached].some(({ waiting }) => waiting.some(({ readsLower }) => readsLower));
}
