import assert from 'node:assert/strict';
import { instructionSets } from '../../native/index.js';
import { assertSameAnswer, collect, requestFor } from './harness/answers.js';
import { TestCluster, stopCluster, type ClusterPlan } from './harness/test-cluster.js';
import { openReference } from './harness/test-models.js';

const TINY_VOCABULARY = 300;
const PROMPT = [1, 17, 250, 3, 88];

describe('a cluster on real sockets answers as the single-process engine does, to the bit,', () => {
  let cluster: TestCluster | null = null;

  afterEach(async function () {
    await stopCluster(this, cluster);
    cluster = null;
  });

  /** The answer of a cluster, which is the engine's. */
  async function answered(plan: ClusterPlan, request = requestFor(PROMPT, { logprobs: TINY_VOCABULARY })) {
    const reference = await openReference(plan.model ?? 'tiny');
    try {
      const expected = await collect(reference.generate(request, new AbortController().signal));
      cluster = await TestCluster.start(plan);
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      return answer;
    } finally {
      reference.dispose();
    }
  }

  it('with drafts, optimistic departure and workers of every instruction set that this machine has', async () => {
    const sets = instructionSets() as ('avx512' | 'avx2' | 'neon' | 'scalar')[];
    assert.ok(sets.length >= 2, `only ${sets.join()} here`);
    const { finished } = await answered({
      workers: 4,
      shadow: 'int8',
      main: { device: { instructionSet: 'scalar' }, drafting: { rows: 4, optimistic: true }, spread: 'all' },
      worker: (index) => ({ device: { instructionSet: sets[index % sets.length] ?? 'scalar' } }),
    });
    assert.ok(finished.drafts !== null);
  });

  it("with main's weights as fixed4, which take less of main's budget", async () => {
    const request = requestFor([], { text: 'Name a fox.', raw: false, maxTokens: 8, ignoreEos: false });
    const weightsAs = async (resident: 'fixed4' | null, memoryBudgetBytes: number) => {
      const main = { main: { resident }, device: { memoryBudgetBytes } };
      await answered({ model: 'demo', workers: 1, main }, request);
      const [own] = (await (cluster as TestCluster).status()).nodes;
      assert.ok(own !== undefined);
      await cluster?.stop();
      return own;
    };
    const shipped = await weightsAs(null, 0);
    // The memory that BF16 needs at least has room for fixed4, and for rows in addition.
    const fixed4 = await weightsAs('fixed4', shipped.deviceMemoryHighWaterBytes);
    assert.deepEqual([shipped.weightFormat, fixed4.weightFormat], ['bf16', 'fixed4']);
    const ratio = fixed4.weightBytes / shipped.weightBytes;
    assert.ok(ratio > 0.7 && ratio < 0.95, `${ratio} of the bytes`);
    assert.ok(fixed4.deviceMemoryUsedBytes >= fixed4.weightBytes);
    assert.ok(fixed4.deviceMemoryHighWaterBytes <= shipped.deviceMemoryHighWaterBytes);
  });

  it('with a shadow that chooses the form of its weights itself, and says in its status why', async () => {
    const reference = await openReference('demo');
    try {
      const request = requestFor([], { text: 'Name a fox.', raw: false, maxTokens: 12, ignoreEos: true });
      const expected = await collect(reference.generate(request, new AbortController().signal));
      cluster = await TestCluster.start({ model: 'demo', workers: 2 });
      await cluster.addShadow('shadow', { precision: 'auto' });
      await cluster.waitForRoster(2, 1);
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      assert.ok((answer.finished.sep?.recall ?? 0) > 0.8, `recall ${answer.finished.sep?.recall}`);
      const { nodes } = await cluster.status();
      const formats = nodes.map(({ identity, weightFormat }) => [identity.role, weightFormat]);
      const [, format] = formats.find(([role]) => role === 'ROLE_SHADOW') ?? assert.fail();
      assert.match(
        format ?? '',
        /^sliced\(8,4\) \(auto: the largest form that fits [\d.]+ [MGT]iB; recall was not measured\)$/,
      );
      assert.equal(cluster.log.matching('shadow precision chosen').length, 1);
    } finally {
      reference.dispose();
    }
  });

  it('with the demo model, in words', async () => {
    const request = requestFor([], {
      text: 'Tell me a story about a fox.',
      raw: false,
      maxTokens: 30,
      ignoreEos: false,
    });
    const { finished } = await answered({ model: 'demo', workers: 4, shadow: 'int8' }, request);
    assert.ok(finished.text.length > 20, finished.text);
    assert.ok((finished.sep?.recall ?? 0) > 0.8, `recall ${finished.sep?.recall}`);
  });
});
