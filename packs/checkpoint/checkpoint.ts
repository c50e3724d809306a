import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelConfig, ModelFamily } from '../model-config/model-family.js';
import { fileExists, readFailure, openFile } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, type SafetensorsFile, readInto } from './safetensors-file.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { shippedFormatOf } from '../../shared/model/weight-dtype.js';
import type { CheckpointTensor } from '../model-config/checkpoint-tensor.js';
import { type CheckpointFiles, readCheckpointFiles } from './checkpoint-files.js';
import { type ModelTensor, TensorFinder } from './checkpoint-tensors.js';
import { refuseInfiniteDecays } from './decay-logs.js';
import { type CheckpointDraftHead, findDraftHead } from './draft-head.js';
import { expectedTensors } from './expected-tensors.js';
import { readCheckpointBiases } from './expert-biases.js';
import { readModelConfig, type ReadOptions } from './model-config.js';
import { hasWeight, isIdlePart } from './quantized/module-tensors.js';
import { chooseLayout, refuseForeignForms, type CheckpointTensors } from './stored-forms.js';
import { SourceTable } from './source-table.js';
import { refuseForeignWeights } from './weight-files.js';
import { refuseOtherExperts } from './token-expert-tables.js';

/** A Hugging Face checkpoint, opened and checked. No weights have been read except the biases of experts. */
export interface Checkpoint extends ModelSource {
  readonly kind: 'checkpoint';
  readonly family: string;
  readonly files: readonly SafetensorsFile[];
  /** Tensors in the order of a forward pass: dense tensors, then experts by layer. */
  readonly tensors: readonly ModelTensor[];
  /** Names of tensors that are present and not needed for text, sorted. */
  readonly leftOut: readonly string[];
  /** An LM head that is stored beside tied embeddings, which it equals; null: there is none. */
  readonly tiedHead: CheckpointTensor | null;
  readonly madeFiles: ReadonlyMap<string, Uint8Array> | null;
  readonly draftHead?: CheckpointDraftHead | null;
  /** The reason why a head that drafts is not read; null or absent: there is none, or it is read. */
  readonly draftHeadProblem?: string | null;
  /** Biases of an expert layer. */
  expertBiases(layer: number): StoredBiases;
}

/** Places of the biases of an expert layer's experts; no paths: there are no biases. */
export interface StoredBiases {
  paths: ReadonlySet<string>;
  storedBytes: number;
}

const NO_BIASES: StoredBiases = { paths: new Set(), storedBytes: 0 };

export interface OpenOptions extends ReadOptions {
  /** Recorded headers of deleted weight files, by name. Their tensors are not read. */
  gone: ReadonlyMap<string, SafetensorsFile>;
}

/**
 * Opens a Hugging Face checkpoint: reads config.json and the headers of its safetensors files, and checks every tensor against the shape.
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
  refuseForeignForms(found.tensors, absolute, read.quantization);
  const config = chooseLayout(read, found.tensors, absolute);
  const guessing = guessingTensors(config, found.tensors);
  const finder = new TensorFinder(found.tensors, config, absolute);
  const { tensors, tables } = findTensors(config, finder, found);
  const isGone = (path: string): boolean => gone.has(basename(path));
  for (const one of tables) if (!isGone(one.path)) await refuseOtherExperts(one, config.shape.experts);
  await refuseInfiniteDecays(tensors, isGone);
  const table = new SourceTable(config.shape, config.tiedEmbeddings, absolute);
  for (const { place, source } of tensors) table.add(place, source);
  const storedBiases = new Map<number, StoredBiases>();
  for await (const bias of readCheckpointBiases(config, finder, isGone)) {
    const { paths, storedBytes } = storedBiases.get(bias.layer) ?? NO_BIASES;
    storedBiases.set(bias.layer, {
      paths: new Set([...paths, ...bias.paths]),
      storedBytes: storedBytes + bias.storedBytes,
    });
    if (bias.biases !== null) table.addBiases(bias.layer, bias.expert, bias.biases);
  }
  const names = new Map(
    tensors.flatMap(({ name, place }) => (place.kind === 'dense' ? [[`${place.role} ${place.layer}`, name]] : [])),
  );
  const leftOut = checkUnused(family, config, found, new Set([...finder.used, ...guessing]))
    .concat([...guessing])
    .sort();
  const tied = tiedTensors(config, found);
  if (tied !== null) await checkTiedHead(tied, gone);
  const model = {
    kind: 'checkpoint' as const,
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
    tiedHead: tied?.head ?? null,
    madeFiles: null,
    expertBiases: (layer: number) => storedBiases.get(layer) ?? NO_BIASES,
    dense: (role: DenseRole, layer: number) => table.dense(role, layer),
    denseName: (role: DenseRole, layer: number) => names.get(`${role} ${layer}`) ?? null,
    expert: (layer: number, expert: number) => table.expert(layer, expert),
  };
  const { head, problem } = findDraftHead(config.draftHead, found.tensors, model);
  return { ...model, draftHead: head, draftHeadProblem: problem };
}

/** All tensors that the model needs. `tables`: those of experts by token, as they are stored. */
function findTensors(
  config: ModelConfig,
  finder: TensorFinder,
  found: CheckpointFiles,
): { tensors: ModelTensor[]; tables: CheckpointTensor[] } {
  const tensors: ModelTensor[] = [];
  const tables: CheckpointTensor[] = [];
  // One at a time: a wrong config may require more tensors than memory could list.
  for (const expected of expectedTensors(config)) {
    tensors.push(finder.find(expected));
    const table = expected.encoding === 'integers' ? found.tensors.get(expected.name) : undefined;
    if (table !== undefined) tables.push(table);
  }
  return { tensors, tables };
}

