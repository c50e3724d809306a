/** Names, alignment and the cutting of tensors into chunks, as docs/pack-format.md describes them. Pure. */
import { type ExpertRowShape, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import type { ChunkCodec, Split } from '../../shared/model/tensor-source.js';
import { hasE4m3Codes, isQuantizedSplit, planeRowBytes } from '../../shared/model/weight-dtype.js';

export const PACK_FORMAT = 'odmoe-pack';
export const PACK_FORMAT_VERSION = 3;

export const MANIFEST_FILE = 'manifest.json';
export const DENSE_FILE = 'dense.safetensors';
/** Tensors of a head that drafts: those of its one layer, and its experts. */
export const DRAFT_DENSE_FILE = 'draft-dense.safetensors';
export const DRAFT_EXPERTS_FILE = 'draft-experts.bin';
/** Journal of the finished files of a pack in the making; absent from a whole pack. */
export const JOURNAL_FILE = 'packing.jsonl';
/** Lock of the process that makes the pack. */
export const LOCK_FILE = 'packing.lock';
/** Files of a pack that a worker fetches in part: the journal of the experts on the disk, the future manifest, and the writer's lock. */
export const FETCH_JOURNAL_FILE = 'fetching.jsonl';
export const FETCH_MANIFEST_FILE = 'fetching-manifest.json';
export const FETCH_LOCK_FILE = 'fetching.lock';
/** The journal of a completed fetch: a worker may fetch damaged parts again. */
export const FETCHED_JOURNAL_FILE = 'fetched.jsonl';
/** Description of a pack's slices, written after all their files; the manifest does not name it. */
export const SLICES_FILE = 'slices.json';
/** Recall of the forms in which a shadow may hold the model; the manifest does not name it. */
export const SHADOW_RECALL_FILE = 'shadow-recall.json';
/** Maps that foretell experts, and what "odmoe fit" keeps until they are finished; the manifest names neither. */
export const PREDICTOR_FILE = 'predictor.safetensors';
export const FITTING_DIRECTORY = 'fitting';
/** States that main records while it serves, for "odmoe fit --record"; the manifest does not name it. */
export const RECORDED_FILE = 'recorded-states.bin';
/** Files of slices that a worker fetches in part: the journal of those on the disk, the future slices.json, and the writer's lock. */
export const FETCH_SLICES_JOURNAL_FILE = 'fetching-slices.jsonl';
export const FETCH_SLICES_FILE = 'fetching-slices.json';
export const FETCH_SLICES_LOCK_FILE = 'fetching-slices.lock';
/** Journal of the finished files of slices in the making; absent from whole slices. */
export const SLICING_JOURNAL_FILE = 'slicing.jsonl';
/** End of the name of a file that is being written. */
export const PARTIAL_SUFFIX = '.partial';

/** Files of a checkpoint that are copied into its pack unchanged, if they exist. config.json always does. */
export const COPIED_FILES: readonly string[] = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
];

/** Every chunk begins at a multiple of this, so that direct I/O can read it. */
export const CHUNK_ALIGNMENT_BYTES = 4096;

/** Largest number of shards of a coded plane. */
export const SHARDS_LIMIT = 64;

/** Name of the file with the experts of an expert layer. */
export function expertFileName(layer: number): string {
  return `experts-${String(layer).padStart(5, '0')}.bin`;
}

const EXPERT_FILE_PATTERN = /^experts-\d{5}\.bin$/;

/** The slices of a sliced expert, in the order of the planes that they are. */
export const SLICES = ['upper', 'lower'] as const;
export type Slice = (typeof SLICES)[number];

/** The slices that a directory has, or is to have: the upper ones are usable without the lower ones. */
export type SliceSet = 'upper' | 'both';

export function slicesOfSet(set: SliceSet): readonly Slice[] {
  return set === 'both' ? SLICES : ['upper'];
}

/** Name of the file with one slice of all experts of an expert layer. */
export function sliceFileName(layer: number, slice: Slice): string {
  return `slices-${String(layer).padStart(5, '0')}.${slice}.bin`;
}

export const SLICE_FILE_PATTERN = /^slices-\d{5}\.(upper|lower)\.bin$/;

/** True if a pack may hold a file of this name; a manifest must not name any other. */
export function isPackFileName(name: string): boolean {
  if (name === DRAFT_DENSE_FILE || name === DRAFT_EXPERTS_FILE) return true;
  return name === DENSE_FILE || COPIED_FILES.includes(name) || EXPERT_FILE_PATTERN.test(name);
}

/** True if a directory entry belongs to a pack, or was left by making one. */
export function isPackEntry(name: string): boolean {
  if (name === MANIFEST_FILE || name === JOURNAL_FILE || name === LOCK_FILE) return true;
  if (name.startsWith(`${LOCK_FILE}.`)) return true;
  const whole = name.endsWith(PARTIAL_SUFFIX) ? name.slice(0, -PARTIAL_SUFFIX.length) : name;
  if (SLICE_FILE_PATTERN.test(whole) || whole === SLICES_FILE || name === SLICING_JOURNAL_FILE) return true;
  if (name.startsWith(PREDICTOR_FILE) || name === FITTING_DIRECTORY || name === RECORDED_FILE) return true;
  return isPackFileName(whole) || whole === MANIFEST_FILE || name.startsWith(SHADOW_RECALL_FILE);
}

export function alignUp(offsetBytes: number): number {
  return Math.ceil(offsetBytes / CHUNK_ALIGNMENT_BYTES) * CHUNK_ALIGNMENT_BYTES;
}

/** Rows [firstRow, firstRow + rows) of a matrix: the rows of one shard of a coded plane. */
export interface ShardRange {
  firstRow: number;
  rows: number;
}

