import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isGgufBlock } from '../../shared/model/block-formats.js';
import { type DenseRole, denseDimensions, isVectorRole } from '../../shared/model/dense-roles.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { ChunkLocation, Split, TensorSource, TensorView } from '../../shared/model/tensor-source.js';
import { expertDimensions } from '../model-config/checkpoint-layout.js';
import type { ExpectedTensor, TensorPlace, TensorSlice } from '../model-config/model-family.js';
import type { ModelTensor } from '../checkpoint/checkpoint-tensors.js';
import { corruptGguf } from './gguf-errors.js';
import { GGUF_TYPES, type GgufModel, type GgufTensor, type GgufType } from './gguf-types.js';

interface MatrixSize {
  rows: number;
  columns: number;
}

const F32_BYTES = 4;

/** Splits of the types whose values are plain numbers. */
const PLAIN: Partial<Record<GgufType, Split>> = { F32: 'none-fp32', F16: 'none-fp16', BF16: 'none-bf16' };

/** Finds the tensors of a model among those of a GGUF file, and records which of those it has used. */
export class GgufTensorFinder {
  readonly used = new Set<string>();

  constructor(
    private readonly model: GgufModel,
    private readonly shape: ModelShape,
  ) {}

  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  find(expected: ExpectedTensor): ModelTensor {
    const { name, place } = expected;
    const tensor = this.take(name, expected.dimensions);
    const size = sizeOf(place, this.shape);
    if (place.kind === 'dense') refuseForRole(tensor, place.role);
    return { name, place, source: this.source(expected, tensor, size) };
  }

  /** A row of the biases of a layer's experts. */
  findBias(expected: ExpectedTensor): TensorSource {
    const tensor = this.take(expected.name, expected.dimensions);
    if (PLAIN[tensor.type] === undefined) {
      throw new OdmoeError(
        'MODEL_UNSUPPORTED',
        `${tensor.path}: tensor ${tensor.name} holds biases of type ${tensor.type}, supported are ${Object.keys(PLAIN).join(', ')}`,
      );
    }
    return this.source(expected, tensor, { rows: 1, columns: sizeOf(expected.place, this.shape).rows });
  }

  private take(name: string, dimensions: readonly number[]): GgufTensor {
    const tensor = this.model.tensors.get(name);
    if (tensor === undefined) {
      throw corruptGguf(this.model.path, `tensor ${name} of shape [${dimensions.join(', ')}] is missing`);
    }
    const [found, wanted] = [tensor.dimensions, dimensions].map((sizes) => sizes.filter((size) => size !== 1));
    if (found?.join() !== wanted?.join()) {
      throw corruptGguf(
        tensor.path,
        `tensor ${name} has shape [${tensor.dimensions.join(', ')}], expected [${dimensions.join(', ')}] by the file's keys`,
      );
    }
    this.used.add(name);
    return tensor;
  }

  private source(expected: ExpectedTensor, tensor: GgufTensor, size: MatrixSize): TensorSource {
    const stored = matrixOf(expected.dimensions);
    const slice = expected.slice;
    const changed = slice !== null && (slice.multiply !== 1 || slice.add !== 0);
    const run = slice === null ? { first: 0, count: stored.rows } : rowRun(slice, stored, size);
    const rowBytes = rowBytesOf(tensor.type, stored.columns);
    // Rows that stand together are a tensor of their own, wherever they begin.
    const rows = run ?? { first: 0, count: stored.rows };
    const chunks = [chunkOf(tensor, 0, rows.first * rowBytes, rows.count * rowBytes)];
    const view: TensorView = {
      storedRows: rows.count,
      storedColumns: stored.columns,
      storedSplit: storedSplitOf(tensor.type),
      scaleBlockRows: 1,
      ...(run === null && slice !== null ? slice : { ...WHOLE, blockRows: rows.count, stepRows: rows.count }),
    };
    if (tensor.type === 'MXFP4') return { ...size, split: 'mxfp4', chunks, view };
    if (tensor.type === 'NVFP4') {
      return { ...size, split: 'nvfp4-multiplied', chunks: [...chunks, ...this.factorOf(expected, tensor)], view };
    }
    const split = splitOf(tensor.type);
    // Turned or recomputed values are no blocks any more.
    const converted = changed || (slice?.transposed === true && isGgufBlock(split));
    return { ...size, split: converted ? 'none-fp32' : split, chunks, view: run === null ? view : null };
  }

