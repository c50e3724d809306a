import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type FileExtent, matrixLabel } from '../format/extents.js';
import type { ManifestExtent } from '../format/manifest.js';
import type { Pack } from '../format/open-pack.js';
import { type Slice, sliceFileName, SLICES, slicesOfSet } from '../format/pack-layout.js';
import { denseBytes, expertBytes, modelBytes } from '../packing/model-bytes.js';
import type { ByteTools } from '../packing/packing-context.js';
import { SourceReader } from '../packing/source-reader.js';
import { checksum, type PackDamage, verifyFileOf } from '../packing/verify-pack.js';
import type { Slices } from './open-slices.js';
import { sliceMatrix, type SlicingTools } from './slice-matrix.js';
import { filesOfSlice, type SliceFile } from './slices-manifest.js';

/**
 * Compares the size and SHA-256 of every file of the slices that are opened and the CRC-32C of every chunk.
 * @returns every damage found, in the order of files
 * @throws STORAGE_FAILED if a file cannot be read
 */
export async function verifySliceFiles(
  slices: Pick<Slices, 'directory' | 'manifest' | 'opened'>,
  tools: ByteTools,
  onBytes: (bytes: number) => void,
): Promise<PackDamage[]> {
  const { directory, manifest } = slices;
  const all = labelledExtents(manifest);
  const damages: PackDamage[] = [];
  for (const file of openedFiles(slices)) {
    const extents = all.filter((extent) => extent.file === file.name);
    try {
      damages.push(...(await verifyFileOf({ file, extents, experts: [] }, directory, tools, onBytes)));
    } catch (thrown) {
      if (!(thrown instanceof OdmoeError) || thrown.code !== 'PACK_CORRUPT') throw thrown;
      damages.push({ file: file.name, place: null, expected: `${file.size_bytes} bytes`, found: 'no file' });
    }
  }
  return damages;
}

/**
 * As verifySliceFiles. Then it slices the weights of every expert again and compares the slices.
 * @param pack null: its experts' lossless parts are not there, or damaged
 */
export async function verifySlices(
  slices: Slices,
  pack: Pack | null,
  tools: ByteTools & SlicingTools,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
): Promise<PackDamage[]> {
  const fileBytes = openedFiles(slices).reduce((sum, file) => sum + file.size_bytes, 0);
  const totalBytes = fileBytes + (pack === null ? 0 : modelBytes(pack) - denseBytes(pack));
  let doneBytes = 0;
  const progress = (bytes: number): void => {
    doneBytes += bytes;
    onProgress?.(doneBytes, totalBytes);
  };
  const damages = await verifySliceFiles(slices, tools, progress);
  return pack === null ? damages : [...damages, ...(await wrongSlices(slices, pack, tools, progress))];
}

/** Files of the slices that are opened, in the order of files. */
function openedFiles({ manifest, opened }: Pick<Slices, 'manifest' | 'opened'>): SliceFile[] {
  const wanted = new Set(slicesOfSet(opened).flatMap((slice) => filesOfSlice(manifest, slice)));
  return manifest.files.filter((file) => wanted.has(file));
}

/** Slices that are not those of the weights, whatever their checksums say. */
async function wrongSlices(
  { manifest, split }: Slices,
  pack: Pack,
  tools: SlicingTools,
  progress: (bytes: number) => void,
): Promise<PackDamage[]> {
  const damages: PackDamage[] = [];
  const reader = new SourceReader(tools.openTensor, null);
  for (const entry of manifest.experts) {
    const source = pack.expert(entry.layer, entry.expert);
    for (const part of EXPERT_MATRICES) {
      const label = matrixLabel(entry, part);
      const crcs = { upper: 0, lower: 0 };
      await sliceMatrix(source[part], split, label, { tools, reader }, (_, [upper, lower]) => {
        crcs.upper = tools.crc32c(upper, crcs.upper);
        crcs.lower = tools.crc32c(lower, crcs.lower);
      });
      for (const slice of SLICES) {
        const recorded = entry[part][slice].crc32c;
        if (recorded === crcs[slice]) continue;
        const expected = `the slice of the pack's weights, ${checksum(crcs[slice])}`;
        const file = sliceFileName(entry.layer, slice);
        damages.push({ file, place: `${label}, ${slice} slice`, expected, found: checksum(recorded) });
      }
    }
    progress(expertBytes(source));
  }
  return damages;
}

function labelledExtents({ experts }: Slices['manifest']): FileExtent[] {
  const extents: FileExtent[] = [];
  const add = (layer: number, slice: Slice, label: string, extent: ManifestExtent): void => {
    const { offset_bytes: offsetBytes, stored_bytes: storedBytes, crc32c } = extent;
    extents.push({ file: sliceFileName(layer, slice), label, offsetBytes, storedBytes, crc32c });
  };
  for (const entry of experts) {
    const { layer, expert, biases } = entry;
    for (const part of EXPERT_MATRICES) {
      for (const slice of SLICES) add(layer, slice, `${matrixLabel(entry, part)}, ${slice} slice`, entry[part][slice]);
    }
    if (biases !== null) add(layer, 'upper', `layer ${layer} expert ${expert} biases`, biases);
  }
  return extents.sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.offsetBytes - b.offsetBytes));
}
