import { isIP } from 'node:net';

/**
 * Names under which this machine is asked. A web page elsewhere can have its own name point here (DNS rebinding), but a browser then says
 * that name: so names are checked, and addresses need not be. `hostname`: this machine's. `configured`: names that its owner gave it.
 */
export function servedHosts(hostname: string, configured: readonly string[]): ReadonlySet<string> {
  const own = hostname.toLowerCase();
  const short = own.split('.')[0] ?? own;
  return new Set(['localhost', own, short, `${short}.local`, ...configured.map(plainName)]);
}

/** Whether a `Host` header, with or without a port, names an address or one of the hosts. */
export function isServedHost(header: string, hosts: ReadonlySet<string>): boolean {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d{0,5})?$/.exec(header.trim());
  if (match === null) return false;
  const [, bracketed, plain = ''] = match;
  if (bracketed !== undefined) return isIP(bracketed) === 6;
  const name = plainName(plain);
  return isIP(name) === 4 || hosts.has(name);
}

/** Names differ neither by case nor by the dot that ends a full one. */
function plainName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
