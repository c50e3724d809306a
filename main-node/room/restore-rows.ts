import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { runInSteps, type SteppedWork } from '../../shared/base/runtime/work-steps.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { BatchMember } from '../batching/batch-member.js';
import { STORED_BLOCK_POSITIONS } from '../stored-rows/block-names.js';
import { STEP_BYTES, type StoredRows } from '../stored-rows/block-work.js';
import { blocksToRead } from '../stored-rows/plan-read.js';
import type { RowStore } from '../stored-rows/row-store.js';

/** Rows of a prompt that have come from the store. */
export interface RestoredRows {
  /** Number of positions that came from there. */
  readonly positions: number;
  /** The request that has run the last of them. */
  readonly from: number;
}

export interface RestoreOptions {
  readonly store: RowStore;
  readonly runtime: Pick<Runtime, 'nextTurn'>;
  /** Time for one position of a prompt that runs; null: not measured yet. */
  readonly runMs: number | null;
  /** Makes room for rows of the member up to `end`; false: there is none. */
  readonly makeRoom: (end: number) => boolean;
}

/**
 * Writes stored rows of the member's first `most` tokens into its memory, behind those that it has. Ends early where the member is preempted or its
 * request ends, and where there is no memory or a block is damaged: the rest runs. Null: no rows have come. Not while the member waits for a pass.
 */
export async function restoreRows(
  member: BatchMember,
  most: number,
  { store, runtime, runMs, makeRoom }: RestoreOptions,
): Promise<RestoredRows | null> {
  const { sequence, client, tokenIds, signal } = member;
  const before = member.written;
  const names = store.find(client, tokenIds, most);
  const readMs = store.readTime.ms;
  const [first, behind] = blocksToRead({ blocks: names.length, written: before, most, readMs, runMs });
  if (behind === first) {
    // It may have become faster: the next prompt finds out.
    if (names.length * STORED_BLOCK_POSITIONS > before) store.readTime.forget();
    return null;
  }
  const isOver = (): boolean => signal.aborted || member.sequence !== sequence;
  let from: number | null = null;
  for (let block = first; block < behind; block += 1) {
    const rows = await store.read(names[block] ?? '', block);
    const end = (block + 1) * STORED_BLOCK_POSITIONS;
    if (rows === null || isOver() || !makeRoom(end)) break;
    // If one of these workers is found to give wrong values from now on, the member gives its rows up.
    for (const [workerId, position] of rows.workers) member.provenance.took(workerId, position);
    const begin = member.written;
    const isWritten = await runInSteps(writtenRows(member, rows, { begin, end, isOver }), runtime);
    if (!isWritten) {
      if (!isOver()) sequence.truncate(begin);
      break;
    }
    from = rows.sequence;
  }
  if (from === null || isOver()) return null;
  const positions = member.written - before;
  store.used(names, positions);
  return { positions, from };
}

/** False: the member's memory is another one by now, or there is no more memory. */
function* writtenRows(
  { sequence }: BatchMember,
  { layers }: StoredRows,
  { begin, end, isOver }: { readonly begin: number; readonly end: number; readonly isOver: () => boolean },
): SteppedWork<boolean> {
  let written = 0;
  for (const [layer, rows] of layers.entries()) {
    if (isOver()) return false;
    // Memory may have had the first rows of the block.
    const ofRows = rows.subarray(rows.length - (rows.length / STORED_BLOCK_POSITIONS) * (end - begin));
    try {
      sequence.writeRows(layer, begin, end - begin, ofRows);
    } catch (thrown) {
      if (thrown instanceof OdmoeError && thrown.code === 'DEVICE_OUT_OF_MEMORY') return false;
      throw thrown;
    }
    written += rows.length;
    if (written < STEP_BYTES) continue;
    written = 0;
    yield;
  }
  return !isOver();
}
