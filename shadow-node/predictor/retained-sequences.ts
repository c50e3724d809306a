import type { Model, Sequence } from '../../native/index.js';

/** How much is kept of sequences that have ended. */
export interface RetainedLimits {
  /** 0: nothing is kept. */
  sequences: number;
  /** Of all sequences of the model, those that are open included. */
  bytes: number;
}

export const NOTHING_KEPT: RetainedLimits = { sequences: 0, bytes: 0 };

/** Sequences that are kept, where memory admits so many. */
export const KEPT_SEQUENCES_LIMIT = 64;
/** Of what the device's budget leaves beside the weights. */
const KEPT_SHARE = 0.5;
/** Where the device has no budget. */
const KEPT_BYTES_WITHOUT_BUDGET = 1024 * 1024 * 1024;

/** `budgetBytes`: 0, there is none. `usedBytes`: before there is any sequence. */
export function retainedLimitsFor({
  budgetBytes,
  usedBytes,
}: {
  budgetBytes: number;
  usedBytes: number;
}): RetainedLimits {
  const leftBytes = Math.max(0, budgetBytes - usedBytes);
  const bytes = budgetBytes > 0 ? Math.floor(leftBytes * KEPT_SHARE) : KEPT_BYTES_WITHOUT_BUDGET;
  return { sequences: KEPT_SEQUENCES_LIMIT, bytes };
}

/** What a sequence has run, and of which others may go on. */
export interface RanSequence {
  readonly cache: Sequence;
  /** By position. */
  readonly tokenIds: readonly number[];
  /** Main's rows have been written at all positions below, in layers that are no recurrences. */
  readonly alignedBelow: number;
}

/** A sequence that is to begin as another one has. */
export interface WantedPrefix {
  readonly tokenIds: readonly number[];
  readonly prefixPositions: number;
  readonly alignKvPeriod: number;
}

/**
 * At how many positions of a sequence another one can begin; 0: at none. At least the last of its tokens is left to run. Where main's rows
 * are aligned, positions that have none are run again and get theirs then, as far as the sequence can be cut back.
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
  private readonly kept = new Map<number, RanSequence>();

  constructor(
    private readonly model: Pick<Model, 'sequenceBytes'>,
    private readonly limits: RetainedLimits,
  ) {}

  get size(): number {
    return this.kept.size;
  }

  get positions(): number {
    return [...this.kept.values()].reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  }

  get keepsNothing(): boolean {
    return this.limits.sequences === 0;
  }

  /** It is disposed of when it is kept no more. */
  add(id: number, ran: RanSequence): void {
    this.kept.get(id)?.cache.dispose();
    this.kept.delete(id);
    this.kept.set(id, ran);
    this.dropExcess();
  }

  /** Null: it is not kept. */
  use(id: number): RanSequence | null {
    const ran = this.kept.get(id);
    if (ran === undefined) return null;
    this.kept.delete(id);
    this.kept.set(id, ran);
    return ran;
  }

  /** Drops what is beyond the limits, as open sequences grow, too. */
  dropExcess(): void {
    while (this.kept.size > this.limits.sequences) this.dropOldest();
    while (this.kept.size > 0 && this.model.sequenceBytes > this.limits.bytes) this.dropOldest();
  }

  /** False: nothing is kept. */
  dropOldest(): boolean {
    for (const [id, { cache }] of this.kept) {
      this.kept.delete(id);
      cache.dispose();
      return true;
    }
    return false;
  }

  clear(): void {
    while (this.dropOldest());
  }
}
