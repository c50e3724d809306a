import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { formatCount, formatFigure } from '../format/quantities.js';

/** The model's facts beside its name. */
export function modelFacts({ model, experts, expertLayers, expertsPerToken, release }: ClusterData): string[] {
  return [
    `${formatParameters(model.parameters)} parameters`,
    model.weightFormat,
    ...(model.arithmetic === 'exact' ? [] : [`answers computed as ${model.arithmetic}, not as the model was shipped`]),
    `${experts} experts in ${expertLayers} layers, ${expertsPerToken} a token`,
    contextFact(model),
    `odmoe ${release}`,
  ];
}

function contextFact({ contextPositions, madeForPositions }: ClusterData['model']): string {
  const context = `context ${formatCount(contextPositions)}`;
  if (contextPositions <= madeForPositions) return context;
  return `${context}, past the ${formatCount(madeForPositions)} that the model was made for: answers to long prompts may make no sense`;
}

/** For example "30.5 billion" or "2.4 million". */
function formatParameters(parameters: number): string {
  if (parameters >= 1e9) return `${formatFigure(parameters / 1e9)} billion`;
  return `${formatFigure(parameters / 1e6)} million`;
}
