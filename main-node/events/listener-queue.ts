import { type ClusterEvent, RECORDED_PASSES } from '../../shared/wire/cluster-events.js';

/** Most samples that wait for a listener, one a second. A listener that has taken none for so long is given up. */
export const MAX_WAITING_FIGURES = 60;

type EventOf<Type extends ClusterEvent['type']> = Extract<ClusterEvent, { type: Type }>;

/**
 * The events that one listener has not taken yet. Only the newest state of each kind (cluster, recall, heat) waits. The last
 * RECORDED_PASSES passes wait, so that a slow listener loses passes first.
 */
export class ListenerQueue {
  private readonly states = new Map<ClusterEvent['type'], ClusterEvent>();
  private readonly figures: EventOf<'figures'>[] = [];
  private readonly passes: EventOf<'pass'>[] = [];
  private wake: (() => void) | null = null;
  private ended = false;

  /** `wantsPasses`: false leaves passes out. `onEnd`: nothing is put into this queue any more. */
  constructor(
    readonly wantsPasses: boolean,
    private readonly onEnd: (queue: ListenerQueue) => void,
  ) {}

  put(event: ClusterEvent): void {
    if (this.ended) return;
    switch (event.type) {
      case 'pass':
        if (!this.wantsPasses) return;
        this.passes.push(event);
        if (this.passes.length > RECORDED_PASSES) this.passes.shift();
        break;
      case 'figures':
        this.figures.push(event);
        if (this.figures.length > MAX_WAITING_FIGURES) {
          this.end();
          return;
        }
        break;
      case 'cluster':
      case 'recall':
      case 'heat':
        this.states.set(event.type, event);
    }
    this.wake?.();
  }

  /** Resolves to the next event, as soon as there is one; null: there will be none. Call it again only when it has resolved. */
  async next(): Promise<ClusterEvent | null> {
    while (!this.ended) {
      const event = this.takeFirst();
      if (event !== null) return event;
      await new Promise<void>((resolve) => (this.wake = resolve));
      this.wake = null;
    }
    return null;
  }

  /** Sends no further events. Idempotent. */
  end(): void {
    if (this.ended) return;
    this.ended = true;
    this.wake?.();
    this.onEnd(this);
  }

  private takeFirst(): ClusterEvent | null {
    return this.takeState('cluster') ?? this.figures.shift() ?? this.takeState('recall') ?? this.takeLater();
  }

  private takeLater(): ClusterEvent | null {
    return this.takeState('heat') ?? this.passes.shift() ?? null;
  }

  private takeState(type: 'cluster' | 'recall' | 'heat'): ClusterEvent | null {
    const event = this.states.get(type) ?? null;
    this.states.delete(type);
    return event;
  }
}
