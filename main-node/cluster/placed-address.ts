import { isThisHost, thisHost, type ThisHost } from '../../shared/settings/resolve-node-settings.js';
import { hostOf, isAddress, isWildcardHost } from '../../shared/wire/addresses.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';

/**
 * The address at which other nodes dial a worker: the one that main dialled. If that is a loopback address, and the worker has named a host that is
 * valid on other machines, it is the worker's own address.
 */
export function placedAddress({ address, identity }: { address: string; identity: NodeIdentity }): string {
  if (!isLoopbackHost(hostOf(address))) return address;
  const own = hostOf(identity.address);
  if (isWildcardHost(own) || isLoopbackHost(own) || !isAddress(identity.address)) return address;
  return identity.address;
}

/** True if a shadow at the first address would look for the worker on its own machine, which is not main's. */
export function isBeyondShadow(shadowAddress: string, workerAddress: string, host: ThisHost = thisHost()): boolean {
  return isLoopbackHost(hostOf(workerAddress)) && !isThisHost(hostOf(shadowAddress), host);
}
