import type { ExpertId } from '../../shared/model/expert-id.js';
import { rowsOutside } from '../../shared/wire/pass-rows.js';
import type { PassLayer, PassRow, RowRange } from '../../shared/wire/messages.js';

export interface WaitingExecute {
  ticket: number;
  /** The expert was in a slot when the request came, with the slices that the execute reads. */
  wasLoaded: boolean;
  /** It needs the lower slices, too. */
  readsLower: boolean;
}

/**
 * An expert that was announced to this worker or requested by an execute, until it has run for the last time or is dropped. Only `Expectations`
 * may change its rows, slot, waiting executes and doubts, because it indexes them.
 */
export interface Expectation extends PassLayer {
  readonly pass: Readonly<PassRow>;
  readonly layer: number;
  readonly expert: number;
  /** Main if both have announced it. */
  source: 'main' | 'shadow';
  /** Later arrivals have higher numbers; an expectation that gave up its slot for another sequence goes to the end. */
  order: number;
  slot: number | null;
  waiting: WaitingExecute[];
  /** Executions under way. */
  running: number;
  /** The state of its executes. 'held': one has come and more mini-batches follow; 'last': the final one has come. */
  claim: 'none' | 'held' | 'last';
  /** Main expects that it will not ask for it: it gets a slot when it does, or has announced it again, and leaves a slot to whoever waits for one. */
  isDoubted: boolean;
  /** Some of its executes are expected to read the lower slices, too. */
  expectsLower: boolean;
}

/** An execute waits for it or runs: it must not be dropped and must not lose its slot. */
export function isPinned(expectation: Expectation): boolean {
  return expectation.waiting.length > 0 || expectation.running > 0;
}

/** The lower slices should be loaded: an execute waits for them, or one that reads them is expected. */
export function wantsLower({ waiting, claim, expectsLower }: Expectation): boolean {
  return (expectsLower && claim !== 'last') || waiting.some(({ readsLower }) => readsLower);
}

/** Only shadow has announced it, and main has not asked for it: shadow may withdraw it. */
export function isShadowsAlone({ source, claim }: Expectation): boolean {
  return source === 'shadow' && claim === 'none';
}

/** Negative, 0 or positive: before, at or after. Compares the pass's position, then the layer. */
export function compareProgress(left: Progressed, right: Progressed): number {
  return left.pass.position - right.pass.position || left.layer - right.layer;
}

interface Progressed {
  readonly pass: { readonly position: number };
  readonly layer: number;
}

export function isSamePass(left: PassRow, right: PassRow): boolean {
  return left.sequence === right.sequence && left.position === right.position;
}

export function expertKey({ layer, expert }: ExpertId): string {
  return `${layer} ${expert}`;
}

/**
 * All expectations of a worker, and the order in which they are loaded. Every look-up uses an index: a peer that sends predictions without end
 * makes no message more expensive. The caller bounds the expectations without a slot: by `dropBeyond`, and by the executes that it accepts.
 */
export class Expectations {
  /** By the pass's sequence, then by its position and the layer, then by expert. */
  private readonly bySequence = new Map<number, Map<string, Map<number, Expectation>>>();
  /** Expectations with waiting executes and no slot, the longest waiting first. */
  private readonly needy = new Set<Expectation>();
  /** Predictions without a slot, by who announced them, the longest waiting first. */
  private readonly queuedOf = { main: new Set<Expectation>(), shadow: new Set<Expectation>() };
  /** The expectations of these sets, by expert. */
  private readonly unslotted = new Map<string, Set<Expectation>>();
  /** By sequence: expectations with rows of that sequence whose pass begins with another sequence. */
  private readonly joinedBySequence = new Map<number, Set<Expectation>>();
  private readonly doubted = new Set<Expectation>();
  private lastOrder = 0;

  get needyCount(): number {
    return this.needy.size;
  }

  get doubtedCount(): number {
    return this.doubted.size;
  }

  get queuedCount(): number {
    return this.queuedOf.main.size + this.queuedOf.shadow.size;
  }

  get openCounts(): { expectations: number; sequences: number } {
    return {
      expectations: this.all().length,
      sequences: new Set([...this.bySequence.keys(), ...this.joinedBySequence.keys()]).size,
    };
  }

  /** A copy: the caller may drop expectations while it iterates. */
  all(): Expectation[] {
    return [...this.bySequence.keys()].flatMap((sequence) => this.ofSequence(sequence));
  }

