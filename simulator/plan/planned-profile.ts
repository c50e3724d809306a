import { basename, resolve } from 'node:path';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { loadModelProfile } from '../../engine/emulation/load-model-profile.js';
import type { DeviceProfile, PlannedStorage } from '../../engine/emulation/device-profile.js';
import { readModelConfig } from '../../packs/checkpoint/model-config.js';
import { clusterTimes, type ClusterTimes } from '../simulate/cluster-set-up.js';

/** A number of equal worker boxes; null: as in the profile. */
export interface WorkerBoxes {
  count: number;
  linkBytesPerS: number | null;
  memoryBytes: number | null;
}

/** The changes of a plan to a profile; null: no change. */
export interface ProfileOverrides {
  modelDirectory: string | null;
  /** Name of a model whose sizes are part of odmoe. */
  modelProfile: string | null;
  networkBytesPerS: number | null;
  roundTripMs: number | null;
}

/** The profile with another model's sizes and another network. Throws the errors of reading config.json, and USAGE for an unknown name. */
export async function overrideProfile(profile: DeviceProfile, overrides: ProfileOverrides): Promise<DeviceProfile> {
  const { modelDirectory, modelProfile, networkBytesPerS, roundTripMs } = overrides;
  const network = {
    ...profile.network,
    bytesPerS: networkBytesPerS ?? profile.network.bytesPerS,
    roundTripMs: roundTripMs ?? profile.network.roundTripMs,
  };
  const { weightBytes } = profile.model;
  if (modelProfile !== null) return { ...profile, network, model: { ...loadModelProfile(modelProfile), weightBytes } };
  if (modelDirectory === null) return { ...profile, network };
  const { shape, tiedEmbeddings, quantization } = (await readModelConfig(modelDirectory)).config;
  const model = { name: basename(resolve(modelDirectory)), shape, tiedEmbeddings, quantization, weightBytes };
  return { ...profile, network, model };
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
