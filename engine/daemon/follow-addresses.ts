import type { NodeSettings } from '../../shared/settings/node-settings.js';
import {
  type HostAddress,
  type InterfaceWatch,
  spokenAddresses,
} from '../../shared/transport/discovery/host-interfaces.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { isWildcardHost } from '../../shared/wire/addresses.js';

/** The settings that decide where others reach the daemon. */
type Reachable = Pick<NodeSettings, 'listenHost' | 'discovery'>;

/**
 * Logs when this host's addresses change, or have changed so that others cannot reach the daemon. Calls `onMove` at each change. Returns a
 * function that stops the watch.
 */
export function followAddresses(
  interfaces: InterfaceWatch,
  settings: Reachable,
  log: Logger,
  onMove: () => void = () => undefined,
): () => void {
  let followed: string | null = null;
  const warn = (): void => {
    const { addresses } = interfaces;
    const spoken = spokenAddresses(addresses, settings.discovery.interfaceAddress, followed);
    ({ followed } = spoken);
    const problem = addressProblem(addresses, spoken.addresses, settings);
    if (problem !== null) log.warn('others cannot reach this daemon', { reason: problem });
  };
  warn();
  let isFailing = false;
  return interfaces.watch({
    changed: () => {
      isFailing = false;
      const addresses = interfaces.addresses.filter(({ internal }) => !internal).map(({ address }) => address);
      log.info('this host has other addresses', { addresses });
      warn();
      onMove();
    },
    failed: (error) => {
      if (!isFailing) log.warn("this host's addresses cannot be read; those known are kept", { error });
      isFailing = true;
    },
  });
}

/**
 * The reason why other machines cannot reach the daemon, from its host's addresses and the addresses that it speaks through. Null: they can,
 * or they need not. Pure.
 */
export function addressProblem(
  addresses: readonly HostAddress[],
  spoken: readonly string[],
  { listenHost, discovery }: Reachable,
): string | null {
  const has = (host: string): boolean => addresses.some(({ address }) => address === host);
  if (IPV4.test(listenHost) && !isWildcardHost(listenHost) && !isLoopback(listenHost) && !has(listenHost)) {
    return (
      `it listens on ${listenHost}, which this host has no longer: start it again with an address that the host has, or with --host ` +
      '0.0.0.0, which follows what comes'
    );
  }
  if (discovery.provider !== 'mdns' || isLoopback(listenHost)) return null;
  const given = discovery.interfaceAddress;
  if (given !== null && spoken.length === 0) {
    return `no interface of this host has ${given} (--interface): nodes are found when one has, or when its interface has another address`;
  }
  if (given !== null || addresses.some(({ internal }) => !internal)) return null;
  return 'this host has no network: nodes on other machines are found when it has one';
}

const IPV4 = /^\d{1,3}(?:\.\d{1,3}){3}$/;

function isLoopback(host: string): boolean {
  return host.startsWith('127.') || host === 'localhost';
}
