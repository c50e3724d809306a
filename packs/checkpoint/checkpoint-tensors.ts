import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expertDimensions } from '../model-config/checkpoint-layout.js';
import { denseDimensions, isVectorRole } from '../../shared/model/dense-roles.js';
import type { ExpectedTensor, ModelConfig, TensorPlace, TensorSlice } from '../model-config/model-family.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { CHECKPOINT_FILE_ERRORS } from './safetensors-file.js';
import type { ChunkLocation, Split, TensorSource, TensorView } from '../../shared/model/tensor-source.js';
import {
  FP8_BLOCK_COLUMNS,
  isWeightDtype,
  MXFP4_BLOCK_COLUMNS,
  plainSplit,
  WEIGHT_DTYPES,
} from '../../shared/model/weight-dtype.js';
import { type CheckpointTensor, foreignDtype } from '../model-config/checkpoint-tensor.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { type BlockFormat, groupedCodes, isGroupedFormat } from '../../shared/model/block-formats.js';
import { moduleOf, type ModulePart } from './quantized/module-tensors.js';
import { type MatrixSize, QuantizedModule } from './quantized/quantized-module.js';
import { readStoredMatrix, type StoredMatrix, tileSplit } from './quantized/stored-matrix.js';
import { foreignInstead, foreignShape } from './stored-forms.js';

/** Words of 32 bits in a whole number. */
const INTEGER_WORDS: Readonly<Record<string, number>> = { I32: 1, I64: 2 };

/** A tensor that the model needs, found and checked. */
export interface ModelTensor {
  /** Name of the checkpoint's tensor that it is, or of which it is a part. */
  name: string;
  place: TensorPlace;
  source: TensorSource;
}

/** Finds the tensors of a model among those of a checkpoint, and records which of those it has used. */
export class TensorFinder {
  readonly used = new Set<string>();

  constructor(
    private readonly found: ReadonlyMap<string, CheckpointTensor>,
    private readonly config: ModelConfig,
    private readonly directory: string,
  ) {}

  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  find(expected: ExpectedTensor): ModelTensor {
    const { name, place } = expected;
    const size = sizeOf(place, this.config.shape);
    if (expected.encoding === 'mxfp4') return { name, place, source: this.mxfp4Source(expected, size) };
    if (expected.encoding === 'integers') return { name, place, source: this.integerSource(expected, size) };
    const quantized = this.mayBeQuantized(place) ? this.quantizedMatrix(expected) : null;
    if (quantized !== null) return { name, place, source: this.quantizedSource(expected, quantized, size) };
    const tensor = this.take(name, expected.dimensions);
    if (!isWeightDtype(tensor.dtype)) throw foreignDtype(tensor, WEIGHT_DTYPES);
    return { name, place, source: valueSource(expected, tensor, plainSplit(tensor.dtype), size) };
  }

  /** Biases of experts are vectors: one row. */
  findBias(expected: ExpectedTensor): TensorSource {
    const tensor = this.take(expected.name, expected.dimensions);
    if (!isWeightDtype(tensor.dtype)) throw foreignDtype(tensor, WEIGHT_DTYPES);
    const columns = sizeOf(expected.place, this.config.shape).rows;
    return valueSource(expected, tensor, plainSplit(tensor.dtype), { rows: 1, columns });
  }

  private mayBeQuantized(place: TensorPlace): boolean {
    return place.kind === 'expert' || (!isVectorRole(place.role) && place.role !== 'embedding');
  }

  private take(name: string, dimensions: readonly number[]): CheckpointTensor {
    const tensor = this.found.get(name);
    if (tensor === undefined) throw this.missing(name, dimensions);
    const { shape } = tensor;
    if (shape.length !== dimensions.length || shape.some((size, axis) => size !== dimensions[axis])) {
      const foreign = foreignShape(tensor, dimensions);
      if (foreign !== null) throw foreign;
      throw new OdmoeError(
        'MODEL_CORRUPT',
        `${tensor.path}: tensor ${name} has shape [${shape.join(', ')}], expected [${dimensions.join(', ')}] by config.json; ` +
          'check that config.json belongs to these weights',
      );
    }
    this.used.add(name);
    return tensor;
  }

