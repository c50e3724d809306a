import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { KnownPeer, NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { MAIN_ID, SHADOW_ID, workerIds, type ClusterSetUp } from './cluster-set-up.js';

/** A simulated cluster's settings must not depend on this machine. */
const NO_HOST = { hostname: 'simulated', addresses: [], processId: 0, stateHome: '' };

/**
 * Settings of all daemons of a simulated cluster, workers and shadow before main: the defaults with the changes of the set-up. Each node has
 * its own host with the node's name. `directory`: place of the pack and of the state of all nodes. `requests`: number of requests that run at
 * the same time.
 */
export function clusterSettings(setUp: ClusterSetUp, directory: string, requests: number): NodeSettings[] {
  const workers = workerIds(setUp.workers);
  const ids: [RoleSetting, readonly string[]][] = [
    ['worker', workers],
    ['shadow', setUp.prediction.source === 'sep' ? [SHADOW_ID] : []],
  ];
  const peers = ids.flatMap(([role, names]) => names.map((id) => ({ role, id, address: addressOf(role, id) })));
  const daemons = ids.flatMap(([role, names]) => {
    const common = roleSettings(role, setUp, directory, requests);
    return names.map((id) => named(common, id, []));
  });
  return [...daemons, named(roleSettings('main', setUp, directory, requests), MAIN_ID, peers)];
}

function addressOf(role: RoleSetting, id: string): string {
  return `${id}:${defaultPort(role)}`;
}

function roleSettings(role: RoleSetting, setUp: ClusterSetUp, directory: string, requests: number): NodeSettings {
  const flags = { cluster: 'simulated', id: role, model: directory, discovery: 'static' } as const;
  const defaults = resolveNodeSettings(role, defaultClusterConfig(), flags, NO_HOST);
  const { align, drafting, prediction, placement, quality, slots, cacheBytes } = setUp;
  const { prefillRows, miniBatchRows, prefillOverlap } = setUp;
  const cachePolicy = quality.kind === 'exact' ? defaults.worker.cachePolicy : 'sliced';
  return {
    ...defaults,
    align,
    drafting,
    prediction,
    placement,
    stateDirectory: directory,
    // No budget: the memory of a device is reported, and the reader decides whether it fits.
    device: { ...defaults.device, backend: 'cpu', memoryBudgetBytes: 0 },
    main: {
      ...defaults.main,
      quality,
      prefillRows,
      miniBatchRows,
      prefillOverlap,
      maxActiveSequences: requests,
      maxQueuedRequests: Math.max(requests, defaults.main.maxQueuedRequests),
    },
    worker: { ...defaults.worker, slots, cacheBytes, cachePolicy },
  };
}

function named(settings: NodeSettings, id: string, peers: KnownPeer[]): NodeSettings {
  return {
    ...settings,
    id,
    listenHost: id,
    advertiseHost: id,
    discovery: { ...settings.discovery, peers },
  };
}
