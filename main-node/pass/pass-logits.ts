import { OBSERVED_LOGITS_ROWS } from '../../engine/generation/prompt-logprobs.js';
import type { Pass } from '../../native/index.js';
import type { MemberRows } from './pass-member.js';

/** A row of a pass whose logits a member wants. */
interface WantedRow {
  /** Of the pass. */
  row: number;
  position: number;
  member: number;
}

/** The logits that the members want, member by member; those of one that takes them itself go there. Some rows at a time. */
export async function readLogits(
  pass: Pick<Pass, 'logits'>,
  members: readonly MemberRows[],
  vocabSize: number,
): Promise<Float32Array[][]> {
  const wanted = wantedRows(members);
  const logits = members.map((): Float32Array[] => []);
  for (let first = 0; first < wanted.length; first += OBSERVED_LOGITS_ROWS) {
    const rows = wanted.slice(first, first + OBSERVED_LOGITS_ROWS);
    const values = await pass.logits(Int32Array.from(rows, ({ row }) => row));
    for (const [index, { position, member }] of rows.entries()) {
      const ofRow = values.subarray(index * vocabSize, (index + 1) * vocabSize);
      const onLogits = members[member]?.onLogits;
      if (onLogits === undefined) logits[member]?.push(ofRow);
      else onLogits(position, ofRow);
    }
  }
  return logits;
}

function wantedRows(members: readonly MemberRows[]): WantedRow[] {
  const wanted: WantedRow[] = [];
  let firstRow = 0;
  for (const [member, { position, tokenIds, logitsFrom }] of members.entries()) {
    for (let index = logitsFrom; index < tokenIds.length; index++)
      wanted.push({ row: firstRow + index, position: position + index, member });
    firstRow += tokenIds.length;
  }
  return wanted;
}
