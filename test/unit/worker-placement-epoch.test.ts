import assert from 'node:assert/strict';
import type { Predict } from '../../shared/wire/messages.js';
import { EPOCH_LIMIT, PEER_EPOCH_LIMIT, reportedEpoch } from '../../shared/wire/epochs.js';
import { plainPrediction, restartAt } from './wire-messages.js';
import { MAX_EARLY_PREDICTIONS, PlacementEpoch } from '../../worker-node/rpc/placement-epoch.js';

const prediction = (epoch: number, position = 0): Predict =>
  plainPrediction({ epoch, position, layer: 0, experts: [1, 2] });

describe('worker: the placement epoch', () => {
  it('admits messages of the published placement and refuses and counts older ones', () => {
    const epoch = new PlacementEpoch();
    epoch.advance(3);
    assert.equal(epoch.admit(prediction(3)), true);
    assert.throws(() => epoch.admit(prediction(2)), { code: 'STALE_EPOCH', message: /epoch 2 .* epoch 3/ });
    assert.throws(() => epoch.requireCurrent(1), { code: 'STALE_EPOCH' });
    assert.equal(epoch.staleMessages, 2);
  });

  it('accepts no request of main ahead of its placement', () => {
    const epoch = new PlacementEpoch();
    assert.throws(() => epoch.requireCurrent(0), { code: 'PROTOCOL_VIOLATION' });
    assert.throws(() => epoch.requireCurrent(1), { code: 'PROTOCOL_VIOLATION' });
    epoch.advance(1);
    epoch.requireCurrent(1);
  });

  it('stores early predictions until their placement comes', () => {
    const epoch = new PlacementEpoch();
    epoch.advance(1);
    assert.equal(epoch.admit(prediction(2, 7)), false);
    assert.equal(epoch.admit(prediction(3, 8)), false);
    assert.deepEqual(epoch.advance(2), [prediction(2, 7)]);
    assert.deepEqual(epoch.advance(4), []);
    assert.equal(epoch.droppedPredictions, 2);
  });

  it('lets an early restart void waiting predictions at once', () => {
    const epoch = new PlacementEpoch();
    epoch.advance(1);
    for (const position of [7, 8, 9]) epoch.admit(prediction(2, position));
    const other = plainPrediction({ epoch: 2, sequence: 4, position: 9, layer: 0, experts: [1] });
    epoch.admit(other);
    assert.equal(epoch.admitRestart(restartAt({ epoch: 2, position: 8 })), false);
    assert.deepEqual(epoch.advance(2), [prediction(2, 7), other]);
    assert.equal(epoch.admitRestart(restartAt({ epoch: 2, position: 8 })), true);
  });

  it('stores a bounded number of early predictions, the newest', () => {
    const epoch = new PlacementEpoch();
    for (let position = 0; position < MAX_EARLY_PREDICTIONS + 3; position++) epoch.admit(prediction(1, position));
    assert.equal(epoch.droppedPredictions, 6);
    assert.equal(epoch.advance(1)[0]?.pass.position, 3);
  });

  it('stores nothing of a sequence that has ended', () => {
    const epoch = new PlacementEpoch();
    epoch.admit(prediction(1));
    epoch.forget(1);
    assert.deepEqual(epoch.advance(1), []);
  });

  it('continues above all announced epochs after main was lost', () => {
    const epoch = new PlacementEpoch();
    epoch.advance(9);
    epoch.reset();
    assert.equal(epoch.current, 0);
    assert.equal(epoch.highest, 9);
    for (const former of [1, 9]) assert.throws(() => epoch.admit(prediction(former)), { code: 'STALE_EPOCH' });
    assert.equal(epoch.admit(prediction(10)), false);
    assert.deepEqual(epoch.advance(10), [prediction(10)]);
  });

  it('restarts under the next main when a false one has announced an impossible epoch, and tells nobody', () => {
    const epoch = new PlacementEpoch();
    for (const poison of [PEER_EPOCH_LIMIT + 1, EPOCH_LIMIT]) {
      epoch.requireAnnounceable(poison);
      epoch.advance(poison);
      assert.throws(() => epoch.requireAnnounceable(9), { code: 'STALE_EPOCH' }, 'under the same main');
      epoch.reset();
      assert.equal(reportedEpoch(epoch.highest), 0);
      epoch.admit(prediction(poison + 1));
      epoch.requireAnnounceable(9);
      assert.deepEqual([epoch.advance(9), epoch.highest, epoch.waiting], [[], 9, 0]);
      epoch.reset();
    }
    assert.throws(() => epoch.requireAnnounceable(8), { code: 'STALE_EPOCH' }, 'what a main may give is remembered');
    epoch.advance(PEER_EPOCH_LIMIT);
    epoch.reset();
    assert.equal(reportedEpoch(epoch.highest), PEER_EPOCH_LIMIT);
    assert.throws(() => epoch.requireAnnounceable(9), { code: 'STALE_EPOCH' }, 'the next main goes above it');
  });
});
