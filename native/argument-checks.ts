/** Checks of the addon's arguments that the compiler cannot make. A caller that breaks one has a defect: INTERNAL. */
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { DENSE_ROLES, type DenseRole } from '../shared/model/dense-roles.js';
import { PARTS } from '../shared/model/expert-parts.js';
import { gluSchema } from '../shared/model/model-shape.js';
import {
  CHUNK_CODECS,
  SPLITS,
  WEIGHT_FORMATS,
  type ChunkCodec,
  type ChunkLocation,
  type ExpertSource,
  type Split,
  type TensorSource,
  type TensorView,
  type WeightFormat,
} from '../shared/model/tensor-source.js';
import type { ExpertOrder, ExpertShape, LoaderOptions, LoadRequest, PartPlan, WantedStorageWay } from './addon.d.ts';
import { checkGlu, LARGEST_ROW } from './model-shape-checks.js';

const LARGEST_INT32 = 2 ** 31 - 1;
const MAX_FLOAT32 = 3.4028234663852886e38;

function refuse(name: string, value: unknown, wanted: string): never {
  throw new OdmoeError('INTERNAL', `native call: ${name} is ${String(value)}, but must be ${wanted}`);
}

export function checkInteger(name: string, value: number, lowest: number, highest = LARGEST_INT32): void {
  if (!Number.isInteger(value) || value < lowest || value > highest) {
    refuse(name, value, `an integer from ${lowest} to ${highest}`);
  }
}

export function checkNumber(name: string, value: number, lowest: number, highest: number): void {
  if (!(value >= lowest && value <= highest)) refuse(name, value, `a number from ${lowest} to ${highest}`);
}

function checkOneOf(name: string, value: string, allowed: readonly string[]): void {
  if (!allowed.includes(value)) refuse(name, value, `one of ${allowed.join(', ')}`);
}

export function checkFormat(format: WeightFormat): void {
  checkOneOf('format', format, WEIGHT_FORMATS);
}

export function checkSplit(split: Split): void {
  checkOneOf('split', split, SPLITS);
}

export function checkCodec(codec: ChunkCodec): void {
  checkOneOf('codec', codec, CHUNK_CODECS);
}

export function checkRole(role: DenseRole): void {
  checkOneOf('role', role, Object.keys(DENSE_ROLES));
}

/** Node's Buffer is a Uint8Array. */
export function checkBytes(name: string, value: Uint8Array): void {
  if (!(value instanceof Uint8Array)) refuse(name, value, 'a Uint8Array');
}

export function checkFloats(name: string, value: Float32Array): void {
  if (!(value instanceof Float32Array)) refuse(name, value, 'a Float32Array');
}

export function checkInt32s(name: string, value: Int32Array): void {
  if (!(value instanceof Int32Array)) refuse(name, value, 'an Int32Array');
}

function checkChunk(chunk: ChunkLocation): void {
  checkInteger('chunk.plane', chunk.plane, 0);
  if (typeof chunk.path !== 'string') refuse('chunk.path', chunk.path, 'a string');
  checkInteger('chunk.offsetBytes', chunk.offsetBytes, 0, Number.MAX_SAFE_INTEGER);
  checkInteger('chunk.storedBytes', chunk.storedBytes, 0, Number.MAX_SAFE_INTEGER);
  checkInteger('chunk.plainBytes', chunk.plainBytes, 0, Number.MAX_SAFE_INTEGER);
  checkCodec(chunk.codec);
  if (chunk.crc32c !== null) checkInteger('chunk.crc32c', chunk.crc32c, 0, 2 ** 32 - 1);
}