/** The directory's name; for a snapshot in Hugging Face's download cache, the name of the repository. */
export function checkpointName(absolute: string): string {
  const snapshots = dirname(absolute);
  const repository = basename(dirname(snapshots));
  if (basename(snapshots) === 'snapshots' && repository.startsWith('models--')) {
    return repository.slice('models--'.length).replaceAll('--', '/');
  }
  return basename(absolute) || 'model';
}

interface TiedTensors {
  head: CheckpointTensor;
  embedding: CheckpointTensor;
}

/** Null unless embeddings are tied and an LM head is stored all the same. */
function tiedTensors({ tiedEmbeddings, layout }: ModelConfig, { tensors }: CheckpointFiles): TiedTensors | null {
  const head = tensors.get(layout.dense({ role: 'lmHead', layer: 0 }).name);
  const embedding = tensors.get(layout.dense({ role: 'embedding', layer: 0 }).name);
  return tiedEmbeddings && head !== undefined && embedding !== undefined ? { head, embedding } : null;
}

/** With tied embeddings, an LM head must equal the embeddings. A deleted file was compared when it still existed. */
async function checkTiedHead(
  { head, embedding }: TiedTensors,
  gone: ReadonlyMap<string, SafetensorsFile>,
): Promise<void> {
  if (![head, embedding].some(({ path }) => gone.has(basename(path)))) await refuseOtherHead(head, embedding);
}

/** Names of the tensors that are left out; a tensor that is neither needed nor known is an error. */
function checkUnused(
  family: ModelFamily,
  config: ModelConfig,
  found: CheckpointFiles,
  used: ReadonlySet<string>,
): string[] {
  const unused = [...found.tensors].filter(([name]) => !used.has(name));
  for (const [name, tensor] of unused) {
    if (config.layout.isLeftOut(name) || (config.quantization !== 'none' && isIdlePart(name))) continue;
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${tensor.path}: tensor ${JSON.stringify(name)} of shape [${tensor.shape.join(', ')}] has no place in a ${family.name} ` +
        'model of the shape that config.json gives; check that config.json belongs to these weights',
    );
  }
  return unused.map(([name]) => name).sort();
}

/**
 * The tensors of layers that only guess tokens ahead; these are left out. Config.json must give the number of such layers, and each must have
 * the tensors of such a layer: an ordinary layer behind the last one shows that num_hidden_layers is wrong.
 * @throws MODEL_UNSUPPORTED
 */
function guessingTensors(config: ModelConfig, found: CheckpointTensors): ReadonlySet<string> {
  const { layout, otherLayouts, shape } = config;
  const { guessing } = layout;
  // The experts of these layers may be stored in another form than those of the model.
  const forms = [layout, ...otherLayouts].map((form) => form.guessing);
  const layers = shape.layers.length;
  const checked = new Set<number>();
  const leftOut = new Set<string>();
  for (const [name, { path }] of found) {
    const layer = guessing.layerBehindLast(name);
    if (layer === null) continue;
    const refuse = (problem: string): OdmoeError =>
      new OdmoeError(
        'MODEL_UNSUPPORTED',
        `${path}: tensor ${name} is of layer ${layer}, and config.json says num_hidden_layers ${layers}, whose last layer is ` +
          `${layers - 1}: ${problem}; check that config.json belongs to these weights`,
      );
    if (layer >= layers + guessing.count) {
      throw refuse(`num_nextn_predict_layers says ${guessing.count} layers behind it that guess ahead`);
    }
    if (!checked.has(layer)) {
      const missing = guessing.marks(layer).filter((mark) => !hasWeight(found, mark));
      if (missing.length > 0) throw refuse(`a layer that guesses ahead would have ${missing.join(' and ')}`);
      checked.add(layer);
    }
    if (!forms.some((form) => form.isPart(name)))
      throw refuse('by what config.json says of layers, one that guesses ahead has no such tensor');
    leftOut.add(name);
  }
  return leftOut;
}

const READ_BYTES = 4 * 1024 * 1024;

/**
 * Refuses an LM head that differs from tied embeddings, because one of the two would be ignored. Stops at the first bytes that differ.
 * @throws MODEL_CORRUPT, STORAGE_FAILED
 */
async function refuseOtherHead(head: CheckpointTensor, embedding: CheckpointTensor): Promise<void> {
  const alike = head.dtype === embedding.dtype && head.shape.join() === embedding.shape.join();
  if (alike && (await haveEqualBytes(head, embedding))) return;
  throw new OdmoeError(
    'MODEL_CORRUPT',
    `${head.path}: config.json says tie_word_embeddings true, so that ${embedding.name} is the head too, and ${head.name} has other ` +
      'values; set tie_word_embeddings to false if the model has a head of its own, else take the tensor out',
  );
}

async function haveEqualBytes(one: CheckpointTensor, other: CheckpointTensor): Promise<boolean> {
  const buffers = [one, other].map(() => Buffer.allocUnsafe(Math.min(READ_BYTES, one.sizeBytes)));
  const [ofOne = Buffer.alloc(0), ofOther = Buffer.alloc(0)] = buffers;
  for (let at = 0; at < one.sizeBytes; at += READ_BYTES) {
    const bytes = Math.min(READ_BYTES, one.sizeBytes - at);
    await readAt(one, at, ofOne.subarray(0, bytes));
    await readAt(other, at, ofOther.subarray(0, bytes));
    if (!ofOne.subarray(0, bytes).equals(ofOther.subarray(0, bytes))) return false;
  }
  return true;
}

async function readAt({ path, offsetBytes }: CheckpointTensor, at: number, bytes: Uint8Array): Promise<void> {
  try {
    const file = await openFile(path);
    try {
      await readInto(file, path, offsetBytes + at, bytes);
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}
