/** Nodes whose stop meets a fault, and a start that fails half-way: all the rest is closed. */
import assert from 'node:assert/strict';
import type { Discovery } from '../../shared/transport/discovery/discovery.js';
import { startMain } from '../../main-node/main.js';
import { openHandles } from '../../native/index.js';
import { startShadow } from '../../shadow-node/main.js';
import { ENVIRONMENT } from '../wall.js';
import { packOf } from './harness/test-models.js';
import { TestLog } from './harness/test-log.js';
import { testSettings } from './harness/test-settings.js';

/** A discovery whose advertisement does not stop cleanly. */
const FAULTY: Discovery = {
  advertise: async () => Promise.resolve({ stop: async () => Promise.reject(new Error('the advertisement is stuck')) }),
  watchPeers: async () => Promise.resolve({ stop: async () => Promise.resolve() }),
};

describe('a node that meets a fault', function () {
  this.timeout(60_000);
  const environment = { ...ENVIRONMENT, discovery: FAULTY };

  it('frees its device and threads although a part of its stop fails', async () => {
    const pack = await packOf('tiny');
    const [log, before] = [new TestLog(), openHandles()];
    for (const start of [
      async () => startMain(testSettings('main', pack), environment, log.logger('main')),
      async () => startShadow(testSettings('shadow', pack), environment, log.logger('shadow')),
    ]) {
      const node = await start();
      assert.notDeepEqual(openHandles(), before);
      await assert.rejects(node.stop(), /the advertisement is stuck/);
      assert.deepEqual(openHandles(), before);
    }
  });

  it('closes its encoder of prompts where the compiler of formats cannot be opened', async () => {
    const pack = await packOf('tiny');
    let closed = 0;
    const failing = {
      ...ENVIRONMENT,
      openPrompts: (...args: Parameters<typeof ENVIRONMENT.openPrompts>) => {
        const prompts = ENVIRONMENT.openPrompts(...args);
        const close = prompts.close.bind(prompts);
        prompts.close = async () => {
          closed += 1;
          return close();
        };
        return prompts;
      },
      openFormats: () => {
        throw new Error('no more threads');
      },
    };
    const starting = startMain(testSettings('main', pack), failing, new TestLog().logger('main'));
    await assert.rejects(starting, /no more threads/);
    assert.equal(closed, 1);
  });
});
