import assert from 'node:assert/strict';
import { requestFor } from '../../integration/harness/answers.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

const ANSWERS = 12;
/** After an answer's end: what a message and the end of a load take, and far less than the interval of a worker's status. */
const REPORTED_WITHIN_MS = 100;

describe('the slots in use at the workers of main', () => {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  for (const [name, plan] of [
    ['with predictions', { workers: 3, shadow: 'int8', main: { spread: 'all' } }],
    ['with drafts', { workers: 3, shadow: 'int8', main: { spread: 'all', drafting: { optimistic: true, rows: 4 } } }],
  ] as const satisfies readonly (readonly [string, ClusterPlan])[]) {
    it(`are none soon after each answer ${name}, as main tells it`, async () => {
      const running = await VirtualCluster.start(plan);
      cluster = running;
      for (let answer = 0; answer < ANSWERS; answer += 1) {
        const maxTokens = 5 + 3 * answer;
        await running.ask(requestFor([1, 15, 7, answer + 3], { maxTokens, ignoreEos: true }));
        await running.sleep(REPORTED_WITHIN_MS);
        const workers = (await running.status()).nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
        assert.deepEqual(
          workers.map(({ slotsInUse }) => slotsInUse),
          [0, 0, 0],
          `answer ${answer}`,
        );
      }
    });
  }
});
