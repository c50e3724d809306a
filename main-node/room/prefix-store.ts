import type { Sequence } from '../../native/index.js';
import type { DecisionRecord } from '../../shared/decisions/slices/decision-record.js';
import type { SequenceDecisions } from '../../shared/decisions/slices/sequence-decisions.js';
import type { BatchMember } from '../batching/batch-member.js';
import type { RowProvenance } from '../pass/pass-member.js';
import { commonTokens, type Prefix, HASH_BLOCK_TOKENS, PrefixIndex } from './prefix-index.js';

/** In models with recurrences, a prompt can go on from each multiple of so many positions: a fork is saved there. */
export const SAVED_FORK_POSITIONS = 256;

/** Rows that a new sequence begins with, in memory that it shares with the sequence that has run them. */
export interface SharedRows {
  readonly sequence: Sequence;
  /** Number of positions that it has. */
  readonly positions: number;
  /** The request that has run them. */
  readonly from: number;
  /** Provenance of these positions. */
  readonly provenance: RowProvenance;
  /** Their decisions; null: they have no logical cache. */
  readonly decisions: DecisionRecord | null;
}

/** A sequence whose rows may be retained: those of `tokenIds` that are written. */
export interface RowsToKeep {
  readonly id: number;
  readonly sequence: Sequence;
  readonly tokenIds: readonly number[];
  readonly provenance: RowProvenance;
  /** Null, or left out: it has no logical cache. Else only rows of its prompt are retained: a prompt reads both slices for every row, so rows of an answer cannot stand in one. */
  readonly decisions?: SequenceDecisions | null;
}

interface RetainedPrefix extends Prefix {
  readonly sequence: Sequence;
  readonly provenance: RowProvenance;
  readonly decisions: DecisionRecord | null;
  readonly id: number;
}

/** Rows that can be forked, and the way to what they have decided. */
interface Forkable extends Omit<SharedRows, 'decisions'> {
  readonly recordOf: (rows: number) => DecisionRecord | undefined;
}

/** Retains rows of sequences that have ended, and saved forks of running ones, for prompts that begin alike. */
export class PrefixStore {
  private readonly index = new PrefixIndex<RetainedPrefix>();

  get size(): number {
    return this.index.size;
  }

  /** Retains the rows of a sequence that has ended: those of `tokenIds` that are written. Takes the sequence over. Not while a pass works on it. */
  keep(rows: RowsToKeep): void {
    const { sequence } = rows;
    try {
      this.insert(rows, false);
    } finally {
      sequence.dispose();
    }
  }

  /**
   * A running sequence of a model with recurrences has advanced from `before` positions to its present length. Saves a fork at each such multiple
   * in between, if the sequence can still be forked there: later it can be forked near its own end only.
   */
  passBy({ id, sequence, tokenIds, provenance, decisions = null }: RowsToKeep, before: number): void {
    const { oldestPosition } = sequence;
    const length = Math.min(sequence.length, decisions?.decidedPromptRows ?? Infinity);
    const first = Math.floor(before / SAVED_FORK_POSITIONS) + 1;
    for (let end = first * SAVED_FORK_POSITIONS; end <= length; end += SAVED_FORK_POSITIONS) {
      if (end >= oldestPosition)
        this.insert({ id, sequence, tokenIds: tokenIds.slice(0, end), provenance, decisions }, true);
    }
  }

  /**
   * Forks the sequence that saves the most of the prompt's first `most` tokens: a retained one, or one of `running`, on which no pass may work. Null:
   * none saves any tokens.
   */
  fork(tokenIds: readonly number[], most: number, running: Iterable<BatchMember>): SharedRows | null {
    const retained = this.index.longest(tokenIds, most);
    let best: Forkable | null = null;
    if (retained !== null) {
      const { sequence, id, provenance, decisions } = retained.prefix;
      best = {
        sequence,
        positions: retained.positions,
        from: id,
        provenance,
        recordOf: (rows) => decisions?.part(rows),
      };
    }
    for (const { id, sequence, tokenIds: others, written, provenance, decisions } of running) {
      const usable = Math.min(written, decisions?.decidedPromptRows ?? written, most);
      const positions = Math.min(commonTokens(others, tokenIds), usable);
      if (positions <= (best?.positions ?? HASH_BLOCK_TOKENS - 1) || positions < sequence.oldestPosition) continue;
      best = { sequence, positions, from: id, provenance, recordOf: (rows) => decisions?.promptPart(rows) };
    }
    if (best === null) return null;
    if (retained !== null && best.from === retained.prefix.id) this.index.touch(retained.prefix);
    const { sequence, positions, from, provenance, recordOf } = best;
    return {
      sequence: sequence.fork(positions),
      positions,
      from,
      provenance: provenance.upTo(positions),
      decisions: recordOf(positions) ?? null,
    };
  }

  /** Drops all rows that the worker took part in. */
  distrust(workerId: string): void {
    this.dropAll(({ provenance }) => provenance.has(workerId));
  }

  /** The request has failed: drops its saved forks. */
  forget(id: number): void {
    this.dropAll((prefix) => prefix.id === id);
  }

  /** Workers that took part in any retained rows. */
  get workerIds(): Set<string> {
    return new Set([...this.index.inDropOrder()].flatMap(({ provenance }) => provenance.workerIds));
  }

  /** Bytes of the decisions of retained rows. Those that prefixes share count for each of them. */
  get decisionBytes(): number {
    let bytes = 0;
    for (const { decisions } of this.index.inDropOrder()) bytes += decisions?.bytes ?? 0;
    return bytes;
  }

  /** Drops the prefix that is worth the least; false: none is retained. */
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

  private dropAll(isToGo: (prefix: RetainedPrefix) => boolean): void {
    for (const prefix of [...this.index.inDropOrder()]) if (isToGo(prefix)) this.drop(prefix);
  }

  private drop(prefix: RetainedPrefix): void {
    this.index.remove(prefix);
    prefix.sequence.dispose();
  }

  private insert({ id, sequence, tokenIds, provenance, decisions = null }: RowsToKeep, isSavedFork: boolean): void {
    const length = Math.min(sequence.length, tokenIds.length, decisions?.decidedPromptRows ?? Infinity);
    if (length < HASH_BLOCK_TOKENS || length < sequence.oldestPosition) return;
    const retained = sequence.fork(length);
    const prefix = {
      id,
      tokenIds: tokenIds.slice(0, length),
      forkFrom: retained.oldestPosition,
      isSavedFork,
      sequence: retained,
      provenance: provenance.upTo(length),
      decisions: decisions?.promptPart(length) ?? null,
    };
    for (const dropped of this.index.insert(prefix)) dropped.sequence.dispose();
  }
}
