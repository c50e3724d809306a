/** A draw that ends within this time needs no pause: it fits between two frames. */
const SHORT_DRAW_MS = 24;
/** The pause after a longer draw, as a multiple of its time: so much is left for everything else of the page. */
const PAUSE_FACTOR = 3;

/** The pause after a draw that took so long, in ms. */
export function pauseMs(drawMs: number): number {
  return drawMs <= SHORT_DRAW_MS ? 0 : drawMs * PAUSE_FACTOR;
}
