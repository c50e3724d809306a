import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelConfig, ModelFamily } from '../model-config/model-family.js';
import { fileExists, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, type SafetensorsFile } from './safetensors-file.js';
import { SourceTable } from './source-table.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { shippedFormatOf } from '../../shared/model/weight-dtype.js';
import { type CheckpointFiles, readCheckpointFiles } from './checkpoint-files.js';
import { type ModelTensor, TensorFinder } from './checkpoint-tensors.js';
import { expectedTensors } from './expected-tensors.js';
import { readExpertBiases } from './expert-biases.js';
import { guessingTensors } from './guessing-layers.js';
import { readModelConfig, type ReadOptions } from './model-config.js';
import { chooseLayout, refuseForeignForms } from './stored-forms.js';
import { refuseOtherHead } from './tied-head.js';
import { refuseForeignWeights } from './weight-files.js';

/** A Hugging Face checkpoint, opened and checked; no weight has been read but biases of experts. */
export interface Checkpoint extends ModelSource {
  readonly kind: 'checkpoint';
  readonly family: string;
  readonly files: readonly SafetensorsFile[];
  /** In the order of a forward pass: dense tensors, then experts by layer. */
  readonly tensors: readonly ModelTensor[];
  /** Names of tensors that are there and not needed for text, sorted. */
  readonly leftOut: readonly string[];
  /** Of an expert layer. */
  expertBiases(layer: number): StoredBiases;
}

/** Where the biases of an expert layer's experts lie; in no file: they have none. */
export interface StoredBiases {
  paths: ReadonlySet<string>;
  storedBytes: number;
}

const NO_BIASES: StoredBiases = { paths: new Set(), storedBytes: 0 };

export interface OpenOptions extends ReadOptions {
  /** What is known of weight files, by name, that are not there any more: what lies in them is not asked for. */
  gone: ReadonlyMap<string, SafetensorsFile>;
}

/**
 * Opens a Hugging Face checkpoint: config.json and the headers of its safetensors files, every tensor checked against the shape.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function openCheckpoint(directory: string, options?: Partial<OpenOptions>): Promise<Checkpoint> {
  const { longContext = false, gone = new Map<string, SafetensorsFile>() } = options ?? {};
  const absolute = await realpath(directory).catch((thrown: unknown) => {
    throw readFailure(thrown, directory, { ...CHECKPOINT_FILE_ERRORS, remedy: 'give the directory of a model' });
  });
  if (!(await fileExists(join(absolute, 'config.json')))) await refuseForeignWeights(absolute);
  const { family, config: read } = await readModelConfig(absolute, { longContext });
  const found = await readCheckpointFiles(absolute, gone);
  refuseForeignForms(found.tensors, absolute);
  const config = chooseLayout(read, found.tensors, absolute);
  const guessing = guessingTensors(config, found.tensors);
  const finder = new TensorFinder(found.tensors, config, absolute);
  // One by one: a config that lies may ask for more tensors than memory could list.
  const tensors: ModelTensor[] = [];
  for (const expected of expectedTensors(config)) tensors.push(finder.find(expected));
  const table = new SourceTable(config.shape, config.tiedEmbeddings, absolute);
  for (const { place, source } of tensors) table.add(place, source);
  const storedBiases = new Map<number, StoredBiases>();
  for await (const bias of readExpertBiases(config, finder, (path) => gone.has(basename(path)))) {
    const { paths, storedBytes } = storedBiases.get(bias.layer) ?? NO_BIASES;
    storedBiases.set(bias.layer, {
      paths: new Set([...paths, ...bias.paths]),
      storedBytes: storedBytes + bias.storedBytes,
    });
    if (bias.biases !== null) table.addBiases(bias.layer, bias.expert, bias.biases);
  }
  const leftOut = checkUnused(family, config, found, new Set([...finder.used, ...guessing]))
    .concat([...guessing])
    .sort();
  await checkTiedHead(config, found, gone);
  return {
    kind: 'checkpoint',
    directory: absolute,
    name: checkpointName(absolute),
    family: family.name,
    shape: config.shape,
    shippedFormat: shippedFormatOf(tensors.flatMap(({ place, source }) => (place.kind === 'expert' ? [source] : []))),
    eosTokenIds: config.eosTokenIds,
    packDigest: null,
    tiedEmbeddings: config.tiedEmbeddings,
    files: found.files,
    tensors,
    leftOut,
    expertBiases: (layer) => storedBiases.get(layer) ?? NO_BIASES,
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

/** A head beside tied embeddings must be the embeddings. What is gone was there when it was compared. */
async function checkTiedHead(
  { tiedEmbeddings, layout }: ModelConfig,
  { tensors }: CheckpointFiles,
  gone: ReadonlyMap<string, SafetensorsFile>,
): Promise<void> {
  const head = tensors.get(layout.dense({ role: 'lmHead', layer: 0 }).name);
  const embedding = tensors.get(layout.dense({ role: 'embedding', layer: 0 }).name);
  if (!tiedEmbeddings || head === undefined || embedding === undefined) return;
  if (![head, embedding].some(({ path }) => gone.has(basename(path)))) await refuseOtherHead(head, embedding);
}

/** Names of the tensors that are left out; one that is neither needed nor known is an error. */
function checkUnused(
  family: ModelFamily,
  config: ModelConfig,
  found: CheckpointFiles,
  used: ReadonlySet<string>,
): string[] {
  const unused = [...found.tensors].filter(([name]) => !used.has(name));
  for (const [name, tensor] of unused) {
    if (config.layout.isLeftOut(name)) continue;
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${tensor.path}: tensor ${JSON.stringify(name)} of shape [${tensor.shape.join(', ')}] has no place in a ${family.name} ` +
        'model of the shape that config.json gives; check that config.json belongs to these weights',
    );
  }
  return unused.map(([name]) => name).sort();
}
