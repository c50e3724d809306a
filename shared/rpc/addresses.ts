import { OdmoeError } from '../errors/index.js';

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

/** Whether it is "host:port" or "[v6]:port". */
export function isAddress(address: string): boolean {
  try {
    parseAddress(address);
    return true;
  } catch {
    return false;
  }
}
