import type { ExpertTimes } from '../../shared/wire/messages.js';
import type { HopStages, WorkerHops } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';

/** Number of a worker's latest hops over which medians and 99th percentiles are taken. */
export const REMEMBERED_HOPS = 512;
/** Most workers that are remembered. A full map forgets the worker that was asked least recently. */
export const MAX_HOP_WORKERS = 1024;

const US_PER_MS = 1000;

/** Stages in the order in which a window stores them. */
export const HOP_STAGES = ['roundTripMs', 'transitMs', 'callMs', 'handOffMs', 'executeMs', 'replyMs'] as const;

/** A worker's times for the experts that it ran for one message: microseconds from the message's arrival, except executeUs. */
export interface ReportedHop {
  /** When the first expert was called. */
  calledUs: number;
  /** When the last expert ended. */
  endedUs: number;
  answeredUs: number;
  /** Time of all experts together. */
  executeUs: number;
}

/** Adds one more result. If an expert's result does not report when it was called, the times of this hop are not known. */
export function addToHop(
  hop: ReportedHop,
  reported: Pick<ExpertTimes, keyof ReportedHop & keyof ExpertTimes>,
  executeUs: number,
): void {
  hop.calledUs = Math.min(hop.calledUs, reported.endedUs === 0 ? -1 : reported.calledUs);
  hop.endedUs = Math.max(hop.endedUs, reported.endedUs);
  hop.answeredUs = Math.max(hop.answeredUs, reported.answeredUs);
  hop.executeUs += executeUs;
}

/** Clears the hop: it has no result yet. */
export function clearHop(hop: ReportedHop): void {
  hop.calledUs = Infinity;
  hop.endedUs = 0;
  hop.answeredUs = 0;
  hop.executeUs = 0;
}

/**
 * The stages of a hop, which add up to its round trip. Each side reports durations only, so no clocks need to agree; the way there and the way back
 * are one stage (transit). Null: the worker has not reported when it called its device (an older release).
 */
export function hopStages(
  roundTripMs: number,
  { calledUs, endedUs, answeredUs, executeUs }: ReportedHop,
): HopStages | null {
  if (calledUs < 0 || calledUs === Infinity) return null;
  const calledMs = calledUs / US_PER_MS;
  const onDeviceMs = Math.max(0, (endedUs - calledUs) / US_PER_MS);
  const executeMs = Math.min(onDeviceMs, executeUs / US_PER_MS);
  const answeredMs = Math.max(calledMs + onDeviceMs, answeredUs / US_PER_MS);
  return {
    roundTripMs,
    transitMs: Math.max(0, roundTripMs - answeredMs),
    callMs: calledMs,
    handOffMs: onDeviceMs - executeMs,
    executeMs,
    replyMs: answeredMs - calledMs - onDeviceMs,
  };
}

/** The last hops of each worker, by stage. */
export class LatestHops {
  private readonly workers = new RecentMap<string, HopWindow>(MAX_HOP_WORKERS);

  add(workerId: string, stages: HopStages): void {
    this.workers.of(workerId, () => new HopWindow()).add(stages);
  }

  /** Figures of these workers, by id. Other workers are forgotten. */
  report(connected: ReadonlySet<string>): WorkerHops[] {
    for (const id of [...this.workers.keys()]) if (!connected.has(id)) this.workers.delete(id);
    return [...this.workers]
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([worker, window]) => ({ worker, ...window.report() }));
  }
}

class HopWindow {
  /** For each stage, the last hops as a ring buffer. */
  private readonly samples = HOP_STAGES.map(() => new Float32Array(REMEMBERED_HOPS));
  private hops = 0;
  /** The figures as they were last computed. */
  private figures: Omit<WorkerHops, 'worker'> | null = null;

  add(stages: HopStages): void {
    const at = this.hops % REMEMBERED_HOPS;
    for (let index = 0; index < HOP_STAGES.length; index++) {
      const [name, values] = [HOP_STAGES[index], this.samples[index]];
      if (name !== undefined && values !== undefined) values[at] = stages[name];
    }
    this.hops += 1;
  }

  /** Computed only if a hop has come since the last call: every page that watches a large cluster asks once a second. */
  report(): Omit<WorkerHops, 'worker'> {
    if (this.figures?.hops === this.hops) return this.figures;
    const count = Math.min(this.hops, REMEMBERED_HOPS);
    const sorted = this.samples.map((values) => values.slice(0, count).sort());
    const ranked = (share: number): HopStages => {
      const [roundTripMs = 0, transitMs = 0, callMs = 0, handOffMs = 0, executeMs = 0, replyMs = 0] = sorted.map(
        (values) => values[Math.max(0, Math.ceil(count * share) - 1)] ?? 0,
      );
      return { roundTripMs, transitMs, callMs, handOffMs, executeMs, replyMs };
    };
    this.figures = { hops: this.hops, median: ranked(0.5), p99: ranked(0.99) };
    return this.figures;
  }
}
