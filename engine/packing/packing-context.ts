import type { Split } from '../../shared/model/tensor-source.js';
import type { PlaneCodec } from './chunk-codec.js';
import type { OpenFile } from './pack-file.js';
import type { TensorReader } from './tensor-reader.js';

/** What packing takes from outside: the native addon's byte work, and the opening of output files. */
export interface PackingTools {
  splitPlanes(values: Uint8Array, split: Split): Uint8Array[];
  crc32c(bytes: Uint8Array, seed: number): number;
  openFile: OpenFile;
}

/** What writing any one file of a pack needs. */
export interface PackingContext {
  outputDirectory: string;
  codec: PlaneCodec;
  shards: number;
  tools: PackingTools;
  reader: TensorReader;
  /** Source bytes that have been dealt with since the last call. */
  onBytes(bytes: number): void;
}
