import assert from 'node:assert/strict';
import { createPublicKey, type KeyObject } from 'node:crypto';
import fc from 'fast-check';
import {
  createAuthority,
  createNodeKey,
  issueCertificate,
  keyDigest,
  readPeerCertificate,
  type CertifiedPeer,
} from '../../shared/transport/trust/certificate.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import {
  allowPacks,
  certifyPeer,
  firstRoster,
  listPeer,
  PREVIOUS_KEY_MS,
  removePeer,
  RENEWAL_PAUSE_MS,
  renewPeer,
  restoredRoster,
  takenWords,
  withoutPreviousKeys,
  type CertifiedEntry,
} from '../../engine/trust/roster-changes.js';
import {
  admit,
  newerRoster,
  readRoster,
  removalOf,
  ROSTER_COUNT_LIMIT,
  ROSTER_ENTRIES_LIMIT,
  ROSTER_PACKS_LIMIT,
  signRoster,
  withNewestKey,
  type Roster,
} from '../../engine/trust/roster.js';
import { ROSTER_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { done, refusalOf } from './refusals.js';

const NOW_MS = Date.UTC(2026, 10, 25, 10, 2, 33);
const home = createAuthority('home');
const keys = [1, 2, 3, 4].map(() => createPublicKey(createNodeKey()));

function publicKey(index: number): KeyObject {
  const key = keys[index];
  assert.ok(key !== undefined);
  return key;
}

function joined(roster: Roster, id: string, key: number, role: PeerRole = 'worker'): CertifiedEntry {
  return done(certifyPeer(home, roster, { role, id }, publicKey(key), NOW_MS));
}

function peerOf({ certificate }: CertifiedEntry): CertifiedPeer {
  return done(readPeerCertificate(certificate, home.certificate));
}

/** A digest of 64 digits that is all this number. */
function digestOf(number: number): string {
  return number.toString(16).padStart(64, '0');
}

/** The longest roster that the rules allow. */
function longestRoster(): Roster {
  return {
    cluster: 'c'.repeat(63),
    count: ROSTER_COUNT_LIMIT,
    entries: Array.from({ length: ROSTER_ENTRIES_LIMIT }, (_, index) => ({
      id: `n${index}`.padEnd(63, '-'),
      role: 'operator',
      keyDigest: digestOf(2 * index),
      previousKeyDigest: digestOf(2 * index + 1),
      renewedAt: 8.64e15,
      since: 8.64e15,
      removed: 8.64e15,
    })),
    packs: Array.from({ length: ROSTER_PACKS_LIMIT }, (_, index) => digestOf(index)),
  };
}

describe('a signed roster', () => {
  const roster = joined(firstRoster('home'), 'jetson-2', 0).roster;

  it('is read as it was signed', () => {
    assert.deepEqual(readRoster(signRoster(roster, home), home.certificate), roster);
    assert.deepEqual(roster, {
      cluster: 'home',
      count: 2,
      entries: [{ id: 'jetson-2', role: 'worker', keyDigest: keyDigest(publicKey(0)), since: NOW_MS }],
      packs: [],
    });
  });

  it('is refused with any byte changed', () => {
    const bytes = signRoster(roster, home);
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), (place, change) => {
        const changed = Buffer.from(bytes);
        changed[place] = (changed[place] ?? 0) ^ change;
        assert.ok(isRefusal(readRoster(changed, home.certificate)));
      }),
    );
    assert.match(refusalOf(readRoster(bytes.subarray(0, -1), home.certificate)), /damaged/);
    assert.match(refusalOf(readRoster(Buffer.from('{}'), home.certificate)), /damaged/);
    assert.match(refusalOf(readRoster(Buffer.alloc(ROSTER_LIMIT_BYTES + 1), home.certificate)), /at most/);
  });

  it('is refused from another authority of the same name, and signed by none of another cluster', () => {
    const other = createAuthority('home');
    assert.match(refusalOf(readRoster(signRoster(roster, other), home.certificate)), /not signed by this cluster/);
    assert.throws(() => signRoster({ ...roster, cluster: 'away' }, home), /another cluster/);
  });

  it('has room for as many entries as it may have, however long they are', () => {
    const longest = longestRoster();
    const authority = createAuthority(longest.cluster);
    const bytes = signRoster(longest, authority);
    assert.ok(bytes.length > ROSTER_LIMIT_BYTES / 2);
    assert.deepEqual(readRoster(bytes, authority.certificate), longest);
  });

  it('is signed only where it keeps the rules', () => {
    const [entry] = roster.entries;
    assert.ok(entry !== undefined);
    for (const wrong of [
      { count: 0 },
      { count: 1.5 },
      { entries: [entry, { ...entry, keyDigest: digestOf(1) }] },
      { entries: [entry, { ...entry, id: 'other' }] },
      { entries: [{ ...entry, previousKeyDigest: digestOf(1) }] },
      { entries: [{ ...entry, id: 'a b' }] },
      { packs: ['12'] },
    ]) {
      assert.throws(() => signRoster({ ...roster, ...wrong }, home), /breaks a rule/, JSON.stringify(wrong));
    }
  });
});

