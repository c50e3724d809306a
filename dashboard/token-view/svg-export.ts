import { escaped, line, round, svgFile, svgText, type Drawing } from '../../shared/base/text/svg-drawing.js';
import {
  fillOf,
  PAINTS,
  PATTERN_OPACITY,
  PATTERN_PATHS,
  PATTERN_PIXELS,
  PATTERN_STROKE,
  PREDICTION_COLOUR,
  paintOf,
  RELOADED_COLOUR,
  type Paint,
} from './bar-paint.js';
import { AXIS_PIXELS, drawingWidth, drawTimeline, type PlacedBar, type TimelineDrawing } from './timeline-drawing.js';
import type { Timeline } from './timeline.js';

const LABEL_PIXELS = 96;
const MARGIN_PIXELS = 16;
const TITLE_PIXELS = 34;
const LEGEND_ITEM_PIXELS = 172;
const LEGEND_LINE_PIXELS = 20;
const LEAST_WIDTH_PIXELS = 900;
/** The widest diagram that every program can still show. */
const MOST_WIDTH_PIXELS = 16_000;

export interface TitledTimeline {
  title: string;
  timeline: Timeline;
}

/**
 * The text of a complete SVG file: the diagrams of passes, one below the other on one time axis, each with its title, and a legend. Its width
 * follows from `pixelsPerMs`, within bounds.
 */
export function timelineSvg(diagrams: readonly TitledTimeline[], pixelsPerMs: number): string {
  const extent = commonExtent(diagrams.map(({ timeline }) => timeline));
  const wanted = drawingWidth(extent, pixelsPerMs);
  const plotPixels = Math.min(MOST_WIDTH_PIXELS, Math.max(LEAST_WIDTH_PIXELS, wanted));
  const scale = { beginMs: extent.beginMs, pixelsPerMs: plotPixels / Math.max(1e-9, extent.endMs - extent.beginMs) };
  const width = LABEL_PIXELS + plotPixels + MARGIN_PIXELS;
  const drawings = diagrams.flatMap(({ title, timeline }): Drawing[] => {
    const drawing = drawTimeline(timeline, scale, { from: 0, to: plotPixels });
    return [
      { width, height: TITLE_PIXELS, body: svgText(8, 22, title, 'font-size="15"') },
      { width, height: drawing.height, body: diagramBody(drawing, plotPixels) },
    ];
  });
  return svgFile([{ width, height: 0, body: patterns() }, ...drawings, legend(width)]);
}

/** From the earliest beginning to the latest end. */
export function commonExtent(timelines: readonly Timeline[]): { beginMs: number; endMs: number } {
  return {
    beginMs: Math.min(0, ...timelines.map(({ beginMs }) => beginMs)),
    endMs: Math.max(0, ...timelines.map(({ endMs }) => endMs)),
  };
}

function patterns(): string {
  const tiles = PAINTS.filter(({ pattern }) => PATTERN_PATHS[pattern] !== '').map(
    ({ name, colour, pattern }) =>
      `<pattern id="${name}" width="${PATTERN_PIXELS}" height="${PATTERN_PIXELS}" patternUnits="userSpaceOnUse">` +
      `<rect width="${PATTERN_PIXELS}" height="${PATTERN_PIXELS}" fill="${colour}"/>` +
      `<path d="${PATTERN_PATHS[pattern]}" stroke="${PATTERN_STROKE}" stroke-opacity="${PATTERN_OPACITY}" stroke-width="1.4"/></pattern>`,
  );
  return `<defs>${tiles.join('')}</defs>`;
}

function diagramBody({ lanes, bars, marks, arrows, ticks, height }: TimelineDrawing, plotPixels: number): string {
  const bottom = height - AXIS_PIXELS;
  const names = lanes.map(({ name, y, height: laneHeight }) => {
    const rule = line(0, y + laneHeight, LABEL_PIXELS + plotPixels, y + laneHeight, '#e3e5e8');
    return rule + svgText(LABEL_PIXELS - 10, y + laneHeight / 2 + 4, name, 'text-anchor="end" font-size="12"');
  });
  const axis = ticks.map(({ x, text: words }) => {
    const label = svgText(x, bottom + 18, words, 'text-anchor="middle" font-size="11"');
    return line(x, 0, x, bottom + 4, '#e3e5e8') + label;
  });
  const drawn = [
    ...axis,
    ...arrows.map(({ x1, y1, x2, y2 }) => line(x1, y1, x2, y2, '#c3c7cd')),
    ...bars.map(barSvg),
    ...marks.map(({ mark, x, y }) => {
      const shape = `M${x},${round(y - 5)} l4,6 h-8 z`;
      return `<path d="${shape}" fill="${PREDICTION_COLOUR}"><title>${escaped(mark.text)}</title></path>`;
    }),
  ];
  return [...names, `<g transform="translate(${LABEL_PIXELS} 0)">`, ...drawn, '</g>'].join('\n');
}

function barSvg({ bar, x, y, width, height, label }: PlacedBar): string {
  const paint = paintOf(bar);
  const outline = outlineOf(paint, bar.reloaded && bar.kind === 'load');
  const box = `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fillOf(paint, '')}"${outline}>`;
  const shape = `${box}<title>${escaped(bar.text)}</title></rect>`;
  if (label === '') return shape;
  const halo = `stroke="${paint.colour}" stroke-width="3" paint-order="stroke"`;
  const place = `text-anchor="middle" font-size="10" ${halo}`;
  return shape + svgText(round(x + width / 2), y + 12, label, `${place} fill="${paint.ink}"`);
}

function outlineOf({ pattern, colour }: Paint, reloaded: boolean): string {
  if (reloaded) return ` stroke="${RELOADED_COLOUR}" stroke-width="1.6" stroke-dasharray="4 2"`;
  return pattern === 'hollow' ? ` stroke="${colour}" stroke-width="0.8" stroke-dasharray="2 2"` : '';
}

function legend(width: number): Drawing {
  const perLine = Math.max(1, Math.floor((width - LABEL_PIXELS) / LEGEND_ITEM_PIXELS));
  const swatch = (x: number, y: number, paint: Paint, reloaded: boolean): string => {
    const look = `fill="${fillOf(paint, '')}"${outlineOf(paint, reloaded)}`;
    return `<rect x="${x}" y="${y}" width="18" height="12" ${look}/>`;
  };
  const items = [
    ...PAINTS.map((paint) => ({ words: paint.words, mark: (x: number, y: number) => swatch(x, y, paint, false) })),
    {
      words: 'load, reloaded',
      mark: (x: number, y: number) => swatch(x, y, paintOf({ kind: 'load', foretold: 'missed' }), true),
    },
    {
      words: 'a prediction reaches main',
      mark: (x: number, y: number) => `<path d="M${x + 9},${y + 2} l4,8 h-8 z" fill="${PREDICTION_COLOUR}"/>`,
    },
  ];
  const body = items.map(({ words, mark }, index) => {
    const x = LABEL_PIXELS + (index % perLine) * LEGEND_ITEM_PIXELS;
    const y = 10 + Math.floor(index / perLine) * LEGEND_LINE_PIXELS;
    return mark(x, y) + svgText(x + 24, y + 10, words, 'font-size="12"');
  });
  return { width, height: 20 + Math.ceil(items.length / perLine) * LEGEND_LINE_PIXELS, body: body.join('\n') };
}
