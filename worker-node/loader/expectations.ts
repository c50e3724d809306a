/** One expert at one layer of one token (or, in prefill, of the pass that ends at `position`). */
export interface ExpertPlace {
  sequence: number;
  position: number;
  layer: number;
  expert: number;
}

export interface WaitingExecute {
  ticket: number;
  /** The expert was in a slot when the request came. */
  wasLoaded: boolean;
}

/**
 * An expert that this worker was told to expect or to execute, until it has run for the last time or is dropped. Slot and waiting
 * executes are changed by `Expectations` only, whose indexes follow them.
 */
export interface Expectation extends Readonly<ExpertPlace> {
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

/** Whether it goes when shadow takes back what it told of positions from `position` on: main has neither told of it nor asked for it. */
export function isVoid({ source, claim, position }: Expectation, from: number): boolean {
  return source === 'shadow' && claim === 'none' && position >= from;
}

/** Before, at or after: by position, then by layer. */
export function compareProgress(
  left: { position: number; layer: number },
  right: { position: number; layer: number },
): number {
  return left.position - right.position || left.layer - right.layer;
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
  /** By sequence, then by position and layer, then by expert. */
  readonly #bySequence = new Map<number, Map<string, Map<number, Expectation>>>();
  /** Executes that wait and have no slot, the longest waiting first. */
  readonly #needy = new Set<Expectation>();
  /** Predictions without a slot, the longest without one first. */
  readonly #queued = new Set<Expectation>();
  /** Both of these, by expert. */
  readonly #unslotted = new Map<string, Set<Expectation>>();
  #order = 0;

  get needyCount(): number {
    return this.#needy.size;
  }

  get queuedCount(): number {
    return this.#queued.size;
  }

  /** A copy: it may be dropped from. */
  all(): Expectation[] {
    return [...this.#bySequence.keys()].flatMap((sequence) => this.ofSequence(sequence));
  }

  find({ sequence, position, layer, expert }: ExpertPlace): Expectation | undefined {
    return this.#bySequence.get(sequence)?.get(layerKey(position, layer))?.get(expert);
  }

  ofSequence(sequence: number): Expectation[] {
    return [...(this.#bySequence.get(sequence)?.values() ?? [])].flatMap((layer) => [...layer.values()]);
  }

  ofLayer(sequence: number, position: number, layer: number): Expectation[] {
    return [...(this.#bySequence.get(sequence)?.get(layerKey(position, layer))?.values() ?? [])];
  }

  /** Those that shadow takes back when it starts again. */
  voidFrom({ sequence, position }: { sequence: number; position: number }): Expectation[] {
    return this.ofSequence(sequence).filter((expectation) => isVoid(expectation, position));
  }

  /** Those of the sequence at earlier layers and positions. */
  before(here: { sequence: number; position: number; layer: number }): Expectation[] {
    const passed: Expectation[] = [];
    for (const layer of this.#bySequence.get(here.sequence)?.values() ?? []) {
      for (const expectation of layer.values()) {
        if (compareProgress(expectation, here) >= 0) break;
        passed.push(expectation);
      }
    }
    return passed;
  }

  add(place: ExpertPlace, source: Expectation['source']): Expectation {
    const { sequence, position, layer, expert } = place;
    const order = ++this.#order;
    const expectation: Expectation = {
      ...{ sequence, position, layer, expert, source, order },
      ...{ slot: null, waiting: [], running: 0, claim: 'none' },
    };
    const layers = entryOf(this.#bySequence, sequence, () => new Map<string, Map<number, Expectation>>());
    entryOf(layers, layerKey(position, layer), () => new Map<number, Expectation>()).set(expert, expectation);
    this.#index(expectation);
    return expectation;
  }

  remove(expectation: Expectation): void {
    const { sequence, position, layer, expert } = expectation;
    const layers = this.#bySequence.get(sequence);
    const experts = layers?.get(layerKey(position, layer));
    experts?.delete(expert);
    if (experts?.size === 0) layers?.delete(layerKey(position, layer));
    if (layers?.size === 0) this.#bySequence.delete(sequence);
    this.#unindex(expectation);
  }

  /** Tickets rise from call to call. */
  wait(expectation: Expectation, waiting: WaitingExecute): void {
    expectation.waiting.push(waiting);
    if (expectation.slot !== null || this.#needy.has(expectation)) return;
    this.#queued.delete(expectation);
    this.#needy.add(expectation);
  }

  takeWaiting(expectation: Expectation): WaitingExecute[] {
    const taken = expectation.waiting.splice(0);
    if (this.#needy.delete(expectation)) this.#queued.add(expectation);
    return taken;
  }

  giveSlot(expectation: Expectation, slot: number): void {
    this.#unindex(expectation);
    expectation.slot = slot;
  }

  takeSlot(expectation: Expectation): void {
    expectation.slot = null;
    this.#index(expectation);
  }

  moveToEnd(expectation: Expectation): void {
    expectation.order = ++this.#order;
  }

  /** Of the predictions without a slot. */
  dropOldest(): void {
    const [oldest] = this.#queued;
    if (oldest !== undefined) this.remove(oldest);
  }

  longestWaiting(): Expectation | undefined {
    const [first] = this.#needy;
    return first;
  }

  /** Everything without a slot that wants this expert. */
  wanting(expert: { layer: number; expert: number }): Expectation[] {
    return [...(this.#unslotted.get(expertKey(expert)) ?? [])];
  }

  /** What a free slot takes up next: an execute that waits; else, of the sequence that has waited longest, its next prediction. */
  nextToLoad(): Expectation | undefined {
    const needy = this.longestWaiting();
    if (needy !== undefined) return needy;
    let oldest: Expectation | undefined;
    for (const expectation of this.#queued) {
      if (oldest === undefined || expectation.order < oldest.order) oldest = expectation;
    }
    let next = oldest;
    for (const expectation of this.#queued) {
      if (next === undefined || expectation.sequence !== next.sequence) continue;
      if ((compareProgress(expectation, next) || expectation.order - next.order) < 0) next = expectation;
    }
    return next;
  }

  #index(expectation: Expectation): void {
    (expectation.waiting.length > 0 ? this.#needy : this.#queued).add(expectation);
    entryOf(this.#unslotted, expertKey(expectation), () => new Set<Expectation>()).add(expectation);
  }

  #unindex(expectation: Expectation): void {
    this.#needy.delete(expectation);
    this.#queued.delete(expectation);
    const alike = this.#unslotted.get(expertKey(expectation));
    alike?.delete(expectation);
    if (alike?.size === 0) this.#unslotted.delete(expertKey(expectation));
  }
}

function layerKey(position: number, layer: number): string {
  return `${position} ${layer}`;
}

function entryOf<Key, Value>(map: Map<Key, Value>, key: Key, create: () => Value): Value {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = create()));
  return value;
}
