import type { PassLayer } from '../../shared/rpc/messages.js';
import type { SeenPasses } from '../cache/cache-residency.js';

/**
 * How long passes take this worker, as far as it sees them: the time between main's requests for their layers, which is what loads of later layers can
 * hide behind. What a layer waited for a load is not counted. Pure: times come in.
 */
export class PassTiming {
  private current: { sequence: number; position: number; layer: number; arrivedMs: number; stalledMs: number } | null =
    null;
  private passes = 0;
  private layerPasses = 0;
  private uses = 0;
  private spanMs = 0;

  /** Passes since the last `take`. */
  get seen(): number {
    return this.passes;
  }

  /** Main asks for so many experts of a layer. Returns true where a pass begins. */
  asked({ pass, layer }: PassLayer, experts: number, nowMs: number): boolean {
    const { sequence, position } = pass;
    const { current } = this;
    const goesOn =
      current?.sequence === sequence && current.position === position && current.layer <= layer ? current : null;
    if (goesOn === null) this.passes += 1;
    else this.spanMs += Math.max(0, nowMs - goesOn.arrivedMs - goesOn.stalledMs);
    this.layerPasses += 1;
    this.uses += experts;
    this.current = { sequence, position, layer, arrivedMs: nowMs, stalledMs: 0 };
    return goesOn === null;
  }

  /** An expert that main had asked for was not there before this time. */
  stalled(untilMs: number): void {
    if (this.current === null) return;
    this.current.stalledMs = Math.max(this.current.stalledMs, untilMs - this.current.arrivedMs);
  }

  /** Means of the passes since the last call; counting begins anew. */
  take(): SeenPasses {
    const seen = {
      computeMs: this.passes === 0 ? 0 : this.spanMs / this.passes,
      activated: this.layerPasses === 0 ? 0 : this.uses / this.layerPasses,
    };
    [this.passes, this.layerPasses, this.uses, this.spanMs] = [0, 0, 0, 0];
    return seen;
  }
}
