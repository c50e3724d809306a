import { EXPERT_PARTS } from '../model-config/model-family.js';
import type { Manifest, ManifestExpert, ManifestStretch } from './manifest.js';

/** The stored bytes of a chunk, or of the biases, in their file. */
export interface ChunkExtent {
  offsetBytes: number;
  storedBytes: number;
  crc32c: number;
}

/** The place of one expert: its chunks in the order of the file. No other expert lies between them. */
export interface ExpertExtent {
  layer: number;
  expert: number;
  file: string;
  chunks: readonly ChunkExtent[];
  /** Offset of the first chunk, and of the end of the last one. */
  offsetBytes: number;
  endBytes: number;
  /** Stored bytes of all chunks. */
  storedBytes: number;
}

export function expertExtent(entry: ManifestExpert): ExpertExtent {
  const biases = entry.biases === null ? [] : [entry.biases];
  const chunks = [...EXPERT_PARTS.flatMap((part): ManifestStretch[] => entry[part].chunks), ...biases]
    .map((chunk) => ({
      offsetBytes: chunk.offset_bytes,
      storedBytes: chunk.stored_bytes,
      crc32c: chunk.crc32c,
    }))
    .sort((left, right) => left.offsetBytes - right.offsetBytes);
  return {
    layer: entry.layer,
    expert: entry.expert,
    file: entry.file,
    chunks,
    offsetBytes: chunks[0]?.offsetBytes ?? 0,
    endBytes: chunks.reduce((end, chunk) => Math.max(end, chunk.offsetBytes + chunk.storedBytes), 0),
    storedBytes: chunks.reduce((sum, chunk) => sum + chunk.storedBytes, 0),
  };
}

/** Extents of all experts: entry layer * experts + expert. */
export function expertExtents(manifest: Manifest): ExpertExtent[] {
  return manifest.experts.map(expertExtent);
}
