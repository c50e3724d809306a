/** Peers by name: the SRV records of a service, which name roles by its ports, or the addresses of a name for each role. */
import { Resolver } from 'node:dns/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { formatAddress } from '../../shared/wire/addresses.js';
import type { FoundPeer } from '../../shared/transport/discovery/txt-record.js';

/** A machine that runs a service, as an SRV record names it. */
export interface NamedService {
  readonly name: string;
  readonly port: number;
}

/** Answers of name servers. A name without records is an empty list; all else that prevents an answer is a NO_MAIN in words. */
export interface NameService {
  services(name: string): Promise<readonly NamedService[]>;
  /** IPv4 addresses, or IPv6 ones where there are none. */
  addresses(name: string): Promise<readonly string[]>;
  /** Ends all questions, which fail then. Idempotent. */
  close(): void;
}

/** Most machines of one role that are taken from one answer. */
export const NAMED_PEERS_LIMIT = 256;

/** Time for one answer, and how often it is asked for: a name server of a container's network is near. */
const QUERY = { timeout: 2000, tries: 2 };
/** The name servers' words for "there is no such record". */
const NO_RECORD: ReadonlySet<string> = new Set(['ENOTFOUND', 'ENODATA']);

/** The name servers of this host. `servers`: others ("host:port"). */
export function systemNames(servers: readonly string[] | null = null): NameService {
  const resolver = new Resolver(QUERY);
  if (servers !== null) resolver.setServers(servers);
  return {
    services: async (name) => withoutRecord(name, () => resolver.resolveSrv(name)),
    addresses: async (name) => {
      const old = await withoutRecord(name, () => resolver.resolve4(name));
      return old.length > 0 ? old : withoutRecord(name, () => resolver.resolve6(name));
    },
    close: () => resolver.cancel(),
  };
}

async function withoutRecord<Answer>(name: string, ask: () => Promise<Answer[]>): Promise<Answer[]> {
  try {
    return await ask();
  } catch (thrown) {
    const code = systemErrorCode(thrown);
    if (NO_RECORD.has(code)) return [];
    throw new OdmoeError(
      'NO_MAIN',
      `the name servers of this host do not answer for ${name} (${code}): see that /etc/resolv.conf names one that knows it`,
    );
  }
}

/**
 * The daemons of a role under a domain: the machines of the SRV record _ROLE._tcp.DOMAIN, else the addresses of ROLE.DOMAIN at the role's usual
 * port. The first label of a machine's name is taken for its daemon's id.
 * @throws NO_MAIN no name server answers
 */
export async function namedPeers(
  names: NameService,
  domain: string,
  role: RoleSetting,
): Promise<Omit<FoundPeer, 'cluster'>[]> {
  const services = (await names.services(`_${role}._tcp.${domain}`)).slice(0, NAMED_PEERS_LIMIT);
  if (services.length === 0) {
    const hosts = await names.addresses(`${role}.${domain}`);
    const port = defaultPort(role);
    return hosts.slice(0, NAMED_PEERS_LIMIT).map((host) => ({ id: '', role, address: formatAddress(host, port) }));
  }
  const found = await Promise.all(
    services.map(async ({ name, port }) => {
      const [host] = await names.addresses(name);
      const label = name.split('.')[0] ?? '';
      const id = isIdentifier(label) ? label : '';
      // A machine that is about to start or to end has a service and no address.
      return host === undefined ? null : { id, role, address: formatAddress(host, port) };
    }),
  );
  return found.filter((peer) => peer !== null);
}
