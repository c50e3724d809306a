/**
 * Decides what each expert slot of a worker loads, runs and drops (OD-MoE section 3: load just before use, evict right after).
 * Pure: events in, actions out. Its caller carries the actions out and reports how they ended.
 *
 * - An execute always gets its turn: if no slot is free, a prediction makes room, the one needed latest first.
 * - An expert with work on it is never dropped; after its last mini-batch it is dropped at once.
 * - Predictions at or behind main's progress in their sequence are late and are not loaded.
 */
import {
  Expectations,
  compareProgress,
  isPinned,
  type Expectation,
  type ExpertPlace,
  type WaitingExecute,
} from './expectations.js';
import { SequenceProgress } from './sequence-progress.js';

/** Predictions that wait for a slot; beyond it the oldest is dropped. */
export const MAX_QUEUED_PREDICTIONS = 1024;

export interface PredictedExperts {
  sequence: number;
  position: number;
  layer: number;
  experts: readonly number[];
}

export type SlotEvent =
  /** Of shadow, a later prediction for the same layer replaces an earlier one; of main, it adds. */
  | ({ kind: 'predict'; source: 'main' | 'shadow' } & PredictedExperts)
  /** Tickets rise from event to event. `last`: no mini-batch for this expert follows. */
  | ({ kind: 'execute'; ticket: number; last: boolean } & ExpertPlace)
  /** No experts: the sequence has ended. */
  | ({ kind: 'release' } & PredictedExperts)
  | { kind: 'loadSettled'; slot: number; outcome: 'loaded' | 'cancelled' | 'failed' }
  | { kind: 'executeSettled'; slot: number }
  /** All messages that had come together are in; sent when `wantsTurnEnd`. */
  | { kind: 'turnEnded' }
  /** What main may still have had to say about the layer it is at has had time to come; sent when `wantsGraceEnd`. */
  | { kind: 'graceEnded' }
  /** Another placement: what was predicted under the old one is void. */
  | { kind: 'epochChanged' }
  /** Main is gone: nobody waits for anything any more. */
  | { kind: 'mainLost' };

export type SlotAction =
  | { kind: 'load'; slot: number; layer: number; expert: number }
  | { kind: 'cancelLoad'; slot: number }
  | { kind: 'evict'; slot: number }
  | { kind: 'execute'; slot: number; ticket: number; wasLoaded: boolean }
  /** The expert could not be loaded into the slot. */
  | { kind: 'fail'; slot: number; ticket: number };

interface Slot {
  phase: 'empty' | 'loading' | 'cancelling' | 'loaded';
  expectation: Expectation | null;
}

export class SlotSchedule {
  readonly #slots: Slot[];
  readonly #expectations = new Expectations();
  readonly #progress = new SequenceProgress();
  #actions: SlotAction[] = [];
  #latePredictions = 0;
  #droppedPredictions = 0;
  #reloads = 0;

  constructor(slotCount: number) {
    this.#slots = Array.from({ length: slotCount }, () => ({ phase: 'empty', expectation: null }));
  }

  /** Experts that came too late to be loaded; that were dropped for want of room; that no prediction had announced. */
  get counters(): { latePredictions: number; droppedPredictions: number; reloads: number } {
    return {
      latePredictions: this.#latePredictions,
      droppedPredictions: this.#droppedPredictions,
      reloads: this.#reloads,
    };
  }

  get slotsInUse(): number {
    return this.#slots.filter((slot) => slot.phase !== 'empty').length;
  }

  /**
   * An execute needs a prediction to make room. Choosing waits for 'turnEnded', because messages that came together may still
   * say which prediction was wrong.
   */
  get wantsTurnEnd(): boolean {
    return this.#missingSlots() > 0 && this.#victims('of other layers').length > 0;
  }

  /**
   * An execute needs an expert of the very layer that main is at to make room. Main is sending its word on that one, too: to
   * drop it now would most often mean to load it twice.
   */
  get wantsGraceEnd(): boolean {
    return this.#missingSlots() > 0 && this.#victims('all').length > 0;
  }

  handle(event: SlotEvent): SlotAction[] {
    this.#actions = [];
    this.#apply(event);
    this.#schedule();
    return this.#actions;
  }

