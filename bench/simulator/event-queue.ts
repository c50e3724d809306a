/** A time and what is to happen then. */
interface QueuedEvent {
  atMs: number;
  /** Rises with arrival: events of one time leave in the order in which they came. */
  order: number;
  happen: () => void;
}

/** Events by time, those of one time first in, first out: a binary heap. */
export class EventQueue {
  readonly #heap: QueuedEvent[] = [];
  #order = 0;

  get length(): number {
    return this.#heap.length;
  }

  add(atMs: number, happen: () => void): void {
    const event = { atMs, order: ++this.#order, happen };
    let place = this.#heap.length;
    this.#heap.push(event);
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.#heap[parent] as QueuedEvent;
      if (isBefore(above, event)) break;
      this.#heap[place] = above;
      place = parent;
    }
    this.#heap[place] = event;
  }

  /** Removes and returns the earliest; null when there is none. */
  take(): { atMs: number; happen: () => void } | null {
    const first = this.#heap[0];
    const last = this.#heap.pop();
    if (first === undefined || last === undefined) return null;
    if (this.#heap.length > 0) this.#sink(last);
    return first;
  }

  /** Puts the event in at the top and lets it down to its place. */
  #sink(event: QueuedEvent): void {
    const { length } = this.#heap;
    let place = 0;
    for (let child = 1; child < length; child = 2 * place + 1) {
      const right = this.#heap[child + 1];
      if (right !== undefined && isBefore(right, this.#heap[child] as QueuedEvent)) child += 1;
      const below = this.#heap[child] as QueuedEvent;
      if (isBefore(event, below)) break;
      this.#heap[place] = below;
      place = child;
    }
    this.#heap[place] = event;
  }
}

function isBefore(left: QueuedEvent, right: QueuedEvent): boolean {
  return left.atMs === right.atMs ? left.order < right.order : left.atMs < right.atMs;
}
