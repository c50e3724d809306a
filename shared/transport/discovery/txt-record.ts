/** A daemon's data in mDNS, as TXT keys and back. */
import { z } from 'zod';
import type { RoleSetting } from '../../settings/setting-choices.js';
import type { NodeIdentity } from '../../wire/messages.js';
import { formatAddress, hostOf } from '../../wire/addresses.js';
import { newestProtocolOf } from '../../wire/versions.js';
import { isLoopbackHost } from '../credentials.js';

/** A daemon heard by mDNS. Its data only suggest an address to dial; the handshake decides. */
export interface DiscoveredPeer {
  id: string;
  role: RoleSetting;
  cluster: string;
  /** The oldest protocol that it speaks. */
  protocolVersion: number;
  /** The newest one; left out: it speaks one alone. */
  newestProtocol?: number;
  modelName: string;
  packDigest: string;
  bootId: string;
  /** The first digits of the digest of its cluster's authority (shortAuthorityDigest); null: its cluster has none. */
  authority: string | null;
  /** "host:port": the sender's own address and its service port. A daemon that listens on loopback has that of loopback. */
  address: string;
}

/** The facts that every discovery has of a daemon: enough to dial it. An advertisement tells the rest, too. */
export type FoundPeer = Pick<DiscoveredPeer, 'id' | 'role' | 'cluster' | 'address'> & Partial<DiscoveredPeer>;

/** The daemon that was heard. */
export interface Sender {
  readonly host: string;
  /** Port of the service. */
  readonly port: number;
  /** The sender is this very host. */
  readonly isThisHost: boolean;
}

/** The contents of an advertisement: a peer, a peer that listens on another host's loopback, or no record of ours. */
export type Heard =
  | { readonly kind: 'peer'; readonly peer: DiscoveredPeer }
  | { readonly kind: 'elsewhere'; readonly peer: DiscoveredPeer }
  | { readonly kind: 'malformed'; readonly reason: string };

/** Longest TXT value; one TXT string holds 255 bytes with its key. */
const VALUE_LENGTH_LIMIT = 200;

const value = z.string().max(VALUE_LENGTH_LIMIT);
const txtSchema = z.object({
  cluster: value.min(1),
  role: z.enum(['main', 'shadow', 'worker']),
  id: value.min(1),
  protocol: z.string().regex(/^\d{1,9}$/),
  newest: z
    .string()
    .regex(/^\d{1,9}$/)
    .optional(),
  model: value.default(''),
  digest: value.default(''),
  boot: value.min(1),
  ca: z
    .string()
    .regex(/^[0-9a-f]{16}$/)
    .optional(),
  loopback: value.refine(isLoopbackHost).optional(),
});

const ROLE_SETTINGS: Record<NodeIdentity['role'], RoleSetting | null> = {
  ROLE_UNSPECIFIED: null,
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
};

/**
 * Empty values are left out, because bonjour-service does not transfer them. The address of `identity` says whether the daemon listens on
 * loopback. `authority`: that of DiscoveredPeer. `moves`: number of changes of the host's addresses since the boot. Without it an advertisement
 * would stay the same under a new address, and listeners would ignore it.
 */
export function encodeTxt(identity: NodeIdentity, authority: string | null, moves = 0): Record<string, string> {
  const host = hostOf(identity.address);
  const entries = {
    cluster: identity.cluster,
    role: ROLE_SETTINGS[identity.role] ?? 'unspecified',
    id: identity.id,
    protocol: String(identity.protocolVersion),
    newest: String(newestProtocolOf(identity)),
    model: cutToBytes(identity.modelName),
    digest: identity.packDigest,
    boot: identity.bootId,
    moves: moves === 0 ? '' : String(moves),
    ca: authority ?? '',
    // Peers dial the sender's address, at which such a daemon does not listen.
    loopback: isLoopbackHost(host) ? host : '',
  };
  return Object.fromEntries(Object.entries(entries).filter(([, text]) => text !== ''));
}

function cutToBytes(text: string): string {
  let shortened = text;
  while (Buffer.byteLength(shortened) > VALUE_LENGTH_LIMIT) shortened = shortened.slice(0, -1);
  return shortened;
}

/**
 * Reads a record. A daemon that listens on loopback is a peer of its own host alone: elsewhere that address would be a daemon of the reader's own.
 * Pure.
 */
export function decodeTxt(txt: unknown, sender: Sender): Heard {
  const parsed = txtSchema.safeParse(txt);
  if (!parsed.success) {
    const issues = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
    return { kind: 'malformed', reason: issues.join('; ') };
  }
  const { cluster, role, id, protocol, newest, model, digest, boot, ca, loopback } = parsed.data;
  const isOnLoopback = loopback !== undefined;
  const peer = {
    id,
    role,
    cluster,
    protocolVersion: Number(protocol),
    newestProtocol: Number(newest ?? protocol),
    modelName: model,
    packDigest: digest,
    bootId: boot,
    authority: ca ?? null,
    address: formatAddress(isOnLoopback && sender.isThisHost ? loopback : sender.host, sender.port),
  };
  return { kind: isOnLoopback && !sender.isThisHost ? 'elsewhere' : 'peer', peer };
}
