import assert from 'node:assert/strict';
import { checkBlame } from '../../simulator/faults/run-scenario.js';
import type { Fault } from '../../simulator/faults/scenario.js';

const stop = (node: string): Fault => ({ kind: 'stopAndContinue', atMs: 1, forMs: 2, node, peer: '', seed: 0 });
const lost = (node: string, reason: string) => ({
  node,
  level: 'warn' as const,
  event: 'worker lost',
  fields: { reason },
});

describe('a simulated node that stood still', () => {
  for (const reason of [
    'worker w1 at w1:1 is lost: no answer to an execute within 30000 ms',
    'w1 has not answered for 0.7 s: it may be busy, stopped or cut off',
    'main:1 did not answer in time',
    'no welcome within 5000 ms',
    'no hello came within 5000 ms',
    'no connection to w1:1 within 3000 ms',
  ]) {
    it(`is distinguished from the others when it says: ${reason}`, () => {
      const faults = [stop('main'), stop('main')];
      assert.equal(checkBlame({ faults }, [lost('main', reason)]).length, 1);
      assert.deepEqual(checkBlame({ faults }, [lost('w1', reason)]), []);
      assert.deepEqual(checkBlame({ faults: [...faults, stop('w1')] }, [lost('main', reason)]), []);
      assert.deepEqual(checkBlame({ faults: [{ ...stop('main'), kind: 'cutBothWays' }] }, [lost('main', reason)]), []);
    });
  }

  it('may report that a peer has ended the connection', () => {
    assert.deepEqual(checkBlame({ faults: [stop('main')] }, [lost('main', 'it ended the stream')]), []);
  });
});
