import { availableParallelism } from 'node:os';
import {
  crc32c,
  decodeChunk,
  encodeChunk,
  joinPlanes,
  measureCodec,
  measureReads,
  openTensor,
  splitPlanes,
} from '../../native/index.js';
import type { MeasuringTools } from './measure-codecs.js';
import { openOnDisk } from './pack-file.js';
import type { ByteTools, PackingTools } from './packing-context.js';

export const NATIVE_BYTE_TOOLS: ByteTools = { splitPlanes, joinPlanes, crc32c, encodeChunk, decodeChunk };

export const NATIVE_MEASURING_TOOLS: MeasuringTools = {
  openTensor,
  splitPlanes,
  joinPlanes,
  measureCodec,
  measureReads,
};

/** The tools for packing on this machine: the native addon, its disk, all its cores. */
export const NATIVE_PACKING_TOOLS: PackingTools = {
  ...NATIVE_BYTE_TOOLS,
  openFile: openOnDisk,
  openTensor,
  encodesAtOnce: availableParallelism(),
};
