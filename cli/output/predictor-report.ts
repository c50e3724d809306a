import type { LayerRecall, Predictor } from '../../packs/predictor/predictor-file.js';
import { type TableColumn, tableLines } from './table.js';

type PredictorFacts = Omit<Predictor, 'layers'>;

/** The lines that `odmoe fit` prints about a predictor: its recall by layer and distance. Pure. */
export function predictorLines(predictor: PredictorFacts): string[] {
  const { shape, recall } = predictor;
  const columns: TableColumn[] = [
    { title: 'from layer', align: 'right' },
    ...shape.distances.map((distance): TableColumn => ({ title: aheadWords(distance), align: 'right' })),
  ];
  const rowOf = (title: string, some: readonly LayerRecall[]): string[] => [
    title,
    ...shape.distances.map((distance) => meanRecall(some, distance) ?? '-'),
  ];
  const rows = Array.from({ length: shape.layers }, (_, layer) =>
    rowOf(
      String(layer),
      recall.filter((entry) => entry.layer === layer),
    ),
  );
  return [
    `  trained with ${originWords(predictor)}`,
    '  recall on sequences that were held back, by layer and layers ahead:',
    ...tableLines(columns, [...rows, rowOf('all', recall)]).map((line) => `    ${line}`),
  ];
}

/** The lines of `odmoe inspect`. Pure. */
export function predictorSummary(predictor: PredictorFacts): string[] {
  const { distances } = predictor.shape;
  const recalls = distances.map(
    (distance) => `${meanRecall(predictor.recall, distance) ?? '-'} ${aheadWords(distance)}`,
  );
  return [`  predictor   trained with ${originWords(predictor)}`, `              recall ${recalls.join(', ')}`];
}

function originWords({ tokens, text, seed, shape }: PredictorFacts): string {
  return `${tokens} tokens (${text}), seed ${seed}, ${shape.units} units`;
}

function aheadWords(distance: number): string {
  return distance === 0 ? 'itself' : `${distance} ahead`;
}

/** The mean over the layers that can be foretold at this distance; null: there are none. */
function meanRecall(recall: readonly LayerRecall[], distance: number): string | null {
  const some = recall.filter((entry) => entry.distance === distance);
  if (some.length === 0) return null;
  return (some.reduce((sum, entry) => sum + entry.recall, 0) / some.length).toFixed(4);
}
