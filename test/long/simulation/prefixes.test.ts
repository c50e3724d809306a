import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { isRecurrent } from '../../../shared/model/model-shape.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { DEVICE_BYTES } from '../../../simulator/faults/draw-budget.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { parseMetrics, valueOf } from '../../unit/prometheus-text.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

const TURNS = 5;
/** Attention, latent attention, a delta net with attention, and short convolutions with attention. */
const MODELS = ['tiny', 'fixtures/deepseekv3', 'fixtures/qwen3next', 'fixtures/lfm2moe'] as const;
/** Positions of a block of the cache. */
const BLOCK_POSITIONS = 256;

const tokensOf = (seed: number, count: number, vocabSize: number): number[] =>
  Array.from({ length: count }, (_, index) => (seed * 71 + index * 37 + 3) % vocabSize);

describe('the stored prefix of earlier requests', () => {
  let cluster: VirtualCluster | null = null;
  let reference: LocalEngine | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    reference?.dispose();
    reference = null;
  });

  async function begin(plan: ClusterPlan): Promise<{ running: VirtualCluster; engine: LocalEngine }> {
    const engine = await openReference(plan.model ?? 'tiny');
    reference = engine;
    const running = await VirtualCluster.start(plan);
    cluster = running;
    return { running, engine };
  }

  const alone = (engine: LocalEngine, request: GenerateRequest): Promise<CollectedAnswer> =>
    collect(engine.generate(request, new AbortController().signal));

  for (const model of MODELS) {
    it(`is not run again in a chat of ${model}, and its answers are one process's, to the bit`, async () => {
      const plan: ClusterPlan = { workers: 2, shadow: 'int8', main: { drafting: { rows: 4 } }, model };
      const { running, engine } = await begin(plan);
      const { vocabSize } = engine.source.shape;
      let history: number[] = [];
      for (let turn = 0; turn < TURNS; turn += 1) {
        const prompt = [...history, ...tokensOf(turn, turn === 0 ? 60 : 7, vocabSize)];
        const request = requestFor(prompt, { maxTokens: 9, logprobs: 3, ignoreEos: true });
        const answer = await running.ask(request);
        assertSameAnswer(answer, await alone(engine, request));
        // The last token of an answer is not run.
        assert.equal(answer.finished.cachedTokens, turn === 0 ? 0 : history.length - 1, `turn ${turn}`);
        history = [...prompt, ...answer.tokens.map(({ tokenId }) => tokenId)];
      }
      const main = (await running.status()).nodes.find(({ identity }) => identity.role === 'ROLE_MAIN');
      assert.ok(main !== undefined && main.prefixBytes > 0 && main.keyValueBytes >= main.prefixBytes);
      assert.equal(
        running.node('main').retainedSequences(),
        engine.source.shape.layers.some(({ mixer }) => isRecurrent(mixer)) ? TURNS : 1,
      );
    });
  }

  it('is computed again where the log-probabilities of the prompt are wanted', async () => {
    const { running, engine } = await begin({ workers: 1 });
    const request = requestFor(tokensOf(1, 50, 300), { maxTokens: 3, logprobs: 2, promptLogprobs: true });
    const expected = await alone(engine, request);
    for (let round = 0; round < 2; round += 1) {
      const answer = await running.ask(request);
      assertSameAnswer(answer, expected);
      assert.equal(answer.finished.cachedTokens, 0);
    }
    const plain = await running.ask({ ...request, promptLogprobs: false });
    assert.equal(plain.finished.cachedTokens, 49);
  });

  /** Settings of a main with memory for so many blocks. */
  async function memoryFor(blocks: number): Promise<Partial<NodeSettings['main']>> {
    const engine = await openReference('tiny');
    const layers = engine.source.shape.layers.length;
    engine.dispose();
    const blockBytes = BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes * layers;
    return { contextMemoryBytes: blocks * blockBytes, maxActiveSequences: 8, prefillRows: 64 };
  }

  for (const enabled of [true, false]) {
    const passes = enabled ? 'joint passes' : 'passes of one sequence';
    it(`gives way where memory is short: ${passes} answer all, each as alone`, async () => {
      const main = { main: await memoryFor(3), batching: { enabled } };
      const { running, engine } = await begin({ workers: 2, shadow: 'int8', main });
      const requests = Array.from({ length: 4 }, (_, index) =>
        requestFor(tokensOf(index, 225 + 7 * index, 300), { maxTokens: 40, logprobs: 1, ignoreEos: true }),
      );
      const answers = await Promise.all(requests.map((request) => running.ask(request)));
      for (const [index, request] of requests.entries()) {
        const answer = answers[index];
        assert.ok(answer !== undefined);
        assertSameAnswer(answer, await alone(engine, request));
      }
      const metrics = parseMetrics(await running.passing(running.node('main').metrics()));
      assert.ok(valueOf(metrics, 'odmoe_preemptions_total') > 0, 'answers gave their memory back');
      assert.ok(valueOf(metrics, 'odmoe_dropped_prefixes_total') > 0, 'prefixes made room');
    });
  }

  it('is no reason to wait for a request that can never fit', async () => {
    const { running } = await begin({ workers: 1, main: { main: await memoryFor(1) } });
    const tooLong = requestFor(tokensOf(1, 200, 300), { maxTokens: 60 });
    await assert.rejects(running.ask(tooLong), { code: 'DEVICE_OUT_OF_MEMORY', message: /main\.context_memory/ });
    // All that the context holds is what memory holds of it.
    const open = await running.ask(requestFor(tokensOf(1, 250, 300), { maxTokens: 5000, ignoreEos: true }));
    assert.equal(open.tokens.length, BLOCK_POSITIONS - 250);
  });
});
