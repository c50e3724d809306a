import { rowsOutside } from '../../shared/wire/pass-rows.js';
import type { PassLayer, PassRow, RowRun } from '../../shared/wire/messages.js';

export interface WaitingExecute {
  ticket: number;
  /** The expert was in a slot when the request came. */
  wasLoaded: boolean;
}

/**
 * An expert that this worker was told to expect or to execute, until it has run for the last time or is dropped. Rows, slot and waiting
 * executes are changed by `Expectations` only, whose indexes follow them.
 */
export interface Expectation extends PassLayer {
  readonly pass: Readonly<PassRow>;
  readonly layer: number;
  readonly expert: number;
  /** Main where both have told of it. */
  source: 'main' | 'shadow';
  /** Rises with arrival; an expectation that made room for another sequence goes to the end. */
  order: number;
  slot: number | null;
  waiting: WaitingExecute[];
  /** Executions under way. */
  running: number;
  /** An execute has come: 'held' while more mini-batches follow, 'last' once the final one came. */
  claim: 'none' | 'held' | 'last';
}

/** Work stands on it: it must neither be dropped nor lose its slot. */
export function isPinned(expectation: Expectation): boolean {
  return expectation.waiting.length > 0 || expectation.running > 0;
}

/** Only shadow has told of it, and main has not asked for it: shadow may take it back. */
export function isShadowsAlone({ source, claim }: Expectation): boolean {
  return source === 'shadow' && claim === 'none';
}

/** Before, at or after: by the pass's position, then by layer. */
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

export function expertKey({ layer, expert }: { layer: number; expert: number }): string {
  return `${layer} ${expert}`;
}

/**
 * All expectations of a worker, and the order in which they are loaded. Every look-up is by an index: a peer that predicts without
 * end costs no more at each message than one that does not. What has no slot is bounded by its caller: by `dropOldest`, and by
 * the executes that it takes.
 */
export class Expectations {
  /** By the pass's sequence, then by its position and the layer, then by expert. */
  private readonly bySequence = new Map<number, Map<string, Map<number, Expectation>>>();
  /** Executes that wait and have no slot, the longest waiting first. */
  private readonly needy = new Set<Expectation>();
  /** Predictions without a slot, the longest without one first. */
  private readonly queued = new Set<Expectation>();
  /** Both of these, by expert. */
  private readonly unslotted = new Map<string, Set<Expectation>>();
  /** Those with rows of a sequence whose pass begins with another one's, by that sequence. */
  private readonly ownJoined = new Map<number, Set<Expectation>>();
  private ownOrder = 0;

  get needyCount(): number {
    return this.needy.size;
  }

  get queuedCount(): number {
    return this.queued.size;
  }

  get openCounts(): { expectations: number; sequences: number } {
    return {
      expectations: this.all().length,
      sequences: new Set([...this.bySequence.keys(), ...this.ownJoined.keys()]).size,
    };
  }

  /** A copy: it may be dropped from. */
  all(): Expectation[] {
    return [...this.bySequence.keys()].flatMap((sequence) => this.ofSequence(sequence));
  }

  /**
   * Of this pass; else, where a row is of another sequence than the pass, of the pass that begins with that row: it was told of before
   * main put the rows together.
   */
  find({ pass, rows, layer }: PassLayer, expert: number): Expectation | undefined {
    const own = this.ownOfLayer(pass, layer)?.get(expert);
    if (own !== undefined) return own;
    for (const run of rows) {
      if (run.sequence === pass.sequence) continue;
      const joining = this.ownOfLayer(run, layer)?.get(expert);
      if (joining !== undefined) return joining;
    }
    return undefined;
  }

  /** What main has told of a pass of several sequences, the first row of this one among them: a prediction for that row alone adds nothing. */
  findJoint({ pass, layer }: PassLayer, expert: number): Expectation | undefined {
    for (const joint of this.ownJoined.get(pass.sequence) ?? []) {
      const isIts = joint.layer === layer && joint.expert === expert;
      if (isIts && joint.rows.some((run) => run.sequence === pass.sequence && run.position === pass.position))
        return joint;
    }
    return undefined;
  }

  /** Whose pass begins with the sequence. */
  ofSequence(sequence: number): Expectation[] {
    return [...(this.bySequence.get(sequence)?.values() ?? [])].flatMap((layer) => [...layer.values()]);
  }

