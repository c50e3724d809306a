import type { DensePlace } from '../../shared/model/dense-roles.js';
import { HEADER_LENGTH_BYTES } from '../checkpoint/safetensors-header.js';
import type { ModelSource, Split, TensorSource } from '../../shared/model/tensor-source.js';
import { type BlockFormat, isBlockFormat } from '../../shared/model/block-formats.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { type FinishedFile, type ManifestDenseTensor, type ManifestExtent, tensorName } from '../format/manifest.js';
import { alignUp } from '../format/pack-layout.js';
import { ownDensePlaces } from './model-bytes.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

type DenseSplit = ManifestDenseTensor['split'];

/** A tensor of the file, with the places of its planes. */
interface PlacedTensor {
  place: DensePlace;
  source: TensorSource;
  split: DenseSplit;
  planes: { offsetBytes: number; sizeBytes: number }[];
}

/** Types of the planes in safetensors; one byte holds two codes of mxfp4. */
const PLANE_DTYPES: Readonly<Record<Exclude<DenseSplit, BlockFormat>, readonly string[]>> = {
  'none-bf16': ['BF16'],
  'none-fp16': ['F16'],
  'none-fp32': ['F32'],
  mxfp4: ['U8', 'U8'],
  fp8: ['F8_E4M3', 'F32'],
};

/** Block formats are bytes. */
function planeDtypes(split: DenseSplit): readonly string[] {
  return isBlockFormat(split) ? planeRowBytes(split, 0).map(() => 'U8') : PLANE_DTYPES[split];
}

/** Alignment in bytes of the values of a plane. */
function alignmentBytes(split: DenseSplit, plane: number): number {
  const dtype = planeDtypes(split)[plane];
  if (dtype === 'F32') return 4;
  return dtype === 'BF16' || dtype === 'F16' ? 2 : 1;
}

/** Dense tensors are stored as plain values or as codes and scales; their bytes are never cut into planes. */
function isDenseSplit(split: Split): split is DenseSplit {
  return split in PLANE_DTYPES || isBlockFormat(split);
}

/** Header of dense.safetensors, or of a draft head's (padded with spaces to the chunk alignment), and the place of each tensor. */
export function denseLayout(model: ModelSource): { header: Uint8Array; placed: PlacedTensor[]; sizeBytes: number } {
  const placed = ownDensePlaces(model).map((place): PlacedTensor => {
    const source = model.dense(place.role, place.layer);
    const { split } = source;
    if (!isDenseSplit(split)) throw new RangeError(`a tensor of a checkpoint is said to be split as ${split}`);
    const planes = planeRowBytes(split, source.columns).map((bytes) => ({
      offsetBytes: 0,
      sizeBytes: bytes * source.rows,
    }));
    return { place, source, split, planes };
  });
  // Wider values come first. So every plane is aligned to its values without holes, which the format forbids.
  const ordered = placed
    .flatMap((tensor) => tensor.planes.map((extent, plane) => ({ tensor, extent, plane })))
    .sort((a, b) => alignmentBytes(b.tensor.split, b.plane) - alignmentBytes(a.tensor.split, a.plane));
  const entries: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let dataBytes = 0;
  for (const { tensor, extent, plane } of ordered) {
    extent.offsetBytes = dataBytes;
    dataBytes += extent.sizeBytes;
    entries[`${tensorName(tensor.place)}${plane === 0 ? '' : '.scales'}`] = {
      dtype: planeDtypes(tensor.split)[plane],
      shape: planeShape(tensor, plane),
      data_offsets: [extent.offsetBytes, dataBytes],
    };
  }
  const json = new TextEncoder().encode(JSON.stringify(entries));
  const dataStart = alignUp(HEADER_LENGTH_BYTES + json.length);
  const header = new Uint8Array(dataStart).fill(' '.charCodeAt(0));
  new DataView(header.buffer).setBigUint64(0, BigInt(dataStart - HEADER_LENGTH_BYTES), true);
  header.set(json, HEADER_LENGTH_BYTES);
  for (const { extent } of ordered) extent.offsetBytes += dataStart;
  return { header, placed, sizeBytes: dataStart + dataBytes };
}

function planeShape({ source: { rows, columns }, split }: PlacedTensor, plane: number): number[] {
  const width = { U8: 1, F8_E4M3: 1, BF16: 2, F16: 2, F32: 4 }[planeDtypes(split)[plane] ?? ''] ?? 1;
  return [rows, (planeRowBytes(split, columns)[plane] ?? 0) / width];
}

/** Writes dense.safetensors: all tensors except the experts'. */
export async function writeDenseFile(
  model: ModelSource,
  file: PackFile,
  context: PackingContext,
): Promise<Omit<FinishedFile, 'file'>> {
  const { header, placed, sizeBytes } = denseLayout(model);
  await file.writeAt(0, header);
  const entries: ManifestDenseTensor[] = [];
  for (const { place, source, split, planes } of placed) {
    const extents = planes.map(({ offsetBytes, sizeBytes: size }): ManifestExtent => {
      return { offset_bytes: offsetBytes, stored_bytes: size, crc32c: 0 };
    });
    const written = planes.map(() => 0);
    for await (const range of context.reader.rows(source)) {
      for (const [plane, extent] of extents.entries()) {
        const bytes = planeOf(range.planes, plane);
        extent.crc32c = context.tools.crc32c(bytes, extent.crc32c);
        await file.writeAt(extent.offset_bytes + (written[plane] ?? 0), bytes);
        written[plane] = (written[plane] ?? 0) + bytes.length;
        context.onBytes(bytes.length);
      }
    }
    const { rows, columns } = source;
    entries.push({ ...place, split, rows, columns, planes: extents });
  }
  await file.completeThrough(sizeBytes);
  return { dense: entries, experts: [] };
}

/** One plane of those that were read or split. */
export function planeOf(planes: readonly Uint8Array[], plane: number): Uint8Array {
  const bytes = planes[plane];
  if (bytes === undefined) throw new RangeError(`plane ${plane} of ${planes.length}`);
  return bytes;
}
