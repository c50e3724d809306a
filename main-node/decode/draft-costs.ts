import type { PassLine } from '../drafting/choose-drafts.js';
import { chooseDraftRows, type DraftCosts } from '../../shared/decisions/placement/draft-rows.js';
import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';

/** Windows of moving averages: drafts for the acceptance, shadow's positions for their time, and passes for the time of a layer. */
export const ACCEPTANCE_WINDOW = 32;
export const SHADOW_TOKEN_WINDOW = 32;
export const PASS_WINDOW = 32;
/** Number of passes without a draft over which the acceptance drifts back to the assumed one, so that drafts are tried again. */
export const FORGETTING_WINDOW = 256;

/** Longest time of one position: a longer one that shadow reports counts as this. */
export const SHADOW_TOKEN_LIMIT_MS = 10_000;

/**
 * Assumed before any draft has been verified: quantized copies mostly agree with the model, and the first passes correct an assumption that is too
 * high.
 */
const ASSUMED_ACCEPTANCE = 0.95;
/** Assumed cost of a further row, as a share of a layer's time, while all passes had equally many rows. */
const ASSUMED_ROW_SHARE = 1 / 8;

/** The facts of the cluster that main knows without measuring passes. */
export type ClusterCosts = Omit<DraftCosts, 'acceptance' | 'layerMs' | 'layerRowMs' | 'shadowTokenMs'>;

/** Measures, over all sequences, the costs that chooseDraftRows uses. They are moving averages, because text and load change. */
export class DraftCostMeter {
  private acceptance: number | null = null;
  private shadowMs: number | null = null;
  private draftedSincePass = false;
  private readonly passes: MeasuredPass[] = [];
  private rowShare = ASSUMED_ROW_SHARE;

  /** Counts a draft of shadow when main has sampled its position. */
  drafted(right: boolean): void {
    this.draftedSincePass = true;
    this.acceptance = moved(this.acceptance ?? ASSUMED_ACCEPTANCE, right ? 1 : 0, ACCEPTANCE_WINDOW);
  }

  shadowRan(runUs: number): void {
    const ms = Math.min(runUs / 1000, SHADOW_TOKEN_LIMIT_MS);
    this.shadowMs = moved(this.shadowMs ?? ms, ms, SHADOW_TOKEN_WINDOW);
  }

  /** Another shadow runs from now on, or none. */
  shadowChanged(): void {
    this.shadowMs = null;
  }

  /** 0: not known yet. */
  get shadowTokenMs(): number {
    return this.shadowMs ?? 0;
  }

  /** `layersMs`: time of all layers together, without waits for loads. `passMs`: the same with these waits. */
  passed(rows: number, layers: number, layersMs: number, passMs: number = layersMs): void {
    this.passes.push({ rows, layerMs: layersMs / layers, passMs });
    if (this.passes.length > PASS_WINDOW) this.passes.shift();
    const share = rowShareOf(this.passes);
    // A share that nobody measures any more is forgotten, so that drafts are tried again.
    this.rowShare = share ?? moved(this.rowShare, ASSUMED_ROW_SHARE, FORGETTING_WINDOW);
    if (this.acceptance !== null && rows === 1 && !this.draftedSincePass) {
      this.acceptance = moved(this.acceptance, ASSUMED_ACCEPTANCE, FORGETTING_WINDOW);
    }
    this.draftedSincePass = false;
  }

  /** Probability that shadow's next draft is right. */
  get shadowAcceptance(): number {
    return this.acceptance ?? ASSUMED_ACCEPTANCE;
  }

  /** Time of a pass by its rows, with waits for loads; null: no pass has been measured. */
  line(): PassLine | null {
    if (this.passes.length === 0) return null;
    const share = this.rowShare;
    const passMs = meanOf(this.passes, (pass) => pass.passMs / (1 + share * (pass.rows - 1)));
    return { passMs, rowMs: share * passMs };
  }

  /** Number of rows that the next pass should have, at most MAX_DRAFT_ROWS; 1 until a pass has been measured. */
  rows(cluster: ClusterCosts): number {
    const costs = this.costs(cluster);
    return costs === null ? 1 : chooseDraftRows(costs, MAX_DRAFT_ROWS);
  }

  /** Null: no pass has been measured. */
  costs(cluster: ClusterCosts): DraftCosts | null {
    if (this.passes.length === 0) return null;
    return {
      ...cluster,
      ...fitLayer(this.passes),
      acceptance: this.shadowAcceptance,
      shadowTokenMs: this.shadowTokenMs,
    };
  }
}

function moved(mean: number, value: number, window: number): number {
  return mean + (value - mean) / window;
}

interface MeasuredPass {
  rows: number;
  layerMs: number;
  passMs: number;
}

function meanOf<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + value(item), 0) / items.length;
}

function fitLayer(passes: readonly MeasuredPass[]): { layerMs: number; layerRowMs: number } {
  const line = fitLine(passes, ({ layerMs }) => layerMs);
  if (line !== null) return { layerMs: line.firstMs, layerRowMs: line.rowMs };
  const meanRows = meanOf(passes, ({ rows }) => rows - 1);
  const assumedMs = meanOf(passes, ({ layerMs }) => layerMs) / (1 + ASSUMED_ROW_SHARE * meanRows);
  return { layerMs: assumedMs, layerRowMs: ASSUMED_ROW_SHARE * assumedMs };
}

/** The time of a further row as a share of the first one's; null: the passes do not show it. */
function rowShareOf(passes: readonly MeasuredPass[]): number | null {
  const line = fitLine(passes, ({ passMs }) => passMs);
  return line === null ? null : line.rowMs / line.firstMs;
}

/** Fits a straight line to times over rows - 1 (least squares). Its slope is not below 0. Null: the passes do not show it. */
function fitLine(
  passes: readonly MeasuredPass[],
  time: (pass: MeasuredPass) => number,
): { firstMs: number; rowMs: number } | null {
  const meanRows = meanOf(passes, ({ rows }) => rows - 1);
  const meanMs = meanOf(passes, time);
  let rowsSquared = 0;
  let product = 0;
  for (const pass of passes) {
    rowsSquared += (pass.rows - 1 - meanRows) ** 2;
    product += (pass.rows - 1 - meanRows) * (time(pass) - meanMs);
  }
  if (rowsSquared === 0) return null;
  const rowMs = Math.max(0, product / rowsSquared);
  const firstMs = meanMs - rowMs * meanRows;
  // A line that makes the first row free means that the passes differed in something else.
  return firstMs <= 0 ? null : { firstMs, rowMs };
}
