/** One event at a time of the virtual clock. */
export interface VirtualEvent {
  readonly atMs: number;
  /** Among events of the same time the lower number comes first. */
  readonly number: number;
  readonly run: () => void;
  /** Real work that must be done before the event may happen; null: none. */
  readonly work: Promise<unknown> | null;
  cancelled: boolean;
}

/** Events in the order of their times. Events of the same time keep the order in which they were added (a binary heap). */
export class TimedEvents {
  private readonly heap: VirtualEvent[] = [];

  get size(): number {
    return this.heap.length;
  }

  push(event: VirtualEvent): void {
    const { heap } = this;
    let place = heap.push(event) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent] as VirtualEvent;
      if (isBefore(above, event)) break;
      heap[place] = above;
      place = parent;
    }
    heap[place] = event;
  }

  /** The next event that has not been cancelled. */
  pop(): VirtualEvent | undefined {
    for (let event = this.take(); event !== undefined; event = this.take()) if (!event.cancelled) return event;
    return undefined;
  }

  /** Time of the next event that has not been cancelled; Infinity: there is none. */
  nextMs(): number {
    while (this.heap[0]?.cancelled === true) this.take();
    return this.heap[0]?.atMs ?? Infinity;
  }

  private take(): VirtualEvent | undefined {
    const { heap } = this;
    const first = heap[0];
    const last = heap.pop();
    if (last === undefined || first === undefined || heap.length === 0) return first;
    let place = 0;
    for (let child = 1; child < heap.length; child = 2 * place + 1) {
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as VirtualEvent)) child += 1;
      const below = heap[child] as VirtualEvent;
      if (isBefore(last, below)) break;
      heap[place] = below;
      place = child;
    }
    heap[place] = last;
    return first;
  }
}

function isBefore(left: VirtualEvent, right: VirtualEvent): boolean {
  return left.atMs < right.atMs || (left.atMs === right.atMs && left.number < right.number);
}
