/** The table `figure3` (SliceMoE, figure 3): how a model's experts are chosen in the prompt, and in the first steps after it, from routers' scores. */
import { chooseExperts } from '../../shared/decisions/slices/choose-experts.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { PromptScores } from '../../simulator/slices/synthetic-scores.js';
import { DECODE_WINDOWS } from './measure-decode.js';
import type { ScoredModel } from './scored-models.js';

export interface PhasesRow {
  table: 'figure3';
  model: string;
  phase: 'prefill' | 'decode';
  /** Tokens that are counted: of the prompts, in the mean, or decode steps from the first on. */
  steps: number;
  /** The share of all experts that are chosen at least once. */
  used: number;
  /** The share of choices that fall on the tenth of experts that this phase chooses most. */
  top_tenth: number;
  /** The same for the tenth that the prompt chooses most. */
  top_tenth_of_prompt: number;
}

const TENTH = 0.1;
const NO_CACHE = { isCached: () => false, meanRange: 0 };

export function measurePhases(models: readonly ScoredModel[]): PhasesRow[] {
  return models.flatMap((model) => {
    const { prompts, iterations } = model;
    const windows = [...DECODE_WINDOWS.filter((steps) => steps < iterations), iterations];
    const promptTokens = prompts.reduce((sum, prompt) => sum + prompt.promptTokens, 0) / prompts.length;
    return [
      rowOf(model, 'prefill', Math.round(promptTokens)),
      ...windows.map((steps) => rowOf(model, 'decode', steps)),
    ];
  });
}

/** Means over the prompts. */
function rowOf({ model, prompts, shape }: ScoredModel, phase: PhasesRow['phase'], steps: number): PhasesRow {
  const figures = prompts.map((prompt) => {
    const ofPrompt = countsOf(shape, prompt, 0, prompt.promptTokens);
    const first = phase === 'prefill' ? 0 : prompt.promptTokens;
    const counts = phase === 'prefill' ? ofPrompt : countsOf(shape, prompt, first, first + steps);
    const all = counts.reduce((sum, count) => sum + count, 0);
    const shareOf = (experts: readonly number[]): number =>
      experts.reduce((sum, expert) => sum + (counts[expert] ?? 0), 0) / all;
    return {
      used: counts.filter((count) => count > 0).length / counts.length,
      top: shareOf(mostChosen(counts)),
      topOfPrompt: shareOf(mostChosen(ofPrompt)),
    };
  });
  const mean = (valueOf: (one: (typeof figures)[number]) => number): number =>
    figures.reduce((sum, one) => sum + valueOf(one), 0) / figures.length;
  return {
    table: 'figure3',
    model,
    phase,
    steps,
    used: mean(({ used }) => used),
    top_tenth: mean(({ top }) => top),
    top_tenth_of_prompt: mean(({ topOfPrompt }) => topOfPrompt),
  };
}

/** Choices of each expert of all layers, by layer and number. */
function countsOf(shape: ModelShape, { positions }: PromptScores, first: number, end: number): number[] {
  const { expertLayers: layers, experts, expertsPerToken } = shape;
  const counts = Array.from({ length: layers * experts }, () => 0);
  for (const routers of positions.slice(first, end)) {
    for (const [layer, router] of routers.entries()) {
      for (const expert of chooseExperts({ kind: 'top-k' }, router, expertsPerToken, NO_CACHE)) {
        const place = layer * experts + expert;
        counts[place] = (counts[place] ?? 0) + 1;
      }
    }
  }
  return counts;
}

/** The tenth of experts with the most choices. */
function mostChosen(counts: readonly number[]): number[] {
  const byCount = [...counts.keys()].sort((one, other) => (counts[other] ?? 0) - (counts[one] ?? 0) || one - other);
  return byCount.slice(0, Math.round(TENTH * counts.length));
}
