/** A daemon's data in mDNS, as TXT keys and back. */
import { z } from 'zod';
import type { RoleSetting } from '../../settings/setting-choices.js';
import type { NodeIdentity } from '../../wire/messages.js';

/** A daemon heard by mDNS. Its data only suggest an address to dial; the handshake decides. */
export interface DiscoveredPeer {
  id: string;
  role: RoleSetting;
  cluster: string;
  protocolVersion: number;
  modelName: string;
  packDigest: string;
  bootId: string;
  /** "host:port": the sender's own address and its service port. */
  address: string;
}

/** Longest TXT value; one TXT string holds 255 bytes with its key. */
const VALUE_LENGTH_LIMIT = 200;

const value = z.string().max(VALUE_LENGTH_LIMIT);
const txtSchema = z.object({
  cluster: value.min(1),
  role: z.enum(['main', 'shadow', 'worker']),
  id: value.min(1),
  protocol: z.string().regex(/^\d{1,9}$/),
  model: value.default(''),
  digest: value.default(''),
  boot: value.min(1),
});

const ROLE_SETTINGS: Record<NodeIdentity['role'], RoleSetting | null> = {
  ROLE_UNSPECIFIED: null,
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
};

/**
 * Empty values are left out, because bonjour-service does not transfer them. `moves`: number of changes of the host's addresses since the boot.
 * Without it an advertisement would stay the same under a new address, and listeners would ignore it.
 */
export function encodeTxt(identity: NodeIdentity, moves = 0): Record<string, string> {
  const entries = {
    cluster: identity.cluster,
    role: ROLE_SETTINGS[identity.role] ?? 'unspecified',
    id: identity.id,
    protocol: String(identity.protocolVersion),
    model: cutToBytes(identity.modelName),
    digest: identity.packDigest,
    boot: identity.bootId,
    moves: moves === 0 ? '' : String(moves),
  };
  return Object.fromEntries(Object.entries(entries).filter(([, text]) => text !== ''));
}

function cutToBytes(text: string): string {
  let shortened = text;
  while (Buffer.byteLength(shortened) > VALUE_LENGTH_LIMIT) shortened = shortened.slice(0, -1);
  return shortened;
}

/** The peer, or `malformed` with the reason if the record is not one of ours. */
export function decodeTxt(txt: unknown, address: string): DiscoveredPeer | { malformed: string } {
  const parsed = txtSchema.safeParse(txt);
  if (!parsed.success) {
    return { malformed: parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ') };
  }
  const { cluster, role, id, protocol, model, digest, boot } = parsed.data;
  return {
    id,
    role,
    cluster,
    protocolVersion: Number(protocol),
    modelName: model,
    packDigest: digest,
    bootId: boot,
    address,
  };
}
