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

/** An expert that this worker was told to expect or to execute, until it has run for the last time or is dropped. */
export interface Expectation extends ExpertPlace {
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

/** Before, at or after: by position, then by layer. */
export function compareProgress(
  left: { position: number; layer: number },
  right: { position: number; layer: number },
): number {
  return left.position - right.position || left.layer - right.layer;
}

/** All expectations of a worker, and the order in which they are loaded or make room. */
export class Expectations {
  readonly #byKey = new Map<string, Expectation>();
  #order = 0;

  get all(): readonly Expectation[] {
    return [...this.#byKey.values()];
  }

  find(place: ExpertPlace): Expectation | undefined {
    return this.#byKey.get(keyOf(place));
  }

  ofSequence(sequence: number): Expectation[] {
    return this.all.filter((expectation) => expectation.sequence === sequence);
  }

  add(place: ExpertPlace, source: Expectation['source']): Expectation {
    const { sequence, position, layer, expert } = place;
    const order = ++this.#order;
    const expectation: Expectation = {
      ...{ sequence, position, layer, expert, source, order },
      ...{ slot: null, waiting: [], running: 0, claim: 'none' },
    };
    this.#byKey.set(keyOf(place), expectation);
    return expectation;
  }

  remove(expectation: Expectation): void {
    this.#byKey.delete(keyOf(expectation));
  }

  moveToEnd(expectation: Expectation): void {
    expectation.order = ++this.#order;
  }

  /** Executes that wait and have no slot, the longest waiting first. */
  needy(): Expectation[] {
    return this.all
      .filter((expectation) => expectation.slot === null && expectation.waiting.length > 0)
      .sort((left, right) => firstTicket(left) - firstTicket(right));
  }

  /** Predictions that have no slot yet. */
  queuedPredictions(): Expectation[] {
    return this.all.filter((expectation) => expectation.slot === null && !isPinned(expectation));
  }

  /** What a free slot takes up next: an execute that waits; else, of the sequence that has waited longest, its next prediction. */
  nextToLoad(): Expectation | undefined {
    const needy = this.needy()[0];
    if (needy !== undefined) return needy;
    const queued = this.queuedPredictions();
    const oldest = queued.reduce<Expectation | undefined>(
      (best, expectation) => (best === undefined || expectation.order < best.order ? expectation : best),
      undefined,
    );
    return queued
      .filter((expectation) => expectation.sequence === oldest?.sequence)
      .sort((left, right) => compareProgress(left, right) || left.order - right.order)[0];
  }
}

function keyOf(place: ExpertPlace): string {
  return `${place.sequence} ${place.position} ${place.layer} ${place.expert}`;
}

function firstTicket(expectation: Expectation): number {
  return expectation.waiting[0]?.ticket ?? Number.POSITIVE_INFINITY;
}
