/** Positions of edges, in pixels of the window. */
export interface Edges {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** Distances in pixels from the edges of a box. One of `top` and `bottom` is null and not set. */
export interface PopoverPlace {
  left: number;
  top: number | null;
  bottom: number | null;
}

const GAP_PIXELS = 4;

/** Places a popover of this size at an element of the box: below it, or above it if it would pass `endPixels` and there is room above. */
export function popoverPlace(
  element: Edges,
  box: Edges,
  { width, height }: { width: number; height: number },
  endPixels: number,
): PopoverPlace {
  const left = Math.max(0, Math.min(element.left - box.left, box.right - box.left - width));
  const isAbove = element.bottom + GAP_PIXELS + height > endPixels && element.top - GAP_PIXELS - height >= 0;
  if (isAbove) return { left, top: null, bottom: box.bottom - element.top + GAP_PIXELS };
  return { left, top: element.bottom - box.top + GAP_PIXELS, bottom: null };
}
