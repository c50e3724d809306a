import type { ExpertStorage, NodeSettings } from '../../shared/settings/node-settings.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import {
  attendMs,
  behindMs,
  type DeviceProfile,
  type EmulatedDevice,
  operatorMs,
} from '../../engine/emulation/device-profile.js';
import type { MessageProfile } from '../../engine/emulation/message-bytes.js';

/** The devices and the network of a simulated cluster, as a profile has them or as a plan changes them. */
export interface ClusterTimes extends MessageProfile {
  main: EmulatedDevice;
  /** Null: there is no shadow. */
  shadow: EmulatedDevice | null;
  worker: EmulatedDevice;
  /** One for each worker in turn, where they are not all alike. */
  workers?: readonly EmulatedDevice[];
}

/** How a simulated cluster is set up: the daemons' own settings, of one or of all of them. */
export interface ClusterSetUp extends Pick<NodeSettings, 'align' | 'drafting' | 'prediction' | 'placement'> {
  workers: number;
  slots: number;
  /** What each worker keeps of experts between their uses; 0: nothing. */
  cacheBytes: number;
  prefillRows: number;
  miniBatchRows: number;
  /** In prefill a layer's experts load while the layer before runs. */
  prefillOverlap: boolean;
}

/**
 * The daemons' defaults on eight workers. The paper's set-up differs: it sends keys and values at the end of an iteration and does not
 * overlap prefill (bench/paper/set-up.ts).
 */
export const DEFAULT_SET_UP: ClusterSetUp = {
  workers: 8,
  slots: 1,
  cacheBytes: 0,
  prefillRows: 256,
  miniBatchRows: 32,
  prefillOverlap: true,
  align: { tokenPeriod: 1, keyValuePeriod: 1, streamKeyValues: true },
  drafting: { optimistic: false, rows: 1 },
  prediction: { source: 'sep', layersAhead: 1 },
  placement: { groupSize: 'auto', spread: 'group', homes: 'group', replicas: 1 },
};

/** Times of a profile's nodes with experts kept in the form given. */
export function clusterTimes(profile: DeviceProfile, expertStorage: ExpertStorage): ClusterTimes {
  return {
    main: nodeTimes(profile, 'main', expertStorage),
    shadow: profile.devices.shadow === null ? null : nodeTimes(profile, 'shadow', expertStorage),
    worker: nodeTimes(profile, 'worker', expertStorage),
    network: profile.network,
    model: profile.model,
  };
}

/** Time of a token on the profile's machine that holds the whole model: the fully cached row of OD-MoE table 2. Null: there is none. */
export function cachedTokenMs(profile: DeviceProfile): number | null {
  if (profile.devices.cached === null) return null;
  const times = nodeTimes(profile, 'cached', 'fp32');
  const { expertLayers, expertsPerToken } = profile.model.shape;
  const experts = expertLayers * expertsPerToken * operatorMs(times.expert, 1);
  return denseMs(times, expertLayers, Int32Array.of(0)) + experts + operatorMs(times.lmHead, 1);
}

/** All layers of main for rows at these positions, without experts and LM head. */
export function denseMs(times: EmulatedDevice, expertLayers: number, positions: Int32Array): number {
  let totalMs = behindMs(times, positions);
  for (let layer = 0; layer < expertLayers; layer += 1) totalMs += attendMs(times, layer, positions);
  return totalMs;
}

/** In the order in which a placement has them. */
export function workerIds(workers: number): string[] {
  const width = String(workers).length;
  return Array.from({ length: workers }, (_, index) => `worker-${String(index + 1).padStart(width, '0')}`);
}

export const MAIN = 'main';
export const SHADOW = 'shadow';
