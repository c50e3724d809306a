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
 * The address by which other machines may reach this one: the given address if the machine has it, otherwise its first address that others most
 * likely reach, otherwise its name. `given`: address of the interface for multicast; null: any.
 */
export function machineAddress(addresses: readonly HostAddress[], given: string | null): string {
  if (given !== null && addresses.some(({ address }) => address === given)) return given;
  return likelyFirst(addresses)[0]?.address ?? hostname();
}

/** The external addresses, those of cables and radios first; addresses of one kind keep their order. Pure. */
export function likelyFirst(addresses: readonly HostAddress[]): HostAddress[] {
  const external = addresses.filter(({ internal }) => !internal);
  return external.sort((one, other) => unlikeliness(one) - unlikeliness(other));
}

/** Interfaces of virtual private networks: the other machines of a cluster may not be in them. */
const PRIVATE_NETWORKS = /^(?:tun|tap|wg|tailscale|zt|utun|ppp|ipsec|vti|nordlynx|proton|outline|nebula|netbird|wt\d)/;

/** Interfaces of containers and virtual machines, and of a cable on which a Jetson is set up: none but this host is there. */
const OF_THIS_HOST =
  /^(?:docker|br-|veth|cni|flannel|cali|cilium|lxc|lxdbr|kube-|nodelocaldns|weave|podman|virbr|vnet|vmnet|vboxnet|incusbr|nerdctl|dummy|l4tbr|rndis|usb)/;

const LINK_LOCAL = '169.254.';

/** 0: the most likely to be reached. */
function unlikeliness({ name, address }: HostAddress): number {
  if (address.startsWith(LINK_LOCAL)) return 3;
  if (OF_THIS_HOST.test(name)) return 2;
  return PRIVATE_NETWORKS.test(name) ? 1 : 0;
}
