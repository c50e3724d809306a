import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { ExpertHeat, FigureSample, RecallView } from '../../shared/wire/cluster-events.js';
import type { DashboardState } from '../feed/dashboard-state.js';
import { useDashboard } from '../feed/dashboard-store.js';
import { formatCount, formatFigure, formatMilliseconds, formatShare } from '../format/quantities.js';
import {
  figureValues,
  formatSecondsAgo,
  latestOf,
  secondsAgo,
  MEAN_SAMPLES,
  shownSeconds,
  smoothed,
  type FigureName,
} from './figure-series.js';
import { HeatMap } from './heat-map.js';
import { LineChart } from './line-chart.js';
import { recallByPosition } from './recall-positions.js';

interface FigureChart {
  title: string;
  lines: { title: string; figure: FigureName; colour: string }[];
  format: (value: number) => string;
  /** True: single measurements or whole numbers, which are not averaged. */
  hasPoints?: boolean;
  hasSteps?: boolean;
  isShare?: boolean;
}

const line = (figure: FigureName, title: string, colour = 'accent'): FigureChart['lines'][number] => ({
  title,
  figure,
  colour,
});

const CHARTS: readonly FigureChart[] = [
  { title: 'Tokens/s', lines: [line('tokensPerS', 'Tokens/s')], format: formatFigure },
  {
    title: 'Time to first token',
    lines: [line('ttftMs', 'Time to first token')],
    format: formatMilliseconds,
    hasPoints: true,
  },
  { title: 'Recall of predictions', lines: [line('recall', 'Recall')], format: formatShare, isShare: true },
  { title: 'Drafts right', lines: [line('draftsRight', 'Drafts right')], format: formatShare, isShare: true },
  {
    title: 'Loaded, MB/s',
    lines: [line('loadBytesPerS', 'Loaded')],
    format: (bytesPerS) => formatFigure(bytesPerS / 1e6),
  },
  { title: 'Reloads/s', lines: [line('reloadsPerS', 'Reloads/s')], format: formatFigure },
  {
    title: 'Requests',
    lines: [line('activeRequests', 'running'), line('queuedRequests', 'waiting', 'kind-4')],
    format: formatCount,
    hasSteps: true,
  },
  { title: 'Rows a pass', lines: [line('rowsPerPass', 'Rows a pass')], format: formatFigure },
];

const selectSamples = (state: DashboardState): readonly FigureSample[] => state.samples;
const selectRecall = (state: DashboardState): RecallView | null => state.recall;
const selectHeat = (state: DashboardState): ExpertHeat | null => state.heat;

export function TimeView(): JSX.Element {
  const samples = useDashboard(selectSamples);
  const recall = useDashboard(selectRecall);
  const heat = useDashboard(selectHeat);
  return (
    <>
      <h1 class="unseen">Over time</h1>
      <p class="quiet small time-note">The last ten minutes; lines are means of {MEAN_SAMPLES} seconds.</p>
      <div class="charts">
        {CHARTS.map((chart) => (
          <FigureLineChart key={chart.title} chart={chart} samples={samples} />
        ))}
        {recall !== null && recall.activated.length > 0 && <RecallChart recall={recall} />}
        {heat !== null && <HeatMap heat={heat} />}
      </div>
    </>
  );
}

interface FigureLineChartProps {
  chart: FigureChart;
  samples: readonly FigureSample[];
}

function FigureLineChart({ chart, samples }: FigureLineChartProps): JSX.Element {
  const { lines, ...rest } = chart;
  const width = rest.hasPoints === true || rest.hasSteps === true ? 1 : MEAN_SAMPLES;
  const drawn = useMemo(
    () =>
      lines.map(({ title, figure, colour }) => ({
        title,
        colour,
        values: smoothed(figureValues(samples, figure), width),
      })),
    [lines, samples, width],
  );
  const xs = useMemo(() => secondsAgo(samples), [samples]);
  return (
    <LineChart
      {...rest}
      xs={xs}
      xRange={[-shownSeconds(samples), 0]}
      formatX={formatSecondsAgo}
      formatTick={formatSecondsAgo}
      tickSteps={[10, 15, 30, 60, 120, 180, 300]}
      lines={drawn}
      latest={drawn.map(({ values }) => latestOf(values))}
      group="time"
    />
  );
}

function RecallChart({ recall }: { recall: RecallView }): JSX.Element {
  const { positions, recalls } = useMemo(() => recallByPosition(recall), [recall]);
  const lines = useMemo(() => [{ title: 'Recall', colour: 'accent', values: recalls }], [recalls]);
  return (
    <LineChart
      title="Recall by position in the answer"
      xs={positions}
      xRange={[1, Math.max(2, positions.at(-1) ?? 2)]}
      formatX={(position) => `token ${formatCount(position)}`}
      formatTick={formatCount}
      tickSteps={[1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000]}
      lines={lines}
      format={formatShare}
      latest={[latestOf(recalls)]}
      group="position"
      isShare
    />
  );
}
