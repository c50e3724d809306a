import { realpath } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { OdmoeError } from '../errors/odmoe-error.js';
import { readCheckpointFiles, type CheckpointFiles, type CheckpointTensor } from './checkpoint-files.js';
import { readFailure } from './read-file.js';
import { readModelConfig } from './model-config.js';
import type { ExpectedTensor, ModelConfig, ModelFamily, TensorPlace } from './model-family.js';
import { CHECKPOINT_FILE_ERRORS, type SafetensorsFile } from './safetensors-file.js';
import { SourceTable } from './source-table.js';
import type { ModelSource, TensorSource } from './tensor-source.js';
import { isWeightDtype, plainSplit, shippedFormatOf, WEIGHT_DTYPES, type WeightDtype } from './weight-dtype.js';

/** A tensor of a checkpoint that the model needs, checked. */
export interface ModelTensor {
  name: string;
  place: TensorPlace;
  dtype: WeightDtype;
  dimensions: readonly number[];
  path: string;
  offsetBytes: number;
  sizeBytes: number;
}

/** A Hugging Face checkpoint, opened and checked; no weight has been read. */
export interface Checkpoint extends ModelSource {
  readonly kind: 'checkpoint';
  readonly family: string;
  readonly files: readonly SafetensorsFile[];
  /** In the order of a forward pass: dense tensors, then experts by layer. */
  readonly tensors: readonly ModelTensor[];
}

/**
 * Opens a Hugging Face checkpoint: config.json and the headers of its safetensors files, every tensor checked against the shape.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function openCheckpoint(directory: string): Promise<Checkpoint> {
  const absolute = await realpath(directory).catch((thrown: unknown) => {
    throw readFailure(thrown, directory, { ...CHECKPOINT_FILE_ERRORS, remedy: 'give the directory of a model' });
  });
  const { family, config } = await readModelConfig(absolute);
  const found = await readCheckpointFiles(absolute);
  const tensors = selectTensors(family, config, found, absolute);
  const table = new SourceTable(config.shape, config.tiedEmbeddings, absolute);
  for (const tensor of tensors) table.add(tensor.place, plainSource(tensor));
  return {
    kind: 'checkpoint',
    directory: absolute,
    name: checkpointName(absolute),
    family: family.name,
    shape: config.shape,
    shippedFormat: shippedFormatOf(
      tensors.flatMap(({ place, dtype }) => (place.kind === 'expert' ? { split: plainSplit(dtype) } : [])),
    ),
    eosTokenIds: config.eosTokenIds,
    packDigest: null,
    tiedEmbeddings: config.tiedEmbeddings,
    files: found.files,
    tensors,
    dense: (role, layer) => table.dense(role, layer),
    expert: (layer, expert) => table.expert(layer, expert),
  };
}

/** The directory's name; for a snapshot in Hugging Face's download cache, the repository's. */
export function checkpointName(absolute: string): string {
  const snapshots = dirname(absolute);
  const repository = basename(dirname(snapshots));
  if (basename(snapshots) === 'snapshots' && repository.startsWith('models--')) {
    return repository.slice('models--'.length).replaceAll('--', '/');
  }
  return basename(absolute) || 'model';
}

function selectTensors(
  family: ModelFamily,
  config: ModelConfig,
  found: CheckpointFiles,
  directory: string,
): ModelTensor[] {
  const tensors: ModelTensor[] = [];
  const wanted = new Set<string>();
  for (const expected of family.expectedTensors(config)) {
    wanted.add(expected.name);
    const tensor = found.tensors.get(expected.name);
    if (tensor === undefined) {
      throw new OdmoeError(
        'MODEL_CORRUPT',
        `${directory}: tensor ${expected.name} of shape [${expected.dimensions.join(', ')}] is missing; ` +
          CHECKPOINT_FILE_ERRORS.remedy,
      );
    }
    tensors.push(checkTensor(expected, tensor));
  }
  for (const [name, tensor] of found.tensors) {
    if (wanted.has(name) || family.isRedundantTensor(name, config)) continue;
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${tensor.path}: tensor ${JSON.stringify(name)} of shape [${tensor.shape.join(', ')}] has no place in a ${family.name} ` +
        'model of the shape that config.json gives; check that config.json belongs to these weights',
    );
  }
  return tensors;
}

function checkTensor(expected: ExpectedTensor, tensor: CheckpointTensor): ModelTensor {
  const { name, place, dimensions } = expected;
  const found = tensor.shape;
  if (found.length !== dimensions.length || found.some((size, axis) => size !== dimensions[axis])) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${tensor.path}: tensor ${name} has shape [${found.join(', ')}], expected [${dimensions.join(', ')}] by config.json; ` +
        'check that config.json belongs to these weights',
    );
  }
  if (!isWeightDtype(tensor.dtype)) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${tensor.path}: tensor ${name} has dtype ${tensor.dtype}, supported are ${WEIGHT_DTYPES.join(', ')}; ` +
        'use the original checkpoint',
    );
  }
  const { path, offsetBytes, sizeBytes } = tensor;
  return { name, place, dtype: tensor.dtype, dimensions, path, offsetBytes, sizeBytes };
}

function plainSource(tensor: ModelTensor): TensorSource {
  return {
    ...matrixOf(tensor.dimensions),
    split: plainSplit(tensor.dtype),
    chunks: [
      {
        plane: 0,
        path: tensor.path,
        offsetBytes: tensor.offsetBytes,
        storedBytes: tensor.sizeBytes,
        plainBytes: tensor.sizeBytes,
        codec: 'raw',
        crc32c: null,
      },
    ],
  };
}

/** Rows and columns; a vector is one row. */
export function matrixOf(dimensions: readonly number[]): { rows: number; columns: number } {
  const [first = 1, second] = dimensions;
  return second === undefined ? { rows: 1, columns: first } : { rows: first, columns: second };
}
