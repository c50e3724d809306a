import assert from 'node:assert/strict';
import type { NodeStatus } from '../../shared/wire/messages.js';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';
import type { ProcessCluster } from './harness/process-cluster.js';
import { hasSimulatedCuda, simulatedCuda } from './harness/simulated-cuda.js';

/** A prompt of several chunks of prefill rows, and tokens enough for predictions and evictions. */
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 41, 7, 200, 33], { maxTokens: 16, logprobs: 300 });
const CONTEXT_BYTES = 48 * 2 ** 20;

(hasSimulatedCuda('CUDA cluster') ? describe : describe.skip)('a cluster on CUDA devices (simulated)', function () {
  this.timeout(300_000);
  const clusters = answeringClusters('tiny', REQUEST);

  const nodesById = async (running: ProcessCluster): Promise<Map<string, NodeStatus>> =>
    new Map((await running.status()).nodes.map((node) => [node.identity.id, node]));

  it('answers with the tokens and log-probabilities of the processor, to the bit, within its budgets', async () => {
    const running = await clusters.start('tiny', 2, true, [], {
      flags: () => ['--device', 'cuda'],
      environment: (id) => simulatedCuda({ contextBytes: CONTEXT_BYTES, seed: id.length }),
    });
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    const nodes = await nodesById(running);
    assert.equal(nodes.size, 4);
    for (const [id, node] of nodes) {
      assert.match(node.identity.device, /^cuda sm_86, \d+ multiprocessors$/, id);
      assert.notEqual(node.deviceName, '', id);
      assert.equal(node.deviceReason, 'as configured', id);
      assert.ok(node.deviceContextBytes > 0, id);
      assert.ok(node.deviceMemoryUsedBytes > node.deviceContextBytes, id);
      assert.notEqual(node.deviceDriverUsedBytes, null, id);
      if (node.deviceMemoryBudgetBytes > 0) {
        assert.ok(node.deviceMemoryHighWaterBytes <= node.deviceMemoryBudgetBytes, id);
      }
    }
    assert.ok(running.logged('device chosen').length >= 4);
  });
});
