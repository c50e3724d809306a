const LOOPBACK = /^(127\.|::1$|(.*\.)?localhost$)/;
const LINK_LOCAL = /^(169\.254\.|fe[89ab][0-9a-f]:)/;
/** Multicast, broadcast, and addresses that no machine has. */
const NOBODY = /^(0\.|2[2-5][0-9]\.|ff[0-9a-f]{2}:)/;

/**
 * True if main may dial a host that a peer from `caller` names as its own: the host of another machine cannot be this machine's loopback, nor
 * lie on a link that the peer is not on. Any other host may be the peer's (`advertise_host`, several networks). `own`: this machine's
 * addresses, from which a peer on this machine calls. Pure.
 */
export function mayDial(host: string, caller: string, own: readonly string[]): boolean {
  const [named, from] = [plain(host), plain(caller)];
  if (named === from) return true;
  if (LOOPBACK.test(named)) return LOOPBACK.test(from) || own.includes(from);
  if (LINK_LOCAL.test(named)) return LINK_LOCAL.test(from) || own.includes(from);
  return !NOBODY.test(named);
}

/** IPv4 addresses may come in the form of IPv6. */
function plain(host: string): string {
  return host.toLowerCase().replace(/^::ffff:/, '');
}
