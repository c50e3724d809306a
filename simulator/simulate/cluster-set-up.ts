import type { Quality } from '../../shared/settings/quality.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import {
  attendMs,
  behindMs,
  type DeviceProfile,
  type EmulatedDevice,
  operatorMs,
  type PlannedStorage,
} from '../../engine/emulation/device-profile.js';
import type { MessageProfile } from '../../engine/emulation/message-bytes.js';

/** The devices and the network of a simulated cluster, from a profile or with the changes of a plan. */
export interface ClusterTimes extends MessageProfile {
  main: EmulatedDevice;
  /** Null: the cluster has no shadow. */
  shadow: EmulatedDevice | null;
  worker: EmulatedDevice;
  /** One device per worker, if they are not all alike. */
  workers?: readonly EmulatedDevice[];
}

/** The settings of a simulated cluster: the daemons' settings, of one daemon or of all. */
export interface ClusterSetUp extends Pick<NodeSettings, 'align' | 'drafting' | 'prediction' | 'placement'> {
  /** Under a sliced quality workers cache slices. */
  quality: Quality;
  workers: number;
  slots: number;
  /** Bytes of each worker's cache; 0: no cache. */
  cacheBytes: number;
  prefillRows: number;
  miniBatchRows: number;
  /** True if a layer's experts load in prefill while the layer before runs. */
  prefillOverlap: boolean;
}

/**
 * The daemons' defaults on eight workers. The paper's set-up differs: it sends keys and values at the end of an iteration, and loads do not
 * overlap in prefill (bench/paper/set-up.ts).
 */
export const DEFAULT_SET_UP: ClusterSetUp = {
  quality: { kind: 'exact' },
  workers: 8,
  slots: 1,
  cacheBytes: 0,
  prefillRows: SETTINGS.main.prefillRows.default,
  miniBatchRows: SETTINGS.main.miniBatchRows.default,
  prefillOverlap: true,
  align: { tokenPeriod: 1, keyValuePeriod: 1, streamKeyValues: true },
  drafting: { optimistic: false, rows: 1, source: 'shadow', headExperts: 'auto' },
  prediction: { source: 'sep', layersAhead: 1 },
  placement: { groupSize: 'auto', spread: 'group', homes: 'group', replicas: 1 },
};

/** Times of a profile's nodes, with experts stored in the given format. */
export function clusterTimes(profile: DeviceProfile, expertStorage: PlannedStorage): ClusterTimes {
  return {
    main: nodeTimes(profile, 'main', expertStorage),
    shadow: profile.devices.shadow === null ? null : nodeTimes(profile, 'shadow', expertStorage),
    worker: nodeTimes(profile, 'worker', expertStorage),
    network: profile.network,
    model: profile.model,
  };
}

/**
 * Time of a token on one of the profile's devices that hold the whole model: on `cached` the fully cached row of OD-MoE table 2. Null: the profile has no
 * such device.
 */
export function wholeTokenMs(profile: DeviceProfile, role: 'cached' | 'shadow'): number | null {
  if (profile.devices[role] === null) return null;
  const times = nodeTimes(profile, role, 'fp32');
  const { expertLayers, expertsPerToken } = profile.model.shape;
  const experts = expertLayers * expertsPerToken * operatorMs(times.expert, 1);
  return denseMs(times, expertLayers, Int32Array.of(0)) + experts + operatorMs(times.lmHead, 1);
}

/** Time of all layers of main for rows at these positions, without experts and LM head. */
export function denseMs(times: EmulatedDevice, expertLayers: number, positions: Int32Array): number {
  let totalMs = behindMs(times, positions);
  for (let layer = 0; layer < expertLayers; layer += 1) totalMs += attendMs(times, layer, positions);
  return totalMs;
}

/** Ids of the workers, in the order of the placement. */
export function workerIds(workers: number): string[] {
  const width = String(workers).length;
  return Array.from({ length: workers }, (_, index) => `worker-${String(index + 1).padStart(width, '0')}`);
}

export const MAIN_ID = 'main';
export const SHADOW_ID = 'shadow';
