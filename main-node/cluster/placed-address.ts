import { isThisHost, thisHost, type ThisHost } from '../../shared/settings/resolve-node-settings.js';
import { hostOf, isAddress, isWildcardHost } from '../../shared/wire/addresses.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';

/**
 * Where others are told to dial a worker: where main did, but not at a loopback address when the worker has named a host that is
 * good on other machines too.
 */
export function placedAddress({ address, identity }: { address: string; identity: NodeIdentity }): string {
  if (!isLoopbackHost(hostOf(address))) return address;
  const own = hostOf(identity.address);
  if (isWildcardHost(own) || isLoopbackHost(own) || !isAddress(identity.address)) return address;
  return identity.address;
}

/** Whether a shadow that main reaches at one address would look for a worker on its own machine, and not on main's. */
export function isBeyondShadow(shadowAddress: string, workerAddress: string, host: ThisHost = thisHost()): boolean {
  return isLoopbackHost(hostOf(workerAddress)) && !isThisHost(hostOf(shadowAddress), host);
}
