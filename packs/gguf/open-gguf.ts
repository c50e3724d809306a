import { basename, dirname, resolve } from 'node:path';
import { realpath } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { readFailure } from '../../shared/base/files/read-file.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import { shippedFormatOf } from '../../shared/model/weight-dtype.js';
import type { Checkpoint, StoredBiases } from '../checkpoint/checkpoint.js';
import type { ModelTensor } from '../checkpoint/checkpoint-tensors.js';
import { findHeadAmong } from '../checkpoint/draft-head.js';
import { expectedTensors } from '../checkpoint/expected-tensors.js';
import { readCheckpointBiases } from '../checkpoint/expert-biases.js';
import { parseModelConfig } from '../checkpoint/model-config.js';
import type { SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { SourceTable } from '../checkpoint/source-table.js';
import type { ModelConfig } from '../model-config/model-family.js';
import { ggufConfig } from './gguf-config.js';
import { asStored, type GgufConfig } from './gguf-config-parts.js';
import { GGUF_FILE_ERRORS } from './gguf-errors.js';
import { readGgufModel } from './gguf-file.js';
import { ggufHeadLayout, ggufLayout } from './gguf-layout.js';
import { GgufTensorFinder } from './gguf-layout-sources.js';
import { readPartName } from './gguf-parts.js';
import { ggufEndTokens } from './gguf-tokenizer-ends.js';
import { ggufTokenizerFiles } from './gguf-tokenizer.js';
import type { GgufModel, GgufPart } from './gguf-types.js';

/** A GGUF file's model, before its tensors are looked for. */
export interface GgufContents {
  family: string;
  config: ModelConfig;
  /** The config.json. */
  configFile: GgufConfig['config'];
}

/** Reads the shape and the places of the tensors. @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
export function readGgufContents(model: GgufModel, longContext = false): GgufContents {
  const made = ggufConfig(model);
  // The family must not change what the pack will hold.
  const parsed = { ...structuredClone(made.config), ...countedHeads(made) };
  const {
    family,
    config: { draftHead, ...config },
  } = parseModelConfig(parsed, model.path, { longContext });
  const shape = asStored(config.shape, made);
  const places = ggufLayout(shape, model.tensors, made.guessingLayers);
  const isLeftOut = (name: string): boolean => made.tensorsRead?.includes(name) === true || places.isLeftOut(name);
  const hasHead = draftHead !== undefined && made.guessingLayers > 0;
  const head = hasHead ? { draftHead: headConfig(draftHead, shape.layers.length, model, made) } : {};
  const eosTokenIds = [...ggufEndTokens(model.keys, model.path)].sort((a, b) => a - b);
  return {
    family: family.name,
    config: { ...config, shape, layout: { ...places, isLeftOut }, otherLayouts: [], eosTokenIds, ...head },
    configFile: made.config,
  };
}

/** The number of heads. The config.json itself counts none: packs that earlier releases made have it so, and stay as they are. */
function countedHeads({ config, guessingLayers }: GgufConfig): GgufConfig['config'] {
  return 'num_nextn_predict_layers' in config ? { num_nextn_predict_layers: guessingLayers } : {};
}

/** The config of the first layer behind the last one as a head that drafts. */
function headConfig(head: ModelConfig, layer: number, model: GgufModel, made: GgufConfig): ModelConfig {
  const shape = asStored(head.shape, made);
  return { ...head, shape, layout: ggufHeadLayout(shape, model.tensors, layer), otherLayouts: [] };
}

/**
 * Opens a GGUF file, or all parts of a split one, as the checkpoint that it was made from: the header gives the config.json and the tokenizer's
 * files. No weights are read except the biases of experts and the factors of the rope.
 * @param path of the file, or of any part
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function openGguf(path: string, { longContext = false } = {}): Promise<Checkpoint> {
  return openGgufModel(await readGgufModel(await namedPath(path)), { longContext, readsBiases: true });
}

/**
 * Opens a model by its headers. Where its files are not here yet, the biases of experts cannot be read (`readsBiases` false), and are left out.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function openGgufModel(
  model: GgufModel,
  { longContext, readsBiases }: { longContext: boolean; readsBiases: boolean },
): Promise<Checkpoint> {
  const { family, config, configFile } = readGgufContents(model, longContext);
  const { shape, tiedEmbeddings, eosTokenIds } = config;
  const finder = new GgufTensorFinder(model, shape);
  // One at a time: wrong keys may require more tensors than memory could list.
  const tensors: ModelTensor[] = [];
  for (const expected of expectedTensors(config)) tensors.push(finder.find(expected));
  const table = new SourceTable(shape, tiedEmbeddings, model.path);
  for (const { place, source } of tensors) table.add(place, source);
  const storedBiases = await readBiases(config, finder, table, readsBiases);
  const opened = {
    kind: 'checkpoint' as const,
    directory: dirname(model.path),
    name: ggufName(model),
    family,
    shape,
    shippedFormat: shippedFormatOf(tensors.flatMap(({ place, source }) => (place.kind === 'expert' ? [source] : []))),
    eosTokenIds,
    packDigest: null,
    tiedEmbeddings,
    files: weightFiles(model),
    tensors,
    leftOut: unusedTensors(model, config, finder.used, family),
    tiedHead: null,
    madeFiles: madeFiles(model, configFile, eosTokenIds),
    expertBiases: (layer: number) => storedBiases.get(layer) ?? { paths: new Set<string>(), storedBytes: 0 },
    dense: (role: DenseRole, layer: number) => table.dense(role, layer),
    expert: (layer: number, expert: number) => table.expert(layer, expert),
  };
  const { head, problem } = findHeadAmong(
    config.draftHead,
    (name) => model.tensors.has(name),
    (own) => {
      const ofHead = new GgufTensorFinder(model, own.shape);
      return { config: own, used: ofHead.used, find: (expected) => ofHead.find(expected) };
    },
    opened,
  );
  return { ...opened, draftHead: head, draftHeadProblem: problem };
}

/**
 * The absolute path whose name says which part the file is, and how the model is called. Caches of downloads hold links with such names to files
 * that are named by a hash; a user's own link may have any name.
 */
async function namedPath(path: string): Promise<string> {
  const target = await realpath(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, GGUF_FILE_ERRORS);
  });
  const given = resolve(path);
  return readPartName(given) === null && readPartName(target) !== null ? target : given;
}

