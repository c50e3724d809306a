import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/errors/index.js';
import { ExpertLoader } from '../../worker-node/loader/expert-loader.js';
import { TestLog } from '../integration/harness/test-log.js';
import { TestSlots, testSource } from './worker-test-slots.js';

const STORAGE = { from: 'storage', entry: -1 } as const;

describe('worker: the expert loader', () => {
  it('logs an expert that cannot be loaded once, and again after it could be', async () => {
    const slots = new TestSlots(1);
    const log = new TestLog();
    const loader = new ExpertLoader(slots, testSource, 1, log.logger('worker'));
    const load = async (expert: number, fault: Error | null): Promise<string> => {
      const result = loader.load({
        slot: 0,
        layer: 2,
        expert,
        exponents: STORAGE,
        signMantissa: STORAGE,
        urgent: false,
      });
      await slots.endLoad(0, fault);
      return (await result).outcome;
    };
    const damaged = new OdmoeError('PACK_CORRUPT', 'the checksum is wrong');
    for (let again = 0; again < 5; again++) assert.equal(await load(3, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 1);
    assert.equal(await load(4, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 2);
    assert.equal(await load(3, null), 'loaded');
    assert.equal(await load(3, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 3);
  });
});
