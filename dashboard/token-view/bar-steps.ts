import type { Bar, Lane, Timeline } from './timeline.js';

export type Direction = 'left' | 'right' | 'up' | 'down';

/** The bar that an arrow key leads to: the next in time in its lane, or the one about the same time in the lane beside. */
export function nextBar({ lanes }: Timeline, from: Bar | null, direction: Direction): Bar | null {
  const index = lanes.findIndex((lane) => from !== null && lane.bars.includes(from));
  const lane = lanes[index];
  if (from === null || lane === undefined) return lanes[0]?.bars[0] ?? null;
  if (direction === 'left' || direction === 'right') {
    const place = lane.bars.indexOf(from) + (direction === 'left' ? -1 : 1);
    return lane.bars[place] ?? from;
  }
  const beside = direction === 'up' ? lanes.slice(0, index).reverse() : lanes.slice(index + 1);
  const next = beside.find(({ bars }) => bars.length > 0);
  return next === undefined ? from : nearest(next, (from.fromMs + from.toMs) / 2);
}

function nearest({ bars }: Lane, atMs: number): Bar | null {
  const distance = ({ fromMs, toMs }: Bar): number => Math.max(fromMs - atMs, atMs - toMs, 0);
  return bars.reduce<Bar | null>((best, bar) => (best !== null && distance(best) <= distance(bar) ? best : bar), null);
}