/** A read checks that the view lies within its matrix: that depends on the checkpoint, not on the caller. */
function checkView(view: TensorView): void {
  checkInteger('view.storedRows', view.storedRows, 1);
  checkInteger('view.storedColumns', view.storedColumns, 1);
  checkSplit(view.storedSplit);
  checkInteger('view.scaleBlockRows', view.scaleBlockRows, 1);
  checkInteger('view.firstRow', view.firstRow, 0);
  checkInteger('view.blockRows', view.blockRows, 1);
  checkInteger('view.stepRows', view.stepRows, 0);
  checkInteger('view.firstColumn', view.firstColumn, 0);
  checkInteger('view.stepColumns', view.stepColumns, 1);
  checkNumber('view.multiply', view.multiply, -MAX_FLOAT32, MAX_FLOAT32);
  checkNumber('view.add', view.add, -MAX_FLOAT32, MAX_FLOAT32);
}

export function checkTensorSource(source: TensorSource): void {
  checkInteger('source.rows', source.rows, 1);
  checkInteger('source.columns', source.columns, 1);
  checkSplit(source.split);
  source.chunks.forEach(checkChunk);
  if (source.view !== null) checkView(source.view);
}

export function checkExpertSource(source: ExpertSource): void {
  checkTensorSource(source.gate);
  checkTensorSource(source.up);
  checkTensorSource(source.down);
  if (source.biases !== null) checkFloats('source.biases', source.biases);
}

/** A slot must take any expert of the model, and fixed4 cannot hold all of them. */
export function checkExpertShape(shape: ExpertShape): void {
  checkInteger('shape.hiddenSize', shape.hiddenSize, 1, LARGEST_ROW);
  if (!gluSchema.safeParse(shape.glu).success) refuse('shape.glu', JSON.stringify(shape.glu), 'a GLU of a model');
  checkGlu(shape.glu);
  checkFormat(shape.format);
  if (shape.format === 'fixed4') refuse('shape.format', shape.format, 'a format that holds every expert');
}

const LARGEST_DECOMPRESSION_THREADS = 64;
const LARGEST_ENTRIES = 2 ** 20;
/** Equals kReadDepthLimit in include/odmoe/expert_load.h. */
const MOST_READS_AT_ONCE = 16;

export function checkReads(name: string, depth: number, way: WantedStorageWay): void {
  checkInteger(`${name}.depth`, depth, 1, MOST_READS_AT_ONCE);
  checkOneOf(`${name}.way`, way, ['auto', 'threads', 'io_uring']);
}

export function checkLoaderOptions(options: LoaderOptions): void {
  checkInteger('loader.decompressionThreads', options.decompressionThreads, 0, LARGEST_DECOMPRESSION_THREADS);
  checkInteger('loader.storageBytesPerS', options.storageBytesPerS, 0, Number.MAX_SAFE_INTEGER);
  checkReads('loader', options.readDepth, options.storageWay);
  for (const part of PARTS) {
    checkInteger(`loader.entries.${part}`, options.entries[part], 0, LARGEST_ENTRIES);
    checkInteger(`loader.expertBytes.${part}`, options.expertBytes[part], 0, Number.MAX_SAFE_INTEGER);
    checkInteger(`loader.shardBytes.${part}`, options.shardBytes[part], 0, Number.MAX_SAFE_INTEGER);
  }
  checkInteger('loader.experts', options.experts, 0);
}

export function checkOrder(order: ExpertOrder | null): void {
  if (order === null) return;
  if (!Array.isArray(order) || order.length !== 3) refuse('order', order, 'null or three places');
  for (const { block, position } of order) {
    checkInteger('order.block', block, 0);
    checkInteger('order.position', position, 0);
  }
}

function checkPartPlan(name: string, plan: PartPlan): void {
  checkOneOf(`${name}.from`, plan.from, ['storage', 'entry']);
  checkInteger(`${name}.entry`, plan.entry, plan.from === 'entry' ? 0 : -1);
}

export function checkLoadRequest(request: LoadRequest): void {
  for (const part of PARTS) checkPartPlan(`parts.${part}`, request.parts[part]);
  if (request.held !== undefined) checkInteger('held', request.held, 0);
  checkOrder(request.order);
}
