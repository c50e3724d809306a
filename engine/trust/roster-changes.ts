/** Changes of the roster, as main makes them. Each gives the next roster, which main signs, writes to the disk and then sends to its nodes. */
import type { KeyObject } from 'node:crypto';
import {
  issueCertificate,
  keyDigest,
  type Authority,
  type CertifiedPeer,
} from '../../shared/transport/trust/certificate.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import {
  keysOf,
  minuteOf,
  presentEntry,
  ROSTER_ENTRIES_LIMIT,
  ROSTER_PACKS_LIMIT,
  type Roster,
  type RosterEntry,
} from './roster.js';

/** Time for which a key is good after its node has renewed it. */
export const PREVIOUS_KEY_MS = 24 * 3_600_000;

/** Shortest time between two renewals of a peer's key: each one is signed, written to the disk and sent to every node. */
export const RENEWAL_PAUSE_MS = 3_600_000;

/** Counts that a restored roster leaves out: more changes than main can have made since the backup. */
const RESTORED_COUNTS = 1_000_000;

/** A peer of the cluster as main admits it: the roster that lists it, and its certificate (DER). */
export interface CertifiedEntry {
  readonly roster: Roster;
  readonly certificate: Buffer;
}

/** The roster of a new authority. */
export function firstRoster(cluster: string): Roster {
  return { cluster, count: 1, entries: [], packs: [] };
}

/**
 * Lists the key of a peer that joins. The same peer with the same key gives the same roster. Refused: the id is taken, or the key is known.
 * @param nowMs main's clock, milliseconds since 1970
 */
export function listPeer(
  roster: Roster,
  peer: { role: PeerRole; id: string; keyDigest: string },
  nowMs: number,
): Roster | Refusal {
  const { id, role } = peer;
  const ofKey = roster.entries.find((entry) => keysOf(entry).includes(peer.keyDigest));
  const present = presentEntry(roster, id);
  if (ofKey !== undefined && ofKey === present && ofKey.role === role) return roster;
  if (ofKey !== undefined) {
    const holder = ofKey.removed === undefined ? `is that of ${ofKey.role} ${ofKey.id}` : 'was removed';
    return { refusal: `this key ${holder}: take a new one, by --rejoin` };
  }
  if (present !== undefined) {
    return { refusal: takenWords(present, roster.cluster, '--id', ', with another key') };
  }
  const room = entriesWithRoom(roster);
  if (room === null) {
    return {
      refusal: `"${roster.cluster}" has ${ROSTER_ENTRIES_LIMIT} nodes, the most there may be: remove one first`,
    };
  }
  return next(roster, { entries: [...room, { id, role, keyDigest: peer.keyDigest, since: nowMs }] });
}

/** The reason why nobody else can have an id, and what to do. Main's id comes free by no command. `choice`: what names the id. */
export function takenWords(
  { id, role, since }: { id: string; role: string; since: number },
  cluster: string,
  choice: string,
  more = '',
): string {
  if (role === 'main') return `${id} is main of "${cluster}" itself: choose another ${choice}`;
  const holder = `${role === 'operator' ? 'an' : 'a'} ${role} of "${cluster}" since ${minuteOf(since)}`;
  return `${id} is ${holder}${more}: choose another ${choice}, or say on main: odmoe node replace ${id}`;
}

/** Lists a peer that joins, and makes its certificate. Refused: as by listPeer. */
export function certifyPeer(
  authority: Authority,
  roster: Roster,
  peer: { role: PeerRole; id: string },
  publicKey: KeyObject,
  nowMs: number,
): CertifiedEntry | Refusal {
  const listed = listPeer(roster, { ...peer, keyDigest: keyDigest(publicKey) }, nowMs);
  if (isRefusal(listed)) return listed;
  return { roster: listed, certificate: issueCertificate(authority, peer, publicKey, roster.count) };
}

/**
 * Gives a listed peer a new key. The key by which it asks is good for a day more. A peer that asks for a key that it has changes nothing. Refused:
 * the peer is not listed with its key; it asks by the key before its newest for yet another one, as a thief of the old key would; its key was renewed
 * within RENEWAL_PAUSE_MS; or the new key is another's.
 */
export function renewPeer(
  authority: Authority,
  roster: Roster,
  peer: CertifiedPeer,
  publicKey: KeyObject,
  nowMs: number,
): CertifiedEntry | Refusal {
  const { id, role } = peer;
  const newDigest = keyDigest(publicKey);
  const present = presentEntry(roster, id);
  if (present?.role !== role || !keysOf(present).includes(peer.keyDigest)) {
    return { refusal: `node ${id} has no key to renew in "${roster.cluster}": odmoe ${role} --rejoin` };
  }
  if (newDigest === present.keyDigest || newDigest === peer.keyDigest) {
    return { roster, certificate: issueCertificate(authority, peer, publicKey, roster.count) };
  }
  if (peer.keyDigest !== present.keyDigest) {
    const way = `say on main odmoe node replace ${id}, then here odmoe ${role} --rejoin`;
    return {
      refusal: `node ${id} asks by an old key for another one than main has certified since; if that one is lost, ${way}`,
    };
  }
  if (isJustRenewed(present, nowMs)) {
    return { refusal: `the key of node ${id} was renewed less than an hour ago: go on with it, and ask again later` };
  }
  if (roster.entries.some((entry) => keysOf(entry).includes(newDigest))) {
    return { refusal: 'the new key is known already: make another one' };
  }
  const renewed = { ...present, keyDigest: newDigest, previousKeyDigest: peer.keyDigest, renewedAt: nowMs };
  const entries = roster.entries.map((entry) => (entry === present ? renewed : entry));
  return {
    roster: next(roster, { entries }),
    certificate: issueCertificate(authority, peer, publicKey, roster.count),
  };
}

