import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { denseDimensions, type DensePlace, densePlaces } from '../../shared/model/dense-roles.js';
import { expertDimensions } from '../model-config/checkpoint-layout.js';
import { type ModelShape } from '../../shared/model/model-shape.js';
import { shapeProblem } from '../../shared/model/shape-problem.js';
import {
  exactFormatOf,
  isQuantizedSplit,
  MXFP4_BLOCK_COLUMNS,
  planeRowBytes,
  planeSplit,
  shippedFormatOf,
} from '../../shared/model/weight-dtype.js';
import { isSlicesOnly, type Manifest, type ManifestDenseTensor, type ManifestExpertTensor } from './manifest.js';
import { denseLabel, type FileExtent, packExtents } from './extents.js';
import { levelProblem } from './pack-codec.js';
import {
  CHUNK_ALIGNMENT_BYTES,
  DENSE_FILE,
  DRAFT_DENSE_FILE,
  DRAFT_EXPERTS_FILE,
  expertBiasBytes,
  expertFileName,
  planeShards,
  shardCodec,
  shardRanges,
} from './pack-layout.js';

/** Files whose tensors are not aligned to chunks. */
const DENSE_FILES: readonly string[] = [DENSE_FILE, DRAFT_DENSE_FILE];

/** All contradictions in a well-formed manifest; empty if there are none. */
export function manifestProblems(manifest: Manifest): string[] {
  const { shape, shipped_format: shippedFormat } = manifest.model;
  const impossible = shapeProblem(shape);
  if (impossible !== null) return [impossible];
  if (shape.draftHead !== undefined) return ["the model's own shape is that of a head that drafts"];
  const matrices = manifest.experts.flatMap((expert) => EXPERT_MATRICES.map((part) => expert[part]));
  const exactFormat = shippedFormatOf(matrices);
  const formats =
    exactFormat === shippedFormat || isSlicesOnly(manifest)
      ? []
      : [`shipped_format is ${shippedFormat}, the experts need ${exactFormat}`];
  const contents = modelContents(manifest);
  const level = levelProblem({ codec: manifest.codec, level: manifest.codec_level });
  return [
    ...formats,
    ...(level === null ? [] : [`codec_level is ${manifest.codec_level}, ${level}`]),
    ...fileProblems(manifest),
    ...denseProblems(contents),
    ...(isSlicesOnly(manifest) ? [] : expertProblems(contents)),
    ...draftHeadProblems(manifest),
    ...extentProblems(manifest),
  ];
}

function fileProblems(manifest: Manifest): string[] {
  const names = manifest.files.map((file) => file.name);
  const problems = names
    .filter((name, index) => names.indexOf(name) !== index)
    .map((name) => `${name} is listed twice`);
  const needed = ['config.json', DENSE_FILE];
  const layers = isSlicesOnly(manifest) ? 0 : manifest.model.shape.expertLayers;
  for (let layer = 0; layer < layers; layer += 1) needed.push(expertFileName(layer));
  const head = manifest.draft_head;
  if (head !== undefined) needed.push(DRAFT_DENSE_FILE);
  if (head !== undefined && head.shape.expertLayers > 0) needed.push(DRAFT_EXPERTS_FILE);
  const listed = new Set(names);
  for (const name of needed) if (!listed.has(name)) problems.push(`${name} is not listed`);
  return problems;
}

/** The tensors of a model or of its head, with what decides how they are stored. */
interface Contents extends Pick<Manifest, 'dense' | 'experts' | 'codec' | 'shards'> {
  shape: ModelShape;
  places: readonly DensePlace[];
  fileOf: (layer: number) => string;
}

function modelContents(manifest: Manifest): Contents {
  const { shape, tied_embeddings: tiedEmbeddings } = manifest.model;
  return { ...manifest, shape, places: [...densePlaces(shape, tiedEmbeddings)], fileOf: expertFileName };
}

function draftHeadProblems(manifest: Manifest): string[] {
  const { draft_head: head, model } = manifest;
  if (head === undefined) return [];
  const { shape, shared } = head;
  const before = (problem: string): string => `draft_head: ${problem}`;
  const impossible = shapeProblem(shape) ?? headShapeProblem(shape, model.shape);
  if (impossible !== null) return [before(impossible)];
  const places = [...densePlaces(shape, false)].filter(({ role }) => !shared.some((other) => other === role));
  const contents = { ...manifest, ...head, places, fileOf: () => DRAFT_EXPERTS_FILE };
  const needed = shippedFormatOf(head.experts.flatMap((expert) => EXPERT_MATRICES.map((part) => expert[part])));
  const formats = needed === head.shipped_format ? [] : [`shipped_format is not ${needed}`];
  return [...formats, ...denseProblems(contents), ...expertProblems(contents)].map(before);
}

function headShapeProblem(head: ModelShape, model: ModelShape): string | null {
  if (head.draftHead === undefined || head.layers.length !== 1) {
    return 'its shape is not that of a head that drafts';
  }
  if (head.hiddenSize !== model.hiddenSize || head.vocabSize !== model.vocabSize) {
    return 'it has hidden states or tokens of another size than the model';
  }
  return null;
}

function denseProblems({ shape, places, dense }: Contents): string[] {
  const problems: string[] = [];
  const byPlace = new Map(dense.map((tensor) => [denseLabel(tensor), tensor]));
  for (const place of places) {
    const tensor = byPlace.get(denseLabel(place));
    const problem = tensor === undefined ? 'is missing' : denseTensorProblem(tensor, place, shape);
    if (problem !== null) problems.push(`dense tensor ${denseLabel(place)} ${problem}`);
  }
  if (dense.length !== places.length) problems.push(`${dense.length} dense tensors, expected ${places.length}`);
  return problems;
}