describe('the newest roster', () => {
  const roster = firstRoster('home');
  const withCount = (count: number): Roster => ({ ...roster, count });

  it('never has a lower count than one before', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1 }), (counts) => {
        let have: Roster | null = null;
        for (const count of counts) {
          const result: Roster | Refusal = newerRoster(have, withCount(count));
          const before: number = have?.count ?? 0;
          assert.equal(isRefusal(result), count < before);
          if (!isRefusal(result)) have = result;
        }
        assert.equal(have?.count, Math.max(...counts));
      }),
    );
  });

  it('is not another one of the same count, or of another cluster', () => {
    assert.match(refusalOf(newerRoster(withCount(3), { ...withCount(3), packs: [digestOf(1)] })), /two mains/);
    assert.match(refusalOf(newerRoster(withCount(3), { ...withCount(4), cluster: 'away' })), /cluster "away"/);
    assert.match(refusalOf(newerRoster(withCount(3), withCount(2))), /count 2, and this node has seen 3/);
  });
});

describe('admission', () => {
  const first = firstRoster('home');
  const first2 = joined(first, 'jetson-2', 0);
  const worker = peerOf(first2);

  it('lets a listed peer in everywhere', () => {
    assert.equal(admit(worker, first2.roster, 'listed'), null);
    assert.equal(admit(worker, first2.roster, 'not-removed'), null);
  });

  it('refuses a removed peer everywhere, in words', () => {
    const removed = done(removePeer(first2.roster, 'jetson-2', NOW_MS));
    const words = 'node jetson-2 was removed from "home" (2026-11-25 10:02 UTC). To come back: odmoe worker --rejoin';
    assert.equal(admit(worker, removed, 'listed'), words);
    assert.equal(admit(worker, removed, 'not-removed'), words);
    const again = joined(removed, 'jetson-2', 1).roster;
    assert.deepEqual(
      [removed, first2.roster, again].map((roster) => removalOf(roster, 'jetson-2')),
      [words, null, null],
    );
    assert.equal(removalOf(removed, 'another'), null);
  });

  it('waits at main for a roster, and at a worker for none', () => {
    assert.match(admit(worker, null, 'listed') ?? '', /no roster/);
    assert.equal(admit(worker, null, 'not-removed'), null);
  });

  it('lets a peer that joined after our roster in at workers alone', () => {
    assert.match(admit(worker, first, 'listed') ?? '', /jetson-2 is not in the roster of "home"/);
    assert.equal(admit(worker, first, 'not-removed'), null);
    const later = { ...first, count: 2 };
    assert.match(admit(worker, later, 'not-removed') ?? '', /not in the roster/);
  });

  it('takes a peer without a count unless its id is known', () => {
    const uncounted = done(
      readPeerCertificate(issueCertificate(home, { role: 'worker', id: 'w9' }, publicKey(3)), home.certificate),
    );
    assert.equal('issuedAt' in uncounted, false);
    assert.equal(admit(uncounted, first2.roster, 'not-removed'), null);
    assert.match(admit({ ...uncounted, id: 'jetson-2' }, first2.roster, 'not-removed') ?? '', /was replaced/);
  });

  it("refuses another cluster's peer, and a key that is listed for another peer", () => {
    assert.match(admit({ ...worker, cluster: 'away' }, first2.roster, 'listed') ?? '', /"away", and this node is/);
    for (const other of [{ id: 'jetson-3' }, { role: 'main' as const }]) {
      const words = admit({ ...worker, ...other }, first2.roster, 'not-removed') ?? '';
      assert.match(words, /is listed as that of worker jetson-2/);
    }
  });

  it('takes a renewed key at once, the one before for a day, and none before that', () => {
    const renewed = done(renewPeer(home, first2.roster, worker, publicKey(1), NOW_MS));
    const after = peerOf(renewed);
    for (const admission of ['listed', 'not-removed'] as const) {
      assert.equal(admit(after, renewed.roster, admission), null);
      assert.equal(admit(worker, renewed.roster, admission), null);
    }
    // A worker that has not heard of the renewal.
    assert.equal(admit(after, first2.roster, 'not-removed'), null);
    const dayOfRenewal = withoutPreviousKeys(renewed.roster, NOW_MS + PREVIOUS_KEY_MS, () => true);
    assert.equal(dayOfRenewal, renewed.roster);
    const notShown = withoutPreviousKeys(renewed.roster, NOW_MS + 2 * PREVIOUS_KEY_MS, () => false);
    assert.equal(notShown, renewed.roster, 'the node may have nothing but its old key');
    const later = withoutPreviousKeys(renewed.roster, NOW_MS + PREVIOUS_KEY_MS + 1, (key) => key === after.keyDigest);
    assert.equal(later.entries[0]?.renewedAt, NOW_MS, 'the age of the new key is known');
    assert.equal(later.count, renewed.roster.count + 1);
    for (const admission of ['listed', 'not-removed'] as const) {
      assert.equal(admit(after, later, admission), null);
      assert.match(admit(worker, later, admission) ?? '', /was replaced/);
    }
  });

  it('takes a younger main than the roster in every way, and no younger worker where peers must be listed', () => {
    const renewedMain: CertifiedPeer = { ...worker, role: 'main', id: 'box', keyDigest: digestOf(9), issuedAt: 9 };
    assert.equal(admit(renewedMain, first2.roster, 'listed'), null);
    assert.notEqual(admit({ ...renewedMain, role: 'worker' }, first2.roster, 'listed'), null);
    assert.notEqual(admit({ ...renewedMain, issuedAt: 1 }, first2.roster, 'listed'), null);
  });

  it('goes on with a connection whose node has renewed its key, and not with one whose key was replaced', () => {
    const renewed = done(renewPeer(home, first2.roster, worker, publicKey(1), NOW_MS));
    const after = withNewestKey(worker, renewed.roster);
    assert.equal(after.keyDigest, peerOf(renewed).keyDigest);
    const later = withoutPreviousKeys(renewed.roster, NOW_MS + PREVIOUS_KEY_MS + 1, () => true);
    assert.equal(admit(withNewestKey(after, later), later, 'listed'), null);
    const removed = done(removePeer(renewed.roster, 'jetson-2', NOW_MS));
    assert.match(admit(withNewestKey(worker, removed), removed, 'listed') ?? '', /was removed/);
  });

  it('refuses every key of a node that was removed and came back, but the newest', () => {
    const renewed = done(renewPeer(home, first2.roster, worker, publicKey(1), NOW_MS));
    const twice = done(renewPeer(home, renewed.roster, peerOf(renewed), publicKey(2), NOW_MS + RENEWAL_PAUSE_MS));
    const removed = done(removePeer(twice.roster, 'jetson-2', NOW_MS));
    const back = joined(removed, 'jetson-2', 3);
    for (const old of [worker, peerOf(renewed), peerOf(twice)]) {
      assert.notEqual(admit(old, back.roster, 'listed'), null);
      assert.notEqual(admit(old, back.roster, 'not-removed'), null);
    }
    assert.equal(admit(peerOf(back), back.roster, 'listed'), null);
    // A worker whose roster still has the removal.
    assert.equal(admit(peerOf(back), removed, 'not-removed'), null);
  });
});