/** A renewal in the future, by a clock that was set back, holds nobody up. */
function isJustRenewed({ renewedAt = -Infinity }: RosterEntry, nowMs: number): boolean {
  return nowMs >= renewedAt && nowMs - renewedAt < RENEWAL_PAUSE_MS;
}

/**
 * Ends the other keys of mains, under whatever id: a cluster has one main, and whoever has the authority is it. After a lost disk or with another
 * --id it is listed anew, and nobody could remove the key that it had before. The same roster: there is no such key.
 */
export function withoutLostMains(roster: Roster, keyDigest: string, nowMs: number): Roster {
  const isLost = (entry: RosterEntry): boolean =>
    entry.role === 'main' && entry.removed === undefined && !keysOf(entry).includes(keyDigest);
  if (!roster.entries.some(isLost)) return roster;
  return next(roster, {
    entries: roster.entries.map((entry) => (isLost(entry) ? { ...entry, removed: nowMs } : entry)),
  });
}

/** Removes a peer. Its keys never come back. Refused: nobody has this id, or main has it. */
export function removePeer(roster: Roster, id: string, nowMs: number): Roster | Refusal {
  const present = presentEntry(roster, id);
  if (present === undefined) {
    return { refusal: `"${roster.cluster}" has no node ${id}: odmoe node list shows those that it has` };
  }
  if (present.role === 'main') return { refusal: `${id} is main itself, which cannot be removed` };
  return next(roster, { entries: withRemoved(roster, present, nowMs) });
}

function withRemoved({ entries }: Roster, removed: RosterEntry, nowMs: number): RosterEntry[] {
  return entries.map((entry) => (entry === removed ? { ...entry, removed: nowMs } : entry));
}

/**
 * Ends the day of keys that were renewed more than a day ago. The same roster: there are none. A node that has not shown its new key may have lost
 * the reply that brought it, so its old key stays good: a restart must not need a token.
 * @param isShown true: a node has shown main that it has the certificate of this key
 */
export function withoutPreviousKeys(roster: Roster, nowMs: number, isShown: (keyDigest: string) => boolean): Roster {
  const isOver = ({ removed, renewedAt, previousKeyDigest, keyDigest: newest }: RosterEntry): boolean =>
    removed === undefined &&
    previousKeyDigest !== undefined &&
    nowMs - (renewedAt ?? nowMs) > PREVIOUS_KEY_MS &&
    isShown(newest);
  if (!roster.entries.some(isOver)) return roster;
  const entries = roster.entries.map((entry) => (isOver(entry) ? withoutPreviousKey(entry) : entry));
  return next(roster, { entries });
}

/** The time of the renewal stays: the age of the new key counts from it. */
function withoutPreviousKey({ id, role, keyDigest, since, renewedAt }: RosterEntry): RosterEntry {
  return { id, role, keyDigest, since, renewedAt };
}

/**
 * Lets nodes fetch a pack and its slices, by the digests of their manifests. Of too many, those are forgotten that were not allowed again for
 * longest.
 */
export function allowPacks(roster: Roster, manifestDigests: readonly string[]): Roster {
  const wanted = [...new Set(manifestDigests)];
  const packs = [...roster.packs.filter((digest) => !wanted.includes(digest)), ...wanted].slice(-ROSTER_PACKS_LIMIT);
  const isSame = packs.length === roster.packs.length && packs.every((digest, index) => digest === roster.packs[index]);
  return isSame ? roster : next(roster, { packs });
}

/**
 * The roster of a backup, to go on with. Nodes have seen higher counts than the backup has, and take only higher ones. Times of day grow from
 * one restoring to the next, so the count has the time as a bound, too.
 */
export function restoredRoster(roster: Roster, nowMs: number): Roster {
  return { ...roster, count: Math.max(roster.count + RESTORED_COUNTS, Math.floor(nowMs)) };
}

function next(roster: Roster, changes: Partial<Pick<Roster, 'entries' | 'packs'>>): Roster {
  return { ...roster, ...changes, count: roster.count + 1 };
}

/** The entries with room for one more; of too many, the peer is forgotten that was removed first. Null: all are present. */
function entriesWithRoom({ entries }: Roster): readonly RosterEntry[] | null {
  if (entries.length < ROSTER_ENTRIES_LIMIT) return entries;
  const removed = entries.filter((entry) => entry.removed !== undefined);
  const oldest = removed.reduce<RosterEntry | null>(
    (first, entry) => (first === null || (entry.removed ?? 0) < (first.removed ?? 0) ? entry : first),
    null,
  );
  return oldest === null ? null : entries.filter((entry) => entry !== oldest);
}
