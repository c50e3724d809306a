import assert from 'node:assert/strict';
import { WALL_ZERO_MS } from '../../shared/base/runtime/virtual-runtime.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88], { maxTokens: 12 });
/** Long enough for every search, retry and grace to have come round several times. */
const LONG_MS = 30_000;

describe('a box that boots before main, with its clock at 1970', () => {
  let cluster: VirtualCluster;
  let expected: CollectedAnswer;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  for (const [way, changes] of [
    ['announces itself', { provider: 'mdns', mainAddress: null }],
    ['was given the address of main', {}],
  ] as const) {
    it(`and ${way}, joins when main is there, and when its lease comes only then`, async () => {
      const isHeard = way === 'announces itself';
      cluster = await VirtualCluster.start({ workers: 1, ...(isHeard && { main: { provider: 'mdns' } }) });
      await cluster.addWorker('late', changes);
      await cluster.waitForRoster(2, 0);
      for (const id of ['late', 'main']) cluster.node(id).kill();
      cluster.node('late').start(-WALL_ZERO_MS);
      assert.ok(cluster.node('late').runtime.wallMs() < LONG_MS * 10, 'its clock shows 1970');
      await cluster.sleep(LONG_MS);
      assert.ok(cluster.node('late').isReady, 'it waits');
      await cluster.startAgain('main');
      cluster.simulated.network.move('late', 'late-lease');
      await cluster.waitForRoster(2, 0);
      assertSameAnswer(await cluster.ask(REQUEST), expected);
    });
  }
});
