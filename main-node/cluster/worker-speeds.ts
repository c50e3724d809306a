import { bounded, type MeasuredSpeed } from './shares-by-speed.js';
import type { NodeStatus } from '../../shared/wire/messages.js';
import type { WorkerLink } from './worker-link.js';

/** A worker's speed counts from so many executions of experts on. */
export const LEAST_EXECUTIONS = 64;
/** Number of statuses over which a speed is taken, and number of them from which on it counts. A working daemon sends one each second. */
const STATUSES_OF_MEAN = 8;
export const LEAST_STATUSES = 4;

interface Measure {
  statuses: number;
  executions: number;
  speed: MeasuredSpeed;
}

/** The speeds of workers by their reports, within bounds: the numbers come from peers. */
export class WorkerSpeeds {
  private readonly measures = new WeakMap<WorkerLink, Measure>();

  /** A worker has sent its status. */
  reported(link: WorkerLink): void {
    const { status } = link;
    if (status === null || !isMeasured(status)) return;
    const before = this.measures.get(link);
    if (before?.executions === status.executions) return;
    const statuses = Math.min((before?.statuses ?? 0) + 1, STATUSES_OF_MEAN);
    const now = speedOf(status);
    const executeMs = before === undefined ? now.executeMs : before.speed.executeMs;
    const speed = { ...now, executeMs: executeMs + (now.executeMs - executeMs) / statuses };
    this.measures.set(link, { statuses, executions: status.executions, speed });
  }

  /** Null: the worker has not reported often enough yet. */
  of(link: WorkerLink): MeasuredSpeed | null {
    const measure = this.measures.get(link);
    return measure !== undefined && measure.statuses >= LEAST_STATUSES ? measure.speed : null;
  }
}

function isMeasured({ executions, shortExecuteMsMean }: NodeStatus): boolean {
  return shortExecuteMsMean > 0 && executions >= LEAST_EXECUTIONS;
}

function speedOf(status: NodeStatus): MeasuredSpeed {
  const { shortExecuteMsMean: executeMs, loadMsMean: loadMs } = status;
  return bounded({ executeMs, loadMs, cached: cachedExperts(status) });
}

/** Whole experts that a worker's cache has room for. `all`: experts of the model; a worker may report room for more. */
export function cachedExperts({ cache, slotBytes }: Pick<NodeStatus, 'cache' | 'slotBytes'>, all = Infinity): number {
  return cache === null || slotBytes === 0 ? 0 : Math.min(all, Math.floor(cache.bytes / slotBytes));
}
