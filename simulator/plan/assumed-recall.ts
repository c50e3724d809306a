import { power } from '../../shared/base/arithmetic/elementary.js';

/** Assumptions about the recall with longer alignment periods, for plans with a synthetic trace only. */
export interface RecallModel {
  /** Recall when tokens, keys and values are aligned at every iteration. */
  alignedRecall: number;
  /** Probability that shadow's token equals main's. */
  acceptance: number;
  /** Share of its recall that shadow keeps per iteration on its own keys and values. */
  keyValueDecay: number;
  experts: number;
  expertsPerToken: number;
}

/** Share of recall that remains per iteration on shadow's own keys and values; assumed, after figure 3 of OD-MoE (INT8). */
export const KEY_VALUE_DECAY = 0.998;

/** Iterations of the answers for which a plan is made, as in figure 8 of OD-MoE. */
export const PLANNED_ITERATIONS = 256;

/**
 * Mean recall of an answer of `iterations` iterations with alignment periods (0: never). An iteration that is a iterations after the last
 * aligned token still follows main's text with probability acceptance^a. After b iterations on its own keys and values, shadow keeps
 * keyValueDecay^b of its recall. Otherwise predictions are as good as chance (k of E). Both ages run from 0 to the period.
 */
export function assumedRecall(
  { alignedRecall, acceptance, keyValueDecay, experts, expertsPerToken }: RecallModel,
  periods: { token: number; keyValue: number },
  iterations: number,
): number {
  const chance = expertsPerToken / experts;
  let sum = 0;
  for (let iteration = 0; iteration < iterations; iteration += 1) {
    const tokenAge = periods.token === 0 ? iteration + 1 : iteration % periods.token;
    const keyValueAge = periods.keyValue === 0 ? iteration : iteration % periods.keyValue;
    const share = power(acceptance, tokenAge) * power(keyValueDecay, keyValueAge);
    sum += chance + Math.max(0, alignedRecall - chance) * share;
  }
  return iterations === 0 ? alignedRecall : sum / iterations;
}
