import {
  isSplit,
  type ChunkLocation,
  type ExpertSource,
  type ModelSource,
  type TensorSource,
} from './tensor-source.js';
import { partOfPlane, perPart, PARTS, type PerPart } from './expert-parts.js';
import { planeRowBytes } from './weight-dtype.js';

/** Bytes that an expert loader needs for each part: the most that any expert needs. native/addon.d.ts describes the fields in LoaderOptions. */
export interface PartSizes {
  expertBytes: PerPart<number>;
  shardBytes: PerPart<number>;
}

/** Offsets and lengths of direct I/O are multiples of this. */
const READ_ALIGNMENT_BYTES = 4096;

/** Sizes for a loader of these experts. */
export function partSizes(experts: Iterable<ExpertSource>): PartSizes {
  const expertBytes = { ...perPart(() => 0) };
  const shardBytes = { ...perPart(() => 0) };
  for (const { gate, up, down } of experts) {
    const sums = { ...perPart(() => 0) };
    for (const chunk of [gate, up, down].flatMap(chunksRead)) {
      const part = partOfPlane(chunk.plane);
      const bytes = bytesAround(chunk);
      sums[part] += bytes;
      if (chunk.codec !== 'raw') shardBytes[part] = Math.max(shardBytes[part], bytes);
    }
    for (const part of PARTS) expertBytes[part] = Math.max(expertBytes[part], sums[part]);
  }
  return { expertBytes, shardBytes };
}

export function* allExperts(source: ModelSource): Generator<ExpertSource> {
  for (let layer = 0; layer < source.shape.expertLayers; layer += 1) {
    for (let expert = 0; expert < source.shape.experts; expert += 1) yield source.expert(layer, expert);
  }
}

/** Stored bytes of an expert's matrices, by part. */
export function storedPartBytes({ gate, up, down }: ExpertSource): PerPart<number> {
  const sums = { ...perPart(() => 0) };
  for (const { plane, storedBytes } of [gate, up, down].flatMap(({ chunks }) => chunks)) {
    sums[partOfPlane(plane)] += storedBytes;
  }
  return sums;
}

/** Stored bytes of a tensor; for a view, its share of the stored matrix. */
export function storedBytes({ rows, columns, view, chunks }: TensorSource): number {
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.storedBytes, 0);
  return view === null ? bytes : Math.round((bytes * rows * columns) / (view.storedRows * view.storedColumns));
}

/** The chunks of a tensor; for a view, the parts of them from its first row to its last one. */
function chunksRead({ rows, view, chunks }: TensorSource): ChunkLocation[] {
  // Rows of another form than a split's may have bits anywhere.
  if (view === null || !isSplit(view.storedSplit)) return chunks;
  const takenColumns = Math.min(rows, Math.ceil((view.storedColumns - view.firstColumn) / view.stepColumns));
  const blocks = view.transposed ? rows / takenColumns : rows / view.blockRows;
  const lastRow = view.firstRow + (blocks - 1) * view.stepRows + view.blockRows - 1;
  const rowBytes = planeRowBytes(view.storedSplit, view.storedColumns);
  return chunks.map((chunk) => {
    const bytes = rowBytes[chunk.plane] ?? 0;
    const perRow = chunk.plane === 0 ? 1 : view.scaleBlockRows;
    const [first, last] = [Math.floor(view.firstRow / perRow), Math.floor(lastRow / perRow)];
    const storedBytes = (last - first + 1) * bytes;
    return { ...chunk, offsetBytes: chunk.offsetBytes + first * bytes, storedBytes, plainBytes: storedBytes };
  });
}

function bytesAround({ offsetBytes, storedBytes }: ChunkLocation): number {
  const begin = Math.floor(offsetBytes / READ_ALIGNMENT_BYTES);
  return (Math.ceil((offsetBytes + storedBytes) / READ_ALIGNMENT_BYTES) - begin) * READ_ALIGNMENT_BYTES;
}
