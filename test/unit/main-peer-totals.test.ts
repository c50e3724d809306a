import assert from 'node:assert/strict';
import { PeerTotals, type CountedPeer } from '../../main-node/cluster/peer-totals.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeStatus } from '../../shared/wire/messages.js';

function peer(bootId: string, counters: Partial<NodeStatus> | null, sentBytes = 0, receivedBytes = 0): CountedPeer {
  const identity = {
    id: 'w',
    role: 'ROLE_WORKER' as const,
    cluster: 'c',
    protocolVersion: 1,
    modelName: 'm',
    packDigest: 'd',
    bootId,
    address: 'a:1',
    device: 'cpu',
    release: '1',
  };
  const status = counters === null ? null : { ...emptyNodeStatus(identity), ...counters };
  return { id: 'w', status, traffic: { sentBytes, receivedBytes, roundTripMs: 0.5 } };
}

describe('main: the totals of a peer', () => {
  it('add up over the starts of its daemon, and count connections to one start once', () => {
    const totals = new PeerTotals();
    const loads = (link: CountedPeer): number | undefined => totals.counts(link)?.loads;
    assert.equal(totals.counts(peer('first', null)), null);
    assert.equal(loads(peer('first', { loads: 5 })), 5);
    totals.ended(peer('first', { loads: 8 }));
    assert.equal(loads(peer('first', { loads: 9 })), 9, 'the connection broke, the daemon went on');
    totals.ended(peer('first', { loads: 11 }));
    assert.equal(loads(peer('second', null)), 11, 'it is back and has reported nothing yet');
    assert.equal(loads(peer('second', { loads: 2 })), 13);
    assert.equal(loads(peer('third', { loads: 1 })), 14, 'a start whose end nobody saw');
  });

  it('include the uses of a cache', () => {
    const pools = { full: 1, compressed: 2, signMantissa: 3, exponent: 4 };
    const cache = { policy: 'lru', bytes: 1, capacities: pools, kept: pools, hits: pools, misses: 7, packed: 0 };
    const totals = new PeerTotals();
    totals.ended(peer('first', { cache }));
    const counts = totals.counts(peer('second', { cache }));
    assert.deepEqual([counts?.cacheWholeHits, counts?.cachePartHits, counts?.cacheMisses], [2, 18, 14]);
  });

  it('include the bytes of all connections', () => {
    const totals = new PeerTotals();
    totals.ended(peer('first', null, 10, 20));
    totals.ended(peer('first', null, 1, 2));
    const expected = { peer: 'w', sentBytes: 111, receivedBytes: 222, roundTripMs: 0.5 };
    assert.deepEqual(totals.bytes(peer('first', null, 100, 200)), expected);
  });
});
