import { OdmoeError } from '../errors/odmoe-error.js';
import { TimedEvents, type VirtualEvent } from './timed-events.js';
import { liveIn } from './living.js';

/** A handle by which an event can be cancelled. */
export interface ScheduledEvent {
  cancel(): void;
}

/**
 * A clock that advances only when no work is left at its present time. Events of the same time happen in the order in which they were scheduled,
 * each in a separate turn: all promises that one event has settled are handled before the next event. Real work (native calls, files) runs on
 * its threads, but it ends as an event, and the clock waits for it there. So the same schedule gives the same history on every machine.
 */
export class VirtualClock {
  private readonly queue = new TimedEvents();
  /** Real work that has not settled. */
  private readonly working = new Set<Promise<unknown>>();
  private timeMs = 0;
  private eventNumber = 0;
  private handled = 0;
  private running = false;
  private atRest: (() => void) | null = null;

  get nowMs(): number {
    return this.timeMs;
  }

  /** Events that have happened so far. */
  get eventCount(): number {
    return this.handled;
  }

  /** Events that are still to happen, and cancelled ones whose time has not come yet. */
  get pendingCount(): number {
    return this.queue.size;
  }

  /** Time of the next event; Infinity: no event is left. */
  get nextEventMs(): number {
    return this.queue.nextMs();
  }

  /** `run` happens at that time, or now if the time has passed. It never happens before `work` has settled; the clock waits for that. */
  schedule(atMs: number, run: () => void, work: Promise<unknown> | null = null): ScheduledEvent {
    if (work !== null) this.watch(work);
    const event: VirtualEvent = {
      atMs: Math.max(this.timeMs, atMs),
      number: this.eventNumber++,
      run,
      work,
      cancelled: false,
    };
    this.queue.push(event);
    return {
      cancel: () => {
        event.cancelled = true;
      },
    };
  }

  /** `run` happens at the present time, while no real work is under way: it may change data that such work reads. */
  scheduleAtRest(run: () => void): void {
    this.schedule(this.timeMs, () => {
      this.atRest = run;
    });
  }

  /** Records real work that begins now. Other code may wait for its end. */
  watch(work: Promise<unknown>): void {
    const settled = work.then(
      () => undefined,
      () => undefined,
    );
    this.working.add(settled);
    void settled.then(() => this.working.delete(settled));
  }

  /**
   * Lets events happen until `isDone`, or until the next one would come after `limits.untilMs`. Throws INTERNAL if no event is left while
   * `isDone` is still false, and after `limits.events` events: in both cases the waiting code would wait for ever.
   */
  async run(isDone: () => boolean, limits: { untilMs?: number; events?: number } = {}): Promise<void> {
    if (this.running) throw new OdmoeError('INTERNAL', 'the virtual clock runs already');
    this.running = true;
    try {
      const { untilMs = Infinity, events = Infinity } = limits;
      const lastEvent = this.handled + events;
      await turn();
      while (!isDone()) {
        const nextMs = this.queue.nextMs();
        if (nextMs === Infinity && untilMs === Infinity) throw stuck(this.timeMs);
        if (nextMs > untilMs) {
          this.timeMs = Math.max(this.timeMs, untilMs);
          return;
        }
        if (this.handled >= lastEvent) throw endless(events, this.timeMs);
        await this.step();
      }
    } finally {
      liveIn(null);
      this.running = false;
    }
  }

  private async step(): Promise<void> {
    const event = this.queue.pop();
    if (event === undefined) return;
    this.timeMs = event.atMs;
    this.handled += 1;
    // The caller that started the work gets its failure.
    if (event.work !== null) await event.work.catch(() => undefined);
    // Code of a process sets the registry of that process (VirtualRuntime.within); events of the simulated world belong to no process.
    liveIn(null);
    event.run();
    await turn();
    const { atRest } = this;
    if (atRest === null) return;
    this.atRest = null;
    // Work that has ended may have started other work.
    for (; this.working.size > 0; await turn()) await Promise.all(this.working);
    atRest();
    await turn();
  }
}

/** One turn of the real event loop: all promises that are settled by now have been handled. */
function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function stuck(nowMs: number): OdmoeError {
  return new OdmoeError(
    'INTERNAL',
    `nothing is left to happen at ${nowMs} ms of the virtual clock, and somebody still waits`,
  );
}

function endless(events: number, nowMs: number): OdmoeError {
  return new OdmoeError(
    'INTERNAL',
    `${events} events have happened by ${nowMs} ms of the virtual clock, and no end is in sight`,
  );
}
