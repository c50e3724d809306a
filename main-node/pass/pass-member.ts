import type { Sequence } from '../../native/index.js';
import type { Predict } from '../../shared/wire/messages.js';
import type { PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { ReusablePass } from './reusable-passes.js';
import type { RowProvenance } from './row-provenance.js';

/** What a pass tells whoever predicts a sequence's experts, and asks of it (decode/sequence-predictions.ts). */
export interface MemberPredictions {
  /** A prediction of main's own. */
  arrive(prediction: Predict): unknown;
  /** What has come for a pass of which `position` is the sequence's first row of its answer; its router has not decided yet. */
  expected(position: number, layer: number): Predict | null;
  /**
   * The router has decided at this layer of the pass, of which `position` is the sequence's first row of its answer. Returns what was
   * predicted for these rows, if it has come. Positions and their layers come in rising order.
   */
  decide(position: number, layer: number, activated: readonly number[]): Predict | null;
  /** Predictions for the pass's layers behind `layer`; null when that of its last layer has not come. */
  upcoming(position: number, layer: number): Predict[] | null;
}

/** What a pass tells shadow's copy of a sequence (decode/shadow-feed.ts). */
export interface MemberFeed {
  /** A shadow follows the sequence now, and predicts. */
  readonly fed: boolean;
  layerWritten(expertLayer: number, written: number): void;
  allWritten(written: number): void;
  passEnded(): void;
}

/** What one request cost, for its Finished message. */
export class RequestCounters {
  /** Experts that a worker had to load after the router's choice, in decode, or that had to be sent again. */
  reloads = 0;
  /** Per layer the longest stall of the experts that ran side by side, summed. */
  ioStallUs = 0;
}

/** A sequence as passes know it. */
export interface PassMember {
  readonly id: number;
  /** Another one once the sequence has given its memory back. */
  readonly sequence: Sequence;
  /** Of the rows that the sequence holds, or held. */
  readonly provenance: RowProvenance;
  readonly predictions: MemberPredictions;
  readonly feed: MemberFeed;
  readonly counters: RequestCounters;
  /** The last position that the answer can run. */
  readonly lastPosition: number;
  /** Nobody waits for the answer any more. Its rows of a pass that others are in run out; a pass of which nobody is left ends. */
  readonly signal: AbortSignal;
}

/** The rows of one sequence that a pass runs: at positions [position, position + tokenIds.length). */
export interface MemberRows {
  readonly member: PassMember;
  readonly position: number;
  readonly tokenIds: readonly number[];
  /**
   * Rows from this index on are of the answer, and run for the first time or as drafts: their experts are predicted and counted. Those
   * before it are of the prompt, or are computed again after the sequence had given its memory back.
   */
  readonly decodeFrom: number;
  /** Rows from this index on give logits. */
  readonly logitsFrom: number;
  /** Takes these logits in place of whoever ran the pass (observeLogits: some rows at a time), which then returns none for the member. */
  readonly onLogits?: PromptLogitsObserver;
}

/**
 * Runs the rows of all members through all layers, in a pass of the loop's pool that has room for them: per layer one Execute a worker
 * with the union of their experts (several, where rows are more than a mini-batch). Returns for each member the logits of its rows from
 * logitsFrom on (vocabSize each). Rejects with CANCELLED when no member is left; with what a worker answered; with NO_WORKERS. The
 * members' sequences may then be cut back and run again.
 * `following` is asked at the last layer for the rows of the pass that comes next, where these are certain, so that its first layer can
 * load meanwhile; null: they are not. A pass that then begins otherwise costs those loads, and nothing else.
 */
export type RunPass = (
  slot: ReusablePass,
  rows: readonly MemberRows[],
  following?: () => readonly MemberRows[] | null,
) => Promise<Float32Array[][]>;
