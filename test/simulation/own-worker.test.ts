import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { NodeSettings } from '../../shared/config/node-settings.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { openReference } from '../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 33, 60], { maxTokens: 24, logprobs: 300 });
const OWN = 'main-worker';

describe('a main with a worker of its own', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = await collect(reference.generate(REQUEST, new AbortController().signal));
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  async function begin(experts: NodeSettings['main']['experts'], plan: Partial<ClusterPlan> = {}) {
    const workers = plan.workers ?? 0;
    const main = { ...plan.main, main: { ...plan.main?.main, experts } };
    const running = await VirtualCluster.start({ workers: 0, ...plan, main, ...(workers > 0 ? { workers: 0 } : {}) });
    cluster = running;
    for (let index = 0; index < workers; index += 1) await running.addWorker(`worker-${index}`);
    await running.waitForRoster(workers + 1, plan.shadow === undefined ? 0 : 1);
    return running;
  }

  it('answers alone what one process answers', async () => {
    const running = await begin('local');
    assertSameAnswer(await running.ask(REQUEST), expected);
    const { nodes, placement } = await running.status();
    assert.deepEqual(
      nodes.map(({ identity }) => identity.id),
      ['main', OWN],
    );
    const own = nodes.find(({ identity }) => identity.id === OWN);
    assert.ok(own !== undefined && own.executions > 0 && own.loads > 0);
    assert.deepEqual(
      placement?.workers.map(({ id, address }) => ({ id, address })),
      [{ id: OWN, address: 'main:7600' }],
    );
  });

  for (const drafts of [1, 3]) {
    it(`is told by shadow what to load, with ${drafts} rows a pass`, async () => {
      const running = await begin('local', { shadow: 'fp16', main: { drafting: { rows: drafts } } });
      assertSameAnswer(await running.ask(REQUEST), expected);
      const own = (await running.status()).nodes.find(({ identity }) => identity.id === OWN);
      assert.ok(own !== undefined);
      assert.ok(own.reloads < own.executions / 2, `${own.reloads} of ${own.executions} executions were not foretold`);
    });
  }

  it('shares its layers with the workers of the LAN, and goes on alone when they die', async () => {
    const running = await begin('both', { workers: 2 });
    const answer = await running.ask(REQUEST, undefined, (count) => {
      if (count === 6) for (const id of ['worker-0', 'worker-1']) running.node(id).kill();
    });
    assertSameAnswer(answer, expected);
    await running.waitForRoster(1, 0);
    assertSameAnswer(await running.ask(REQUEST), expected);
  });

  it('takes no worker of the LAN where it runs all experts, and says why', async () => {
    const running = await begin('local');
    await running.addWorker('worker-0');
    await running.sleep(2000);
    const { placement, problems } = await running.status();
    assert.deepEqual(
      placement?.workers.map(({ id }) => id),
      [OWN],
    );
    assert.match(problems.map(({ message }) => message).join('\n'), /main.experts: local.*--experts both/);
  });

  it('counts like any worker where experts have homes', async () => {
    const running = await begin('both', { workers: 1, main: { homes: 'strict' } });
    assertSameAnswer(await running.ask(REQUEST), expected);
    const { nodes } = await running.status();
    for (const id of [OWN, 'worker-0']) {
      assert.ok((nodes.find(({ identity }) => identity.id === id)?.executions ?? 0) > 0, `${id} has run no expert`);
    }
  });

  it('does not start where its budget holds no expert beside the model', async () => {
    const tooSmall = { device: { memoryBudgetBytes: 160_000 + 4 * 8000 } };
    await assert.rejects(begin('local', { main: tooSmall }), { code: /DEVICE_OUT_OF_MEMORY|CONFIG_INVALID/ });
  });
});