function denseTensorProblem(tensor: ManifestDenseTensor, place: DensePlace, shape: ModelShape): string | null {
  const { rows, columns } = denseDimensions(place, shape);
  if (tensor.rows !== rows || tensor.columns !== columns) {
    return `is ${tensor.rows} x ${tensor.columns}, expected ${rows} x ${columns}`;
  }
  if (tensor.split === 'mxfp4' && columns % MXFP4_BLOCK_COLUMNS !== 0) return columnsProblem(columns);
  const sizes = planeRowBytes(tensor.split, columns).map((bytes) => bytes * rows);
  if (tensor.planes.length !== sizes.length) return `has ${tensor.planes.length} planes, expected ${sizes.length}`;
  const plane = tensor.planes.findIndex((extent, index) => extent.stored_bytes !== sizes[index]);
  if (plane === -1) return null;
  return `has ${tensor.planes[plane]?.stored_bytes} bytes in plane ${plane}, which its shape and split do not take`;
}

function columnsProblem(columns: number): string {
  return `has ${columns} columns, which are no multiple of the ${MXFP4_BLOCK_COLUMNS} that share a scale`;
}

function expertProblems(contents: Contents): string[] {
  const problems: string[] = [];
  const { shape, experts, fileOf } = contents;
  if (experts.length !== shape.expertLayers * shape.experts) {
    problems.push(`${experts.length} experts, expected ${shape.expertLayers} layers of ${shape.experts}`);
    return problems;
  }
  experts.forEach((entry, index) => {
    const layer = Math.floor(index / shape.experts);
    const expert = index % shape.experts;
    const where = `layer ${layer} expert ${expert}`;
    if (entry.layer !== layer || entry.expert !== expert) {
      problems.push(`layer ${entry.layer} expert ${entry.expert} stands where ${where} is expected`);
    }
    if (entry.file !== fileOf(layer)) problems.push(`${where} is in ${entry.file}, expected ${fileOf(layer)}`);
    const biasBytes = expertBiasBytes(shape);
    if ((entry.biases?.stored_bytes ?? 0) !== biasBytes) {
      problems.push(`${where} has ${entry.biases?.stored_bytes ?? 0} bytes of biases, expected ${biasBytes}`);
    }
    for (const part of EXPERT_MATRICES) {
      const problem = expertTensorProblem(entry[part], expertDimensions(part, shape), contents);
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
  if (tensor.split !== planeSplit(exactFormatOf(tensor.split), pack.codec)) {
    return `has split ${tensor.split}, which is not that of a pack with codec ${pack.codec}`;
  }
  if (tensor.split === 'mxfp4' && tensor.columns % MXFP4_BLOCK_COLUMNS !== 0) return columnsProblem(tensor.columns);
  const planes = planeRowBytes(tensor.split, tensor.columns).length;
  const foreign = tensor.chunks.find((chunk) => chunk.plane >= planes);
  if (foreign !== undefined) return `has a chunk of plane ${foreign.plane}, expected planes below ${planes}`;
  for (let plane = 0; plane < planes; plane += 1) {
    const problem = planeProblem(tensor, plane, pack);
    if (problem !== null) return problem;
  }
  return null;
}

/** The error in a plane; null: none. A plane must be cut as docs/pack-format.md says, and each chunk must be stored by its codec or raw. */
function planeProblem(
  tensor: ManifestExpertTensor,
  plane: number,
  pack: Pick<Manifest, 'codec' | 'shards'>,
): string | null {
  const { rows, columns, split } = tensor;
  const codec = shardCodec(split, plane, pack.codec);
  const rowBytes = planeRowBytes(split, columns)[plane] ?? 0;
  const chunks = tensor.chunks.filter((chunk) => chunk.plane === plane);
  // Earlier releases left all quantized values raw, one chunk a plane; scales may be so in every pack.
  const isWhole = isQuantizedSplit(split) && chunks.length === 1 && chunks[0]?.codec === 'raw';
  const expected = shardRanges(rows, isWhole ? 1 : planeShards(split, plane, pack.codec, pack.shards));
  if (chunks.length !== expected.length) {
    return `has ${chunks.length} chunks in plane ${plane}, expected ${expected.length}`;
  }
  for (const [index, chunk] of chunks.entries()) {
    const plainBytes = (expected[index]?.rows ?? 0) * rowBytes;
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
  let previous: FileExtent | null = null;
  for (const extent of packExtents(manifest)) {
    const end = extent.offsetBytes + extent.storedBytes;
    const size = sizes.get(extent.file) ?? 0;
    if (end > size) problems.push(`${extent.file}: ${extent.label} ends at byte ${end}, the file at ${size}`);
    if (previous?.file === extent.file && previous.offsetBytes + previous.storedBytes > extent.offsetBytes) {
      problems.push(`${extent.file}: ${extent.label} overlaps ${previous.label}`);
    }
    if (!DENSE_FILES.includes(extent.file) && extent.offsetBytes % CHUNK_ALIGNMENT_BYTES !== 0) {
      problems.push(`${extent.file}: ${extent.label} begins at byte ${extent.offsetBytes}, which is not aligned`);
    }
    previous = extent;
  }
  return problems;
}
