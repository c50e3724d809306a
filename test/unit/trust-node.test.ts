import assert from 'node:assert/strict';
import { createPublicKey, X509Certificate } from 'node:crypto';
import { NodeTrust, type NodeTrustOptions } from '../../engine/trust/node-trust.js';
import { type Roster, type RosterEntry, signRoster } from '../../engine/trust/roster.js';
import {
  type CertifiedPeer,
  createAuthority,
  createNodeKey,
  issueCertificate,
  keyDigest,
} from '../../shared/transport/trust/certificate.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { StandingPeer } from '../../shared/transport/trust/standing-peer.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';

const AUTHORITY = createAuthority('home');
const DIGEST = 'ab'.repeat(32);
const WORKER: CertifiedPeer = { cluster: 'home', role: 'worker', id: 'jetson-2', keyDigest: DIGEST, issuedAt: 1 };
const LISTED: RosterEntry = { id: 'jetson-2', role: 'worker', keyDigest: DIGEST, since: 1 };

function certify(): OwnCertificate {
  const key = createNodeKey();
  return { key, certificate: issueCertificate(AUTHORITY, { role: 'main', id: 'box' }, createPublicKey(key)) };
}

function signed(count: number, entries: readonly RosterEntry[], authority = AUTHORITY): Uint8Array {
  const roster: Roster = { cluster: 'home', count, entries, packs: [] };
  return signRoster(roster, authority);
}

describe('trust of a node', () => {
  let saved: Uint8Array[];

  function trustOf(changes: Partial<NodeTrustOptions> = {}): NodeTrust {
    saved = [];
    const saveRoster: NodeTrustOptions['saveRoster'] = (bytes) => saved.push(bytes);
    const { certificate: authority } = AUTHORITY;
    return new NodeTrust({
      cluster: 'home',
      authority,
      own: certify(),
      admission: 'listed',
      signedRoster: null,
      saveRoster,
      ...changes,
    });
  }

  it('takes a newer roster, keeps it, and tells its watchers once', () => {
    const trust = trustOf({ signedRoster: signed(3, []) });
    let told = 0;
    const stop = trust.watch(() => (told += 1));
    assert.match(trust.refusalOf(WORKER) ?? '', /not in the roster/);
    const bytes = signed(4, [LISTED]);
    trust.takeRoster(bytes);
    trust.takeRoster(bytes);
    assert.equal(trust.refusalOf(WORKER), null);
    assert.deepEqual([told, saved], [1, [bytes]]);
    stop();
    trust.takeRoster(signed(5, [{ ...LISTED, removed: 0 }]));
    assert.equal(told, 1);
    assert.match(trust.refusalOf(WORKER) ?? '', /was removed from "home"/);
  });

  it('goes on with a connection of before a renewal, and ends one opened with the old key after it with the day of that key', () => {
    const trust = trustOf({ signedRoster: signed(3, [LISTED]) });
    const before = new StandingPeer(WORKER, trust);
    const renewed: RosterEntry = { ...LISTED, keyDigest: 'cd'.repeat(32), previousKeyDigest: DIGEST, renewedAt: 2 };
    trust.takeRoster(signed(4, [renewed]));
    assert.equal(before.refusal(), null);
    const thief = new StandingPeer(WORKER, trust);
    const node = new StandingPeer({ ...WORKER, keyDigest: renewed.keyDigest, issuedAt: 3 }, trust);
    // Another change within the day.
    trust.takeRoster(signed(5, [renewed, { ...LISTED, id: 'other', keyDigest: 'ef'.repeat(32) }]));
    for (const each of [before, thief, node]) assert.equal(each.refusal(), null);
    trust.takeRoster(signed(6, [{ ...LISTED, keyDigest: renewed.keyDigest, renewedAt: 2 }]));
    assert.deepEqual([before.refusal(), node.refusal()], [null, null]);
    assert.match(thief.refusal() ?? '', /the key of node jetson-2 is not the one .* \(it was replaced\)/);
    assert.deepEqual([before.shown, before.peer.keyDigest], [WORKER, renewed.keyDigest]);
  });

  it('knows from a roster that its own node was removed', () => {
    const own = certify();
    const trust = trustOf({ own, signedRoster: signed(3, []) });
    const { publicKey } = new X509Certificate(own.certificate);
    const entry: RosterEntry = { id: 'box', role: 'main', keyDigest: keyDigest(publicKey), since: 1 };
    trust.takeRoster(signed(4, [entry]));
    assert.equal(trust.ownRemoval, null);
    trust.takeRoster(signed(5, [{ ...entry, removed: 0 }]));
    assert.match(trust.ownRemoval ?? '', /node box was removed from "home"/);
  });

  it('goes on with its own roster when an older one, or one of another authority, is offered', () => {
    const trust = trustOf({ signedRoster: signed(4, [{ ...LISTED, removed: 0 }]) });
    for (const offered of [signed(3, [LISTED]), signed(9, [LISTED], createAuthority('home')), Buffer.from('odmoe')]) {
      assert.ok(isRefusal(trust.takeRoster(offered)));
    }
    assert.equal(trust.roster?.count, 4);
    assert.match(trust.refusalOf(WORKER) ?? '', /was removed/);
    assert.deepEqual(saved, []);
  });

  it('lets a worker take certified peers before it has a roster, and lets main take none', () => {
    assert.equal(trustOf({ admission: 'not-removed' }).refusalOf(WORKER), null);
    assert.match(trustOf({ admission: 'listed' }).refusalOf(WORKER) ?? '', /no roster/);
  });

  it('shows a renewed certificate, and tells its watchers', () => {
    const trust = trustOf();
    let told = 0;
    trust.watch(() => (told += 1));
    const own = certify();
    trust.renew(own);
    assert.equal(trust.own, own);
    assert.equal(told, 1);
  });
});
