import { tableLines } from '../../cli/output/table.js';
import { heatMap } from '../plot/heat-map.js';
import { svgFile } from '../../shared/base/text/svg-drawing.js';
import { linePlot } from '../plot/line-plot.js';
import type { SourceReport } from './compare-sources.js';
import type { RecallReport, RecallResult } from './measure-recall.js';
import { alignmentName, FIGURE_6_PERIODS, isOfFigure3, isOfFigure6, NAMED_PRECISIONS } from './set-ups.js';
import type { SepMetrics } from '../../shared/wire/messages.js';

/** The settings of a report, besides the set-ups. */
export interface RecallSetting {
  /** Most decode iterations of a prompt. */
  iterations: number;
  stopAtEnd: boolean;
  temperature: number;
  seed: number;
}

/** Number of iterations that each point of the curves averages. */
export const SMOOTHING_WINDOW = 16;

const DIGITS = 4;

/** One object for JSON.stringify; recalls are null for iterations that no prompt reached. */
export function recallJson(report: RecallReport, setting: RecallSetting): object {
  return {
    model: report.modelName,
    prompts: report.prompts,
    tokens: setting.iterations,
    iterations: report.iterations,
    stop_at_end: setting.stopAtEnd,
    temperature: setting.temperature,
    seed: setting.temperature === 0 ? null : setting.seed,
    results: report.results.map(({ precision, alignment, metrics }) => ({
      precision,
      align_token: alignment.token,
      align_kv: alignment.keyValue,
      recall: metrics.recall,
      recall_by_quarter: recallByQuarter(metrics, setting.iterations),
      activated: metrics.activated,
      predicted_correctly: metrics.predictedCorrectly,
      recall_by_iteration: recallByIteration(metrics),
    })),
  };
}

/** One row per set-up: recall in total, and by quarter of the iterations. */
export function recallTable(report: RecallReport, setting: RecallSetting): string {
  const borders = quarterBorders(setting.iterations);
  const quarters = borders.slice(1).map((end, quarter) => `n ${(borders[quarter] ?? 0) + 1}-${end}`);
  const columns = [
    { title: 'shadow', align: 'left' as const },
    ...['align', 'recall', ...quarters].map((title) => ({ title, align: 'right' as const })),
  ];
  const rows = report.results.map(({ precision, alignment, metrics }) => [
    precision,
    alignmentName(alignment),
    share(metrics.recall),
    ...recallByQuarter(metrics, setting.iterations).map(share),
  ]);
  const { modelName, prompts, iterations } = report;
  const { temperature, seed } = setting;
  const chosen = temperature === 0 ? 'greedy' : `temperature ${temperature}, seeds from ${seed}`;
  return [
    ...tableLines(columns, rows),
    `(recall of ${modelName}: ${prompts} prompts, ${iterations} decode iterations in all, ${chosen}; align: periods of tokens/KV ` +
      'rows in iterations, 0: never; n: decode iteration)',
  ].join('\n');
}

/** One row per source of predictions. */
export function sourceTable({ modelName, prompts, iterations, results }: SourceReport, setting: RecallSetting): string {
  const borders = quarterBorders(setting.iterations);
  const quarters = borders.slice(1).map((end, quarter) => `n ${(borders[quarter] ?? 0) + 1}-${end}`);
  const columns = [
    { title: 'predictions from', align: 'left' as const },
    ...['ahead', 'recall', 'all layers', ...quarters].map((title) => ({ title, align: 'right' as const })),
  ];
  const rows = results.map(({ source, layersAhead, metrics, allLayers }) => [
    source,
    layersAhead === null ? '-' : String(layersAhead),
    share(metrics.recall),
    share(allLayers.recall),
    ...recallByQuarter(metrics, setting.iterations).map(share),
  ]);
  return [
    ...tableLines(columns, rows),
    `(recall of ${modelName}: ${prompts} prompts, ${iterations} decode iterations in all; shadows are aligned at every iteration; n: ` +
      'decode iteration; ahead: layers between the state that is asked and the experts; recall: over the layers that can be foretold so far ahead; ' +
      'all layers: those nearer to the first one are foretold from there, and one of which a source says nothing counts as missed)',
  ].join('\n');
}

