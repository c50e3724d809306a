export type { KnownPeer, NodeSettings, RoleSetting, RunningNode } from './node-settings.js';
export { PRECISIONS } from './cluster-config.js';
export { packageRoot } from './package-root.js';
export { formatByteSize, parseByteSize } from './byte-size.js';
export { WORKER_BUDGET_DEFAULT_BYTES, defaultPort, type ClusterConfig, type ConfiguredNode } from './cluster-config.js';
export { defaultClusterConfig, loadClusterConfig, parseClusterConfig } from './load-cluster-config.js';
export { nodesOfThisHost, resolveNodeSettings, type DaemonFlags } from './resolve-node-settings.js';
export { parseDaemonFlags, type DaemonRequest } from './parse-daemon-flags.js';
export { THREADS_LIMIT, wholeNumberFlag } from './whole-number-flag.js';