  /** With rows of the sequence, whatever their pass begins with. */
  concerning(sequence: number): Expectation[] {
    return [...this.ofSequence(sequence), ...this.joined(sequence)];
  }

  /** With rows of the sequence in a pass that begins with another one's. */
  joined(sequence: number): Expectation[] {
    return [...(this.ownJoined.get(sequence) ?? [])];
  }

  ofLayer(pass: PassRow, layer: number): Expectation[] {
    return [...(this.ownOfLayer(pass, layer)?.values() ?? [])];
  }

  /** Takes the sequence's rows at positions in [from, end) out of these. Returns those of which no row is left. */
  withdraw(expectations: readonly Expectation[], rows: { sequence: number; from: number; end: number }): Expectation[] {
    for (const expectation of expectations) this.setRows(expectation, rowsOutside(expectation.rows, rows));
    return expectations.filter((expectation) => expectation.rows.length === 0);
  }

  /** What is told of it now is of these rows, too. */
  addRows(expectation: Expectation, rows: readonly RowRun[]): void {
    const known = new Set(expectation.rows.map(({ sequence }) => sequence));
    const more = rows.filter(({ sequence }) => !known.has(sequence));
    if (more.length > 0) this.setRows(expectation, [...expectation.rows, ...more]);
  }

  /** Those of the pass's sequence at earlier layers and positions. */
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
    const order = ++this.ownOrder;
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
    this.setRows(expectation, []);
    this.unindex(expectation);
  }

  /** Tickets rise from call to call. */
  wait(expectation: Expectation, waiting: WaitingExecute): void {
    expectation.waiting.push(waiting);
    if (expectation.slot !== null || this.needy.has(expectation)) return;
    this.queued.delete(expectation);
    this.needy.add(expectation);
  }

  takeWaiting(expectation: Expectation): WaitingExecute[] {
    const taken = expectation.waiting.splice(0);
    if (this.needy.delete(expectation)) this.queued.add(expectation);
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
    expectation.order = ++this.ownOrder;
  }

  /** Of the predictions without a slot. */
  dropOldest(): void {
    const [oldest] = this.queued;
    if (oldest !== undefined) this.remove(oldest);
  }

  longestWaiting(): Expectation | undefined {
    const [first] = this.needy;
    return first;
  }

  /** Everything without a slot that wants this expert. */
  wanting(expert: { layer: number; expert: number }): Expectation[] {
    return [...(this.unslotted.get(expertKey(expert)) ?? [])];
  }

  /** What a free slot takes up next: an execute that waits; else, of the sequence that has waited longest, its next prediction. */
  nextToLoad(): Expectation | undefined {
    const needy = this.longestWaiting();
    if (needy !== undefined) return needy;
    let oldest: Expectation | undefined;
    for (const expectation of this.queued) {
      if (oldest === undefined || expectation.order < oldest.order) oldest = expectation;
    }
    let next = oldest;
    for (const expectation of this.queued) {
      if (next === undefined || expectation.pass.sequence !== next.pass.sequence) continue;
      if ((compareProgress(expectation, next) || expectation.order - next.order) < 0) next = expectation;
    }
    return next;
  }

  private ownOfLayer(pass: PassRow, layer: number): ReadonlyMap<number, Expectation> | undefined {
    return this.bySequence.get(pass.sequence)?.get(layerKey(pass, layer));
  }

  private setRows(expectation: Expectation, rows: readonly RowRun[]): void {
    for (const { sequence } of expectation.rows) {
      const joined = this.ownJoined.get(sequence);
      joined?.delete(expectation);
      if (joined?.size === 0) this.ownJoined.delete(sequence);
    }
    expectation.rows = rows;
    for (const { sequence } of rows) {
      if (sequence === expectation.pass.sequence) continue;
      entryOf(this.ownJoined, sequence, () => new Set<Expectation>()).add(expectation);
    }
  }

  private index(expectation: Expectation): void {
    (expectation.waiting.length > 0 ? this.needy : this.queued).add(expectation);
    entryOf(this.unslotted, expertKey(expectation), () => new Set<Expectation>()).add(expectation);
  }

  private unindex(expectation: Expectation): void {
    this.needy.delete(expectation);
    this.queued.delete(expectation);
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
