import type { ExpertOrder } from '../../native/index.js';
import { atExactly, type ExactTimer, type PaceRuntime } from './exact-timer.js';
import { LinkSchedule, type LinkLoad } from './link-schedule.js';

/** A load over the link of a paced device. */
export interface PacedLoad extends LinkLoad {
  /** The real load. Its outcome is hidden until the link has finished. */
  readonly work: Promise<unknown>;
  /** Called when the load has ended; not called after it was cancelled. */
  readonly ended: () => void;
}

/** The link from storage to a paced device: one link for all slots of the device. */
export class PacedLink {
  private readonly schedule = new LinkSchedule();
  private readonly loads = new Map<LinkLoad, PacedLoad>();
  private armed: { load: LinkLoad; endMs: number; timer: ExactTimer } | null = null;

  constructor(private readonly runtime: PaceRuntime) {}

  begin(load: PacedLoad): void {
    this.loads.set(load, load);
    this.schedule.begin(load, this.runtime.eventMs());
    this.arm();
  }

  /** The link is free for other loads at once. Does nothing if the load has ended. */
  cancel(load: PacedLoad): void {
    if (!this.loads.delete(load)) return;
    this.schedule.remove(load, this.runtime.eventMs());
    this.arm();
  }

  prioritize(load: PacedLoad): void {
    if (!this.loads.has(load) || load.urgent) return;
    this.schedule.change(load, { urgent: true }, this.runtime.eventMs());
    this.arm();
  }

  reorder(load: PacedLoad, order: ExpertOrder | null): void {
    if (!this.loads.has(load)) return;
    this.schedule.change(load, { order }, this.runtime.eventMs());
    this.arm();
  }

  /** Sets a timer for the load that ends next; every change may make it another load or another time. */
  private arm(): void {
    const next = this.schedule.next();
    const { armed } = this;
    if (armed !== null && next !== null && armed.load === next.load && armed.endMs === next.endMs) return;
    armed?.timer.cancel();
    this.armed = null;
    const load = next === null ? undefined : this.loads.get(next.load);
    if (next === null || load === undefined) return;
    const { endMs } = next;
    const timer = atExactly(this.runtime, endMs, load.work, () => {
      this.end(load, endMs);
    });
    this.armed = { load, endMs, timer };
  }

  private end(load: PacedLoad, endMs: number): void {
    this.armed = null;
    this.loads.delete(load);
    this.schedule.remove(load, endMs);
    this.arm();
    load.ended();
  }
}
