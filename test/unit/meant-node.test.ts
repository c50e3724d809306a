import assert from 'node:assert/strict';
import { meantNode } from '../../cli/client/meant-node.js';

const IDS = [
  'main',
  'worker-jetson-1-19e40-7602',
  'worker-jetson-b7c8d-7602',
  'worker-jetson-b7c8d-7603',
  'shadow-pc-3f7b9',
];

describe('the node that a user means', () => {
  it('is the one of this id', () => {
    for (const id of IDS) assert.equal(meantNode(id, IDS), id);
    assert.equal(meantNode('jetson', ['jetson', 'worker-jetson-7602']), 'jetson');
  });

  it('is the only daemon on the host of this name, with or without a mark, on a drawn port, too', () => {
    assert.equal(meantNode('jetson-1', IDS), 'worker-jetson-1-19e40-7602');
    assert.equal(meantNode('pc', IDS), 'shadow-pc-3f7b9');
    assert.equal(meantNode('nuc', ['worker-nuc-7602', 'worker-nuc-2-19e40-7602']), 'worker-nuc-7602');
    assert.equal(meantNode('nuc', ['worker-nuc-19e40-p28479']), 'worker-nuc-19e40-p28479');
  });

  it('stays what the user gave where no id fits, so that main says what it has', () => {
    for (const given of ['jetson-2', '', '.*', 'worker', '(', 'Jetson-1']) assert.equal(meantNode(given, IDS), given);
  });

  it('must be said where several daemons run on that host', () => {
    assert.throws(() => meantNode('jetson', IDS), {
      code: 'USAGE',
      message: /say which one \(worker-jetson-b7c8d-7602, worker-jetson-b7c8d-7603\)$/,
    });
  });
});
