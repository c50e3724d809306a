import assert from 'node:assert/strict';
import { firstRoster, listPeer, PREVIOUS_KEY_MS } from '../../engine/trust/roster-changes.js';
import { signRoster } from '../../engine/trust/roster.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { createAuthority } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { rosterWithoutKeys } from '../../simulator/network/roster-without-keys.js';
import { KeyLedger } from '../../simulator/faults/key-ledger.js';
import { CLIENT_ID, type Named, ScenarioTrust } from '../../simulator/faults/scenario-trust.js';

const NODES: readonly Named[] = [
  { role: 'main', id: 'main' },
  { role: 'worker', id: 'w0' },
  { role: 'shadow', id: 's0' },
];

function signedOf(digit: string): Buffer {
  const authority = createAuthority('simulated');
  const peer = { role: 'worker', id: 'w0', keyDigest: digit.repeat(64) } as const;
  const roster = listPeer(firstRoster('simulated'), peer, 5);
  assert.ok(!isRefusal(roster));
  return signRoster(roster, authority);
}

describe('rosterWithoutKeys', () => {
  it('is the same for other keys of the same nodes, and tells other rosters apart', () => {
    const [one, other] = [signedOf('a'), signedOf('b')];
    assert.notDeepEqual(one, other);
    assert.equal(rosterWithoutKeys(one).toString(), rosterWithoutKeys(other).toString());
    assert.match(rosterWithoutKeys(one).toString(), /^odmoe roster 1\n\{"cluster":"simulated","count":2,.*"id":"w0"/);
  });
});

describe('KeyLedger', () => {
  it('knows from which roster on a key is over', () => {
    const ledger = new KeyLedger();
    ledger.listed({ cluster: 'c', role: 'worker', id: 'w0' }, 'k', 3);
    assert.equal(ledger.isOver('k', 9), false);
    assert.equal(ledger.isOver('never listed', 9), true);
    ledger.ended('k', 7);
    ledger.ended('k', 8);
    assert.deepEqual([ledger.isOver('k', 6), ledger.isOver('k', 7)], [false, true]);
    assert.deepEqual(ledger.presentOf('w0'), []);
  });
});

describe('the authority of a scenario', () => {
  function opened(): { trust: ScenarioTrust; open: (peer: Named) => ReturnType<ScenarioTrust['open']> } {
    const clock = new VirtualClock();
    const trust = new ScenarioTrust('simulated', NODES, []);
    return { trust, open: (peer) => trust.open(peer, new VirtualRuntime(clock, 1)) };
  }
  const [MAIN, WORKER, SHADOW] = NODES as [Named, Named, Named];
  const certifiedOf = (trust: ReturnType<ScenarioTrust['open']>) => ({
    own: trust.own.certificate,
    roster: trust.roster,
  });

  it('lists all nodes and the clients before it begins, and one node that was removed', () => {
    const { trust, open } = opened();
    const ids = open(MAIN).roster?.entries.map(({ id, removed }) => `${id}${removed === undefined ? '' : ' removed'}`);
    assert.deepEqual(ids, ['main', 'w0', 's0', 'gone removed', CLIENT_ID]);
    assert.deepEqual([trust.isRemoved('gone'), trust.isRemoved('w0'), trust.isRemoved('never')], [true, false, false]);
    assert.equal(trust.clients().roster?.count, trust.count);
  });

  it('removes a node: main goes on with the next roster, and refuses the key that the node had', () => {
    const { trust, open } = opened();
    const [main, worker] = [open(MAIN), open(WORKER)];
    const before = worker.roster?.count;
    assert.equal(trust.remove('w0'), true);
    assert.equal(trust.remove('w0'), false);
    assert.equal(main.roster?.count, trust.count);
    // Main's post brings the roster to others.
    assert.equal(worker.roster?.count, before);
    assert.ok(main.signedRoster !== null);
    worker.takeRoster(main.signedRoster);
    assert.match(worker.ownRemoval ?? '', /w0 was removed/);
  });

  it('lets a removed node come back with another key alone', () => {
    const { trust, open } = opened();
    open(MAIN);
    const before = certifiedOf(open(WORKER));
    assert.equal(trust.forget('w0'), false);
    trust.remove('w0');
    assert.equal(trust.forget('w0'), true);
    const after = open(WORKER);
    assert.notDeepEqual(after.own.certificate, before.own);
    assert.equal(after.ownRemoval, null);
    assert.equal(trust.ledger.presentOf('w0').length, 1);
  });

  it('renews a key: both keys are good until the day of the old one ends', () => {
    const { trust, open } = opened();
    const main = open(MAIN);
    const shadow = open(SHADOW);
    const before = shadow.own.certificate;
    assert.equal(trust.endPreviousKeys(), false);
    assert.equal(trust.renew('s0'), true);
    assert.notDeepEqual(shadow.own.certificate, before);
    assert.deepEqual(shadow.own.certificate, trust.certificateOf('s0'));
    assert.equal(trust.ledger.presentOf('s0').length, 2);
    assert.equal(trust.endPreviousKeys(), true);
    assert.equal(trust.ledger.presentOf('s0').length, 1);
    assert.equal(
      main.roster?.entries.some(({ previousKeyDigest }) => previousKeyDigest !== undefined),
      false,
    );
    assert.ok(PREVIOUS_KEY_MS > 0);
  });

  it('does not renew a key while main is away', () => {
    const { trust, open } = opened();
    open(SHADOW);
    assert.equal(trust.renew('s0'), false);
  });

  it('starts main with a roster of before, and others with the newest that they had', () => {
    const { trust, open } = opened();
    assert.equal(
      trust.openEarlier((rosters) => rosters[0]!),
      false,
    );
    const main = open(MAIN);
    const worker = open(WORKER);
    trust.remove('s0');
    worker.takeRoster(main.signedRoster!);
    assert.equal(
      trust.openEarlier((rosters) => rosters.at(-1)!),
      true,
    );
    assert.equal(open(MAIN).roster?.count, trust.count - 1);
    assert.equal(open(WORKER).roster?.count, trust.count);
    trust.openNewest();
    assert.equal(open(MAIN).roster?.count, trust.count);
  });
});
