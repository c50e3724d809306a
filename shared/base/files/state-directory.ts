import { homedir } from 'node:os';
import { join } from 'node:path';

/** $XDG_STATE_HOME or ~/.local/state: the directory for data that should outlast a program and need no backup. */
export function stateHome(environment: NodeJS.ProcessEnv = process.env): string {
  return absoluteOr(environment['XDG_STATE_HOME'], join(homedir(), '.local', 'state'));
}

/** The directory in which services of the system keep their state (cli/service). */
const SYSTEM_STATE_HOME = '/var/lib';

/** That directory of this user, and that of the system's services, which only root and their own user can read. */
export function stateHomes(): string[] {
  return [...new Set([stateHome(), SYSTEM_STATE_HOME])];
}

/** $XDG_CONFIG_HOME or ~/.config: the directory for what a user has set up, and would miss. */
export function configHome(environment: NodeJS.ProcessEnv = process.env): string {
  return absoluteOr(environment['XDG_CONFIG_HOME'], join(homedir(), '.config'));
}

/** The XDG specification says that a relative path is ignored. */
function absoluteOr(configured: string | undefined, otherwise: string): string {
  return configured?.startsWith('/') === true ? configured : otherwise;
}

/** A directory for a cluster's records and logs. */
export function stateDirectory(cluster: string, home: string = stateHome()): string {
  return join(home, 'odmoe', cluster);
}

/** The directory in which the operators of a cluster on this host have their keys: $XDG_CONFIG_HOME/odmoe/clusters/CLUSTER. */
export function operatorDirectory(cluster: string): string {
  return join(configHome(), 'odmoe', 'clusters', cluster);
}

/** For callers that need the directory of all clusters: any name does, as only the directory above it counts. */
export const ANY_CLUSTER = 'odmoe';

/** The Unix socket by which operators on main's host reach it. `directory`: that of the cluster. */
export function operatorSocketPath(directory: string): string {
  return join(directory, 'control.sock');
}

/** The file in which a worker records how often main requested each expert of a pack. */
export function activationCountsPath(directory: string, packDigest: string, nodeId: string): string {
  return join(directory, 'activations', `${packDigest}-${nodeId}.json`);
}

/** The directory in which main keeps rows of prompts (main.prefix_store). `directory`: that of the cluster. */
export function prefixStoreDirectory(directory: string): string {
  return join(directory, 'prefix-store');
}
