/** Runs a prompt and its decode steps through the logical cache of a sequence, and counts what a decode step fetches and reads. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { chooseExperts, renormalizedScores } from '../../shared/decisions/slices/choose-experts.js';
import { thresholdOfShare } from '../../shared/decisions/slices/critical-executions.js';
import { LogicalSequence, type SequenceRules } from '../../shared/decisions/slices/logical-sequence.js';
import type { BudgetReport } from '../../shared/decisions/slices/miss-budget.js';
import type { PromptScores } from './synthetic-scores.js';

/** One layer of one decode step. */
export interface LayerTally {
  readonly fetchedBytes: number;
  readonly waitedBytes: number;
  readonly low: number;
  readonly high: number;
  /** The scores of the chosen experts over those of the router's own choice. */
  readonly mass: number;
}

export interface Replay {
  /** By decode step and layer. */
  readonly steps: readonly (readonly LayerTally[])[];
  /** The state in which the constraint on misses ended; null: there was none. */
  readonly report: BudgetReport | null;
}

const NO_CACHE = { isCached: () => false, meanRange: 0 };

/** @throws USAGE where the rules prefer cached experts and the routers choose by other numbers than their scores */
export function replayScores({ promptTokens, positions }: PromptScores, rules: SequenceRules): Replay {
  if (prefersCached(rules) && positions.some((layers) => layers.some(({ ranking }) => ranking !== undefined))) {
    throw new OdmoeError(
      'USAGE',
      'routers that choose by other numbers than their scores cannot prefer cached experts',
    );
  }
  const sequence = LogicalSequence.begin(rules);
  for (const layers of positions.slice(0, promptTokens)) {
    layers.forEach((router, layer) => sequence.takePrompt(layer, router));
  }
  sequence.endPrompt();
  const steps = positions.slice(promptTokens).map((layers) => {
    const step = sequence.beginStep();
    const tallies = layers.map((router, layer): LayerTally => {
      const executions = sequence.runLayer(layer, router);
      const sum = (values: readonly number[]): number => values.reduce((added, value) => added + value, 0);
      const massOf = (chosen: readonly number[]): number => sum(chosen.map((expert) => router.scores[expert] ?? 0));
      const high = executions.filter(({ precision }) => precision === 'high').length;
      return {
        fetchedBytes: sum(executions.map(({ fetchedBytes }) => fetchedBytes)),
        waitedBytes: sum(executions.map(({ waitedBytes }) => waitedBytes)),
        low: executions.length - high,
        high,
        mass:
          massOf(executions.map(({ expert }) => expert)) /
          massOf(chooseExperts({ kind: 'top-k' }, router, rules.expertsPerToken, NO_CACHE)),
      };
    });
    sequence.endStep();
    sequence.forgetBefore(step + 1);
    return tallies;
  });
  return { steps, report: sequence.report };
}

/** A constraint on misses is met by preferring cached experts. */
function prefersCached({ routing, missTarget }: SequenceRules): boolean {
  return routing.kind !== 'top-k' || missTarget !== null;
}

/** The renormalized weight that about this share of a prompt's executions reaches. */
export function thetaOfPrompt(
  { promptTokens, positions }: PromptScores,
  expertsPerToken: number,
  share: number,
): number {
  const weights = positions
    .slice(0, promptTokens)
    .flat()
    .flatMap((router) => [
      ...renormalizedScores(router, chooseExperts({ kind: 'top-k' }, router, expertsPerToken, NO_CACHE)),
    ]);
  return thresholdOfShare(Float32Array.from(weights), share).theta;
}
