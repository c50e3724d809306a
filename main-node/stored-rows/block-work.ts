import { crc32c, type Sequence } from '../../native/index.js';
import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';
import { decodeHeader, encodeBlock, rowsOfFile } from './block-format.js';
import { nameOf, STORED_BLOCK_POSITIONS } from './block-names.js';

/** Bytes of rows that are copied or checked before other work has a turn. */
export const STEP_BYTES = 1024 * 1024;

/** The identity of a store, and the salt of its names. */
export interface StoreKey {
  /** Digest of what rows depend on beside their tokens. */
  readonly store: string;
  readonly salt: string;
}

/** A store's identity, and the bytes of a block's rows in each layer. */
export interface StoreForm {
  readonly key: StoreKey;
  readonly layerBytes: readonly number[];
}

/** The rows of STORED_BLOCK_POSITIONS positions. */
export interface StoredRows {
  /** The request that has run them. */
  readonly sequence: number;
  /** Workers that took part in them, or in rows before them, each with the first of its positions. */
  readonly workers: readonly (readonly [workerId: string, position: number])[];
  /** Of each layer, as Sequence.readRows returns them. */
  readonly layers: readonly Uint8Array[];
}

/** A sequence whose rows are being written. */
export interface WrittenSequence {
  readonly owner: string;
  readonly id: number;
  readonly fork: Pick<Sequence, 'readRows'>;
  readonly tokenIds: readonly number[];
  /** Names of its blocks. */
  readonly chain: readonly string[];
  /** The rows are not wanted any more, and their memory may be gone. */
  readonly isOver: boolean;
}

/** The file of one block of a sequence; null: its rows are not wanted any more. `workers`: those that took part, with their first positions. */
export function* encodedBlock(
  writing: WrittenSequence,
  block: number,
  { key, layerBytes, workers }: StoreForm & { readonly workers: Record<string, number> },
): SteppedWork<Uint8Array | null> {
  const { owner, id, fork, tokenIds, chain } = writing;
  const first = block * STORED_BLOCK_POSITIONS;
  const rows: Uint8Array[] = [];
  const checksums: number[] = [];
  let copied = 0;
  for (const [layer, bytes] of layerBytes.entries()) {
    if (writing.isOver) return null;
    const ofLayer = fork.readRows(layer, first, STORED_BLOCK_POSITIONS);
    rows.push(ofLayer);
    checksums.push(crc32c(ofLayer, 0));
    copied += bytes;
    if (copied < STEP_BYTES) continue;
    copied = 0;
    yield;
  }
  const tokens = tokenIds.slice(first, first + STORED_BLOCK_POSITIONS);
  const parent = chain[block - 1] ?? '';
  return encodeBlock({ store: key.store, owner, parent, block, tokens, sequence: id, workers }, rows, checksums);
}

/** The rows of a file, if they are those of this block of this store; null: the file is damaged, or another one. */
export function* checkedRows(
  file: Uint8Array,
  { name, block }: { readonly name: string; readonly block: number },
  { key, layerBytes }: StoreForm,
): SteppedWork<StoredRows | null> {
  const header = decodeHeader(file);
  const layers = header && rowsOfFile(file, header);
  if (header === null || layers === null || header.store !== key.store || header.block !== block) return null;
  if (nameOf(header.owner, key.salt, header.parent, header.tokens) !== name) return null;
  if (layers.length !== layerBytes.length) return null;
  let checked = 0;
  for (const [layer, rows] of layers.entries()) {
    if (rows.length !== layerBytes[layer] || crc32c(rows, 0) !== header.layers[layer]?.crc32c) return null;
    checked += rows.length;
    if (checked < STEP_BYTES) continue;
    checked = 0;
    yield;
  }
  return { sequence: header.sequence, workers: Object.entries(header.workers), layers };
}