  #apply(event: SlotEvent): void {
    switch (event.kind) {
      case 'predict':
        return this.#predict(event.source, event);
      case 'execute':
        return this.#execute(event, event.ticket, event.last);
      case 'release':
        return this.#release(event);
      case 'loadSettled':
        return this.#loadSettled(event.slot, event.outcome);
      case 'executeSettled':
        return this.#executeSettled(event.slot);
      case 'turnEnded':
        return this.#makeRoom(this.#victims('of other layers'));
      case 'graceEnded':
        return this.#makeRoom(this.#victims('all'));
      case 'epochChanged':
        return this.#dropWhere((expectation) => expectation.claim === 'none');
      case 'mainLost':
        return this.#abandonAll();
    }
  }

  #predict(source: 'main' | 'shadow', prediction: PredictedExperts): void {
    const { sequence, position, layer, experts } = prediction;
    const late = this.#progress.isLate(source, sequence, position, layer);
    this.#forgetOldSequences();
    if (late) {
      this.#latePredictions += experts.length;
      return;
    }
    if (source === 'shadow') this.#dropReplaced(prediction);
    for (const expert of experts) {
      const place = { sequence, position, layer, expert };
      if (this.#expectations.find(place) !== undefined) continue;
      this.#expectations.add(place, source);
      this.#boundQueue();
    }
  }

  #dropReplaced({ sequence, position, layer, experts }: PredictedExperts): void {
    const isReplaced = (old: Expectation): boolean =>
      old.sequence === sequence &&
      old.position === position &&
      old.layer === layer &&
      old.source === 'shadow' &&
      old.claim === 'none' &&
      !experts.includes(old.expert);
    this.#dropWhere(isReplaced);
  }

  #boundQueue(): void {
    const queued = this.#expectations.queuedPredictions();
    if (queued.length <= MAX_QUEUED_PREDICTIONS) return;
    const oldest = queued.reduce((best, expectation) => (expectation.order < best.order ? expectation : best));
    this.#expectations.remove(oldest);
    this.#droppedPredictions += 1;
  }

  #execute(place: ExpertPlace, ticket: number, last: boolean): void {
    this.#progress.executed(place.sequence, place.position, place.layer);
    this.#dropPassed(place);
    let expectation = this.#expectations.find(place);
    if (expectation === undefined) {
      expectation = this.#expectations.add(place, 'main');
      this.#reloads += 1;
    }
    const wasLoaded = expectation.slot !== null && this.#slots[expectation.slot]?.phase === 'loaded';
    expectation.waiting.push({ ticket, wasLoaded });
    expectation.claim = last ? 'last' : 'held';
    const idle = new Set(this.#progress.idleSequences());
    if (idle.size > 0) this.#dropWhere((other) => idle.has(other.sequence));
    this.#forgetOldSequences();
  }

  #release({ sequence, position, layer, experts }: PredictedExperts): void {
    if (experts.length === 0) {
      this.#progress.end(sequence);
      this.#dropWhere((expectation) => expectation.sequence === sequence);
    } else {
      this.#progress.released(sequence, position, layer);
      this.#dropPassed({ sequence, position, layer });
      for (const expert of experts) {
        const expectation = this.#expectations.find({ sequence, position, layer, expert });
        if (expectation !== undefined && !isPinned(expectation)) this.#drop(expectation);
      }
    }
    this.#forgetOldSequences();
  }

  /** Main is at this layer: what its sequence expected of earlier ones will not be asked for. */
  #dropPassed(here: { sequence: number; position: number; layer: number }): void {
    this.#dropWhere((expectation) => expectation.sequence === here.sequence && compareProgress(expectation, here) < 0);
  }

  #forgetOldSequences(): void {
    const inUse = (sequence: number): boolean => this.#expectations.ofSequence(sequence).some(isPinned);
    const forgotten = new Set(this.#progress.forgetOldest(inUse));
    if (forgotten.size > 0) this.#dropWhere((expectation) => forgotten.has(expectation.sequence));
  }

  #loadSettled(index: number, outcome: 'loaded' | 'cancelled' | 'failed'): void {
    const slot = this.#slot(index);
    const expectation = slot.expectation;
    if (expectation !== null && outcome === 'loaded') {
      slot.phase = 'loaded';
      return;
    }
    if (outcome === 'loaded') this.#actions.push({ kind: 'evict', slot: index });
    slot.phase = 'empty';
    if (expectation === null) return;
    for (const { ticket } of expectation.waiting) this.#actions.push({ kind: 'fail', slot: index, ticket });
    slot.expectation = null;
    this.#expectations.remove(expectation);
  }

  #executeSettled(index: number): void {
    const expectation = this.#slot(index).expectation;
    if (expectation !== null) expectation.running -= 1;
  }

  #abandonAll(): void {
    for (const expectation of this.#expectations.all) {
      expectation.waiting = [];
      expectation.claim = 'last';
    }
    this.#dropWhere(() => true);
    this.#progress.clear();
  }

  #makeRoom(victims: Expectation[]): void {
    while (this.#missingSlots() > 0) {
      const victim = victims.shift();
      if (victim === undefined) return;
      this.#vacate(victim);
      if (victim.sequence !== this.#expectations.needy()[0]?.sequence) this.#expectations.moveToEnd(victim);
    }
  }

  /** Executes without a slot, beyond those that a free slot or one being emptied will serve. */
  #missingSlots(): number {
    const coming = this.#slots.filter((slot) => slot.phase === 'empty' || slot.phase === 'cancelling').length;
    return this.#expectations.needy().length - coming;
  }

  /**
   * Expectations in slots that may make room, best first: predictions before experts between two mini-batches; sequences that
   * have not executed for longest; then the layer that main reaches latest.
   */
  #victims(which: 'all' | 'of other layers'): Expectation[] {
    const recency = (expectation: Expectation): number => this.#progress.lastExecute(expectation.sequence);
    const held = (expectation: Expectation): number => (expectation.claim === 'held' ? 1 : 0);
    return this.#slots
      .flatMap((slot) => slot.expectation ?? [])
      .filter((expectation) => !isPinned(expectation) && (which === 'all' || !this.#progress.isAtMain(expectation)))
      .sort(
        (left, right) =>
          held(left) - held(right) ||
          recency(left) - recency(right) ||
          compareProgress(right, left) ||
          right.order - left.order,
      );
  }

  #schedule(): void {
    for (const [index, slot] of this.#slots.entries()) {
      const expectation = slot.expectation;
      if (slot.phase !== 'loaded' || expectation === null) continue;
      const waiting: WaitingExecute[] = expectation.waiting.splice(0);
      for (const { ticket, wasLoaded } of waiting)
        this.#actions.push({ kind: 'execute', slot: index, ticket, wasLoaded });
      expectation.running += waiting.length;
      if (expectation.running === 0 && expectation.claim === 'last') this.#drop(expectation);
    }
    for (const [index, slot] of this.#slots.entries()) {
      if (slot.phase !== 'empty') continue;
      const next = this.#expectations.nextToLoad();
      if (next === undefined) return;
      slot.phase = 'loading';
      slot.expectation = next;
      next.slot = index;
      this.#actions.push({ kind: 'load', slot: index, layer: next.layer, expert: next.expert });
    }
  }

  #dropWhere(condition: (expectation: Expectation) => boolean): void {
    for (const expectation of this.#expectations.all) {
      if (!isPinned(expectation) && condition(expectation)) this.#drop(expectation);
    }
  }

  #drop(expectation: Expectation): void {
    this.#vacate(expectation);
    this.#expectations.remove(expectation);
  }

  #vacate(expectation: Expectation): void {
    const index = expectation.slot;
    if (index === null) return;
    const slot = this.#slot(index);
    this.#actions.push({ kind: slot.phase === 'loading' ? 'cancelLoad' : 'evict', slot: index });
    slot.phase = slot.phase === 'loading' ? 'cancelling' : 'empty';
    slot.expectation = null;
    expectation.slot = null;
  }

  #slot(index: number): Slot {
    const slot = this.#slots[index];
    if (slot === undefined) throw new RangeError(`slot ${index} of ${this.#slots.length}`);
    return slot;
  }
}
