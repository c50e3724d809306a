import type { Sequence } from '../../native/index.js';
import type { BatchMember } from '../batching/batch-member.js';
import type { RowProvenance } from '../pass/row-provenance.js';
import { commonTokens, type Prefix, PREFIX_BLOCK_TOKENS, PrefixIndex } from './prefix-index.js';

/** Where a model has recurrences, a prompt can be gone on from at the ends of blocks of so many positions. */
export const CHECKPOINT_POSITIONS = 256;

/** Rows that a new sequence begins with, in memory that it shares with whoever has run them. */
export interface SharedRows {
  readonly sequence: Sequence;
  /** It has so many positions. */
  readonly positions: number;
  /** The request that has run them. */
  readonly from: number;
  /** Of these positions. */
  readonly provenance: RowProvenance;
}

/** A sequence whose rows may be kept: those of `tokenIds` that are written. */
export interface RowsToKeep {
  readonly id: number;
  readonly sequence: Sequence;
  readonly tokenIds: readonly number[];
  readonly provenance: RowProvenance;
}

interface KeptSequence extends Prefix {
  readonly sequence: Sequence;
  readonly provenance: RowProvenance;
  readonly id: number;
}

/** Rows of sequences that have ended, or gone by, kept for prompts that begin alike. */
export class PrefixStore {
  private readonly index = new PrefixIndex<KeptSequence>();

  get size(): number {
    return this.index.size;
  }

  /**
   * Keeps the rows of a sequence that has ended: those of `tokenIds` that are written. Takes the sequence over. Not while a pass works on
   * it.
   */
  keep(rows: RowsToKeep): void {
    const { sequence } = rows;
    try {
      this.insert(rows, false);
    } finally {
      sequence.dispose();
    }
  }

  /**
   * A running sequence of a model with recurrences has come from `before` positions to where it is: keeps a fork at each end of a block that
   * it went by, as far as it can still be forked there. Later it can be forked near its own end only.
   */
  passBy({ id, sequence, tokenIds, provenance }: RowsToKeep, before: number): void {
    const { length, oldestPosition } = sequence;
    const first = Math.floor(before / CHECKPOINT_POSITIONS) + 1;
    for (let end = first * CHECKPOINT_POSITIONS; end <= length; end += CHECKPOINT_POSITIONS) {
      if (end >= oldestPosition) this.insert({ id, sequence, tokenIds: tokenIds.slice(0, end), provenance }, true);
    }
  }

  /**
   * A fork of what saves the most of the prompt's first `most` tokens: of kept rows, or of a running sequence among `running`, which no pass
   * works on. Null: nothing saves any.
   */
  fork(tokenIds: readonly number[], most: number, running: Iterable<BatchMember>): SharedRows | null {
    const kept = this.index.longest(tokenIds, most);
    let best: SharedRows | null = null;
    if (kept !== null) {
      const { sequence, id, provenance } = kept.prefix;
      best = { sequence, positions: kept.positions, from: id, provenance };
    }
    for (const { id, sequence, tokenIds: others, written, provenance } of running) {
      const positions = Math.min(commonTokens(others, tokenIds), written, most);
      if (positions <= (best?.positions ?? PREFIX_BLOCK_TOKENS - 1) || positions < sequence.oldestPosition) continue;
      best = { sequence, positions, from: id, provenance };
    }
    if (best === null) return null;
    if (kept !== null && best.from === kept.prefix.id) this.index.touch(kept.prefix);
    const { sequence, positions, provenance } = best;
    return { ...best, sequence: sequence.fork(positions), provenance: provenance.upTo(positions) };
  }

  /** Lets go of all rows that the worker took part in. */
  distrust(workerId: string): void {
    this.dropAll(({ provenance }) => provenance.has(workerId));
  }

  /** The request has failed: lets go of what was kept of it on its way. */
  forget(id: number): void {
    this.dropAll((prefix) => prefix.id === id);
  }

  /** Workers that took part in anything that is kept. */
  get workerIds(): Set<string> {
    return new Set([...this.index.inDropOrder()].flatMap(({ provenance }) => provenance.workerIds));
  }

  /** Lets go of what is worth the least; false: nothing is kept. */
  dropFirst(): boolean {
    for (const prefix of this.index.inDropOrder()) {
      this.drop(prefix);
      return true;
    }
    return false;
  }

  dispose(): void {
    while (this.dropFirst());
  }

  private dropAll(isToGo: (prefix: KeptSequence) => boolean): void {
    for (const prefix of [...this.index.inDropOrder()]) if (isToGo(prefix)) this.drop(prefix);
  }

  private drop(prefix: KeptSequence): void {
    this.index.remove(prefix);
    prefix.sequence.dispose();
  }

  private insert({ id, sequence, tokenIds, provenance }: RowsToKeep, isCheckpoint: boolean): void {
    const length = Math.min(sequence.length, tokenIds.length);
    if (length < PREFIX_BLOCK_TOKENS || length < sequence.oldestPosition) return;
    const kept = sequence.fork(length);
    const prefix = {
      id,
      tokenIds: tokenIds.slice(0, length),
      forkFrom: kept.oldestPosition,
      isCheckpoint,
      sequence: kept,
      provenance: provenance.upTo(length),
    };
    for (const dropped of this.index.insert(prefix)) dropped.sequence.dispose();
  }
}
