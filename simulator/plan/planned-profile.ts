import { basename, join, resolve } from 'node:path';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { loadModelProfile, methodFormat } from '../../engine/emulation/load-model-profile.js';
import type { DeviceProfile, PlannedStorage, ProfiledModel } from '../../engine/emulation/device-profile.js';
import { mixedFormat, shippedFormat } from '../../engine/emulation/model-format.js';
import { WEIGHT_MIXES, weightMix } from '../../engine/emulation/weight-mixes.js';
import { readModelConfig } from '../../packs/checkpoint/model-config.js';
import type { Quantization } from '../../packs/model-config/config-reader.js';
import { listFiles } from '../../packs/checkpoint/weight-files.js';
import { isPackDirectory, openAnyPack } from '../../packs/format/open-pack.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { GGUF_BLOCKS } from '../../shared/model/block-formats.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { clusterTimes, type ClusterTimes } from '../simulate/cluster-set-up.js';

/** A number of equal worker boxes; null: as in the profile. */
export interface WorkerBoxes {
  count: number;
  linkBytesPerS: number | null;
  memoryBytes: number | null;
}

/** The changes of a plan to a profile; null: no change. */
export interface ProfileOverrides {
  /** A checkpoint or a pack: its sizes, and the bytes of its own formats. */
  model: PlannedModel | null;
  /** Name of a model whose sizes are part of odmoe. */
  modelProfile: string | null;
  /** Name of a format (weight-mixes.ts) in place of the one in which the model is shipped. */
  format: string | null;
  networkBytesPerS: number | null;
  roundTripMs: number | null;
}

/** A model on disk, for a plan. */
export type PlannedModel = Pick<ProfiledModel, 'name' | 'shape' | 'tiedEmbeddings'> & {
  /** The method in its config.json; it counts where there is no source. */
  quantization: Quantization;
  /** Null: there is only its config.json. */
  source: ModelSource | null;
};

export function plannedModel(source: ModelSource): PlannedModel {
  const { name, shape, tiedEmbeddings } = source;
  return { name, shape, tiedEmbeddings, quantization: 'none', source };
}

const WEIGHT_FILE = /\.(safetensors|gguf)$/i;

/**
 * The model at this path: a pack, a checkpoint, or a directory with a config.json and no weights, which says the shapes alone.
 * @throws the errors of openModelSource
 */
export async function openPlannedModel(path: string): Promise<PlannedModel> {
  const absolute = resolve(path);
  const hasConfig = !(await isPackDirectory(absolute)) && (await fileExists(join(absolute, 'config.json')));
  if (hasConfig && !(await listFiles(absolute)).some((name) => WEIGHT_FILE.test(name))) {
    const { shape, tiedEmbeddings, quantization } = (await readModelConfig(absolute)).config;
    return { name: basename(absolute), shape, tiedEmbeddings, quantization, source: null };
  }
  return { ...plannedModel(await openModelSource(absolute, openAnyPack)), name: basename(absolute) };
}

/** The profile with another model's sizes and another network. Throws USAGE for an unknown name. */
export function overrideProfile(profile: DeviceProfile, overrides: ProfileOverrides): DeviceProfile {
  const { networkBytesPerS, roundTripMs } = overrides;
  const network = {
    ...profile.network,
    bytesPerS: networkBytesPerS ?? profile.network.bytesPerS,
    roundTripMs: roundTripMs ?? profile.network.roundTripMs,
  };
  return { ...profile, network, model: inFormat(overriddenModel(profile, overrides), overrides.format) };
}

function overriddenModel(
  { model: own }: DeviceProfile,
  { model, modelProfile }: Pick<ProfileOverrides, 'model' | 'modelProfile'>,
): ProfiledModel {
  const { weightBytes } = own;
  if (modelProfile !== null) return loadModelProfile(modelProfile, weightBytes);
  if (model === null) return own;
  const { source, quantization, ...sizes } = model;
  if (source === null) return { ...sizes, weightBytes, ...methodFormat(quantization, sizes, weightBytes) };
  return { ...sizes, weightBytes, quantization: 'none', format: shippedFormat(source, weightBytes) };
}

/** @throws USAGE with the known names */
function inFormat(model: ProfiledModel, format: string | null): ProfiledModel {
  if (format === null) return model;
  const mix = weightMix(format);
  if (mix !== null) return { ...model, format: mixedFormat(mix, model, model.weightBytes) };
  throw new OdmoeError(
    'USAGE',
    `there is no format ${format}; there are ${WEIGHT_MIXES.join(', ')}, the block formats (${Object.keys(GGUF_BLOCKS).join(', ')}, ` +
      'fp8-tile, grouped4-bf16-g32 and others), and EXPERTS+REST of two of these',
  );
}

/** Times of a cluster with these boxes as workers, the first kind first. */
export function boxTimes(profile: DeviceProfile, boxes: readonly WorkerBoxes[], storage: PlannedStorage): ClusterTimes {
  const workers = boxes.flatMap(({ count, ...box }) => {
    const times = nodeTimes(profileOfBox(profile, box), 'worker', storage);
    return Array.from({ length: count }, () => times);
  });
  const times = clusterTimes(profile, storage);
  return { ...times, worker: workers[0] ?? times.worker, workers };
}

function profileOfBox(
  profile: DeviceProfile,
  { linkBytesPerS, memoryBytes }: Omit<WorkerBoxes, 'count'>,
): DeviceProfile {
  const { worker } = profile.devices;
  const changed = {
    ...worker,
    linkBytesPerS: linkBytesPerS ?? worker.linkBytesPerS,
    memoryBytes: memoryBytes ?? worker.memoryBytes,
  };
  return { ...profile, devices: { ...profile.devices, worker: changed } };
}
