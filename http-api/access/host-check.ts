import { isIP } from 'node:net';

/**
 * The names under which clients reach this machine. A web page elsewhere can let its own name point here (DNS rebinding), but the browser
 * sends that name in the request. So names are checked, and addresses need no check. `hostname`: this machine's name.
 * `configured`: the names that its owner set.
 */
export function servedHosts(hostname: string, configured: readonly string[]): ReadonlySet<string> {
  const own = hostname.toLowerCase();
  const short = own.split('.')[0] ?? own;
  return new Set(['localhost', own, short, `${short}.local`, ...configured.map(plainName)]);
}

/** Tells whether a `Host` header, with or without a port, names an address or one of the hosts. */
export function isServedHost(header: string, hosts: ReadonlySet<string>): boolean {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d{0,5})?$/.exec(header.trim());
  if (match === null) return false;
  const [, bracketed, plain = ''] = match;
  if (bracketed !== undefined) return isIP(bracketed) === 6;
  const name = plainName(plain);
  return isIP(name) === 4 || hosts.has(name);
}

/** Makes names comparable: case and the dot at the end of a full name do not matter. */
function plainName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
