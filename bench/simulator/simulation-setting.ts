import type { NodeSettings } from '../../shared/config/node-settings.js';
import type { EmulatedDevice, ProfiledNetwork } from '../../shared/emulation/device-profile.js';

/** The devices and the network of a simulated cluster, as shared/emulation derives them from a profile. */
export interface ClusterTimes {
  main: EmulatedDevice;
  shadow: EmulatedDevice;
  worker: EmulatedDevice;
  /** One for each worker in turn, where they are not all alike. */
  workers?: readonly EmulatedDevice[];
  network: ProfiledNetwork;
  hiddenSize: number;
}

/** How a simulated cluster is set up: the daemons' own settings, of one or of all of them. */
export interface ClusterSetUp extends Pick<NodeSettings, 'align' | 'drafting' | 'prediction' | 'placement'> {
  workers: number;
  slots: number;
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
  prefillRows: 256,
  miniBatchRows: 32,
  prefillOverlap: true,
  align: { tokenPeriod: 1, keyValuePeriod: 1, streamKeyValues: true },
  drafting: { optimistic: false, rows: 1 },
  prediction: { source: 'sep' },
  placement: { groupSize: 'auto', spread: 'group' },
};
