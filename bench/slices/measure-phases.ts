/** The table `figure3` (SliceMoE, figure 3): how a model's experts are chosen in the prompt, and in the first steps after it, on synthetic traces. */
import { chooseExperts } from '../../shared/decisions/slices/choose-experts.js';
import { SCORED_SHAPES, syntheticScores, type PromptScores } from '../../simulator/slices/synthetic-scores.js';
import { DECODE_WINDOWS, type TraceSetting } from './measure-decode.js';

export interface PhasesRow {
  table: 'figure3';
  model: keyof typeof SCORED_SHAPES;
  phase: 'prefill' | 'decode';
  /** Tokens that are counted: of the prompt, or decode steps from the first on. */
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

export function measurePhases(setting: TraceSetting): PhasesRow[] {
  return (Object.keys(SCORED_SHAPES) as PhasesRow['model'][]).flatMap((model) => {
    const prompts = Array.from({ length: setting.prompts }, (_, prompt) =>
      syntheticScores({ ...setting, shape: SCORED_SHAPES[model] }, prompt),
    );
    const windows = [...DECODE_WINDOWS.filter((steps) => steps < setting.iterations), setting.iterations];
    return [
      rowOf(model, 'prefill', setting.promptTokens, prompts),
      ...windows.map((steps) => rowOf(model, 'decode', steps, prompts)),
    ];
  });
}

/** Means over the prompts. */
function rowOf(
  model: PhasesRow['model'],
  phase: PhasesRow['phase'],
  steps: number,
  prompts: readonly PromptScores[],
): PhasesRow {
  const figures = prompts.map((prompt) => {
    const ofPrompt = countsOf(model, prompt, 0, prompt.promptTokens);
    const first = phase === 'prefill' ? 0 : prompt.promptTokens;
    const counts = phase === 'prefill' ? ofPrompt : countsOf(model, prompt, first, first + steps);
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
function countsOf(model: PhasesRow['model'], { positions }: PromptScores, first: number, end: number): number[] {
  const { layers, experts, expertsPerToken } = SCORED_SHAPES[model];
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
