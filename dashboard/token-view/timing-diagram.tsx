import type { JSX } from 'preact';
import { useId } from 'preact/hooks';
import {
  fillOf,
  PAINTS,
  paintOf,
  PATTERN_OPACITY,
  PATTERN_PATHS,
  PATTERN_PIXELS,
  PATTERN_STROKE,
  PREDICTION_COLOUR,
  RELOADED_COLOUR,
} from './bar-paint.js';
import { AXIS_PIXELS, type PlacedBar, type TimelineDrawing } from './timeline-drawing.js';
import type { Bar, Timeline, Lane } from './timeline.js';

const KEYS: Record<string, Direction> = { ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' };

export interface TimingDiagramProps {
  timeline: Timeline;
  drawing: TimelineDrawing;
  width: number;
  title: string;
  /** The bar that is described. */
  active: Bar | null;
  /** `chosen`: true for a press or a key, false for a pointer that passes over the bar. */
  onActive: (bar: Bar | null, chosen: boolean) => void;
}

/** The bars of a pass as an SVG element. Arrow keys move from bar to bar. */
export function TimingDiagram({ timeline, drawing, width, title, active, onActive }: TimingDiagramProps): JSX.Element {
  const prefix = useId();
  const barOf = (event: Event): Bar | null => {
    const index = event.target instanceof SVGElement ? event.target.dataset.bar : undefined;
    return index === undefined ? null : (drawing.bars[Number(index)]?.bar ?? null);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const direction = KEYS[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    onActive(nextBar(timeline, active, direction), true);
  };
  const onPointerOver = (event: Event): void => {
    const bar = barOf(event);
    if (bar !== null) onActive(bar, false);
  };
  return (
    <svg
      class="timing-svg"
      width={width}
      height={drawing.height}
      role="application"
      aria-roledescription="timing diagram"
      aria-label={`${title}. Arrow keys lead from bar to bar.`}
      tabindex={0}
      onPointerOver={onPointerOver}
      onClick={(event) => onActive(barOf(event), true)}
      onKeyDown={onKeyDown}
    >
      <Patterns prefix={prefix} />
      <Grid drawing={drawing} width={width} />
      {drawing.arrows.map(({ x1, y1, x2, y2 }, index) => (
        <line key={index} class="timing-arrow" x1={x1} y1={y1} x2={x2} y2={y2} />
      ))}
      {drawing.bars.map((placed, index) => (
        <TimingBar key={index} placed={placed} index={index} prefix={prefix} isActive={placed.bar === active} />
      ))}
      {drawing.marks.map(({ mark, x, y }, index) => (
        <path key={index} d={`M${x},${y - 5} l4,6 h-8 z`} fill={PREDICTION_COLOUR}>
          <title>{mark.text}</title>
        </path>
      ))}
    </svg>
  );
}

function Grid({ drawing, width }: { drawing: TimelineDrawing; width: number }): JSX.Element {
  const bottom = drawing.height - AXIS_PIXELS;
  return (
    <g>
      {drawing.ticks.map(({ x, text }) => (
        <g key={text}>
          <line class="timing-rule" x1={x} y1={0} x2={x} y2={bottom + 4} />
          <text class="timing-tick" x={x + 3} y={bottom + 17}>
            {text}
          </text>
        </g>
      ))}
      {drawing.lanes.map(({ name, y, height }) => (
        <line key={name} class="timing-rule" x1={0} y1={y + height} x2={width} y2={y + height} />
      ))}
    </g>
  );
}

function TimingBar({
  placed: { bar, x, y, width, height, label },
  index,
  prefix,
  isActive,
}: {
  placed: PlacedBar;
  index: number;
  prefix: string;
  isActive: boolean;
}): JSX.Element {
  const paint = paintOf(bar);
  const isReloaded = bar.reloaded && bar.kind === 'load';
  const outline = isReloaded ? RELOADED_COLOUR : paint.pattern === 'hollow' ? paint.colour : 'none';
  return (
    <g class={isActive ? 'timing-bar timing-bar-active' : 'timing-bar'}>
      <rect
        data-bar={index}
        x={x}
        y={y}
        width={width}
        height={height}
        rx={Math.min(2, width / 4)}
        fill={fillOf(paint, prefix)}
        stroke={outline}
        stroke-width={isReloaded ? 1.6 : 0.8}
        stroke-dasharray={isReloaded ? '4 2' : '2 2'}
        pointer-events="all"
      />
      {label !== '' && (
        <text class="timing-label" x={x + width / 2} y={y + 12} fill={paint.ink} stroke={paint.colour}>
          {label}
        </text>
      )}
    </g>
  );
}

function Patterns({ prefix }: { prefix: string }): JSX.Element {
  return (
    <defs>
      {PAINTS.filter(({ pattern }) => PATTERN_PATHS[pattern] !== '').map(({ name, colour, pattern }) => (
        <pattern
          key={name}
          id={`${prefix}${name}`}
          width={PATTERN_PIXELS}
          height={PATTERN_PIXELS}
          patternUnits="userSpaceOnUse"
        >
          <rect width={PATTERN_PIXELS} height={PATTERN_PIXELS} fill={colour} />
          <path
            d={PATTERN_PATHS[pattern]}
            stroke={PATTERN_STROKE}
            stroke-opacity={PATTERN_OPACITY}
            stroke-width="1.4"
          />
        </pattern>
      ))}
    </defs>
  );
}

/** The meanings of the fills. */
export function TimingLegend(): JSX.Element {
  const prefix = useId();
  const reloaded = paintOf({ kind: 'load', foretold: 'missed' });
  const swatches = [
    ...PAINTS.map((paint) => ({ paint, words: paint.words, isReloaded: false })),
    { paint: reloaded, words: 'load, reloaded', isReloaded: true },
  ];
  return (
    <ul class="timing-legend small quiet">
      {swatches.map(({ paint, words, isReloaded }) => (
        <li key={words}>
          <svg width="20" height="14" aria-hidden="true">
            <Patterns prefix={prefix} />
            <rect
              x={1}
              y={1}
              width={18}
              height={12}
              rx={2}
              fill={fillOf(paint, prefix)}
              stroke={isReloaded ? RELOADED_COLOUR : paint.pattern === 'hollow' ? paint.colour : 'none'}
              stroke-width={isReloaded ? 1.6 : 1}
              stroke-dasharray={isReloaded ? '4 2' : '2 2'}
            />
          </svg>
          {words}
        </li>
      ))}
      <li>
        <svg width="14" height="14" aria-hidden="true">
          <path d="M7,3 l4,8 h-8 z" fill={PREDICTION_COLOUR} />
        </svg>
        a prediction reaches main
      </li>
    </ul>
  );
}

type Direction = 'left' | 'right' | 'up' | 'down';

/** The bar that an arrow key selects: the next in time in its lane, or one at about the same time in the next lane. */
function nextBar({ lanes }: Timeline, from: Bar | null, direction: Direction): Bar | null {
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
