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

/** Adds the flags that name a cluster whose files are on this host. `otherwise`: the one that is meant where nothing names it. */
export function addClusterFlags(command: Command, otherwise = 'odmoe'): Command {
  return command
    .option('--cluster <name>', `the cluster (default: that of cluster.yaml in this directory, else ${otherwise})`)
    .option('--config <file>', 'the cluster that this configuration names');
}

/** The name of the cluster whose authority is meant: without a flag and a cluster.yaml the only one of this host. Throws USAGE, CONFIG_INVALID. */
export async function authorityOfFlags(flags: ClusterFlags): Promise<string> {
  const named = namedCluster(flags);
  if (named !== null) return named;
  const name = defaultClusterConfig().cluster;
  const names = await authoritiesHere(name);
  const [only, ...others] = names;
  if (only === undefined || names.includes(name)) return name;
  if (others.length === 0) return only;
  throw new OdmoeError(
    'USAGE',
    `several clusters have an authority on this host (${names.join(', ')}): give --cluster`,
  );
}

/** The name for a new authority. Throws USAGE where nothing names it and this host has one of another name; CONFIG_INVALID. */
export async function newAuthorityOfFlags(flags: ClusterFlags): Promise<string> {
  const named = namedCluster(flags);
  if (named !== null) return named;
  const name = defaultClusterConfig().cluster;
  const names = await authoritiesHere(name);
  if (names.length === 0 || names.includes(name)) return name;
  const list = names.map((other) => `"${other}"`).join(', ');
  throw new OdmoeError('USAGE', `this host has an authority of ${list} already: for another one say --cluster NAME`);
}

/** The clusters with an authority on this host. `name`: any. */
async function authoritiesHere(name: string): Promise<string[]> {
  return (await localAuthorities(stateDirectory(name), null)).map((directory) => basename(directory));
}

/** The name of the cluster. Throws USAGE, and CONFIG_INVALID if a configuration cannot be read. */
export function clusterOfFlags(flags: ClusterFlags): string {
  return namedCluster(flags) ?? defaultClusterConfig().cluster;
}

/** The cluster that a flag or a configuration names; null: none does. Throws as clusterOfFlags. */
function namedCluster({ cluster, config }: ClusterFlags): string | null {
  if (cluster !== undefined && config !== undefined) {
    throw new OdmoeError('USAGE', 'give --cluster or --config; both were given');
  }
  if (cluster === undefined) return configurationOf({ config })?.cluster ?? null;
  if (isClusterName(cluster)) return cluster;
  throw new OdmoeError('USAGE', `${JSON.stringify(cluster)} is no name of a cluster: give ${CLUSTER_NAME_RULE}`);
}
