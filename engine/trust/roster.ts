import { sign, verify, X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { parsedJson } from '../../shared/base/json/parsed-json.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import { clusterOfAuthority, type Authority, type CertifiedPeer } from '../../shared/transport/trust/certificate.js';
import { operatorJoinCommand } from '../../shared/transport/trust/operator-join.js';
import { PEER_ROLES, type PeerRole } from '../../shared/transport/trust/peer-role.js';
import type { Refusal } from '../../shared/transport/trust/refusal.js';
import { ROSTER_LIMIT_BYTES } from '../../shared/wire/limits.js';

/** A key that is or was in the cluster. An id has one entry that is not removed, at most; keys that were replaced by force keep theirs. */
export interface RosterEntry {
  readonly id: string;
  readonly role: PeerRole;
  readonly keyDigest: string;
  /** The key before the newest renewal. It is good for a day. */
  readonly previousKeyDigest?: string | undefined;
  /** Time of the newest renewal by main's clock, in milliseconds since 1970. */
  readonly renewedAt?: number | undefined;
  /** Time of joining by main's clock, in milliseconds since 1970. */
  readonly since: number;
  /** Time of removal by main's clock, in milliseconds since 1970. */
  readonly removed?: number | undefined;
}

/** The list of the nodes of a cluster, signed by its authority. Each change makes the next count. */
export interface Roster {
  readonly cluster: string;
  readonly count: number;
  readonly entries: readonly RosterEntry[];
  /** Digests of the manifests of packs that nodes may fetch, 64 digits of base 16. */
  readonly packs: readonly string[];
}

/**
 * The way in which a node reads its roster. Main and shadow take the peers that are listed. Workers go on while main is away, with a roster that may be older
 * than a peer: they take every certified peer that the roster does not exclude.
 */
export type Admission = 'listed' | 'not-removed';

export const ROSTER_ENTRIES_LIMIT = 1024;
export const ROSTER_PACKS_LIMIT = 64;
/** Counts fit into the serial numbers of certificates. */
export const ROSTER_COUNT_LIMIT = 2 ** 48 - 1;

/** The first line of a roster. It is signed too, so no other text that the authority signs can pass for a roster. */
const HEAD = 'odmoe roster 1\n';

/** The last time that a Date can hold. */
const TIME = z.int().min(0).max(8.64e15);
const DIGEST = z.string().regex(/^[0-9a-f]{64}$/);
const IDENTIFIER = z.string().refine(isIdentifier);

const entrySchema = z
  .strictObject({
    id: IDENTIFIER,
    role: z.enum(PEER_ROLES),
    keyDigest: DIGEST,
    previousKeyDigest: DIGEST.optional(),
    renewedAt: TIME.optional(),
    since: TIME,
    removed: TIME.optional(),
  })
  .refine((entry) => entry.previousKeyDigest === undefined || entry.renewedAt !== undefined);

const rosterSchema = z
  .strictObject({
    cluster: IDENTIFIER,
    count: z.int().min(1).max(ROSTER_COUNT_LIMIT),
    entries: z.array(entrySchema).max(ROSTER_ENTRIES_LIMIT),
    packs: z.array(DIGEST).max(ROSTER_PACKS_LIMIT),
  })
  .refine(({ entries }) => {
    const ids = entries.filter(({ removed }) => removed === undefined).map(({ id }) => id);
    const keys = entries.flatMap(keysOf);
    return new Set(ids).size === ids.length && new Set(keys).size === keys.length;
  });

/** The digests of the keys of an entry. */
export function keysOf({ keyDigest, previousKeyDigest }: RosterEntry): string[] {
  return previousKeyDigest === undefined ? [keyDigest] : [keyDigest, previousKeyDigest];
}

/** The entry of the node that is in the cluster with this id. */
export function presentEntry(roster: Roster, id: string): RosterEntry | undefined {
  return roster.entries.find((entry) => entry.id === id && entry.removed === undefined);
}

/** The signed bytes of a roster: lines of UTF-8 (head, signature, JSON). */
export function signRoster(roster: Roster, authority: Authority): Buffer {
  assertInvariant(rosterSchema.safeParse(roster).success, 'A roster that is to be signed breaks a rule of rosters.');
  assertInvariant(roster.cluster === authority.cluster, 'A roster is signed by the authority of another cluster.');
  const text = `${JSON.stringify(roster)}\n`;
  const signature = sign('sha256', Buffer.from(`${HEAD}${text}`), authority.key);
  const bytes = Buffer.from(`${HEAD}${signature.toString('base64')}\n${text}`);
  assertInvariant(bytes.length <= ROSTER_LIMIT_BYTES, `A roster has ${bytes.length} bytes.`);
  return bytes;
}

/** Reads signed bytes. Refused: what is no roster, or not signed by this authority (DER) for its cluster. */
export function readRoster(bytes: Uint8Array, authorityDer: Buffer): Roster | Refusal {
  if (bytes.length > ROSTER_LIMIT_BYTES) {
    return { refusal: `the roster has ${bytes.length} bytes, and at most ${ROSTER_LIMIT_BYTES} are taken` };
  }
  const [, signature, text] = /^odmoe roster 1\n([A-Za-z0-9+/=]+)\n(.+\n)$/.exec(Buffer.from(bytes).toString()) ?? [];
  if (signature === undefined || text === undefined) {
    return { refusal: 'the roster is damaged, or of another version of odmoe' };
  }
  const { publicKey } = new X509Certificate(authorityDer);
  const bytesOfSignature = Buffer.from(signature, 'base64');
  // Base64 has spare bits at its end: only one text of a signature counts, so that no roster has two forms.
  const isCanonical = bytesOfSignature.toString('base64') === signature;
  const isSigned = isCanonical && verify('sha256', Buffer.from(`${HEAD}${text}`), publicKey, bytesOfSignature);
  if (!isSigned) return { refusal: "the roster is not signed by this cluster's authority" };
  const { data: roster } = rosterSchema.safeParse(parsedJson(text));
  if (roster === undefined) return { refusal: 'the roster breaks a rule of rosters: use odmoe of the same version' };
  if (roster.cluster !== clusterOfAuthority(authorityDer)) return { refusal: 'the roster is of another cluster' };
  return roster;
}

/** Null: the peer is let in. Otherwise the reason why not, in words for the peer. `roster`: the newest one; null: there is none yet. */
export function admit(peer: CertifiedPeer, roster: Roster | null, admission: Admission): string | null {
  if (roster === null) {
    return admission === 'listed' ? 'this node has no roster of its cluster yet: try again soon' : null;
  }
  if (peer.cluster !== roster.cluster) {
    return `the peer is of the cluster "${peer.cluster}", and this node is of "${roster.cluster}"`;
  }
  const ofKey = roster.entries.find((entry) => keysOf(entry).includes(peer.keyDigest));
  if (ofKey === undefined) return admitUnknownKey(peer, roster, admission);
  if (ofKey.removed !== undefined) return removalWords(ofKey, roster.cluster);
  if (ofKey.id !== peer.id || ofKey.role !== peer.role) {
    const listed = `${ofKey.role} ${ofKey.id}`;
    return `the key of ${peer.role} ${peer.id} is listed as that of ${listed} in "${roster.cluster}": ${rejoin(peer)}`;
  }
  return null;
}

/**
 * The peer's key is not in the roster. A certificate that is younger than our roster is listed in a newer one: its node has joined or renewed its
 * key since. An older one was listed once, and is no more: its key was replaced, or removed so long ago that the roster has forgotten it. A younger
 * main is taken by all, as it brings the newer roster; a shadow that was off while main's key was renewed could never get that roster otherwise.
 */
function admitUnknownKey(peer: CertifiedPeer, roster: Roster, admission: Admission): string | null {
  const { id, issuedAt } = peer;
  const ofId = roster.entries.filter((entry) => entry.id === id);
  const isYounger = issuedAt === undefined ? ofId.length === 0 : issuedAt >= roster.count;
  if (isYounger && (admission === 'not-removed' || peer.role === 'main')) return null;
  const removed = ofId.findLast((entry) => entry.removed !== undefined);
  if (presentEntry(roster, id) !== undefined) {
    return `the key of ${named(peer)} is not the one that "${roster.cluster}" has for it (it was replaced): ${rejoin(peer)}`;
  }
  if (removed !== undefined) return removalWords(removed, roster.cluster);
  return `${named(peer)} is not in the roster of "${roster.cluster}": ${rejoin(peer)}`;
}

/**
 * The peer of a connection that stands, after a newer roster. If its node has renewed its key, it is the peer with the new key: the connection does
 * not end with the day of the old one.
 */
export function withNewestKey(peer: CertifiedPeer, roster: Roster | null): CertifiedPeer {
  const entry = roster === null ? undefined : presentEntry(roster, peer.id);
  const isRenewed = entry?.role === peer.role && entry.previousKeyDigest === peer.keyDigest;
  return isRenewed ? { ...peer, keyDigest: entry.keyDigest } : peer;
}

/** The words for an id whose node was removed, where no other one has it; null: one has it, or none was removed. */
export function removalOf(roster: Roster, id: string): string | null {
  if (presentEntry(roster, id) !== undefined) return null;
  const removed = roster.entries.findLast((entry) => entry.id === id);
  return removed === undefined ? null : removalWords(removed, roster.cluster);
}

function removalWords(entry: RosterEntry, cluster: string): string {
  const time = entry.removed === undefined ? '' : ` (${minuteOf(entry.removed)})`;
  return `${named(entry)} was removed from "${cluster}"${time}. To come back: ${rejoin(entry)}`;
}

/** The command by which a peer comes back. */
function rejoin({ role, id }: { role: PeerRole; id: string }): string {
  if (role === 'main') return "a main belongs on the host that has the authority's files: start it there, and no other";
  if (role !== 'operator') return `odmoe ${role} --rejoin`;
  return `on main's host odmoe operator add ${id} makes a token, then here ${operatorJoinCommand(id)}`;
}

/** An operator is a person. */
function named({ role, id }: { role: PeerRole; id: string }): string {
  return role === 'operator' ? `operator ${id}` : `node ${id}`;
}

/** "2026-11-25 10:02 UTC" */
export function minuteOf(timeMs: number): string {
  return `${new Date(timeMs).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

/**
 * The roster to go on with. Refused: an older one than ours, or another one of the same count; a removed node could come back by it.
 * @param have ours; null: none yet
 */
export function newerRoster(have: Roster | null, offered: Roster): Roster | Refusal {
  if (have === null) return offered;
  if (offered.cluster !== have.cluster) return { refusal: `the roster offered is of the cluster "${offered.cluster}"` };
  if (offered.count > have.count) return offered;
  if (offered.count < have.count) {
    const counts = `count ${offered.count}, and this node has seen ${have.count}`;
    return { refusal: `the roster offered is an old one (${counts}): if main was restored, use odmoe cluster restore` };
  }
  const isSame = JSON.stringify(offered) === JSON.stringify(have);
  return isSame ? have : { refusal: `two rosters have the count ${have.count}: two mains sign for this cluster` };
}
