import type { ChunkCodec, Split } from '../../shared/model/tensor-source.js';
import type { CodecSetting } from '../format/pack-codec.js';
import type { OpenFile } from './pack-file.js';
import type { OpenTensor, SourceReader } from './source-reader.js';

/** Functions of the native addon for making and checking packs. */
export interface ByteTools {
  splitPlanes(values: Uint8Array, split: Split): Uint8Array[];
  joinPlanes(planes: Uint8Array[], split: Split): Uint8Array;
  crc32c(bytes: Uint8Array, seed: number): number;
  encodeChunk(codec: ChunkCodec, level: number, plain: Uint8Array, blockBytes: number): Promise<Uint8Array>;
  decodeChunk(codec: ChunkCodec, stored: Uint8Array, plainBytes: number, blockBytes: number): Promise<Uint8Array>;
}

/** Functions and limits that packing gets from outside. */
export interface PackingTools extends ByteTools {
  openFile: OpenFile;
  openTensor: OpenTensor;
  /** Most chunks that are encoded side by side; the bytes of the pack do not depend on it. */
  encodesAtOnce: number;
}

/** Everything that writing any one file of a pack needs. */
export interface PackingContext {
  outputDirectory: string;
  codec: CodecSetting;
  shards: number;
  /** True: the experts' lossless parts are left out. */
  slicesOnly: boolean;
  tools: PackingTools;
  reader: SourceReader;
  /** Reports source bytes that were processed since the last call. */
  onBytes(bytes: number): void;
}
