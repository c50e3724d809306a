import { STORED_BLOCK_POSITIONS } from './block-names.js';

export interface StoredAndHeld {
  /** Number of stored blocks that the prompt begins with, one after another. */
  readonly blocks: number;
  /** Positions of the prompt whose rows are in memory. */
  readonly written: number;
  /** Positions at the prompt's end that run in any case are not among these. */
  readonly most: number;
  /** Time for one position, as measured; null: not measured yet. */
  readonly readMs: number | null;
  readonly runMs: number | null;
}

/** The stored blocks to read, as [first, behind): those with positions that memory lacks, unless it takes longer to read them than to run them. */
export function blocksToRead({ blocks, written, most, readMs, runMs }: StoredAndHeld): [first: number, behind: number] {
  const behind = Math.min(blocks, Math.floor(most / STORED_BLOCK_POSITIONS));
  const first = Math.floor(written / STORED_BLOCK_POSITIONS);
  if (behind * STORED_BLOCK_POSITIONS <= written) return [0, 0];
  return readMs !== null && runMs !== null && readMs > runMs ? [0, 0] : [first, behind];
}

/** Share of the newest time in a mean. */
const NEWEST_SHARE = 0.25;

/** The time of one position, as a mean in which newer times count more. */
export class PositionTime {
  private mean: number | null = null;

  /** null: nothing has been measured. */
  get ms(): number | null {
    return this.mean;
  }

  note(positions: number, ms: number): void {
    if (positions <= 0) return;
    const newest = ms / positions;
    this.mean = this.mean === null ? newest : this.mean + (newest - this.mean) * NEWEST_SHARE;
  }

  /** The next position is measured anew. */
  forget(): void {
    this.mean = null;
  }
}