  /** The error for a tensor that is missing under its name. The tensor may be stored in another form. */
  private missing(name: string, dimensions: readonly number[]): OdmoeError {
    const foreign = foreignInstead(name, this.found, this.directory);
    if (foreign !== null) return foreign;
    const isHead = name === this.config.layout.dense({ role: 'lmHead', layer: 0 }).name;
    const remedy = isHead
      ? 'by config.json the embeddings are not tied: set tie_word_embeddings to true if they are the head too, else '
      : '';
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${this.directory}: tensor ${name} of shape [${dimensions.join(', ')}] is missing; ${remedy}${CHECKPOINT_FILE_ERRORS.remedy}`,
    );
  }

  /** The quantized matrix that a tensor is or is a part of, by the tensors of its module; null: it is stored as values. */
  private quantizedMatrix({ name, dimensions }: ExpectedTensor): StoredMatrix | null {
    const module = moduleOf(name) ?? `${name}.`;
    const { schemes = [] } = this.config;
    if (schemes.length === 0) return null;
    const parts = new Map<ModulePart, CheckpointTensor | null>();
    const weight = this.found.get(name) ?? null;
    if (weight !== null && dimensions.length !== weight.shape.length) return null;
    const find = (part: ModulePart): CheckpointTensor | null => {
      const known = parts.get(part);
      if (known !== undefined) return known;
      const wanted = part === 'weight' ? name : `${module}${part}`;
      const tensor = this.found.get(wanted) ?? null;
      parts.set(part, tensor);
      return tensor;
    };
    if (weight?.dtype === 'F8_E4M3') this.refuseForeignScales(name, dimensions);
    const stored = readStoredMatrix(new QuantizedModule(module, matrixOf(dimensions), schemes, find), weight);
    if (stored !== null) for (const tensor of parts.values()) if (tensor !== null) this.used.add(tensor.name);
    return stored;
  }

  /** FP8 in blocks whose scales are missing, or are for blocks of another size. */
  private refuseForeignScales(name: string, dimensions: readonly number[]): void {
    const { schemes = [] } = this.config;
    if (!schemes.every((scheme) => scheme.kind === 'fp8' && scheme.scales === 'block')) return;
    const matrix = matrixOf(dimensions);
    const blocks = [matrix.rows, matrix.columns].map((length) => Math.ceil(length / FP8_BLOCK_COLUMNS));
    const names = [`${name}_scale_inv`, `${name}_scale`, `${moduleOf(name) ?? `${name}.`}scale`];
    const scales = names.find((scaleName) => this.found.has(scaleName));
    this.take(scales ?? `${name}_scale_inv`, blocks);
  }

  private quantizedSource(expected: ExpectedTensor, stored: StoredMatrix, size: MatrixSize): TensorSource {
    const { slice } = expected;
    const chunks = [...stored.planes].map(([plane, tensor]) => chunkOf(tensor, plane));
    const { split, read } = splitsOf(stored, slice, size.rows);
    const shared = stored.scaleBlockRows !== 1;
    if (slice === null && stored.form === null && !shared) return { ...size, split, chunks, view: null };
    const storedSplit = stored.form === null ? read : { form: stored.form, split: readAsBlocks(read) };
    return { ...size, split, chunks, view: viewOf(expected, { storedSplit, scaleBlockRows: stored.scaleBlockRows }) };
  }

  /** Whole numbers, which are read as bits of FP32: of 64 bits the low half, the lower column of two. */
  private integerSource({ name, dimensions }: ExpectedTensor, size: MatrixSize): TensorSource {
    const tensor = this.take(name, dimensions);
    const { rows, columns } = matrixOf(dimensions);
    const words = INTEGER_WORDS[tensor.dtype];
    if (words === undefined) throw foreignDtype(tensor, Object.keys(INTEGER_WORDS));
    const source = { ...size, split: 'none-fp32' as const, chunks: [chunkOf(tensor, 0)] };
    if (words === 1) return { ...source, view: null };
    const low = { ...wholeOf(rows), stepColumns: words };
    const stored = { storedSplit: 'none-fp32' as const, scaleBlockRows: 1 };
    return { ...source, view: { storedRows: rows, storedColumns: words * columns, ...stored, ...low } };
  }

  /** MXFP4 weights: codes of 4 bits in NAME_blocks, and a scale for every 32 of them in NAME_scales. */
  private mxfp4Source(expected: ExpectedTensor, size: MatrixSize): TensorSource {
    const { name, dimensions } = expected;
    const blockCount = (dimensions.at(-1) ?? 0) / MXFP4_BLOCK_COLUMNS;
    if (!Number.isInteger(blockCount)) {
      throw new OdmoeError(
        'MODEL_UNSUPPORTED',
        `${this.directory}: ${name} has ${size.columns} columns as MXFP4, supported are multiples of ${MXFP4_BLOCK_COLUMNS}`,
      );
    }
    const scaleDimensions = [...dimensions.slice(0, -1), blockCount];
    const blocks = this.take(`${name}_blocks`, [...scaleDimensions, MXFP4_BLOCK_COLUMNS / 2]);
    const scales = this.take(`${name}_scales`, scaleDimensions);
    for (const tensor of [blocks, scales]) if (tensor.dtype !== 'U8') throw foreignDtype(tensor, ['U8']);
    const view = viewOf(expected, { storedSplit: 'mxfp4', scaleBlockRows: 1 });
    return { ...size, split: 'mxfp4', chunks: [chunkOf(blocks, 0), chunkOf(scales, 1)], view };
  }
}

/**
 * The split of a tensor that is a quantized matrix or a part of one, and the split in which that matrix is read. A part that cuts apart what
 * shares a scale or the order of columns becomes FP32.
 */
function splitsOf(
  stored: StoredMatrix,
  slice: TensorSlice | null,
  rows: number,
): { split: Split; read: StoredMatrix['split'] } {
  const kept = slice === null ? stored.split : partSplit(stored.split, slice, rows);
  if (kept === null) return { split: 'none-fp32', read: stored.split };
  return { split: kept, read: kept };
}

/** Null: the part cannot keep the split. */
function partSplit(split: StoredMatrix['split'], slice: TensorSlice, rows: number): StoredMatrix['split'] | null {
  if (slice.transposed || slice.stepColumns !== 1 || slice.firstColumn !== 0) return null;
  if (split === 'fp8-tile') return tileSplit(slice, rows);
  return isGroupedFormat(split) && groupedCodes(split).orderBytes > 0 ? null : split;
}

function readAsBlocks(split: StoredMatrix['split']): 'fp8' | BlockFormat {
  assertInvariant(split !== 'mxfp4', () => 'MXFP4 of a safetensors file is in the planes of its split.');
  return split;
}

function sizeOf(place: TensorPlace, shape: ModelShape): MatrixSize {
  if (place.kind === 'dense') return denseDimensions(place, shape);
  const [rows, columns] = expertDimensions(place.part, shape);
  return { rows, columns };
}

function valueSource(
  expected: ExpectedTensor,
  tensor: CheckpointTensor,
  stored: Split,
  size: MatrixSize,
): TensorSource {
  const { slice } = expected;
  const changed = slice !== null && (slice.multiply !== 1 || slice.add !== 0);
  const view = slice === null ? null : viewOf(expected, { storedSplit: stored, scaleBlockRows: 1 });
  return { ...size, split: changed ? 'none-fp32' : stored, chunks: [chunkOf(tensor, 0)], view };
}

function viewOf(expected: ExpectedTensor, stored: Pick<TensorView, 'storedSplit' | 'scaleBlockRows'>): TensorView {
  const { rows, columns } = matrixOf(expected.dimensions);
  return { storedRows: rows, storedColumns: columns, ...stored, ...(expected.slice ?? wholeOf(rows)) };
}

function wholeOf(rows: number): TensorSlice {
  return {
    firstRow: 0,
    blockRows: rows,
    stepRows: rows,
    firstColumn: 0,
    stepColumns: 1,
    transposed: false,
    multiply: 1,
    add: 0,
  };
}

/** Rows and columns of a stored tensor. Its last dimension gives the columns; a vector is one row. */
function matrixOf(dimensions: readonly number[]): MatrixSize {
  const rows = dimensions.slice(0, -1).reduce((product, size) => product * size, 1);
  return { rows, columns: dimensions.at(-1) ?? 1 };
}

function chunkOf({ path, offsetBytes, sizeBytes }: CheckpointTensor, plane: number): ChunkLocation {
  return { plane, path, offsetBytes, storedBytes: sizeBytes, plainBytes: sizeBytes, codec: 'raw', crc32c: null };
}
