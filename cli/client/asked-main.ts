/** Finds the main that a command asks: its flags name it, else the environment, else the cluster.yaml of this directory. */
import { existsSync } from 'node:fs';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import { loadClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';

export const DEFAULT_CONFIG_PATH = 'cluster.yaml';
/** HOST:PORT of the main that commands ask without --main. */
export const MAIN_VARIABLE = 'ODMOE_MAIN';

/** The flags by which commands choose a main. */
export interface ChoosingFlags {
  main?: string;
  cluster?: string;
  config?: string | undefined;
  interface?: string;
}

export interface AskedMain {
  /** "host:port" that was given by itself: no other main is asked. */
  readonly address: string | null;
  /** null: a main of any cluster. */
  readonly cluster: string | null;
  /** The address of the cluster's main in its configuration; null: it is found by mDNS. */
  readonly configured: string | null;
  readonly interfaceAddress: string | null;
  /** The file of the configuration that names the cluster; null: none does. */
  readonly path: string | null;
}

/**
 * Finds out which main is meant. `readConfig` reads the configuration of the flags or of this directory; it is not called if an address is given.
 * @throws USAGE an address is malformed, or --config and --cluster name two clusters; what `readConfig` throws
 */
export function askedMain(
  flags: ChoosingFlags,
  readConfig: () => ClusterConfig | null = () => configurationOf(flags),
  variables: NodeJS.ProcessEnv = process.env,
): AskedMain {
  const anywhere = { configured: null, interfaceAddress: flags.interface ?? null, path: null };
  const address = givenAddress(flags, variables);
  if (address !== null) return { ...anywhere, address, cluster: flags.cluster ?? null };
  const config = readConfig();
  const { cluster = config?.cluster ?? null } = flags;
  if (config === null || cluster !== config.cluster) {
    if (flags.config === undefined || config === null) return { ...anywhere, address: null, cluster };
    throw new OdmoeError(
      'USAGE',
      `${flags.config} is of cluster "${config.cluster}", and --cluster says "${cluster}": leave one out`,
    );
  }
  const interfaceAddress = flags.interface ?? config.discovery.interface ?? null;
  return { address: null, cluster, configured: configuredMain(config), interfaceAddress, path: config.path };
}

/** Flags name one cluster more closely than the variable does. */
function givenAddress({ main, cluster, config }: ChoosingFlags, variables: NodeJS.ProcessEnv): string | null {
  if (main !== undefined) return checkedAddress(main, '--main');
  const variable = variables[MAIN_VARIABLE]?.trim() ?? '';
  if (variable === '' || cluster !== undefined || config !== undefined) return null;
  return checkedAddress(variable, `the variable ${MAIN_VARIABLE}`);
}

/** The configuration that the flags name, or that of this directory; null: there is none. Throws CONFIG_INVALID. */
export function configurationOf({ config }: Pick<ChoosingFlags, 'config'>): ClusterConfig | null {
  if (config !== undefined) return loadClusterConfig(config);
  return existsSync(DEFAULT_CONFIG_PATH) ? loadClusterConfig(DEFAULT_CONFIG_PATH) : null;
}

/** The address of main under static discovery; null: the configuration does not say it. */
function configuredMain({ nodes, discovery }: ClusterConfig): string | null {
  const main = nodes.find(({ role }) => role === 'main');
  if (main === undefined || discovery.provider !== 'static') return null;
  const { host, port } = main.address;
  return formatAddress(host === 'localhost' ? '127.0.0.1' : host, port);
}

function checkedAddress(text: string, from: string): string {
  try {
    const { host, port } = parseAddress(text);
    return formatAddress(host, port);
  } catch {
    throw new OdmoeError('USAGE', `${from} says ${JSON.stringify(text)}: give HOST:PORT, as 192.168.1.20:7600`);
  }
}
