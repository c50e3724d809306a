import { MAX_DRAFT_ROWS } from '../../settings/setting-limits.js';
import { power } from '../../base/arithmetic/elementary.js';

/** What a pass of several rows costs and brings, as measured or as a profile says. */
export interface DraftCosts {
  /** Probability, 0 to 1, that a draft is what main samples, all drafts before it being right. */
  acceptance: number;
  /** A layer of a pass of one row, from its attention to the sum of its experts, every expert being in memory. */
  layerMs: number;
  /** What each further row adds to that. */
  layerRowMs: number;
  /** One expert from a worker's storage into a slot. */
  loadMs: number;
  /** One position on shadow. */
  shadowTokenMs: number;
  /** Shadow drafts a pass while main runs the one before it; else main waits for the drafts of each pass. */
  optimistic: boolean;
  workers: number;
  /** Those among which the experts of one layer are shared: its group, or all. */
  layerWorkers: number;
  /** Of each worker: experts that it has in memory or loads at a time. */
  slots: number;
  layers: number;
  experts: number;
  expertsPerToken: number;
}

/**
 * How many positions a decode pass should have so that most tokens come out of it in a second: expectedTokens over passMs. 1 to
 * `limit`; the fewest of equals. Rises with the acceptance and falls with the cost of a row.
 */
export function chooseDraftRows(costs: DraftCosts, limit: number = MAX_DRAFT_ROWS): number {
  let best = 1;
  let bestRate = expectedTokens(costs.acceptance, 1) / passMs(costs, 1);
  for (let rows = 2; rows <= limit; rows++) {
    const rate = expectedTokens(costs.acceptance, rows) / passMs(costs, rows);
    if (rate <= bestRate) continue;
    best = rows;
    bestRate = rate;
  }
  return best;
}

/** Tokens that a pass of so many rows yields: its own and the drafts up to the first wrong one. */
export function expectedTokens(acceptance: number, rows: number): number {
  let tokens = 0;
  let reached = 1;
  for (let row = 0; row < rows; row++) {
    tokens += reached;
    reached *= acceptance;
  }
  return tokens;
}

/**
 * Milliseconds of a pass of so many rows. A layer takes as long as its computing or as the loads that workers make ahead of it, whichever
 * is longer (OD-MoE equation 1, with the loads of several rows); experts beyond the slots of the layer's workers are loaded when the first
 * have run. Where shadow departs with main, the first layer's load delays every pass (OD-MoE section 3.2, late departure).
 */
export function passMs(costs: DraftCosts, rows: number): number {
  const { layerMs, layerRowMs, loadMs, shadowTokenMs, workers, layerWorkers, slots, layers } = costs;
  const distinct = distinctExperts(costs.experts, costs.expertsPerToken, rows);
  const ahead = Math.min(distinct, layerWorkers * slots);
  const eachLayerMs =
    Math.max(layerMs + (rows - 1) * layerRowMs, (ahead * loadMs) / workers) +
    ((distinct - ahead) * loadMs) / layerWorkers;
  const mainMs = layers * eachLayerMs;
  return costs.optimistic ? Math.max(mainMs, rows * shadowTokenMs) : loadMs + mainMs + (rows - 1) * shadowTokenMs;
}

/** Experts that so many rows activate in one layer, if each row's choice were uniform and independent. */
export function distinctExperts(experts: number, expertsPerToken: number, rows: number): number {
  return experts * (1 - power(1 - expertsPerToken / experts, rows));
}

/** What predicts the experts that workers load. */
export type PredictionSource = 'sep' | 'router-ahead' | 'random' | 'off';

/**
 * Positions that a decode pass can have where `rows` are wanted. Drafts are what shadow expects behind main's tokens: there are none
 * where nobody predicts, or where shadow goes its own way because it does not get every token of main's (`alignTokenPeriod`, in
 * iterations; 0: never).
 */
export function usableDraftRows(
  rows: number | 'auto',
  predictionSource: PredictionSource,
  alignTokenPeriod: number,
): number | 'auto' {
  return predictionSource === 'sep' && alignTokenPeriod === 1 ? rows : 1;
}

export type Spread = 'group' | 'all';

/**
 * Workers that an expert may go to. With drafts all, whatever is set: a pass of several rows activates more experts of a layer than its
 * group has workers, and loading one after the other would cost more than drafts bring.
 */
export function spreadForDrafts(rows: number | 'auto', spread: Spread): Spread {
  return rows === 1 ? spread : 'all';
}
