import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ExpertPolicy, PoolCapacities } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { CachePools } from '../../worker-node/cache/cache-pools.js';
import { SlicesInSlots } from '../../worker-node/cache/slice-decisions.js';
import { SliceMemory, type SlotMemoryCalls } from '../../worker-node/cache/slice-memory.js';
import type { CachedPart } from '../../worker-node/loader/cache-decisions.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { LoadEnd, SlotAction, SlotEvent, SlotLoad } from '../../worker-node/loader/slot-events.js';
import { type ExpertLoads, SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import { PARTS, perPart, type Part, type PerPart } from '../../shared/model/expert-parts.js';
import { entriesOf, NO_CAPACITIES, perEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

/** A cache of slices, with the memory of its device in bytes. */
export interface ModelSlices {
  policy: 'sliced';
  layers: number;
  experts: number;
  upperBytes: number;
  lowerBytes: number;
  bytes: number;
  lowerPlaces: number;
  /** Every so many calls the device refuses memory; 0: never. */
  refusals: number;
}

/** Pools of a model device: number of experts of each layer in each pool. */
export interface ModelPools {
  policy: ExpertPolicy;
  layers: number;
  experts: number;
  each: PoolCapacities;
}

export type ModelCache = ModelPools | ModelSlices;

interface ModelSlot {
  /** Slots of a cache of slices take memory and give it back. */
  hasMemory: boolean;
  hasLowerMemory: boolean;
  content: string | null;
  phase: 'empty' | 'loading' | 'cancelling' | 'loaded';
  /** The lower slices; 'loading' also while their load is being cancelled. */
  lower: 'missing' | 'loading' | 'loaded';
  running: number[];
  load: SlotLoad | null;
}

/** An entry for one part of an expert. */
interface ModelEntry {
  content: string | null;
  /** Slots whose loads fill the entry or read it. */
  filledBy: number | null;
  readers: Set<number>;
}

/** An expert in one pass of one sequence. */
export interface PassExpert extends ExpertId {
  readonly sequence: number;
  readonly position: number;
}

/** Runs a schedule's actions in a model of the device. It fails on the first action that a real device could not run. */
export class ModelDevice {
  readonly schedule: SlotSchedule;
  readonly slots: ModelSlot[];
  readonly asked = new Map<number, PassExpert>();
  readonly answered = new Map<number, 'ran' | 'failed' | 'withdrawn'>();
  readonly decisions: CachePools | SlicesInSlots | null;
  readonly abandoned = new Set<number>();
  /** Tickets of executes that read the lower slices. */
  private readonly readers = new Set<number>();
  /** "layer expert" -> the passes for which main has doubted it since it was named last. */
  private readonly doubted = new Map<string, Set<string>>();
  private readonly workingSlots: number;
  private readonly cache: ModelCache | null;
  private readonly entries: PerPart<ModelEntry[]>;
  private readonly started: number[] = [];
  private ticket = 0;

  constructor(
    workingSlots: number,
    cache: ModelCache | null = null,
    private readonly loads: ExpertLoads = 'whole',
  ) {
    const layers = cache?.layers ?? 0;
    const ofLayer = entriesOf(eachOf(cache));
    const entries = perEntryKind((kind) => layers * ofLayer[kind]);
    const cacheSlots = cache?.policy === 'sliced' ? slotsOfSlices(cache) : entries.full;
    this.decisions = cache === null ? null : this.decisionsOf(cache, entries, workingSlots);
    const slotCache = this.decisions === null ? null : { slots: cacheSlots, decisions: this.decisions };
    this.schedule = new SlotSchedule(workingSlots, slotCache, loads);
    this.slots = times(workingSlots + cacheSlots, (_, slot) => ({
      hasMemory: true,
      hasLowerMemory: cache?.policy !== 'sliced' || slot < workingSlots,
      content: null,
      phase: 'empty',
      lower: 'missing',
      running: [],
      load: null,
    }));
    const entry = (): ModelEntry => ({ content: null, filledBy: null, readers: new Set() });
    this.entries = perPart((part) => times(entries[part], entry));
    this.workingSlots = workingSlots;
    this.cache = cache;
    this.serve(times(layers, (_, layer) => layer));
  }

  get working(): ModelSlot[] {
    return this.slots.slice(0, this.workingSlots);
  }

  get cached(): ModelSlot[] {
    return this.slots.slice(this.workingSlots);
  }

  /** "slot layer expert" of every load under way that is wanted. Main doubts none of them: such a load gives way to others. */
  loading(): string[] {
    return this.slots.flatMap(({ phase, load }, slot) =>
      phase === 'loading' && load !== null && !this.isDoubted(load) ? [`${slot} ${load.layer} ${load.expert}`] : [],
    );
  }

  /** From now on the pools are those of these layers. */
  serve(layers: readonly number[]): void {
    const each = eachOf(this.cache);
    this.send({ kind: 'capacitiesChanged', capacities: new Map(layers.map((layer) => [layer, each])) });
  }

  execute(place: PassExpert, last: boolean, readsLower = false): void {
    const ticket = ++this.ticket;
    this.asked.set(ticket, place);
    if (readsLower) this.readers.add(ticket);
    const { sequence, position, layer, expert } = place;
    this.send({ kind: 'execute', ticket, last, ...passOfSequence(sequence, position, 1), layer, expert, readsLower });
  }

  send(event: SlotEvent): void {
    this.noteDoubts(event);
    for (const action of this.schedule.handle(event)) this.carryOut(action);
    for (const { slot, tickets } of this.schedule.waitedLoads) {
      if (this.slots[slot]?.lower !== 'loading') continue;
      for (const ticket of tickets)
        assert.ok(this.readers.has(ticket), 'an execute waits for lower slices that it does not read');
    }
  }

  private noteDoubts(event: SlotEvent): void {
    if (event.kind !== 'doubt' && event.kind !== 'predict' && event.kind !== 'execute') return;
    const pass = `${event.pass.sequence} ${event.pass.position}`;
    for (const expert of event.kind === 'execute' ? [event.expert] : event.experts) {
      const key = `${event.layer} ${expert}`;
      const passes = this.doubted.get(key) ?? new Set<string>();
      if (event.kind === 'doubt') passes.add(pass);
      else passes.delete(pass);
      this.doubted.set(key, passes);
    }
  }

  private isDoubted({ layer, expert }: { layer: number; expert: number }): boolean {
    return (this.doubted.get(`${layer} ${expert}`)?.size ?? 0) > 0;
  }

  /** Lets one thing under way end; false when nothing is. */
  settle(choice: number, loadFails: boolean): boolean {
    const busy = [...this.slots.entries()].filter(
      ([, { phase, lower, running }]) =>
        phase === 'loading' || phase === 'cancelling' || lower === 'loading' || running.length > 0,
    );
    const [index, slot] = busy[choice % Math.max(1, busy.length)] ?? [];
    if (index === undefined || slot === undefined) return false;
    // While the lower slices load, executes with the upper ones run and end.
    if (slot.running.length > 0 && (slot.lower !== 'loading' || choice % 3 > 0)) {
      this.answered.set(slot.running.shift() as number, 'ran');
      this.send({ kind: 'executeSettled', slot: index });
    } else if (slot.phase === 'cancelling') {
      // A load may have been through before the cancellation reached it.
      this.endLoad(index, choice % 2 === 0 ? 'loaded' : 'cancelled', choice);
    } else {
      this.endLoad(index, loadFails ? 'failed' : 'loaded', choice);
    }
    return true;
  }

  endTurn(): void {
    if (this.schedule.wantsTurnEnd) this.send({ kind: 'turnEnded' });
  }

  endDecisionWait(): void {
    if (this.schedule.wantsDecisionWaitEnd) this.send({ kind: 'decisionWaitEnded' });
  }

  drain(): void {
    for (let step = 0; step < 10_000; step++) {
      this.endTurn();
      this.endDecisionWait();
      if (!this.settle(step, false)) return;
    }
    assert.fail('the schedule does not come to rest');
  }

  abandon(): void {
    for (const ticket of this.asked.keys()) if (!this.started.includes(ticket)) this.abandoned.add(ticket);
    this.send({ kind: 'mainLost' });
  }

  private decisionsOf(
    cache: ModelCache,
    entries: ReturnType<typeof entriesOf>,
    firstSlot: number,
  ): CachePools | SlicesInSlots {
    const { experts, policy } = cache;
    if (policy !== 'sliced') {
      return new CachePools({ policy, experts, entries, toleranceMargin: 1, random: () => 0.5 });
    }
    const slots = slotsOfSlices(cache);
    const memory = new SliceMemory({ ...cache, slots, firstSlot, isShared: false, calls: this.memoryCalls(cache) });
    return new SlicesInSlots({ ...cache, hasLower: true }, memory);
  }

  private memoryCalls({ refusals, bytes, upperBytes, lowerBytes }: ModelSlices): SlotMemoryCalls {
    let calls = 0;
    const slotAt = (index: number): ModelSlot => this.slots[index] ?? assert.fail(`there is no slot ${index}`);
    const idle = (index: number): ModelSlot => {
      const slot = slotAt(index);
      assert.ok(slot.phase !== 'loading' && slot.phase !== 'cancelling', 'memory moves under a load');
      assert.notEqual(slot.lower, 'loading', 'memory moves under a load of lower slices');
      assert.ok(
        slot.running.every((ticket) => !this.readers.has(ticket)),
        'memory moves under an execute',
      );
      return slot;
    };
    const fitting = (): void => {
      const used = this.cached.reduce(
        (sum, { hasMemory, hasLowerMemory }) => sum + (hasMemory ? upperBytes : 0) + (hasLowerMemory ? lowerBytes : 0),
        0,
      );
      assert.ok(used <= bytes, `${used} of ${bytes} bytes`);
    };
    const refuse = (): void => {
      calls += 1;
      if (refusals > 0 && calls % refusals === 0) throw new OdmoeError('DEVICE_OUT_OF_MEMORY', 'the model is full');
    };
    return {
      take: (index) => {
        refuse();
        idle(index).hasMemory = true;
        fitting();
      },
      letGo: (index) => {
        const slot = idle(index);
        assert.deepEqual(slot.running, []);
        slot.hasMemory = slot.hasLowerMemory = false;
      },
      takeLower: (index) => {
        refuse();
        idle(index).hasLowerMemory = true;
        fitting();
      },
      letGoLower: (index) => {
        const slot = idle(index);
        slot.hasLowerMemory = false;
        slot.lower = 'missing';
      },
    };
  }

  private carryOut(action: SlotAction): void {
    if (action.kind === 'withdraw') {
      assert.equal(this.started.includes(action.ticket), false, 'an execute that runs is withdrawn');
      assert.equal(this.answered.has(action.ticket), false);
      this.answered.set(action.ticket, 'withdrawn');
      return;
    }
    const slot = this.slots[action.slot];
    assert.ok(slot);
    switch (action.kind) {
      case 'load':
        return this.beginLoad(action, slot);
      case 'cancelLoad':
        assert.ok(isLoading(slot), 'a load is cancelled that is not under way');
        assert.deepEqual(slot.running, [], 'an expert in use loses its load');
        slot.phase = 'cancelling';
        return;
      case 'evict':
        assert.equal(slot.phase, 'loaded');
        assert.deepEqual(slot.running, [], 'an expert in use is evicted');
        assert.notEqual(slot.lower, 'loading', 'an expert is evicted while its lower slices load');
        slot.phase = 'empty';
        slot.lower = 'missing';
        return;
      case 'execute':
        return this.start(action.ticket, slot);
      case 'prioritize':
        assert.ok(isLoading(slot), 'a load is urgent that is not under way');
        return;
      case 'letGo':
        return assert.fail('memory is given up only by a device that shares it with rows of answers');
      case 'fail':
        assert.equal(this.answered.has(action.ticket), false);
        this.answered.set(action.ticket, 'failed');
        return;
    }
  }

  private beginLoad(load: SlotLoad, slot: ModelSlot): void {
    const content = `${load.layer} ${load.expert}`;
    if (load.parts.exponent.from === 'notWanted') return this.beginLowerLoad(load, slot, content);
    assert.equal(slot.phase, 'empty', 'a load overwrites a slot');
    assert.ok(slot.hasMemory, 'a load has no memory');
    const lower = load.parts.signMantissa.from;
    if (lower !== 'notWanted') assert.ok(slot.hasLowerMemory, 'lower slices have no memory');
    // A cache of slices may have room for the upper ones alone.
    const mayLackLower = this.loads === 'slices' || this.cache?.policy === 'sliced';
    assert.ok(
      lower === 'notWanted' ? mayLackLower : this.loads === 'whole',
      'a load of an expert is not what the schedule was made for',
    );
    if (this.cache !== null) {
      const twin = this.slots.findIndex((other) => other.phase !== 'empty' && other.content === content);
      assert.equal(twin, -1, `expert ${content} is loaded, and slot ${twin} has it`);
    }
    slot.phase = 'loading';
    slot.content = content;
    slot.load = load;
    for (const part of PARTS) this.usePart(part, load.parts[part], load.slot, content);
  }

  private beginLowerLoad(load: SlotLoad, slot: ModelSlot, content: string): void {
    assert.deepEqual([slot.phase, slot.lower], ['loaded', 'missing']);
    assert.ok(this.loads === 'slices' || this.cache?.policy === 'sliced');
    assert.ok(slot.hasLowerMemory, 'lower slices have no memory');
    assert.equal(slot.content, content, 'lower slices of another expert are added');
    slot.lower = 'loading';
    slot.load = load;
  }

  private usePart(part: Part, plan: CachedPart, slot: number, content: string): void {
    if (plan.entry < 0) return assert.notEqual(plan.from, 'entry');
    const entry = this.entries[part][plan.entry] ?? assert.fail(`there is no entry ${plan.entry} for ${part}`);
    assert.equal(entry.filledBy, null, 'an entry is used while a load fills it');
    if (plan.from === 'entry') {
      assert.equal(entry.content, content, 'an entry has not what is to be taken from it');
      entry.readers.add(slot);
      return;
    }
    assert.equal(entry.readers.size, 0, 'an entry is filled while a load reads it');
    entry.filledBy = slot;
    entry.content = null;
  }

  private endLoad(index: number, outcome: LoadEnd['outcome'], choice: number): void {
    const slot = this.slots[index];
    assert.ok(slot?.load);
    if (slot.lower === 'loading') {
      slot.lower = outcome === 'loaded' ? 'loaded' : 'missing';
      slot.phase = 'loaded';
    } else {
      slot.phase = outcome === 'loaded' ? 'loaded' : 'empty';
      const isWhole = slot.load.parts.signMantissa.from !== 'notWanted';
      slot.lower = outcome === 'loaded' && isWhole ? 'loaded' : 'missing';
    }
    const isCached = (part: Part, chance: number): boolean => {
      const plan = slot.load?.parts[part];
      const entry = plan === undefined ? undefined : this.entries[part][plan.entry];
      if (entry === undefined) return false;
      entry.readers.delete(index);
      if (entry.filledBy !== index) return false;
      entry.filledBy = null;
      const kept = outcome === 'loaded' || chance % 2 === 0;
      if (kept) entry.content = slot.content;
      return kept;
    };
    const cached = perPart((part) => isCached(part, choice >> (1 + PARTS.indexOf(part))));
    this.send({ kind: 'loadSettled', slot: index, outcome, cached });
  }

  private start(ticket: number, slot: ModelSlot): void {
    const place = this.asked.get(ticket);
    assert.ok(place);
    assert.equal(slot.phase, 'loaded');
    assert.equal(slot.content, `${place.layer} ${place.expert}`, 'another expert than the one asked for runs');
    assert.ok(!this.started.includes(ticket) && !this.abandoned.has(ticket));
    const readsLower = this.readers.has(ticket);
    if (readsLower) assert.equal(slot.lower, 'loaded', 'an execute runs without the lower slices that it reads');
    // An execute that needs no more than the upper slices overtakes those that wait for the lower ones.
    const earlier = this.started.filter(
      (other) => this.readers.has(other) === readsLower && samePlace(this.asked.get(other), place),
    );
    assert.ok(
      earlier.every((other) => other < ticket),
      'mini-batches of an expert run out of order',
    );
    this.started.push(ticket);
    slot.running.push(ticket);
  }
}

function eachOf(cache: ModelCache | null): PoolCapacities {
  return cache === null || cache.policy === 'sliced' ? NO_CAPACITIES : cache.each;
}

function slotsOfSlices({ bytes, upperBytes, layers, experts }: ModelSlices): number {
  return Math.min(layers * experts, Math.floor(bytes / upperBytes));
}

function times<T>(count: number, make: (value: undefined, index: number) => T): T[] {
  return Array.from({ length: count }, make);
}

function isLoading({ phase, lower }: ModelSlot): boolean {
  return phase === 'loading' || (phase === 'loaded' && lower === 'loading');
}

function samePlace(left: PassExpert | undefined, right: PassExpert): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}
