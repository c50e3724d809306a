import type { BatchMember } from '../batching/batch-member.js';

/** Memory of the head's drafters: their rows, and the passes that write them. */
export interface HeadMemory {
  /** Bytes that all drafters hold now. */
  readonly heldBytes: number;
  /** Bytes of the passes of one drafter, which it takes before its first row. */
  readonly passBytes: number;
  /** Most bytes of so many rows of one drafter. */
  readonly rowBytesOf: (rows: number) => number;
}

type DraftedMember = Pick<BatchMember, 'written' | 'drafterRows'>;

/** Most bytes of a drafter with so many rows. */
export function drafterBytes({ passBytes, rowBytesOf }: HeadMemory, rows: number): number {
  return rows > 0 ? passBytes + rowBytesOf(rows) : 0;
}

/** Bytes that the drafter of the member lacks until it has followed the rows that are written. It runs some rows behind them. */
export function pendingBytes(head: HeadMemory, member: DraftedMember): number {
  return Math.max(0, bytesUpTo(head, member, member.written) - keptBytes(head, member));
}

/** Bytes that the drafter newly takes if the sequence goes on to `end`, beyond those that it holds and those that are pending. */
export function drafterBytesDue(head: HeadMemory, member: DraftedMember, end: number): number {
  const known = Math.max(keptBytes(head, member), bytesUpTo(head, member, member.written));
  return Math.max(0, bytesUpTo(head, member, end) - known);
}

/** Bytes that the drafter still holds for rows that its sequence has given up. They come back by themselves. */
export function returningBytes(head: HeadMemory, { drafterRows = null }: DraftedMember): number {
  return drafterRows?.isLeaving === true ? takenBytes(head, drafterRows.held) : 0;
}

/** Bytes that the drafter holds for rows to come. */
function keptBytes(head: HeadMemory, { drafterRows = null }: DraftedMember): number {
  return drafterRows === null || drafterRows.isLeaving ? 0 : takenBytes(head, drafterRows.held);
}

function takenBytes({ passBytes, rowBytesOf }: HeadMemory, held: number | null): number {
  return held === null ? 0 : passBytes + rowBytesOf(held);
}

/** Bytes of the drafter once it has followed the sequence up to `end`. It never has rows that the sequence took over from another one. */
function bytesUpTo(head: HeadMemory, { written, drafterRows = null }: DraftedMember, end: number): number {
  return drafterRows === null ? 0 : drafterBytes(head, end - Math.min(drafterRows.first, written));
}