describe('changes of the roster', () => {
  const first = firstRoster('home');

  it('list an id once, and a key once', () => {
    const one = joined(first, 'w1', 0).roster;
    assert.equal(joined(one, 'w1', 0).roster, one, 'the same again changes nothing');
    const taken = refusalOf(certifyPeer(home, one, { role: 'worker', id: 'w1' }, publicKey(1), NOW_MS));
    assert.match(taken, /w1 is a worker of "home" since 2026-11-25 10:02 UTC.*odmoe node replace w1/);
    const main = { id: 'box', role: 'main', since: NOW_MS };
    assert.equal(takenWords(main, 'home', '--id'), 'box is main of "home" itself: choose another --id');
    const other = refusalOf(certifyPeer(home, one, { role: 'worker', id: 'w2' }, publicKey(0), NOW_MS));
    assert.match(other, /this key is that of worker w1/);
    const shadow = refusalOf(certifyPeer(home, one, { role: 'shadow', id: 'w1' }, publicKey(0), NOW_MS));
    assert.match(shadow, /this key is that of worker w1/);
    const removed = done(removePeer(one, 'w1', NOW_MS));
    assert.match(refusalOf(certifyPeer(home, removed, { role: 'worker', id: 'w1' }, publicKey(0), NOW_MS)), /removed/);
  });

  it('remove who is there, and never main', () => {
    assert.match(refusalOf(removePeer(first, 'w1', NOW_MS)), /has no node w1/);
    const main = joined(first, 'box', 0, 'main').roster;
    assert.match(refusalOf(removePeer(main, 'box', NOW_MS)), /main itself/);
  });

  it('renew a key again when the reply was lost', () => {
    const one = joined(first, 'w1', 0);
    const peer = peerOf(one);
    const lost = done(renewPeer(home, one.roster, peer, publicKey(1), NOW_MS));
    assert.equal(done(renewPeer(home, lost.roster, peer, publicKey(1), NOW_MS)).roster, lost.roster);
    assert.equal(done(renewPeer(home, lost.roster, peer, publicKey(0), NOW_MS)).roster, lost.roster);
    const laterMs = NOW_MS + RENEWAL_PAUSE_MS;
    const two = joined(lost.roster, 'w2', 3);
    assert.match(refusalOf(renewPeer(home, two.roster, peerOf(lost), publicKey(3), laterMs)), /known already/);
    const stranger = { ...peer, keyDigest: digestOf(7) };
    assert.match(refusalOf(renewPeer(home, lost.roster, stranger, publicKey(2), laterMs)), /no key to renew/);
  });

  it('do not let who has an old key of a node put another one in the place of the newest', () => {
    const one = joined(first, 'w1', 0);
    const renewed = done(renewPeer(home, one.roster, peerOf(one), publicKey(1), NOW_MS));
    const thief = renewPeer(home, renewed.roster, peerOf(one), publicKey(2), NOW_MS + RENEWAL_PAUSE_MS);
    assert.match(refusalOf(thief), /asks by an old key for another one than main has certified since.*node replace w1/);
  });

  it('renew a key once an hour, by a clock that may have been set back', () => {
    const one = joined(first, 'w1', 0);
    const renewed = done(renewPeer(home, one.roster, peerOf(one), publicKey(1), NOW_MS));
    const again = (nowMs: number): ReturnType<typeof renewPeer> =>
      renewPeer(home, renewed.roster, peerOf(renewed), publicKey(2), nowMs);
    assert.match(refusalOf(again(NOW_MS + RENEWAL_PAUSE_MS - 1)), /was renewed less than an hour ago/);
    assert.match(refusalOf(again(NOW_MS)), /was renewed less than an hour ago/);
    done(again(NOW_MS + RENEWAL_PAUSE_MS));
    done(again(NOW_MS - 1));
  });

  it('forget the peer that was removed first where there are too many, and no peer that is there', () => {
    let roster = longestRoster();
    const digest = keyDigest(publicKey(0));
    const entries = roster.entries.map((entry, index) => ({ ...entry, removed: index === 7 ? 5 : 9 }));
    roster = done(listPeer({ ...roster, count: 1, entries }, { role: 'worker', id: 'w1', keyDigest: digest }, NOW_MS));
    assert.equal(roster.entries.length, ROSTER_ENTRIES_LIMIT);
    assert.equal(
      roster.entries.some(({ removed }) => removed === 5),
      false,
    );
    assert.equal(roster.entries.at(-1)?.id, 'w1');
    const present = entries.map(({ id, keyDigest: key, since }) => ({
      id,
      role: 'worker' as const,
      keyDigest: key,
      since,
    }));
    const full = listPeer({ ...roster, entries: present }, { role: 'worker', id: 'w1', keyDigest: digest }, NOW_MS);
    assert.match(refusalOf(full), /1024 nodes, the most/);
  });

  it('allow the newest packs', () => {
    let roster = first;
    for (let pack = 0; pack <= ROSTER_PACKS_LIMIT; pack++) roster = allowPacks(roster, [digestOf(pack)]);
    assert.equal(roster.packs.length, ROSTER_PACKS_LIMIT);
    assert.deepEqual([roster.packs[0], roster.packs.at(-1)], [digestOf(1), digestOf(ROSTER_PACKS_LIMIT)]);
    assert.equal(allowPacks(roster, [digestOf(ROSTER_PACKS_LIMIT)]), roster);
    const both = allowPacks(roster, [digestOf(1), digestOf(9)]);
    assert.deepEqual(both.packs.slice(-2), [digestOf(1), digestOf(9)]);
    assert.equal(both.packs.length, ROSTER_PACKS_LIMIT);
    assert.equal(allowPacks(both, [digestOf(1), digestOf(9)]), both, 'a main that starts again changes nothing');
  });

  it('go on above all that nodes have seen after a backup is restored, and restored again', () => {
    const restored = restoredRoster(first, NOW_MS);
    assert.ok(restored.count >= NOW_MS);
    assert.ok(restoredRoster(first, NOW_MS + 60_000).count > restored.count + 1000);
    assert.equal(restoredRoster({ ...first, count: 2 * NOW_MS }, NOW_MS).count, 2 * NOW_MS + 1_000_000);
  });

  it('keep each roster signable, and its count rising, in any order', () => {
    const changes = fc.array(fc.tuple(fc.nat(3), fc.nat(3), fc.nat(3)), { maxLength: 30 });
    fc.assert(
      fc.property(changes, (steps) => {
        let roster = first;
        let nowMs = NOW_MS;
        for (const [kind, node, key] of steps) {
          nowMs += RENEWAL_PAUSE_MS;
          const id = `w${node}`;
          const present = roster.entries.find((entry) => entry.id === id && entry.removed === undefined);
          const result =
            kind === 0
              ? certifyPeer(home, roster, { role: 'worker', id }, publicKey(key), nowMs)
              : kind === 1
                ? { roster: orSame(removePeer(roster, id, nowMs), roster) }
                : kind === 2
                  ? renewPeer(
                      home,
                      roster,
                      { ...NO_PEER, id, keyDigest: present?.keyDigest ?? '' },
                      publicKey(key),
                      nowMs,
                    )
                  : { roster: withoutPreviousKeys(roster, nowMs + 2 * PREVIOUS_KEY_MS, () => true) };
          if (isRefusal(result)) continue;
          assert.ok(result.roster === roster || result.roster.count === roster.count + 1);
          roster = result.roster;
          assert.deepEqual(readRoster(signRoster(roster, home), home.certificate), roster);
        }
      }),
      { numRuns: 30 },
    );
  });
});

const NO_PEER: CertifiedPeer = { cluster: 'home', role: 'worker', id: '', keyDigest: '' };

function orSame(result: Roster | Refusal, roster: Roster): Roster {
  return isRefusal(result) ? roster : result;
}
