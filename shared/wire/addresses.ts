import { OdmoeError } from '../base/errors/odmoe-error.js';

/** "host:port", with brackets around an IPv6 host. */
export function formatAddress(host: string, port: number): string {
  return host.includes(':') && !host.startsWith('[') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Splits "host:port" or "[v6]:port". Throws USAGE when it is neither. */
export function parseAddress(address: string): { host: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:.%\w]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || !Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new OdmoeError('USAGE', `"${address}" is not an address: give HOST:PORT, as in 192.168.1.20:7600`);
  }
  return { host, port };
}

const WILDCARD_HOSTS: ReadonlySet<string> = new Set(['', '0.0.0.0', '::', '[::]']);

/** True if the host stands for every interface of a machine, so that it cannot be dialled. */
export function isWildcardHost(host: string): boolean {
  return WILDCARD_HOSTS.has(host);
}

/** The host of an address, which may be empty (":7600"); an IPv6 host comes without its brackets. */
export function hostOf(address: string): string {
  return address.slice(0, Math.max(0, address.lastIndexOf(':'))).replace(/^\[(.*)\]$/, '$1');
}

/** The address at which to dial a peer that connected from `host` and reported `address` as its own. */
export function dialAddress(address: string, host: string): string {
  const port = Number(address.slice(address.lastIndexOf(':') + 1));
  return isWildcardHost(hostOf(address)) ? formatAddress(host, port) : address;
}

/** True if the text is "host:port" or "[v6]:port". */
export function isAddress(address: string): boolean {
  try {
    parseAddress(address);
    return true;
  } catch {
    return false;
  }
}

/** The address of a Unix socket, by its path: the command line dials main's so. */
export function socketAddress(path: string): string {
  return `unix:${path}`;
}

export function isSocketAddress(address: string): boolean {
  return address.startsWith('unix:');
}
