import {
  denseDimensions,
  densePlaces,
  EXPERT_PARTS,
  expertDimensions,
  type ExpertPart,
} from '../../shared/model/model-family.js';
import { shapeProblem } from '../../shared/model/model-shape.js';
import { shippedFormatOf } from '../../shared/model/source-table.js';
import { PLANE_BYTES_PER_VALUE, planeSplit, valueBytes } from '../../shared/model/weight-dtype.js';
import { type Manifest, type ManifestExpert, type ManifestExpertTensor, shapeFromManifest } from './manifest.js';
import { levelProblem } from './pack-codec.js';
import { CHUNK_ALIGNMENT_BYTES, DENSE_FILE, expertFileName, shardCodec, shardRanges } from './pack-layout.js';

/** A stretch of a pack's file that carries a checksum. */
export interface PackExtent {
  file: string;
  /** For people: "layer 3 expert 1 gate, plane 0". */
  label: string;
  offsetBytes: number;
  storedBytes: number;
  crc32c: number;
}

/** For people: "layer 3 expert 1 gate". */
export function matrixLabel(expert: ManifestExpert, part: ExpertPart): string {
  return `layer ${expert.layer} expert ${expert.expert} ${part}`;
}

/** Every checksummed stretch of a pack, by file and offset. */
export function packExtents(manifest: Manifest): PackExtent[] {
  const extents: PackExtent[] = manifest.dense.map((tensor) => ({
    file: DENSE_FILE,
    label: `tensor ${tensor.name}`,
    offsetBytes: tensor.offset_bytes,
    storedBytes: tensor.stored_bytes,
    crc32c: tensor.crc32c,
  }));
  for (const expert of manifest.experts) {
    for (const part of EXPERT_PARTS) {
      expert[part].chunks.forEach((chunk, index) =>
        extents.push({
          file: expert.file,
          label: `${matrixLabel(expert, part)}, plane ${chunk.plane}, chunk ${index}`,
          offsetBytes: chunk.offset_bytes,
          storedBytes: chunk.stored_bytes,
          crc32c: chunk.crc32c,
        }),
      );
    }
  }
  return extents.sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.offsetBytes - b.offsetBytes));
}

/** Everything about a well-formed manifest that contradicts itself; empty for a good one. */
export function manifestProblems(manifest: Manifest): string[] {
  const { shape, shipped_format: shippedFormat } = manifest.model;
  const impossible = shapeProblem(shapeFromManifest(shape));
  if (impossible !== null) return [impossible];
  const matrices = manifest.experts.flatMap((expert) => EXPERT_PARTS.map((part) => expert[part]));
  const exactFormat = shippedFormatOf(matrices);
  const formats =
    exactFormat === shippedFormat ? [] : [`shipped_format is ${shippedFormat}, the experts need ${exactFormat}`];
  const level = levelProblem({ codec: manifest.codec, level: manifest.codec_level });
  return [
    ...formats,
    ...(level === null ? [] : [`codec_level is ${manifest.codec_level}, ${level}`]),
    ...fileProblems(manifest),
    ...denseProblems(manifest),
    ...expertProblems(manifest),
    ...extentProblems(manifest),
  ];
}

function fileProblems(manifest: Manifest): string[] {
  const names = manifest.files.map((file) => file.name);
  const problems = names
    .filter((name, index) => names.indexOf(name) !== index)
    .map((name) => `${name} is listed twice`);
  const needed = ['config.json', DENSE_FILE];
  for (let layer = 0; layer < manifest.model.shape.layers; layer += 1) needed.push(expertFileName(layer));
  const listed = new Set(names);
  for (const name of needed) if (!listed.has(name)) problems.push(`${name} is not listed`);
  return problems;
}

function denseProblems(manifest: Manifest): string[] {
  const problems: string[] = [];
  const shape = shapeFromManifest(manifest.model.shape);
  const byPlace = new Map(manifest.dense.map((tensor) => [`${tensor.role} of layer ${tensor.layer}`, tensor]));
  let expected = 0;
  for (const { role, layer } of densePlaces(shape, manifest.model.tied_embeddings)) {
    expected += 1;
    const tensor = byPlace.get(`${role} of layer ${layer}`);
    if (tensor === undefined) {
      problems.push(`dense tensor ${role} of layer ${layer} is missing`);
      continue;
    }
    const dimensions = denseDimensions(role, shape);
    const rows = dimensions.length === 1 ? 1 : dimensions[0];
    if (tensor.rows !== rows || tensor.columns !== dimensions.at(-1)) {
      problems.push(
        `dense tensor ${tensor.name} is ${tensor.rows} x ${tensor.columns}, expected ${dimensions.join(' x ')}`,
      );
    } else if (tensor.stored_bytes !== tensor.rows * tensor.columns * valueBytes(tensor.dtype)) {
      problems.push(
        `dense tensor ${tensor.name} has ${tensor.stored_bytes} bytes, which its shape and dtype do not take`,
      );
    }
  }
  if (manifest.dense.length !== expected) problems.push(`${manifest.dense.length} dense tensors, expected ${expected}`);
  return problems;
}