async function readBiases(
  config: ModelConfig,
  finder: GgufTensorFinder,
  table: SourceTable,
  areHere: boolean,
): Promise<ReadonlyMap<number, StoredBiases>> {
  const stored = new Map<number, { paths: Set<string>; storedBytes: number }>();
  for await (const { layer, expert, biases, paths, storedBytes } of readCheckpointBiases(
    config,
    finder,
    () => !areHere,
  )) {
    const ofLayer = stored.get(layer) ?? { paths: new Set<string>(), storedBytes: 0 };
    stored.set(layer, ofLayer);
    for (const path of paths) ofLayer.paths.add(path);
    ofLayer.storedBytes += storedBytes;
    if (biases !== null) table.addBiases(layer, expert, biases);
  }
  return stored;
}

/** Names of the tensors that are left out, sorted. @throws MODEL_UNSUPPORTED for a tensor that is neither needed nor known */
function unusedTensors(
  model: GgufModel,
  { layout }: ModelConfig,
  used: ReadonlySet<string>,
  family: string,
): readonly string[] {
  const unused = [...model.tensors.values()].filter(({ name }) => !used.has(name));
  const unknown = unused.find(({ name }) => !layout.isLeftOut(name));
  if (unknown === undefined) return unused.map(({ name }) => name).sort();
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${unknown.path}: tensor ${JSON.stringify(unknown.name)} of shape [${unknown.dimensions.join(', ')}] has no place in a ${family} model of ` +
      'the shape that the keys give; get the model as safetensors',
  );
}

/** The parts with their tensors, as those of a checkpoint's weight files. */
function weightFiles(model: GgufModel): SafetensorsFile[] {
  const all = [...model.tensors.values()];
  return model.parts.map((part: GgufPart) => ({
    ...part,
    tensors: new Map(
      all
        .filter(({ path }) => path === part.path)
        .map(({ name, type, dimensions, offsetBytes, sizeBytes }) => [
          name,
          { name, dtype: type, shape: dimensions, offsetBytes, sizeBytes },
        ]),
    ),
  }));
}

/** The name that the file gives itself, or that of the file without its ending. */
function ggufName({ keys, path }: GgufModel): string {
  const said = keys.get('general.name');
  if (typeof said === 'string' && said.trim() !== '') return said.trim();
  const file = basename(path, '.gguf');
  return (readPartName(path) === null ? file : file.replace(/-\d{5}-of-\d{5}$/, '')) || 'model';
}

function madeFiles(
  model: GgufModel,
  config: GgufConfig['config'],
  eosTokenIds: readonly number[],
): ReadonlyMap<string, Uint8Array> {
  const files: Readonly<Record<string, unknown>> = {
    'config.json': config,
    'generation_config.json': { eos_token_id: eosTokenIds },
    ...ggufTokenizerFiles(model.keys, model.path),
  };
  return new Map(Object.entries(files).map(([name, value]) => [name, Buffer.from(`${JSON.stringify(value)}\n`)]));
}
