import { power } from '../../shared/base/arithmetic/elementary.js';

/** What alignment periods are assumed to cost in recall where only a synthetic trace says anything of it. */
export interface RecallModel {
  /** With tokens, keys and values aligned at every iteration. */
  alignedRecall: number;
  /** Probability that shadow's own token is main's. */
  acceptance: number;
  /** Share of its recall that shadow keeps with every iteration on keys and values of its own. */
  keyValueDecay: number;
  experts: number;
  expertsPerToken: number;
}

/** Share of recall kept an iteration on keys and values of shadow's own; assumed, after figure 3 of OD-MoE (INT8). */
export const KEY_VALUE_DECAY = 0.998;

/** Iterations of the answers that a plan is made for, as in figure 8 of OD-MoE. */
export const PLANNED_ITERATIONS = 256;

/**
 * Mean recall of an answer of `iterations` iterations with alignment periods (0: never). An iteration that is a iterations behind the
 * last aligned token is still on main's text with the probability acceptance^a, and keeps keyValueDecay^b of what b iterations on keys
 * and values of its own leave; else predictions are as good as chance (k of E). Both ages run from 0 to the period.
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
    const kept = power(acceptance, tokenAge) * power(keyValueDecay, keyValueAge);
    sum += chance + Math.max(0, alignedRecall - chance) * kept;
  }
  return iterations === 0 ? alignedRecall : sum / iterations;
}
