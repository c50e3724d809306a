/** The file of a stored block: a short head, a header as JSON, and the rows of each layer (docs/prefix-store.md). */
import { z } from 'zod';
import { crc32c } from '../../native/index.js';
import { STORED_BLOCK_POSITIONS, BLOCK_NAME } from './block-names.js';

const MAGIC = 'ODMOEKV1';
/** The magic, the header's bytes and its checksum. */
export const HEAD_BYTES = 16;
/** Longest header: tokens, and a checksum for each layer. */
const HEADER_LIMIT_BYTES = 1024 * 1024;
const COUNT = z.int().min(0);
const PARENT = z.union([z.literal(''), z.string().regex(BLOCK_NAME)]);

const headerSchema = z.strictObject({
  /** Digest of what the rows depend on beside their tokens. */
  store: z.string(),
  owner: z.string(),
  parent: PARENT,
  /** The number of blocks before it. */
  block: COUNT,
  tokens: z.array(COUNT).length(STORED_BLOCK_POSITIONS),
  /** The request whose rows these are. */
  sequence: COUNT,
  /** Workers that took part in the rows, each with the first of its positions. */
  workers: z.record(z.string(), COUNT),
  layers: z.array(z.strictObject({ bytes: COUNT, crc32c: COUNT })),
});

export type BlockHeader = z.infer<typeof headerSchema>;

/** The bytes of a file with these rows, one piece for each layer of the model. */
export function encodeBlock(
  header: Omit<BlockHeader, 'layers'>,
  rows: readonly Uint8Array[],
  checksums: readonly number[],
): Uint8Array {
  const layers = rows.map(({ length }, layer) => ({ bytes: length, crc32c: checksums[layer] ?? 0 }));
  const text = Buffer.from(JSON.stringify({ ...header, layers }));
  const head = Buffer.alloc(HEAD_BYTES);
  head.write(MAGIC, 'latin1');
  head.writeUInt32LE(text.length, 8);
  head.writeUInt32LE(crc32c(text, 0), 12);
  return Buffer.concat([head, text, ...rows]);
}

/** Most bytes of the header behind this head; null: it is none. */
export function headerBytes(head: Uint8Array): number | null {
  const bytes = Buffer.from(head.buffer, head.byteOffset, head.byteLength);
  if (bytes.length < HEAD_BYTES || bytes.toString('latin1', 0, 8) !== MAGIC) return null;
  const length = bytes.readUInt32LE(8);
  return length > HEADER_LIMIT_BYTES ? null : length;
}

/** The header of a file, of which at least the head and the header are given; null: it is damaged. */
export function decodeHeader(file: Uint8Array): BlockHeader | null {
  const length = headerBytes(file);
  if (length === null || file.length < HEAD_BYTES + length) return null;
  const text = Buffer.from(file.buffer, file.byteOffset + HEAD_BYTES, length);
  if (crc32c(text, 0) !== Buffer.from(file.buffer, file.byteOffset, HEAD_BYTES).readUInt32LE(12)) return null;
  try {
    return headerSchema.parse(JSON.parse(text.toString('utf8')));
  } catch {
    return null;
  }
}

/** The bytes of a file with this header. */
export function fileBytes(header: BlockHeader, lengthOfHeader: number): number {
  return HEAD_BYTES + lengthOfHeader + header.layers.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The rows of each layer of a whole file, unchecked; null: it is longer or shorter than its header says. */
export function rowsOfFile(file: Uint8Array, header: BlockHeader): Uint8Array[] | null {
  const length = headerBytes(file);
  if (length === null || file.length !== fileBytes(header, length)) return null;
  let at = HEAD_BYTES + length;
  return header.layers.map(({ bytes }) => file.subarray(at, (at += bytes)));
}