/** Cuts rows evenly into at most `shards` ranges. */
export function shardRanges(rows: number, shards: number): ShardRange[] {
  const count = Math.min(shards, rows);
  return Array.from({ length: count }, (_, index) => {
    const firstRow = Math.floor((rows * index) / count);
    return { firstRow, rows: Math.floor((rows * (index + 1)) / count) - firstRow };
  });
}

/** Approximate plain bytes of a coded block: large enough for a good ratio, small enough for a core's cache. */
const BLOCK_BYTES = 128 * 1024;
/** Devices store rows in groups. A block of whole groups can be placed without its neighbours. */
const BLOCK_ROW_MULTIPLE = 16;
/** Most plain bytes of a block. */
const BLOCK_LIMIT_BYTES = 16 * 1024 * 1024;

/**
 * Rows of one block of a coded chunk, for a plane with one byte a value: a multiple of 16 near 128 KiB, or all rows of the tensor. Code that
 * cuts a raw chunk into blocks must use the same rows.
 */
export function blockRows(rows: number, columns: number): number {
  const groups = Math.max(1, Math.round(BLOCK_BYTES / columns / BLOCK_ROW_MULTIPLE));
  const most = Math.max(1, Math.floor(BLOCK_LIMIT_BYTES / columns));
  return Math.min(rows, most, groups * BLOCK_ROW_MULTIPLE);
}

/** Plain bytes of the largest block that every loader has room for (decoded_block_bytes in native/src/runtime/piece_recovery.cc). */
function decodedBlockBytes(rows: number, columns: number): number {
  return Math.min(rows * columns, Math.max(2 * BLOCK_BYTES, BLOCK_ROW_MULTIPLE * columns));
}

/**
 * Plain bytes of one block of a plane whose rows have `rowBytes` bytes: as many rows as blockRows says, or fewer where a row has more bytes than
 * values. Null if a loader has no room for one row.
 */
export function planeBlockBytes(rows: number, columns: number, rowBytes: number): number | null {
  const wanted = blockRows(rows, columns);
  const fitting = Math.floor(decodedBlockBytes(rows, columns) / rowBytes);
  if (wanted <= fitting) return wanted * rowBytes;
  if (fitting === 0) return null;
  const groups = Math.floor(fitting / BLOCK_ROW_MULTIPLE);
  return (groups === 0 ? fitting : groups * BLOCK_ROW_MULTIPLE) * rowBytes;
}

/**
 * Codec of a plane's shards, in a pack with this codec of exponents; null for a plane that is one raw chunk. Exponents are always cut, so that a
 * raw pack is also loaded shard by shard. Of quantized values, codes are cut only for a codec that may make them smaller.
 */
export function shardCodec(split: Split, plane: number, codec: ChunkCodec): ChunkCodec | null {
  if (isScalesPlane(split, plane)) return 'zstd';
  if (isQuantizedSplit(split)) {
    if (codec === 'zstd') return codec;
    return codec === 'huffman' && hasE4m3Codes(split) ? 'e4m3' : null;
  }
  if (plane === 0) return codec;
  return split === 'fp16-e5-lo8-s1m2' && plane === 2 ? 'packed3' : null;
}

/**
 * True for a plane of scales and of what belongs to them. It is cut as the codes are and stored by zstd where that takes fewer bytes on the disk,
 * in raw packs, too; otherwise it is one raw chunk.
 */
export function isScalesPlane(split: Split, plane: number): boolean {
  return isQuantizedSplit(split) && plane === 1;
}

/**
 * Number of chunks into which a plane is cut, in a pack with this codec of exponents and this many shards (where the matrix has as many rows).
 * Scales are cut as their codes are.
 */
export function planeShards(split: Split, plane: number, codec: ChunkCodec, shards: number): number {
  const cutAs = isScalesPlane(split, plane) ? 0 : plane;
  return shardCodec(split, cutAs, codec) === null ? 1 : shards;
}

/** Planes of a split that are always cut into shards, in a pack with this codec of exponents. */
export function shardedPlanes(split: Split, codec: ChunkCodec): number[] {
  return [...planeRowBytes(split, 0).keys()].filter(
    (plane) => !isScalesPlane(split, plane) && shardCodec(split, plane, codec) !== null,
  );
}

/** A plane that is stored as one raw chunk. */
export interface RawPlane {
  plane: number;
  offsetBytes: number;
  plainBytes: number;
}

/**
 * Places the planes of a matrix that are certainly raw one after another from `beginBytes`. Also gives the offset at which the next data may
 * begin.
 */
export function placeRawPlanes(
  split: Split,
  codec: ChunkCodec,
  rows: number,
  columns: number,
  beginBytes: number,
): { rawPlanes: RawPlane[]; endBytes: number } {
  const rawPlanes: RawPlane[] = [];
  const sharded = shardedPlanes(split, codec);
  let offsetBytes = beginBytes;
  for (const [plane, rowBytes] of planeRowBytes(split, columns).entries()) {
    if (sharded.includes(plane) || isScalesPlane(split, plane)) continue;
    const plainBytes = rows * rowBytes;
    rawPlanes.push({ plane, offsetBytes, plainBytes });
    offsetBytes = alignUp(offsetBytes + plainBytes);
  }
  return { rawPlanes, endBytes: offsetBytes };
}

/** Bytes of an expert's biases; 0: the model's experts have no biases. */
export function expertBiasBytes({ expert, ...shape }: ExpertRowShape & Pick<ModelShape, 'expert'>): number {
  return expert.bias ? 4 * (2 * expert.intermediateSize + expertRowSize(shape)) : 0;
}
