import type { PassLayer } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { SeenPasses } from '../cache/cache-residency.js';

/** Number of passes that may alternate, as when main runs the pass of each answer separately; more passes are not distinguished. */
export const MOST_OPEN_PASSES = 64;

interface OpenPass {
  position: number;
  layer: number;
  arrivedMs: number;
  stalledMs: number;
}

/**
 * Durations of passes, as far as this worker sees them: the time between main's requests for their layers. Loads of later layers can hide
 * behind this time. The time that a layer waited for a load is not counted. Pure: the caller passes the times in.
 */
export class PassTiming {
  /** By sequence. */
  private readonly open = new RecentMap<number, OpenPass>(MOST_OPEN_PASSES);
  private latest: OpenPass | null = null;
  private passes = 0;
  private layerPasses = 0;
  private uses = 0;
  private spanMs = 0;

  /** Passes since the last `take`. */
  get seen(): number {
    return this.passes;
  }

  /** Main asks for this many experts of a layer. Returns true if a pass begins. */
  asked({ pass, layer }: PassLayer, experts: number, nowMs: number): boolean {
    const { sequence, position } = pass;
    const open = this.open.get(sequence);
    const goesOn = open !== undefined && open.position === position && open.layer <= layer ? open : null;
    if (goesOn === null) this.passes += 1;
    else this.spanMs += Math.max(0, nowMs - goesOn.arrivedMs - goesOn.stalledMs);
    this.layerPasses += 1;
    this.uses += experts;
    this.latest = { position, layer, arrivedMs: nowMs, stalledMs: 0 };
    this.open.set(sequence, this.latest);
    return goesOn === null;
  }

  /** An expert of this layer was not in its slot before this time. Only those of main's latest request count: others wait beside the passes. */
  stalled(layer: number, untilMs: number): void {
    if (this.latest?.layer !== layer) return;
    this.latest.stalledMs = Math.max(this.latest.stalledMs, untilMs - this.latest.arrivedMs);
  }

  /** Means over the passes since the last call; then counting starts again. */
  take(): SeenPasses {
    const seen = {
      computeMs: this.passes === 0 ? 0 : this.spanMs / this.passes,
      activated: this.layerPasses === 0 ? 0 : this.uses / this.layerPasses,
    };
    [this.passes, this.layerPasses, this.uses, this.spanMs] = [0, 0, 0, 0];
    return seen;
  }
}
