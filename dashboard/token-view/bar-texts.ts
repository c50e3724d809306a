import type {
  ExpertTimeline,
  LayerTimeline,
  PredictionOutcome,
  PredictionTimeline,
} from '../../shared/wire/cluster-events.js';

export const OUTCOME_WORDS: Record<PredictionOutcome, string> = {
  predicted: 'predicted in time',
  late: 'predicted too late',
  missed: 'not predicted',
  announced: 'announced: all of the layer were announced to workers',
  unpredicted: 'nobody predicts',
};

export function milliseconds(ms: number): string {
  const digits = Math.abs(ms) >= 100 ? 0 : Math.abs(ms) >= 10 ? 1 : 2;
  return `${ms.toFixed(digits)} ms`;
}

export function mainText(what: 'attention' | 'wait' | 'sum', layer: LayerTimeline): string {
  const name = `layer ${layer.layer}`;
  if (what === 'attention') return `${name}: attention and router, ${milliseconds(layer.routedMs - layer.beginMs)}`;
  if (what === 'sum') return `${name}: outputs summed, ${milliseconds(layer.endMs - layer.answeredMs)}`;
  const count = layer.experts.length;
  return `${name}: main waits for ${experts(count)}, ${milliseconds(layer.answeredMs - layer.routedMs)}`;
}

export function headText(ms: number): string {
  return `after the last layer: LM head and choice of the token, ${milliseconds(ms)}`;
}

export function shadowText(layer: number, ms: number, sequences: number): string {
  const whose = sequences > 1 ? ` of ${sequences} sequences` : '';
  return `shadow computes layer ${layer}${whose}, ${milliseconds(ms)}`;
}

export function predictionText(together: readonly PredictionTimeline[]): string {
  const predicted = [...new Set(together.flatMap((prediction) => prediction.experts))].sort((a, b) => a - b);
  return `prediction of layer ${together[0]?.layer ?? 0}: ${predicted.length === 1 ? 'expert' : 'experts'} ${predicted.join(', ')}`;
}

export function loadText(layer: number, expert: ExpertTimeline, ms: number): string {
  const words = [`load of expert ${expert.expert} of layer ${layer}, ${milliseconds(ms)}`];
  words.push(OUTCOME_WORDS[expert.foretold]);
  if (expert.reloaded) words.push('reloaded after the router had chosen');
  return words.join('; ');
}

export function stallText(layer: number, { expert }: ExpertTimeline, ms: number): string {
  return `waits for the load of expert ${expert} of layer ${layer}, ${milliseconds(ms)}`;
}

export function executeText(layer: number, expert: ExpertTimeline): string {
  const rows = expert.rows === 1 ? '1 row' : `${expert.rows} rows`;
  const ms = milliseconds(expert.executeEndMs - expert.executeBeginMs);
  const words = [`expert ${expert.expert} of layer ${layer} with ${rows}, ${ms}`];
  words.push(OUTCOME_WORDS[expert.foretold]);
  if (expert.loadBeginMs === null) words.push('it was there from an earlier pass');
  return words.join('; ');
}

function experts(count: number): string {
  return count === 1 ? 'one expert' : `${count} experts`;
}
