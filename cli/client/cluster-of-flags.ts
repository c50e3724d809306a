import { basename } from 'node:path';
import type { Command } from 'commander';
import { localAuthorities } from '../../engine/daemon/cluster-directories.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { CLUSTER_NAME_RULE, isClusterName } from '../../shared/base/text/identifier.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { configurationOf } from './asked-main.js';

/** The flags from addClusterFlags, for a command's action. */
export interface ClusterFlags {
  cluster?: string;
  config?: string;
}

/** Adds the flags that name a cluster whose files are on this host. */
export function addClusterFlags(command: Command): Command {
  return command
    .option('--cluster <name>', 'the cluster (default: that of cluster.yaml in this directory, else odmoe)')
    .option('--config <file>', 'the cluster that this configuration names');
}

/** The name of the cluster whose authority is meant: without a flag and a cluster.yaml the only one of this host. Throws USAGE, CONFIG_INVALID. */
export async function authorityOfFlags(flags: ClusterFlags): Promise<string> {
  const isNamed = flags.cluster !== undefined || configurationOf(flags) !== null;
  const name = clusterOfFlags(flags);
  if (isNamed) return name;
  const names = (await localAuthorities(stateDirectory(name), null)).map((directory) => basename(directory));
  const [only, ...others] = names;
  if (only === undefined || names.includes(name)) return name;
  if (others.length === 0) return only;
  throw new OdmoeError(
    'USAGE',
    `several clusters have an authority on this host (${names.join(', ')}): give --cluster`,
  );
}

/** The name of the cluster. Throws USAGE, and CONFIG_INVALID if a configuration cannot be read. */
export function clusterOfFlags({ cluster, config }: ClusterFlags): string {
  if (cluster !== undefined && config !== undefined) {
    throw new OdmoeError('USAGE', 'give --cluster or --config; both were given');
  }
  if (cluster === undefined) {
    return (configurationOf({ config }) ?? defaultClusterConfig()).cluster;
  }
  if (isClusterName(cluster)) return cluster;
  throw new OdmoeError('USAGE', `${JSON.stringify(cluster)} is no name of a cluster: give ${CLUSTER_NAME_RULE}`);
}
