import { matrixOf, type ModelTensor } from '../../shared/checkpoint/checkpoint.js';
import { HEADER_LENGTH_BYTES } from '../../shared/model/safetensors-header.js';
import { valueBytes } from '../../shared/model/weight-dtype.js';
import type { FinishedFile, ManifestDenseTensor } from '../format/manifest.js';
import { alignUp } from '../format/pack-layout.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

/** Header of dense.safetensors (padded with spaces to the chunk alignment), and where each tensor goes. */
export function denseLayout(tensors: readonly ModelTensor[]): {
  header: Uint8Array;
  placed: { tensor: ModelTensor; offsetBytes: number }[];
  sizeBytes: number;
} {
  // Wider values first, so that every tensor is aligned to its values without holes, which the format forbids.
  const ordered = [...tensors].sort((a, b) => valueBytes(b.dtype) - valueBytes(a.dtype));
  const entries: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let dataBytes = 0;
  for (const { name, dtype, dimensions, sizeBytes } of ordered) {
    entries[name] = { dtype, shape: dimensions, data_offsets: [dataBytes, dataBytes + sizeBytes] };
    dataBytes += sizeBytes;
  }
  const json = new TextEncoder().encode(JSON.stringify(entries));
  const dataStart = alignUp(HEADER_LENGTH_BYTES + json.length);
  const header = new Uint8Array(dataStart).fill(' '.charCodeAt(0));
  new DataView(header.buffer).setBigUint64(0, BigInt(dataStart - HEADER_LENGTH_BYTES), true);
  header.set(json, HEADER_LENGTH_BYTES);
  let offsetBytes = dataStart;
  const placed = ordered.map((tensor) => {
    const place = { tensor, offsetBytes };
    offsetBytes += tensor.sizeBytes;
    return place;
  });
  return { header, placed, sizeBytes: offsetBytes };
}

/** Writes dense.safetensors: every tensor but the experts', with its name, type and bytes. */
export async function writeDenseFile(
  tensors: readonly ModelTensor[],
  file: PackFile,
  context: PackingContext,
): Promise<Omit<FinishedFile, 'file'>> {
  const { header, placed } = denseLayout(tensors);
  await file.writeAt(0, header);
  const entries: ManifestDenseTensor[] = [];
  for (const { tensor, offsetBytes } of placed) {
    if (tensor.place.kind !== 'dense') continue;
    let crc32c = 0;
    let writtenBytes = 0;
    for await (const piece of context.reader.pieces(tensor.path, tensor.offsetBytes, tensor.sizeBytes)) {
      crc32c = context.tools.crc32c(piece, crc32c);
      await file.writeAt(offsetBytes + writtenBytes, piece);
      writtenBytes += piece.length;
      context.onBytes(piece.length);
    }
    await file.completeThrough(offsetBytes + writtenBytes);
    const { rows, columns } = matrixOf(tensor.dimensions);
    entries.push({
      name: tensor.name,
      role: tensor.place.role,
      layer: tensor.place.layer,
      dtype: tensor.dtype,
      rows,
      columns,
      offset_bytes: offsetBytes,
      stored_bytes: tensor.sizeBytes,
      crc32c,
    });
  }
  return { dense: entries, experts: [] };
}
