import { hostname } from 'node:os';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { HostAddress } from '../../shared/transport/discovery/host-interfaces.js';
import { formatAddress, isWildcardHost } from '../../shared/wire/addresses.js';

/** What a daemon says of itself: where peers can dial it. The host is empty when it listens on every interface and was told none. */
export function advertisedAddress(
  { advertiseHost, listenHost }: Pick<NodeSettings, 'advertiseHost' | 'listenHost'>,
  port: number,
): string {
  const host = advertiseHost ?? listenHost;
  return formatAddress(isWildcardHost(host) ? '' : host, port);
}

/**
 * By which other machines may reach this one: by the given address if it has that, else by the first that they may see, else by its name.
 * `given`: of the interface that multicast goes through; null: any.
 */
export function machineAddress(addresses: readonly HostAddress[], given: string | null): string {
  if (given !== null && addresses.some(({ address }) => address === given)) return given;
  return addresses.find(({ internal }) => !internal)?.address ?? hostname();
}
