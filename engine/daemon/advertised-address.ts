import { hostname } from 'node:os';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { HostAddress } from '../../shared/transport/discovery/host-interfaces.js';
import { formatAddress, isWildcardHost } from '../../shared/wire/addresses.js';

/** The address at which peers can dial the daemon. The host is empty when the daemon listens on every interface and no host is configured. */
export function advertisedAddress(
  { advertiseHost, listenHost }: Pick<NodeSettings, 'advertiseHost' | 'listenHost'>,
  port: number,
): string {
  const host = advertiseHost ?? listenHost;
  return formatAddress(isWildcardHost(host) ? '' : host, port);
}

/**
 * The address by which other machines may reach this one: the given address if the machine has it, otherwise its first external address,
 * otherwise its name. `given`: address of the interface for multicast; null: any.
 */
export function machineAddress(addresses: readonly HostAddress[], given: string | null): string {
  if (given !== null && addresses.some(({ address }) => address === given)) return given;
  return addresses.find(({ internal }) => !internal)?.address ?? hostname();
}