  /**
   * The expectation of this pass. Otherwise, for a row of another sequence than the pass: the expectation of the pass that begins with that
   * row. It was announced before main joined the rows.
   */
  find({ pass, rows, layer }: PassLayer, expert: number): Expectation | undefined {
    const own = this.ownOfLayer(pass, layer)?.get(expert);
    if (own !== undefined) return own;
    for (const range of rows) {
      if (range.sequence === pass.sequence) continue;
      const joining = this.ownOfLayer(range, layer)?.get(expert);
      if (joining !== undefined) return joining;
    }
    return undefined;
  }

  /** Main's expectation for a joint pass that contains the first row of this pass. A prediction for that row alone adds nothing to it. */
  findJoint({ pass, layer }: PassLayer, expert: number): Expectation | undefined {
    for (const joint of this.joinedBySequence.get(pass.sequence) ?? []) {
      const isIts = joint.layer === layer && joint.expert === expert;
      if (isIts && joint.rows.some((range) => range.sequence === pass.sequence && range.position === pass.position))
        return joint;
    }
    return undefined;
  }

  /** Expectations whose pass begins with the sequence. */
  ofSequence(sequence: number): Expectation[] {
    return [...(this.bySequence.get(sequence)?.values() ?? [])].flatMap((layer) => [...layer.values()]);
  }

  /** Expectations with rows of the sequence, in any pass. */
  concerning(sequence: number): Expectation[] {
    return [...this.ofSequence(sequence), ...this.joined(sequence)];
  }

  /** Expectations with rows of the sequence in a pass that begins with another sequence. */
  joined(sequence: number): Expectation[] {
    return [...(this.joinedBySequence.get(sequence) ?? [])];
  }

  ofLayer(pass: PassRow, layer: number): Expectation[] {
    return [...(this.ownOfLayer(pass, layer)?.values() ?? [])];
  }

  /** Removes the sequence's rows at positions in [from, end) from these. Returns the expectations that have no rows left. */
  withdraw(expectations: readonly Expectation[], rows: { sequence: number; from: number; end: number }): Expectation[] {
    for (const expectation of expectations) this.setRows(expectation, rowsOutside(expectation.rows, rows));
    return expectations.filter((expectation) => expectation.rows.length === 0);
  }

  /** The expectation now also covers these rows. */
  addRows(expectation: Expectation, rows: readonly RowRange[]): void {
    const known = new Set(expectation.rows.map(({ sequence }) => sequence));
    const more = rows.filter(({ sequence }) => !known.has(sequence));
    if (more.length > 0) this.setRows(expectation, [...expectation.rows, ...more]);
  }

  /** Expectations of the pass's sequence at earlier positions, or earlier layers of the same position. */
  before(here: Progressed & { readonly pass: PassRow }): Expectation[] {
    const passed: Expectation[] = [];
    for (const layer of this.bySequence.get(here.pass.sequence)?.values() ?? []) {
      for (const expectation of layer.values()) {
        if (compareProgress(expectation, here) >= 0) break;
        passed.push(expectation);
      }
    }
    return passed;
  }

  add({ pass, rows, layer }: PassLayer, expert: number, source: Expectation['source']): Expectation {
    const order = ++this.lastOrder;
    const expectation: Expectation = {
      pass: { ...pass },
      rows: [],
      layer,
      expert,
      source,
      order,
      slot: null,
      waiting: [],
      running: 0,
      claim: 'none',
      isDoubted: false,
      expectsLower: false,
    };
    const layers = entryOf(this.bySequence, pass.sequence, () => new Map<string, Map<number, Expectation>>());
    entryOf(layers, layerKey(pass, layer), () => new Map<number, Expectation>()).set(expert, expectation);
    this.setRows(expectation, rows);
    this.index(expectation);
    return expectation;
  }

  remove(expectation: Expectation): void {
    const { pass, layer, expert } = expectation;
    const layers = this.bySequence.get(pass.sequence);
    const experts = layers?.get(layerKey(pass, layer));
    experts?.delete(expert);
    if (experts?.size === 0) layers?.delete(layerKey(pass, layer));
    if (layers?.size === 0) this.bySequence.delete(pass.sequence);
    this.doubted.delete(expectation);
    this.setRows(expectation, []);
    this.unindex(expectation);
  }

  /** Main doubts its announcement, or does so no more. */
  doubt(expectation: Expectation, isDoubted: boolean): void {
    expectation.isDoubted = isDoubted;
    if (isDoubted) this.doubted.add(expectation);
    else this.doubted.delete(expectation);
  }

  /** Tickets must rise from call to call. */
  wait(expectation: Expectation, waiting: WaitingExecute): void {
    expectation.waiting.push(waiting);
    if (expectation.slot !== null || this.needy.has(expectation)) return;
    this.queuedOf[expectation.source].delete(expectation);
    this.needy.add(expectation);
  }

