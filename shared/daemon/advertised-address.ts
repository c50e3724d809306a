import { hostname, networkInterfaces } from 'node:os';
import type { NodeSettings } from '../config/node-settings.js';
import { formatAddress, isWildcardHost } from '../rpc/addresses.js';

/** What a daemon says of itself: where peers can dial it. The host is empty when it listens on every interface and was told none. */
export function advertisedAddress(
  { advertiseHost, listenHost }: Pick<NodeSettings, 'advertiseHost' | 'listenHost'>,
  port: number,
): string {
  const host = advertiseHost ?? listenHost;
  return formatAddress(isWildcardHost(host) ? '' : host, port);
}

/** By which other machines may reach this one: its first IPv4 address that they may see, else its name. */
export function machineAddress(): string {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? hostname();
}
