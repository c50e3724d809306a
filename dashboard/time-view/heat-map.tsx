import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ExpertHeat } from '../../shared/wire/cluster-events.js';
import { formatFigure, formatShare } from '../format/quantities.js';
import { resolvedColour, useThemeCount } from '../elements/resolved-colour.js';
import { cellAt, cellBeside, heatStrengths, shareOf, type HeatCell } from './heat-cells.js';

const MOST_HEIGHT = 420;
const ROW_HEIGHTS = { least: 6, most: 22 };

function mapHeight(layers: number): number {
  const row = Math.min(ROW_HEIGHTS.most, Math.max(ROW_HEIGHTS.least, Math.floor(MOST_HEIGHT / layers)));
  return row * layers;
}

/** Cells begin and end at whole pixels, so that no seam shows between them. */
function drawHeat(
  canvas: HTMLCanvasElement,
  { expertLayers, experts }: ExpertHeat,
  strengths: readonly number[],
): void {
  const context = canvas.getContext('2d');
  if (context === null) return;
  const { clientWidth, clientHeight } = canvas;
  canvas.width = Math.round(clientWidth * devicePixelRatio);
  canvas.height = Math.round(clientHeight * devicePixelRatio);
  const edge = (length: number, index: number, count: number): number => Math.round((length * index) / count);
  context.fillStyle = resolvedColour('accent');
  strengths.forEach((strength, index) => {
    const [row, column] = [Math.floor(index / experts), index % experts];
    const [left, top] = [edge(canvas.width, column, experts), edge(canvas.height, row, expertLayers)];
    context.globalAlpha = strength;
    context.fillRect(
      left,
      top,
      edge(canvas.width, column + 1, experts) - left,
      edge(canvas.height, row + 1, expertLayers) - top,
    );
  });
}

/** The frequency of each expert, one row per layer. The pointer, a finger or the arrow keys choose the cell that is described. */
export function HeatMap({ heat }: { heat: ExpertHeat }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cell, setCell] = useState<HeatCell | null>(null);
  const themeCount = useThemeCount();
  const strengths = useMemo(() => heatStrengths(heat), [heat]);
  useEffect(() => {
    const target = canvas.current;
    if (target === null) return;
    const draw = (): void => drawHeat(target, heat, strengths);
    const sizes = new ResizeObserver(draw);
    sizes.observe(target);
    draw();
    return () => sizes.disconnect();
  }, [heat, strengths, themeCount]);
  const point = (event: PointerEvent): void => {
    const box = canvas.current?.getBoundingClientRect();
    if (box === undefined) return;
    setCell(cellAt(heat, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height));
  };
  const step = (event: KeyboardEvent): void => {
    const next = cellBeside(heat, cell ?? { layer: 0, expert: 0 }, event.key);
    if (next === null) return;
    event.preventDefault();
    setCell(next);
  };
  return (
    <section class="card heat" aria-label="Experts by layer">
      <HeatHead heat={heat} />
      <div
        class="heat-place"
        style={{ height: `${mapHeight(heat.expertLayers)}px` }}
        tabIndex={0}
        role="application"
        aria-label="Heat map of experts by layer: the arrow keys choose a cell"
        onPointerMove={point}
        onPointerDown={point}
        onPointerLeave={() => setCell(null)}
        onKeyDown={step}
        onBlur={() => setCell(null)}
      >
        <canvas ref={canvas} />
        {cell !== null && <HeatTip heat={heat} cell={cell} />}
        {strengths.every((strength) => strength === 0) && <p class="chart-empty quiet small">No token yet</p>}
      </div>
      <p class="heat-axis quiet small number" aria-hidden="true">
        <span>expert 0</span>
        <span>{heat.experts - 1}</span>
      </p>
      <p class="unseen" aria-live="polite">
        {cell !== null && cellSentence(heat, cell)}
      </p>
    </section>
  );
}

function HeatHead({ heat }: { heat: ExpertHeat }): JSX.Element {
  return (
    <div class="chart-head">
      <div>
        <h2>Experts by layer</h2>
        <p class="quiet small">
          How often tokens choose each of {heat.experts} experts, against an even share; layers 0 to{' '}
          {heat.expertLayers - 1} from top to bottom
        </p>
      </div>
      <p class="heat-scale quiet small" aria-hidden="true">
        never <span class="heat-ramp" /> often
      </p>
    </div>
  );
}

function cellSentence(heat: ExpertHeat, cell: HeatCell): string {
  const share = shareOf(heat, cell);
  const times = formatFigure(share * heat.experts);
  return `Layer ${cell.layer}, expert ${cell.expert}: ${formatShare(share)} of its layer, ${times} times an even share`;
}

function HeatTip({ heat, cell }: { heat: ExpertHeat; cell: HeatCell }): JSX.Element {
  const { layer, expert } = cell;
  const [width, height] = [100 / heat.experts, 100 / heat.expertLayers];
  const middle = width * (expert + 0.5);
  const isHigh = layer < heat.expertLayers / 2;
  const box = { left: `${width * expert}%`, top: `${height * layer}%`, width: `${width}%`, height: `${height}%` };
  // The tip is below cells of the upper half and above the other cells. It moves sideways so that it stays within the map.
  const place = {
    left: `${middle}%`,
    transform: `translateX(-${middle}%)`,
    ...(isHigh ? { top: `calc(${height * (layer + 1)}% + 8px)` } : { bottom: `calc(${100 - height * layer}% + 8px)` }),
  };
  return (
    <>
      <span class="heat-cell" style={box} />
      <span class="heat-tip small number" style={place} aria-hidden="true">
        {cellSentence(heat, cell)}
      </span>
    </>
  );
}
