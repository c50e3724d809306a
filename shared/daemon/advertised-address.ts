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