  /** The factor of an NVFP4 matrix: one for the whole tensor, or one for each expert. llama.cpp's converter leaves it out where it is 1. */
  private factorOf({ place }: ExpectedTensor, tensor: GgufTensor): ChunkLocation[] {
    const name = tensor.name.replace(/weight$/, 'scale');
    const scale = this.model.tensors.get(name);
    if (scale === undefined) return [];
    const count = scale.dimensions.reduce((product, length) => product * length, 1);
    const wanted = place.kind === 'expert' && tensor.dimensions.length > 2 ? this.shape.experts : 1;
    if (scale.type !== 'F32' || (count !== 1 && count !== wanted)) {
      throw corruptGguf(
        tensor.path,
        `tensor ${name} has ${count} scales of type ${scale.type}, expected ${wanted} of F32`,
      );
    }
    this.used.add(name);
    const index = count > 1 && place.kind === 'expert' ? place.expert : 0;
    return [chunkOf(scale, 1, index * F32_BYTES, F32_BYTES)];
  }
}

/** Refuses a type that the tensor's role cannot have. @throws MODEL_UNSUPPORTED */
function refuseForRole({ name, path, type }: GgufTensor, role: DenseRole): void {
  if (isVectorRole(role) && PLAIN[type] === undefined) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: tensor ${name} is a vector of type ${type}, supported are ${Object.keys(PLAIN).join(', ')}; get the model as safetensors`,
    );
  }
  // Devices hold rows of MXFP4 interleaved (is_embedding_format in formats.h), and an embedding is looked up row by row.
  if (role === 'embedding' && type === 'MXFP4') {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: tensor ${name} is an embedding of type ${type}, and rows of this type cannot be looked up; ` +
        'get a file whose embedding is of another type, such as Q8_0',
    );
  }
}

/** A whole matrix; blockRows and stepRows are its rows. */
const WHOLE = { firstRow: 0, firstColumn: 0, stepColumns: 1, transposed: false, multiply: 1, add: 0 } as const;

/** The rows that a slice takes, if they stand together and are taken as they are; null: they do not. */
function rowRun(slice: TensorSlice, stored: MatrixSize, size: MatrixSize): { first: number; count: number } | null {
  const whole = slice.firstColumn === 0 && slice.stepColumns === 1 && size.columns === stored.columns;
  const plain = !slice.transposed && slice.multiply === 1 && slice.add === 0;
  return whole && plain && slice.blockRows === size.rows ? { first: slice.firstRow, count: size.rows } : null;
}

function sizeOf(place: TensorPlace, shape: ModelShape): MatrixSize {
  if (place.kind === 'dense') return denseDimensions(place, shape);
  const [rows, columns] = expertDimensions(place.part, shape);
  return { rows, columns };
}

/** Rows and columns of a stored tensor. Its last dimension gives the columns; a vector is one row. */
function matrixOf(dimensions: readonly number[]): MatrixSize {
  const rows = dimensions.slice(0, -1).reduce((product, length) => product * length, 1);
  return { rows, columns: dimensions.at(-1) ?? 1 };
}

function rowBytesOf(type: GgufType, columns: number): number {
  const block = GGUF_TYPES[type];
  return Math.ceil(columns / block.columns) * block.bytes;
}

/** The split of a type whose rows a pack holds as they are. */
function splitOf(type: Exclude<GgufType, 'MXFP4' | 'NVFP4'>): Split {
  const name = type.toLowerCase();
  if (isGgufBlock(name)) return name;
  return requirePresent(PLAIN[type], () => `${type} is a type of blocks or of numbers.`);
}

/** The split in which a tensor of this type is stored. MXFP4 and NVFP4 have their codes and scales in other places than a pack. */
function storedSplitOf(type: GgufType): TensorView['storedSplit'] {
  if (type === 'MXFP4') return 'gguf-mxfp4';
  return type === 'NVFP4' ? 'gguf-nvfp4' : splitOf(type);
}

function chunkOf(
  { path, offsetBytes }: GgufTensor,
  plane: number,
  skippedBytes: number,
  sizeBytes: number,
): ChunkLocation {
  return {
    plane,
    path,
    offsetBytes: offsetBytes + skippedBytes,
    storedBytes: sizeBytes,
    plainBytes: sizeBytes,
    codec: 'raw',
    crc32c: null,
  };
}