/** The same as sourceTable, for programs. */
export function sourceJson({ modelName, prompts, iterations, results }: SourceReport): object {
  return {
    model: modelName,
    prompts,
    iterations,
    results: results.map(({ source, layersAhead, metrics: { recall, activated, predictedCorrectly }, allLayers }) => ({
      source,
      layers_ahead: layersAhead,
      recall,
      recall_all_layers: allLayers.recall,
      activated,
      predicted_correctly: predictedCorrectly,
    })),
  };
}

/** The text of an SVG file: curves of recall(n), a panel per precision, and a map of recall by periods if those of figure 6 were run. */
export function recallPlot(report: RecallReport): string {
  const curves = report.results.filter((result) => isOfFigure3(result) || !isOfFigure6(result));
  const maps = NAMED_PRECISIONS.map((precision) =>
    report.results.filter((result) => result.precision === precision && isOfFigure6(result)),
  ).filter((results) => results.some((result) => !isOfFigure3(result)));
  return svgFile([...(curves.length === 0 ? [] : [curvesOf(curves)]), ...maps.map(mapOf)]);
}

function curvesOf(results: readonly RecallResult[]): ReturnType<typeof linePlot> {
  const precisions = NAMED_PRECISIONS.filter((precision) => results.some((result) => result.precision === precision));
  const panels = precisions.map((precision) => ({
    title: precision.toUpperCase(),
    series: results
      .filter((result) => result.precision === precision)
      .map(({ alignment, metrics }) => ({
        name: `align ${alignmentName(alignment)}`,
        points: smoothedRecall(metrics, SMOOTHING_WINDOW),
      })),
  }));
  return linePlot({
    title: `Recall by decode iteration (mean of ${SMOOTHING_WINDOW}), by alignment periods of tokens/KV rows`,
    xLabel: 'decode iteration n',
    yLabel: 'recall',
    rows: [panels],
    dots: false,
  });
}

function mapOf(results: readonly RecallResult[]): ReturnType<typeof heatMap> {
  const periods = FIGURE_6_PERIODS.map(String);
  const recallOf = (token: number, keyValue: number): number | null =>
    results.find(({ alignment }) => alignment.token === token && alignment.keyValue === keyValue)?.metrics.recall ??
    null;
  return heatMap({
    title: `Recall by alignment periods, ${results[0]?.precision.toUpperCase() ?? ''} shadow`,
    xLabel: 'KV rows aligned every ... iterations',
    yLabel: 'tokens aligned every ...',
    columns: periods,
    rows: periods,
    values: FIGURE_6_PERIODS.map((token) => FIGURE_6_PERIODS.map((keyValue) => recallOf(token, keyValue))),
    label: share,
  });
}

function share(recall: number | null): string {
  return recall === null ? '-' : recall.toFixed(DIGITS);
}

type IterationCounts = Pick<SepMetrics, 'activatedByIteration' | 'correctByIteration'>;

/** OD-MoE equation 2 for each iteration; null if no prompt reached it. */
export function recallByIteration(metrics: IterationCounts): (number | null)[] {
  return metrics.activatedByIteration.map((_, index) => recallOver(metrics, index, index + 1));
}

/** Borders of the four quarters of `iterations`: five numbers from 0. */
export function quarterBorders(iterations: number): number[] {
  return [0, 1, 2, 3, 4].map((quarter) => Math.floor((quarter * iterations) / 4));
}

/** Recall in each quarter of the iterations; null if no prompt reached it. */
export function recallByQuarter(metrics: IterationCounts, iterations: number): (number | null)[] {
  const borders = quarterBorders(iterations);
  return borders.slice(1).map((end, quarter) => recallOver(metrics, borders[quarter] ?? 0, end));
}

/**
 * Recall at each iteration n (from 1), by equation 3 over the `window` iterations around n; the window is shorter at the ends. Empty if no
 * iteration was run.
 */
export function smoothedRecall(metrics: IterationCounts, window: number): { x: number; y: number }[] {
  const before = Math.floor((window - 1) / 2);
  return metrics.activatedByIteration.flatMap((_, index) => {
    const recall = recallOver(metrics, Math.max(0, index - before), index - before + window);
    return recall === null ? [] : [{ x: index + 1, y: recall }];
  });
}

/** Recall over the iterations from `from` up to, but without, `end`. */
function recallOver(
  { activatedByIteration, correctByIteration }: IterationCounts,
  from: number,
  end: number,
): number | null {
  const activated = sum(activatedByIteration.slice(from, end));
  return activated === 0 ? null : sum(correctByIteration.slice(from, end)) / activated;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
