/** Names, alignment and the cutting of tensors into chunks: docs/pack-format.md in code. Pure. */
import type { Split } from '../model/tensor-source.js';
import { PLANE_BYTES_PER_VALUE } from '../model/weight-dtype.js';

export const PACK_FORMAT = 'odmoe-pack';
export const PACK_FORMAT_VERSION = 1;

export const MANIFEST_FILE = 'manifest.json';
export const DENSE_FILE = 'dense.safetensors';
/** Finished files of a pack that is being made; absent from a whole pack. */
export const JOURNAL_FILE = 'packing.jsonl';
/** Held by the process that is packing. */
export const LOCK_FILE = 'packing.lock';
/** Of a pack of which a worker fetches what it needs: experts that are here, the manifest to be, and who writes. */
export const FETCH_JOURNAL_FILE = 'fetching.jsonl';
export const FETCH_MANIFEST_FILE = 'fetching-manifest.json';
export const FETCH_LOCK_FILE = 'fetching.lock';
/** Ends the name of a file that is being written. */
export const PARTIAL_SUFFIX = '.partial';

/** Files of a checkpoint that go into its pack as they are, where they exist. config.json always does. */
export const COPIED_FILES: readonly string[] = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
];

/** Every chunk begins at a multiple of it, so that it can be read past the page cache (direct I/O). */
export const CHUNK_ALIGNMENT_BYTES = 4096;

/** Largest number of shards of an exponent plane. */
export const SHARDS_LIMIT = 64;

export function expertFileName(layer: number): string {
  return `experts-${String(layer).padStart(5, '0')}.bin`;
}

const EXPERT_FILE_PATTERN = /^experts-\d{5}\.bin$/;

/** Whether a pack may hold a file of this name; nothing else may be named in a manifest. */
export function isPackFileName(name: string): boolean {
  return name === DENSE_FILE || COPIED_FILES.includes(name) || EXPERT_FILE_PATTERN.test(name);
}

/** Whether a directory entry is a pack's, or left by making one. */
export function isPackEntry(name: string): boolean {
  if (name === MANIFEST_FILE || name === JOURNAL_FILE || name === LOCK_FILE) return true;
  if (name.startsWith(`${LOCK_FILE}.`)) return true;
  const whole = name.endsWith(PARTIAL_SUFFIX) ? name.slice(0, -PARTIAL_SUFFIX.length) : name;
  return isPackFileName(whole) || whole === MANIFEST_FILE;
}

export function alignUp(offsetBytes: number): number {
  return Math.ceil(offsetBytes / CHUNK_ALIGNMENT_BYTES) * CHUNK_ALIGNMENT_BYTES;
}

/** Values [firstValue, firstValue + values) of a tensor: what one shard of its exponent plane holds. */
export interface ShardRange {
  firstValue: number;
  values: number;
}

/** Cuts rows evenly into at most `shards` ranges of whole rows. */
export function shardRanges(rows: number, columns: number, shards: number): ShardRange[] {
  const count = Math.min(shards, rows);
  return Array.from({ length: count }, (_, index) => {
    const firstRow = Math.floor((rows * index) / count);
    const endRow = Math.floor((rows * (index + 1)) / count);
    return { firstValue: firstRow * columns, values: (endRow - firstRow) * columns };
  });
}

/** A plane that is stored as one raw chunk, from the beginning of the tensor's extent. */
export interface RawPlane {
  plane: number;
  offsetBytes: number;
  plainBytes: number;
}

/** Where the raw planes (all but the first) of a tensor go, and where its exponent shards begin. */
export function placeRawPlanes(
  split: Split,
  values: number,
  extentBytes: number,
): { rawPlanes: RawPlane[]; shardsOffsetBytes: number } {
  const rawPlanes: RawPlane[] = [];
  let offsetBytes = extentBytes;
  PLANE_BYTES_PER_VALUE[split].forEach((bytesPerValue, plane) => {
    if (plane === 0) return;
    const plainBytes = values * bytesPerValue;
    rawPlanes.push({ plane, offsetBytes, plainBytes });
    offsetBytes = alignUp(offsetBytes + plainBytes);
  });
  return { rawPlanes, shardsOffsetBytes: offsetBytes };
}
