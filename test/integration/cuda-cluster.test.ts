import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../shared/config/index.js';
import type { NodeStatus } from '../../shared/rpc/index.js';
import { answeringClusters } from './harness/answering-clusters.js';
import { assertSameAnswer, requestFor } from './harness/answers.js';
import type { ProcessCluster } from './harness/process-cluster.js';
import { hasSimulatedCuda, simulatedCuda, type SimulatedDevice } from './harness/simulated-cuda.js';
import { packOf } from './harness/test-models.js';

/** A prompt of several chunks of prefill rows, and tokens enough for predictions and evictions. */
const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9, 41, 7, 200, 33], { maxTokens: 16, logprobs: 300 });
const CONTEXT_BYTES = 48 * 2 ** 20;
const RUN_LIMIT_MS = 120_000;

(hasSimulatedCuda('CUDA cluster') ? describe : describe.skip)('a cluster on CUDA devices (simulated)', function () {
  this.timeout(300_000);
  const clusters = answeringClusters('tiny', REQUEST);

  async function start(
    workers: number,
    flags: (id: string) => string[],
    device: (id: string) => SimulatedDevice = () => ({}),
  ): Promise<ProcessCluster> {
    const environment = (id: string) => simulatedCuda({ contextBytes: CONTEXT_BYTES, ...device(id) });
    return clusters.start('tiny', workers, true, [], { flags, environment });
  }

  const nodesById = async (running: ProcessCluster): Promise<Map<string, NodeStatus>> =>
    new Map((await running.status()).nodes.map((node) => [node.identity.id, node]));

  it('answers with the tokens and log-probabilities of the processor, to the bit, within its budgets', async () => {
    const running = await start(
      2,
      () => ['--device', 'cuda'],
      (id) => ({ seed: id.length }),
    );
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

  it('answers the same with processors and GPUs mixed, with and without paged memory', async () => {
    const running = await start(
      3,
      (id) => ['--device', id === 'worker-0' || id === 'shadow' ? 'cpu' : 'cuda'],
      (id) => (id === 'worker-2' ? { vmm: 0 } : { spareBytes: 0 }),
    );
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    const nodes = await nodesById(running);
    const backends = ['worker-0', 'worker-1', 'worker-2'].map((id) => nodes.get(id)?.identity.device.split(' ')[0]);
    assert.deepEqual(backends, ['cpu', 'cuda', 'cuda']);
    for (const id of ['worker-0', 'worker-1', 'worker-2']) {
      assert.ok((nodes.get(id)?.executions ?? 0) > 0, `${id} has executed something`);
    }
  });

  it('keeps experts and their parts within a tight budget, and answers the same', async () => {
    const budgetBytes = CONTEXT_BYTES + 64 * 2 ** 20;
    const running = await start(2, (id) =>
      id.startsWith('worker')
        ? ['--device', 'cuda', '--memory-budget', String(budgetBytes), '--cache', '32 MiB', '--cache-policy', 'lru']
        : ['--device', 'cpu'],
    );
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    const nodes = await nodesById(running);
    const worker = nodes.get('worker-0');
    assert.ok((worker?.cache?.hits.full ?? 0) > 0, 'the cache is used');
    assert.ok((worker?.deviceMemoryHighWaterBytes ?? Infinity) <= budgetBytes);
    // What odmoe counts is its own word; this is the driver's.
    assert.ok((worker?.deviceDriverUsedBytes ?? Infinity) <= budgetBytes);
  });

  it('runs under auto on the GPU, or on the processor where the budget does not hold the context, and says why', async () => {
    const running = await start(2, (id) => [
      '--device',
      'auto',
      ...(id === 'worker-1' ? ['--memory-budget', '24 MiB'] : []),
    ]);
    assertSameAnswer(await running.ask(REQUEST), clusters.expected);
    const nodes = await nodesById(running);
    assert.match(nodes.get('main')?.identity.device ?? '', /^cuda /);
    assert.match(nodes.get('main')?.deviceReason ?? '', /first GPU/);
    assert.match(nodes.get('worker-1')?.identity.device ?? '', /^cpu /);
    assert.match(nodes.get('worker-1')?.deviceReason ?? '', /^CUDA is not used: .*budget/);
  });

  it('is what generate in one process on the device answers, too', async () => {
    const pack = await packOf('tiny');
    const answer = (device: string) => {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [
          ...[join(packageRoot(), 'bin', 'odmoe'), 'generate', pack, '--prompt-token-ids', '1,17,250,3', '--json'],
          ...['--max-tokens', '6', '--ignore-eos', '--logprobs', '5', '--device', device, '--shadow', 'int8'],
        ],
        { encoding: 'utf8', timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda() } },
      );
      assert.equal(status, 0, stderr);
      const { token_ids, logprobs, nodes } = JSON.parse(stdout) as {
        token_ids: unknown;
        logprobs: unknown;
        nodes: { device: string }[];
      };
      return { answered: { token_ids, logprobs }, device: nodes[0]?.device ?? '' };
    };
    const onGpu = answer('cuda:0');
    const onProcessor = answer('cpu');
    assert.match(onGpu.device, /^cuda /);
    assert.match(onProcessor.device, /^cpu /);
    assert.deepEqual(onGpu.answered, onProcessor.answered);
  });
});