  /** Takes the waiting executes for which `mayGo` holds. */
  takeWaiting(expectation: Expectation, mayGo: (waiting: WaitingExecute) => boolean = () => true): WaitingExecute[] {
    const [taken, left]: [WaitingExecute[], WaitingExecute[]] = [[], []];
    for (const waiting of expectation.waiting) (mayGo(waiting) ? taken : left).push(waiting);
    expectation.waiting = left;
    if (expectation.waiting.length === 0 && this.needy.delete(expectation)) {
      this.queuedOf[expectation.source].add(expectation);
    }
    return taken;
  }

  giveSlot(expectation: Expectation, slot: number): void {
    this.unindex(expectation);
    expectation.slot = slot;
  }

  takeSlot(expectation: Expectation): void {
    expectation.slot = null;
    this.index(expectation);
  }

  moveToEnd(expectation: Expectation): void {
    expectation.order = ++this.lastOrder;
  }

  /** Main announces what shadow may have announced before. */
  announcedByMain(expectation: Expectation): void {
    if (this.queuedOf[expectation.source].delete(expectation)) this.queuedOf.main.add(expectation);
    expectation.source = 'main';
  }

  /**
   * Drops the predictions of this sender that have been without a slot for longest, until the limit holds. Returns their number. A shadow that
   * predicts without end displaces only predictions of shadows.
   */
  dropBeyond(limit: number, source: Expectation['source']): number {
    let dropped = 0;
    for (const oldest of this.queuedOf[source]) {
      if (this.queuedOf[source].size <= limit) break;
      this.remove(oldest);
      dropped += 1;
    }
    return dropped;
  }

  longestWaiting(): Expectation | undefined {
    const [first] = this.needy;
    return first;
  }

  /** All expectations without a slot for this expert. */
  wanting(expert: ExpertId): Expectation[] {
    return [...(this.unslotted.get(expertKey(expert)) ?? [])];
  }

  /** The expectation that gets the next free slot: a waiting execute, otherwise the next prediction of the sequence that has waited longest. */
  nextToLoad(): Expectation | undefined {
    const needy = this.longestWaiting();
    if (needy !== undefined) return needy;
    let oldest: Expectation | undefined;
    for (const expectation of this.queued()) {
      if (oldest === undefined || expectation.order < oldest.order) oldest = expectation;
    }
    let next = oldest;
    for (const expectation of this.queued()) {
      if (next === undefined || expectation.pass.sequence !== next.pass.sequence) continue;
      if ((compareProgress(expectation, next) || expectation.order - next.order) < 0) next = expectation;
    }
    return next;
  }

  /** Number of expectations without a slot that should get one. */
  get loadableCount(): number {
    return this.needy.size + [...this.queued()].length;
  }

  private *queued(): Iterable<Expectation> {
    for (const expectation of this.queuedOf.main) if (!expectation.isDoubted) yield expectation;
    yield* this.queuedOf.shadow;
  }

  private ownOfLayer(pass: PassRow, layer: number): ReadonlyMap<number, Expectation> | undefined {
    return this.bySequence.get(pass.sequence)?.get(layerKey(pass, layer));
  }

  private setRows(expectation: Expectation, rows: readonly RowRange[]): void {
    for (const { sequence } of expectation.rows) {
      const joined = this.joinedBySequence.get(sequence);
      joined?.delete(expectation);
      if (joined?.size === 0) this.joinedBySequence.delete(sequence);
    }
    expectation.rows = rows;
    for (const { sequence } of rows) {
      if (sequence === expectation.pass.sequence) continue;
      entryOf(this.joinedBySequence, sequence, () => new Set<Expectation>()).add(expectation);
    }
  }

  private index(expectation: Expectation): void {
    (expectation.waiting.length > 0 ? this.needy : this.queuedOf[expectation.source]).add(expectation);
    entryOf(this.unslotted, expertKey(expectation), () => new Set<Expectation>()).add(expectation);
  }

  private unindex(expectation: Expectation): void {
    this.needy.delete(expectation);
    this.queuedOf[expectation.source].delete(expectation);
    const alike = this.unslotted.get(expertKey(expectation));
    alike?.delete(expectation);
    if (alike?.size === 0) this.unslotted.delete(expertKey(expectation));
  }
}

function layerKey({ position }: { position: number }, layer: number): string {
  return `${position} ${layer}`;
}

function entryOf<Key, Value>(map: Map<Key, Value>, key: Key, create: () => Value): Value {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = create()));
  return value;
}
