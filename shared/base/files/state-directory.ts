import { homedir } from 'node:os';
import { join } from 'node:path';

/** $XDG_STATE_HOME or ~/.local/state: where programs keep what should outlast them and need not be backed up. */
export function stateHome(environment: NodeJS.ProcessEnv = process.env): string {
  const configured = environment['XDG_STATE_HOME'];
  // The XDG specification: a relative path there is to be ignored.
  return configured?.startsWith('/') === true ? configured : join(homedir(), '.local', 'state');
}

/** A directory for a cluster's records and logs. */
export function stateDirectory(cluster: string, home: string = stateHome()): string {
  return join(home, 'odmoe', cluster);
}

/** Where a worker records how often it was asked for which experts of a pack. */
export function activationCountsPath(directory: string, packDigest: string, nodeId: string): string {
  return join(directory, 'activations', `${packDigest}-${nodeId}.json`);
}
