import { MAX_DRAFT_ROWS } from '../../settings/setting-limits.js';
import { power } from '../../base/arithmetic/elementary.js';

/** Costs and gains of a pass of several rows, measured or from a profile. */
export interface DraftCosts {
  /** Probability, 0 to 1, that a draft equals the token that main samples, if all drafts before it are right. */
  acceptance: number;
  /** Time of a layer in a pass of one row, from its attention to the sum of its experts, with every expert in memory. */
  layerMs: number;
  /** Extra time of each further row. */
  layerRowMs: number;
  /** Time to load one expert from a worker's storage into a slot. */
  loadMs: number;
  /** Time of one position on shadow. */
  shadowTokenMs: number;
  /** true: shadow drafts a pass while main runs the one before it. false: main waits for the drafts of each pass. */
  optimistic: boolean;
  workers: number;
  /** Workers that share the experts of one layer: its group, or all. */
  layerWorkers: number;
  /** Experts that each worker has in memory or loads at a time. */
  slots: number;
  layers: number;
  experts: number;
  expertsPerToken: number;
}

/**
 * Number of positions of a decode pass that gives the most tokens a second: expectedTokens over passMs. It is 1 to `limit`; of equal numbers the
 * smallest. It rises with the acceptance and falls with the cost of a row.
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

/** Tokens that a pass of `rows` rows yields: one for main's token, and the drafts up to the first wrong one. */
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
 * Milliseconds of a pass of `rows` rows. A layer takes as long as its computation or as the loads that workers make ahead of it, whichever is
 * longer (OD-MoE equation 1, with the loads of several rows). Experts beyond the slots of the layer's workers are loaded after the first have
 * run. If shadow starts together with main, the first layer's load delays every pass (OD-MoE section 3.2, late departure).
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

/** Expected number of experts that `rows` rows activate in one layer, if each row's choice is uniform and independent. */
export function distinctExperts(experts: number, expertsPerToken: number, rows: number): number {
  return experts * (1 - power(1 - expertsPerToken / experts, rows));
}

/** Source of the predictions of experts that workers load. */
export type PredictionSource = 'sep' | 'router-ahead' | 'trained' | 'random' | 'off';

/**
 * Positions that a decode pass can have if `rows` are wanted. Drafts are shadow's guesses of the tokens behind main's. There are none if no
 * predictions come from shadow, or if shadow diverges because it does not get every token of main's (`alignTokenPeriod`, in iterations; 0:
 * never).
 */
export function usableDraftRows(
  rows: number | 'auto',
  predictionSource: PredictionSource,
  alignTokenPeriod: number,
): number | 'auto' {
  return predictionSource === 'sep' && alignTokenPeriod === 1 ? rows : 1;
}

/** Who may draft (drafting.source). */
export type DraftSourceSetting = 'auto' | 'shadow' | 'lookup' | 'mtp';

/** The rows of decode passes. */
export interface UsableDrafts {
  /** With drafts of shadow; 1: shadow does not draft. */
  shadowRows: number | 'auto';
  /** With drafts that main makes itself; 1: it makes none. */
  ownRows: number | 'auto';
}

/**
 * Who drafts, and how many rows a pass can have then. With the source auto, main drafts itself, and shadow drafts only where a number of rows is
 * wanted: its drafts need experts that go to all workers (spreadForDrafts), and that would change the placement of a cluster whose owner has not asked
 * for drafts. Main makes no drafts beside random predictions, which announce experts of the next position, nor where shadow does not get every token.
 */
export function usableDrafts(
  { rows, source }: { rows: number | 'auto'; source: DraftSourceSetting },
  predictionSource: PredictionSource,
  alignTokenPeriod: number,
): UsableDrafts {
  const ofShadow = usableDraftRows(rows, predictionSource, alignTokenPeriod);
  const shadowDrafts = source === 'shadow' || (source === 'auto' && rows !== 'auto');
  const ownCannot = predictionSource === 'random' || (predictionSource === 'sep' && alignTokenPeriod !== 1);
  return {
    shadowRows: shadowDrafts ? ofShadow : 1,
    ownRows: source === 'shadow' || ownCannot ? 1 : rows,
  };
}

export type Spread = 'group' | 'all';

/**
 * Workers to which an expert may go. With drafts: all, whatever the setting. A pass of several rows activates more experts of a layer than its
 * group has workers, and to load them one after the other would cost more than drafts gain.
 */
export function spreadForDrafts(rows: number | 'auto', spread: Spread): Spread {
  return rows === 1 ? spread : 'all';
}
