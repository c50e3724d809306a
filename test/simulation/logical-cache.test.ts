/** Clusters whose sequences have logical caches: what becomes of rows' memory changes no bit of an answer. */
import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { readQuality } from '../../shared/settings/quality.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { openReferenceOf, slicedPackOf } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const THETA = { critical: 0.3, theta: 0.55 };
const TEXT = 'sliced(8,4,cached=200000,miss=0.05)';
const BLOCK_POSITIONS = 256;
const TOKENS = 20;

const tokensOf = (seed: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => (seed * 71 + index * 37 + 3) % 300);

describe('logical caches of a cluster', function () {
  this.timeout(60_000);
  const read = readQuality(TEXT);
  const quality = 'quality' in read ? read.quality : assert.fail(read.problem);
  let pack: string;
  let engine: LocalEngine;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    pack = await slicedPackOf('tiny', [THETA]);
    engine = await openReferenceOf(pack, quality);
  });

  after(() => engine.dispose());

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (workers: number, main: SettingsChanges = {}): Promise<VirtualCluster> => {
    const worker = (): SettingsChanges => ({ main: { quality }, slots: 2 });
    const ofMain = { ...main, main: { ...main.main, quality } };
    return (cluster = await VirtualCluster.start({ workers, packDirectory: pack, main: ofMain, worker }));
  };

  const alone = (request: GenerateRequest): Promise<CollectedAnswer> =>
    collect(engine.generate(request, new AbortController().signal));

  for (const reusePrefixes of [true, false]) {
    it(`in a chat: rows of earlier prompts ${reusePrefixes ? 'stand for themselves, those of answers run again' : 'run again'}`, async () => {
      const running = await start(2, { main: { reusePrefixes } });
      let history: number[] = [];
      let lastPrompt = 0;
      for (let turn = 0; turn < 4; turn += 1) {
        const prompt = [...history, ...tokensOf(turn, turn === 0 ? 40 : 7)];
        const request = requestFor(prompt, { maxTokens: TOKENS, logprobs: 3, ignoreEos: true });
        const answer = await running.ask(request);
        const expected = await alone(request);
        assertSameAnswer(answer, expected);
        assert.deepEqual(answer.finished.logicalCache, expected.finished.logicalCache);
        assert.ok((expected.finished.logicalCache?.missShare ?? 0) > 0, 'misses are counted');
        assert.equal(answer.finished.cachedTokens, reusePrefixes ? lastPrompt : 0, `turn ${turn}`);
        lastPrompt = prompt.length;
        history = [...prompt, ...answer.tokens.map(({ tokenId }) => tokenId)];
      }
    });
  }

  for (const enabled of [true, false]) {
    it(`outlast preemptions: batching ${enabled}`, async () => {
      const layers = engine.source.shape.layers.length;
      const contextMemoryBytes = 4 * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes * layers;
      const running = await start(2, {
        main: { contextMemoryBytes, maxActiveSequences: 8, prefillRows: 64 },
        batching: { enabled },
      });
      const requests = Array.from({ length: 4 }, (_, index) =>
        requestFor(tokensOf(index, 225 + 7 * index), { maxTokens: 40, logprobs: 1, ignoreEos: true }),
      );
      const answers = await Promise.all(requests.map((request) => running.ask(request)));
      for (const [index, request] of requests.entries()) {
        assertSameAnswer(answers[index] ?? assert.fail('no answer came'), await alone(request));
      }
      assert.ok(((await running.status()).passes?.preemptions ?? 0) > 0, 'answers gave their memory back');
    });
  }

  it('begin anew with rows that a worker spoiled', async () => {
    const running = await start(3);
    const request = requestFor(tokensOf(1, 23), { maxTokens: TOKENS, logprobs: 5, ignoreEos: true });
    const answer = running.ask(request, undefined, (count) => {
      if (count === 15) {
        running.deviceOf('worker-1').falsify = (output) =>
          new Float32Array(output.buffer, output.byteOffset, output.byteLength / 4).fill(NaN);
      }
    });
    assertSameAnswer(await answer, await alone(request));
    assert.ok(((await running.status()).passes?.preemptions ?? 0) > 0, 'rows were computed anew');
  });

  it('take no drafts: each pass runs one token of an answer', async () => {
    const plain = await alone(requestFor(tokensOf(2, 23), { maxTokens: TOKENS, ignoreEos: true }));
    const worker = (): SettingsChanges => ({ main: { quality }, slots: 2 });
    const main = { drafting: { rows: 4 }, main: { quality } };
    cluster = await VirtualCluster.start({ workers: 3, shadow: 'int8', packDirectory: pack, main, worker });
    const answer = await cluster.ask(requestFor(tokensOf(2, 23), { maxTokens: TOKENS, ignoreEos: true }));
    assertSameAnswer(answer, plain);
    assert.equal(answer.finished.drafts, null);
  });
});
