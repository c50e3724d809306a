import { OdmoeError } from '../../shared/errors/index.js';
import type { ChunkCodec } from '../../shared/model/tensor-source.js';

/** Turns the plain bytes of one chunk into stored bytes. Either call may give any number of bytes, none included. */
export interface ChunkEncoder {
  /** `plain` may be reused by the caller once the promise has settled. */
  push(plain: Uint8Array): Promise<Uint8Array>;
  finish(): Promise<Uint8Array>;
}

/** A way of storing exponent planes. The loader's other half is in native/src/store. */
export interface PlaneCodec {
  readonly name: ChunkCodec;
  /** For the check of free space before packing; an upper bound is best. */
  expectedStoredBytes(plainBytes: number): number;
  startChunk(): ChunkEncoder;
}

const rawCodec: PlaneCodec = {
  name: 'raw',
  expectedStoredBytes: (plainBytes) => plainBytes,
  startChunk: () => ({ push: async (plain) => plain, finish: async () => new Uint8Array(0) }),
};

/** Every codec that can be packed with. A new one is added here. */
const PLANE_CODECS: readonly PlaneCodec[] = [rawCodec];

export const CODEC_NAMES: readonly string[] = PLANE_CODECS.map((codec) => codec.name);

/** @throws USAGE when there is no codec of the name */
export function planeCodec(name: string): PlaneCodec {
  const codec = PLANE_CODECS.find((candidate) => candidate.name === name);
  if (codec === undefined) {
    throw new OdmoeError('USAGE', `codec ${JSON.stringify(name)} is not known; known: ${CODEC_NAMES.join(', ')}`);
  }
  return codec;
}
