/** The extents of a pack: its bytes with checksums, as the manifest lists them. Pure. */
import { EXPERT_MATRICES, type ExpertMatrix } from '../../shared/model/tensor-source.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { DensePlace } from '../../shared/model/dense-roles.js';
import type { Manifest, ManifestExpert, ManifestExtent } from './manifest.js';
import { DENSE_FILE, DRAFT_DENSE_FILE } from './pack-layout.js';

/** Stored bytes with one checksum, in one file. */
export interface Extent {
  offsetBytes: number;
  storedBytes: number;
  crc32c: number;
}

/** An extent with its file. */
export interface FileExtent extends Extent {
  file: string;
  /** A name for people: "layer 3 expert 1 gate, plane 0". */
  label: string;
}

/** The extents of one expert in the order of the file. No other expert lies between them. */
export interface ExpertExtent extends ExpertId {
  file: string;
  chunks: readonly Extent[];
  /** Offset of the first chunk, and of the end of the last one. */
  offsetBytes: number;
  endBytes: number;
  /** Stored bytes of all chunks. */
  storedBytes: number;
}

function extentOf({ offset_bytes: offsetBytes, stored_bytes: storedBytes, crc32c }: ManifestExtent): Extent {
  return { offsetBytes, storedBytes, crc32c };
}

export function expertExtent(entry: ManifestExpert): ExpertExtent {
  const biases = entry.biases === null ? [] : [entry.biases];
  return extentOfChunks(entry, entry.file, [
    ...EXPERT_MATRICES.flatMap((part): ManifestExtent[] => entry[part].chunks),
    ...biases,
  ]);
}

/** The extent of an expert whose bytes in the file are these. */
export function extentOfChunks(
  { layer, expert }: ExpertId,
  file: string,
  extents: readonly ManifestExtent[],
): ExpertExtent {
  const chunks = extents.map(extentOf).sort((left, right) => left.offsetBytes - right.offsetBytes);
  return {
    layer,
    expert,
    file,
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

/** All bytes of a pack that have checksums, by file and offset. */
export function packExtents(manifest: Pick<Manifest, 'dense' | 'experts' | 'draft_head'>): FileExtent[] {
  const { draft_head: head } = manifest;
  const ofHead = head === undefined ? [] : contentExtents(head, DRAFT_DENSE_FILE, 'draft head: ');
  return [...contentExtents(manifest, DENSE_FILE), ...ofHead].sort((a, b) =>
    a.file < b.file ? -1 : a.file > b.file ? 1 : a.offsetBytes - b.offsetBytes,
  );
}

/** All bytes with checksums of a model's tensors; `denseFile` holds those that are not of experts. `before`: begins the labels. */
export function contentExtents(
  manifest: Pick<Manifest, 'dense' | 'experts'>,
  denseFile: string,
  before = '',
): FileExtent[] {
  const extents: FileExtent[] = [];
  const add = (file: string, label: string, extent: ManifestExtent): void => {
    extents.push({ file, label: before + label, ...extentOf(extent) });
  };
  for (const tensor of manifest.dense)
    tensor.planes.forEach((extent, plane) => add(denseFile, `${denseLabel(tensor)}, plane ${plane}`, extent));
  for (const expert of manifest.experts) {
    const { file, biases } = expert;
    if (biases !== null) add(file, `layer ${expert.layer} expert ${expert.expert} biases`, biases);
    for (const part of EXPERT_MATRICES)
      expert[part].chunks.forEach((chunk, index) =>
        add(file, `${matrixLabel(expert, part)}, plane ${chunk.plane}, chunk ${index}`, chunk),
      );
  }
  return extents;
}

/** A name for people: "layer 3 expert 1 gate". */
export function matrixLabel(expert: ExpertId, part: ExpertMatrix): string {
  return `layer ${expert.layer} expert ${expert.expert} ${part}`;
}

/** A name for people: "query of layer 3". */
export function denseLabel({ role, layer }: DensePlace): string {
  return `${role} of layer ${layer}`;
}
