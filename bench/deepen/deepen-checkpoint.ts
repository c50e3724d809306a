import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelTensor } from '../../packs/checkpoint/checkpoint-tensors.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { TensorPlace } from '../../packs/model-config/model-family.js';
import { fileExists, openFile } from '../../shared/base/files/read-file.js';
import { readInto } from '../../packs/checkpoint/safetensors-file.js';
import type { ChunkLocation } from '../../shared/model/tensor-source.js';
import { WEIGHT_DTYPES, plainSplit } from '../../shared/model/weight-dtype.js';
import { COPIED_FILES } from '../../packs/format/pack-layout.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { CheckpointWriter, type TensorContents } from '../checkpoint/checkpoint-writer.js';
import { prepareCheckpointDirectory, type ShardTensor } from '../checkpoint/safetensors-shards.js';

const CONFIG_FILE = 'config.json';

export interface DeepenOptions {
  layers: number;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
}

export interface DeepenOutcome {
  files: string[];
  layers: number;
  weightBytes: number;
}

/** A tensor of the deeper checkpoint: the place of its bytes, or null for zeros. */
interface DeeperTensor extends ShardTensor {
  source: ChunkLocation | null;
}

/**
 * Writes a checkpoint with the same function and more layers. Copies follow each layer; their attention output and expert down projections are
 * zero, so that they add nothing to the hidden state. Tokens and logits stay the same to the bit. It needs a few megabytes of memory.
 * config.json is written last, so that an unfinished directory is no checkpoint.
 * @throws USAGE when it would have fewer layers; the errors of openCheckpoint; STORAGE_FULL, STORAGE_FAILED, CANCELLED
 */
export async function deepenCheckpoint(
  sourceDirectory: string,
  outputDirectory: string,
  options: DeepenOptions,
): Promise<DeepenOutcome> {
  const checkpoint = await openCheckpoint(sourceDirectory);
  const { layers } = options;
  const { length: ownLayers } = checkpoint.shape.layers;
  if (layers < ownLayers) {
    throw new OdmoeError(
      'USAGE',
      `${checkpoint.name} has ${ownLayers} layers and cannot be deepened to ${layers}; ask for more`,
    );
  }
  const configPath = join(checkpoint.directory, CONFIG_FILE);
  const config = {
    ...(JSON.parse(await readFile(configPath, 'utf8')) as Record<string, unknown>),
    num_hidden_layers: layers,
  };
  const tensors = deeperTensors(checkpoint.tensors, config, layerSources(ownLayers, layers), configPath);
  const weightBytes = tensors.reduce((sum, tensor) => sum + tensor.sizeBytes, 0);
  await prepareCheckpointDirectory(outputDirectory, weightBytes);
  const writer = new CheckpointWriter(options, weightBytes, deeperContents);
  try {
    const files = await writer.writeWeights(outputDirectory, tensors);
    for (const name of COPIED_FILES) {
      const from = join(checkpoint.directory, name);
      if (name !== CONFIG_FILE && (await fileExists(from))) await copyFile(from, join(outputDirectory, name));
    }
    await writeFile(join(outputDirectory, CONFIG_FILE), JSON.stringify(config, null, 2));
    return { files, layers, weightBytes };
  } catch (thrown) {
    throw writeFailure(thrown, outputDirectory, weightBytes - writer.doneBytes);
  }
}

/** For each layer of the deeper model: its source layer, and whether it is a copy that adds nothing. Copies are spread evenly. */
export function layerSources(layers: number, deeperLayers: number): { layer: number; copy: boolean }[] {
  return Array.from({ length: layers }, (_, layer) => {
    const copies = Math.floor(((layer + 1) * deeperLayers) / layers) - Math.floor((layer * deeperLayers) / layers);
    return Array.from({ length: copies }, (_copy, index) => ({ layer, copy: index > 0 }));
  }).flat();
}

function deeperTensors(
  tensors: readonly ModelTensor[],
  config: Record<string, unknown>,
  layers: readonly { layer: number; copy: boolean }[],
  configPath: string,
): DeeperTensor[] {
  const byPlace = new Map(tensors.map((tensor) => [placeKey(tensor.place, tensor.place.layer), tensor]));
  const { config: deeper } = parseModelConfig(config, configPath);
  return [...expectedTensors(deeper)].map(({ name, place, dimensions }) => {
    const from = inLayer(place) ? layers[place.layer] : { layer: 0, copy: false };
    const tensor = from === undefined ? undefined : byPlace.get(placeKey(place, from.layer));
    const [chunk] = tensor?.source.chunks ?? [];
    const dtype = WEIGHT_DTYPES.find((known) => plainSplit(known) === tensor?.source.split);
    if (from === undefined || chunk === undefined || dtype === undefined || tensor?.source.view !== null) {
      throw new OdmoeError('USAGE', `${name} cannot be made of a tensor of its own; deepen a checkpoint of Mixtral`);
    }
    const source = from.copy && addsToHidden(place) ? null : chunk;
    return { name, dtype, shape: dimensions, sizeBytes: chunk.storedBytes, source };
  });
}

const WHOLE_MODEL_ROLES: ReadonlySet<string> = new Set(['embedding', 'finalNorm', 'lmHead']);

function inLayer(place: TensorPlace): boolean {
  return place.kind === 'expert' || !WHOLE_MODEL_ROLES.has(place.role);
}

/** True for the last matrices of attention and experts, whose outputs are added to the hidden state. */
function addsToHidden(place: TensorPlace): boolean {
  return place.kind === 'dense' ? place.role === 'mixerOutput' : place.part === 'down';
}

function placeKey(place: TensorPlace, layer: number): string {
  return place.kind === 'dense' ? `${place.role} ${layer}` : `${place.part} ${layer} ${place.expert}`;
}

async function deeperContents({ source }: DeeperTensor): Promise<TensorContents> {
  if (source === null) return { fill: (piece) => void piece.fill(0) };
  const input = await openFile(source.path);
  return {
    fill: (piece, offsetBytes) => readInto(input, source.path, source.offsetBytes + offsetBytes, piece),
    close: () => input.close(),
  };
}
