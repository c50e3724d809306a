import type { Sequence } from '../../native/index.js';
import type { SequenceDecisions } from '../../shared/decisions/slices/sequence-decisions.js';
import type { Predict } from '../../shared/wire/messages.js';
import type { PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { ReusablePass } from './reusable-passes.js';
import type { ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';

/** The predictions of a sequence's experts, as passes use them (decode/sequence-predictions.ts). */
export interface MemberPredictions {
  /** Takes a prediction that main itself has made. */
  arrive(prediction: Predict): unknown;
  /** Takes a word of the trained maps. Shadow's word on the same layer goes first, whenever it comes. */
  foretell(prediction: Predict): void;
  /** Takes experts of a layer of the running pass that follow from its tokens. */
  know(prediction: Predict): void;
  /** The last word of the trained maps on a layer of the pass; null: none. */
  foretold(position: number, layer: number): Predict | null;
  /** True if shadow has spoken of this layer of the pass, or its experts follow from the tokens. */
  isSpoken(position: number, layer: number): boolean;
  /** The prediction for a pass whose router has not decided yet. `position`: the first row of the sequence's answer in that pass. */
  expected(position: number, layer: number): Predict | null;
  /**
   * The router has decided at this layer of the pass. `position`: the first row of the sequence's answer in that pass. Returns the prediction for
   * these rows, if it has come. Positions and their layers come in rising order.
   */
  decide(position: number, layer: number, activated: readonly number[]): Predict | null;
  /** Predictions for the pass's layers after `layer`; null when the one for its last layer has not come. */
  upcoming(position: number, layer: number): Predict[] | null;
}

/** Takes the progress of passes, for shadow's copy of a sequence (decode/alignment-sender.ts). */
export interface MemberFeed {
  /** A shadow follows the sequence at present, and predicts. */
  readonly fed: boolean;
  layerWritten(expertLayer: number, written: number): void;
  allWritten(written: number): void;
  passEnded(): void;
}

/** The costs of one request, for its Finished message. */
export class RequestCounters {
  /** Experts in decode that a worker had to load after the router's choice, or that had to be sent again. */
  reloads = 0;
  /** Sum over the layers of the longest stall among the experts that ran side by side. */
  ioStallUs = 0;
}

/** A sequence as passes know it. */
export interface PassMember {
  readonly id: number;
  /** Another object once the sequence has been preempted. */
  readonly sequence: Sequence;
  /** Provenance of the rows that the sequence holds or held. */
  readonly provenance: RowProvenance;
  /** The decisions of its logical cache, which it keeps through preemptions; null, or left out: it has none. */
  readonly decisions?: SequenceDecisions | null;
  readonly predictions: MemberPredictions;
  readonly feed: MemberFeed;
  readonly counters: RequestCounters;
  /**
   * Takes the last states, behind the final norm, of the rows that a pass has run from `position` on: rows x hiddenSize. Left out: passes do not read
   * them.
   */
  readonly takeStates?: ((position: number, states: Float32Array) => void) | undefined;
  /** Most rows of a pass, its last ones, whose states are read for it. Left out: all. */
  readonly statesWanted?: number;
  /** The last position that the answer can run. */
  readonly lastPosition: number;
  /** Aborts when nobody waits for the answer any more. In a joint pass the member's rows still run to the end; a pass without members ends. */
  readonly signal: AbortSignal;
}

/** The rows of one sequence that a pass runs: at positions [position, position + tokenIds.length). */
export interface MemberRows {
  readonly member: PassMember;
  readonly position: number;
  readonly tokenIds: readonly number[];
  /**
   * Rows from this index on belong to the answer, and run for the first time or as drafts: their experts are predicted and counted. The rows before
   * it belong to the prompt, or are computed again after a preemption.
   */
  readonly decodeFrom: number;
  /** Rows from this index on give logits. */
  readonly logitsFrom: number;
  /** Takes these logits, some rows at a time, in place of the caller of the pass (observeLogits). The pass then returns none for the member. */
  readonly onLogits?: PromptLogitsObserver;
}

/**
 * Runs the rows of all members through all layers, in a pass of the loop's pool that has room for them. Each layer has one Execute a worker with the
 * union of the experts (several, where rows are more than a mini-batch). Returns for each member the logits of its rows from logitsFrom on (vocabSize
 * each). Rejects with CANCELLED when no member is left, with the error that a worker replied with, or with NO_WORKERS. The members' sequences may
 * then be cut back and run again.
 * `following` is called at the last layer. It returns the rows of the next pass if these are certain, so that their first layer can load
 * meanwhile; null: they are not certain. If the next pass then has other rows, those loads are wasted, and nothing else.
 */
export type RunPass = (
  slot: ReusablePass,
  rows: readonly MemberRows[],
  following?: () => readonly MemberRows[] | null,
) => Promise<Float32Array[][]>;

/**
 * The workers that took part in the rows of a sequence, each with its first position; it is small, however many rows there are. When a worker is
 * found to give wrong values, this finds the rows that it took part in.
 */
export class RowProvenance {
  private readonly firstPositions = new Map<string, number>();

  /** The worker ran an expert for the row at this position. The lowest position of each worker counts. */
  took(workerId: string, position: number): void {
    const first = this.firstPositions.get(workerId);
    if (first === undefined || position < first) this.firstPositions.set(workerId, position);
  }

  has(workerId: string): boolean {
    return this.firstPositions.has(workerId);
  }

  /** The provenance of the first `positions` positions. */
  upTo(positions: number): RowProvenance {
    const part = new RowProvenance();
    for (const [id, first] of this.firstPositions) if (first < positions) part.firstPositions.set(id, first);
    return part;
  }

  /** Each worker with the lowest position that it took part in. */
  entries(): IterableIterator<[workerId: string, position: number]> {
    return this.firstPositions.entries();
  }

  get workerIds(): string[] {
    return [...this.firstPositions.keys()];
  }
}

/** The first position of the member's rows that belongs to its answer; null: no row does. */
export function decodePosition({ position, tokenIds, decodeFrom }: MemberRows): number | null {
  return decodeFrom < tokenIds.length ? position + decodeFrom : null;
}

/** The prediction for those of the member's rows that belong to its answer. */
export function expectedBy(rows: MemberRows, layer: number): Predict | null {
  const position = decodePosition(rows);
  return position === null ? null : rows.member.predictions.expected(position, layer);
}

export function rangeOf({ member, position, tokenIds }: MemberRows): {
  sequence: number;
  position: number;
  rows: number;
} {
  return { sequence: member.id, position, rows: tokenIds.length };
}

/** The owner of a row in a pass. */
export interface RowOwner {
  member: PassMember;
  position: number;
  /** The row belongs to the sequence's answer and runs for the first time. */
  isAnswer: boolean;
}

export function ownersOf(members: readonly MemberRows[]): RowOwner[] {
  return members.flatMap(({ member, position, tokenIds, decodeFrom }) =>
    tokenIds.map((_, index) => ({ member, position: position + index, isAnswer: index >= decodeFrom })),
  );
}

/** Notes that the worker has run an expert on these rows of the pass. */
export function noteProvenance(owners: readonly RowOwner[], rows: readonly ActivatedRow[], workerId: string): void {
  for (const { row } of rows) {
    const owner = owners[row];
    owner?.member.provenance.took(workerId, owner.position);
  }
}

/** The owners of those of these rows for which `counts` returns true, each owner once. */
export function membersOf(
  owners: readonly RowOwner[],
  rows: readonly ActivatedRow[],
  counts: (owner: RowOwner) => boolean,
): Set<PassMember> {
  const members = new Set<PassMember>();
  for (const { row } of rows) {
    const owner = owners[row];
    if (owner !== undefined && counts(owner)) members.add(owner.member);
  }
  return members;
}
