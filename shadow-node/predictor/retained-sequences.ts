import type { Model, Sequence } from '../../native/index.js';

/** Limits for sequences that have ended and are retained. */
export interface RetainedLimits {
  /** Most retained sequences; 0: nothing is retained. */
  sequences: number;
  /** Most bytes of all sequences of the model, including open ones. */
  bytes: number;
}

export const NOTHING_RETAINED: RetainedLimits = { sequences: 0, bytes: 0 };

/** Most sequences that are retained, if memory admits so many. */
export const RETAINED_SEQUENCES_LIMIT = 64;
/** Share of the budget beside the weights that they may take. */
const RETAINED_SHARE = 0.5;
/** Most bytes if the device has no budget. */
const RETAINED_BYTES_WITHOUT_BUDGET = 1024 * 1024 * 1024;

/** `budgetBytes`: 0 if there is none. `usedBytes`: bytes in use before there is any sequence. */
export function retainedLimitsFor({
  budgetBytes,
  usedBytes,
}: {
  budgetBytes: number;
  usedBytes: number;
}): RetainedLimits {
  const leftBytes = Math.max(0, budgetBytes - usedBytes);
  const bytes = budgetBytes > 0 ? Math.floor(leftBytes * RETAINED_SHARE) : RETAINED_BYTES_WITHOUT_BUDGET;
  return { sequences: RETAINED_SEQUENCES_LIMIT, bytes };
}

/** The positions that a sequence has run, from which others may go on. */
export interface RanSequence {
  readonly cache: Sequence;
  /** Tokens by position. */
  readonly tokenIds: readonly number[];
  /** Main's rows have been written at all positions below this one, in layers that are no recurrences. */
  readonly alignedBelow: number;
}

/** A sequence that is to begin with positions of another one. */
export interface WantedPrefix {
  readonly tokenIds: readonly number[];
  readonly prefixPositions: number;
  readonly alignKvPeriod: number;
}

/**
 * Number of positions of a sequence with which another one can begin; 0: none. At least the last of its tokens is left to run. If main's rows are
 * aligned, positions without them are run again and get these rows then, as far as the sequence can be cut back.
 */
export function prefixPositions(ran: RanSequence, wanted: WantedPrefix): number {
  const bound = Math.min(wanted.prefixPositions, wanted.tokenIds.length - 1, ran.tokenIds.length);
  let common = 0;
  while (common < bound && ran.tokenIds[common] === wanted.tokenIds[common]) common += 1;
  const aligned = wanted.alignKvPeriod > 0 ? Math.min(common, ran.alignedBelow) : common;
  const { oldestPosition } = ran.cache;
  return common < oldestPosition ? 0 : Math.max(aligned, oldestPosition);
}

/** Sequences that have ended, by their ids, the least recently used first. */
export class RetainedSequences {
  private readonly retained = new Map<number, RanSequence>();

  constructor(
    private readonly model: Pick<Model, 'sequenceBytes'>,
    private readonly limits: RetainedLimits,
  ) {}

  get size(): number {
    return this.retained.size;
  }

  get positions(): number {
    return [...this.retained.values()].reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  }

  get keepsNothing(): boolean {
    return this.limits.sequences === 0;
  }

  /** Retains a sequence, which is disposed when it is dropped. */
  add(id: number, ran: RanSequence): void {
    this.retained.get(id)?.cache.dispose();
    this.retained.delete(id);
    this.retained.set(id, ran);
    this.dropExcess();
  }

  /** Null: it is not retained. */
  use(id: number): RanSequence | null {
    const ran = this.retained.get(id);
    if (ran === undefined) return null;
    this.retained.delete(id);
    this.retained.set(id, ran);
    return ran;
  }

  /** Drops sequences that are beyond the limits, which happens also because open sequences grow. */
  dropExcess(): void {
    while (this.retained.size > this.limits.sequences) this.dropOldest();
    while (this.retained.size > 0 && this.model.sequenceBytes > this.limits.bytes) this.dropOldest();
  }

  /** Returns false if nothing is retained. */
  dropOldest(): boolean {
    for (const [id, { cache }] of this.retained) {
      this.retained.delete(id);
      cache.dispose();
      return true;
    }
    return false;
  }

  clear(): void {
    while (this.dropOldest());
  }
}