function expertProblems(manifest: Manifest): string[] {
  const problems: string[] = [];
  const shape = shapeFromManifest(manifest.model.shape);
  if (manifest.experts.length !== shape.layers * shape.experts) {
    problems.push(`${manifest.experts.length} experts, expected ${shape.layers} layers of ${shape.experts}`);
    return problems;
  }
  manifest.experts.forEach((entry, index) => {
    const layer = Math.floor(index / shape.experts);
    const expert = index % shape.experts;
    const where = `layer ${layer} expert ${expert}`;
    if (entry.layer !== layer || entry.expert !== expert) {
      problems.push(`layer ${entry.layer} expert ${entry.expert} stands where ${where} is expected`);
    }
    if (entry.file !== expertFileName(layer))
      problems.push(`${where} is in ${entry.file}, expected ${expertFileName(layer)}`);
    for (const part of EXPERT_PARTS) {
      const problem = expertTensorProblem(entry[part], expertDimensions(part, shape), manifest);
      if (problem !== null) problems.push(`${where} ${part} ${problem}`);
    }
  });
  return problems;
}

function expertTensorProblem(
  tensor: ManifestExpertTensor,
  dimensions: readonly [number, number],
  pack: Pick<Manifest, 'codec' | 'shards'>,
): string | null {
  if (tensor.rows !== dimensions[0] || tensor.columns !== dimensions[1]) {
    return `is ${tensor.rows} x ${tensor.columns}, expected ${dimensions.join(' x ')}`;
  }
  if (tensor.split !== planeSplit(tensor.dtype, pack.codec)) {
    return `has split ${tensor.split}, which is not that of ${tensor.dtype} with codec ${pack.codec}`;
  }
  const planes = PLANE_BYTES_PER_VALUE[tensor.split].length;
  const foreign = tensor.chunks.find((chunk) => chunk.plane >= planes);
  if (foreign !== undefined) return `has a chunk of plane ${foreign.plane}, expected planes below ${planes}`;
  for (let plane = 0; plane < planes; plane += 1) {
    const problem = planeProblem(tensor, plane, pack);
    if (problem !== null) return problem;
  }
  return null;
}

/** A plane must be cut as docs/pack-format.md says, and each chunk stored by its codec or raw. */
function planeProblem(
  tensor: ManifestExpertTensor,
  plane: number,
  pack: Pick<Manifest, 'codec' | 'shards'>,
): string | null {
  const { rows, columns, split } = tensor;
  const codec = shardCodec(split, plane, pack.codec);
  const bytesPerValue = PLANE_BYTES_PER_VALUE[split][plane] ?? 0;
  const expected = shardRanges(rows, columns, codec === null ? 1 : pack.shards);
  const chunks = tensor.chunks.filter((chunk) => chunk.plane === plane);
  if (chunks.length !== expected.length) {
    return `has ${chunks.length} chunks in plane ${plane}, expected ${expected.length}`;
  }
  for (const [index, chunk] of chunks.entries()) {
    const plainBytes = (expected[index]?.values ?? 0) * bytesPerValue;
    if (chunk.plain_bytes !== plainBytes) {
      return `has ${chunk.plain_bytes} bytes in chunk ${index} of plane ${plane}, expected ${plainBytes}`;
    }
    if (chunk.codec === 'raw') {
      if (chunk.stored_bytes !== chunk.plain_bytes) return 'has a raw chunk of two sizes';
    } else if (chunk.codec !== codec) {
      const expectedCodecs = codec === null || codec === 'raw' ? 'raw' : `${codec} or raw`;
      return `has a chunk of codec ${chunk.codec} in plane ${plane}, expected ${expectedCodecs}`;
    } else if (chunk.stored_bytes >= chunk.plain_bytes) {
      return `has a chunk of codec ${chunk.codec} that is no smaller than its contents`;
    }
  }
  return null;
}

function extentProblems(manifest: Manifest): string[] {
  const problems: string[] = [];
  const sizes = new Map(manifest.files.map((file) => [file.name, file.size_bytes]));
  let previous: PackExtent | null = null;
  for (const extent of packExtents(manifest)) {
    const end = extent.offsetBytes + extent.storedBytes;
    const size = sizes.get(extent.file) ?? 0;
    if (end > size) problems.push(`${extent.file}: ${extent.label} ends at byte ${end}, the file at ${size}`);
    if (previous?.file === extent.file && previous.offsetBytes + previous.storedBytes > extent.offsetBytes) {
      problems.push(`${extent.file}: ${extent.label} overlaps ${previous.label}`);
    }
    if (extent.file !== DENSE_FILE && extent.offsetBytes % CHUNK_ALIGNMENT_BYTES !== 0) {
      problems.push(`${extent.file}: ${extent.label} begins at byte ${extent.offsetBytes}, which is not aligned`);
    }
    previous = extent;
  }
  return problems;
}
