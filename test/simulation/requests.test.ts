import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor } from '../integration/harness/answers.js';
import { VirtualCluster } from './virtual-cluster.js';
import { openReference } from '../integration/harness/test-models.js';

const TINY_CONTEXT = 512;
const ROUNDS = 24;
/** Time without requests after which nodes have released all that no request needs, and have reported it in a status. */
const QUIET_MS = 6000;

const sampled = (seed: number): Partial<GenerateRequest> => ({
  sampling: { temperature: 1, topK: 40, topP: 0, minP: 0, repetitionPenalty: 0, seed },
});

describe('a simulated cluster with requests', () => {
  let reference: LocalEngine;
  let cluster: VirtualCluster;

  before(async () => {
    reference = await openReference('tiny');
    // Main retains no rows for later requests, so that the test sees all that a request leaves behind.
    const main = { maxActiveSequences: 2, maxQueuedRequests: 2, reusePrefixes: false };
    cluster = await VirtualCluster.start({ workers: 3, shadow: 'int8', main: { main } });
  });

  after(async () => {
    await cluster.stop();
    reference.dispose();
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') cluster.log.print();
    await cluster.waitUntil('no request is left', async () => {
      const { activeSequences, queuedRequests } = await cluster.status();
      return activeSequences === 0 && queuedRequests === 0;
    });
  });

  it('answers several at once exactly as it answers each alone', async () => {
    const requests = [3, 50, 120, 299].map((token, index) =>
      requestFor([1, token, index + 2, 9], { maxTokens: 20, logprobs: 5, ...sampled(index) }),
    );
    const answers = await Promise.all(requests.map((request) => cluster.ask(request)));
    for (const [index, request] of requests.entries()) {
      const alone = await collect(reference.generate(request, new AbortController().signal));
      const answer = answers[index];
      assert.ok(answer !== undefined);
      assertSameAnswer(answer, alone);
    }
    assert.equal(new Set(answers.map(({ tokens }) => tokens.map(({ tokenId }) => tokenId).join())).size, 4);
  });

  it('refuses requests beyond the queue, and serves queued ones', async () => {
    const request = requestFor([1, 2, 3], { maxTokens: 30 });
    const outcomes = await Promise.allSettled(Array.from({ length: 7 }, () => cluster.ask(request)));
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
    assert.equal(refused.length, 3);
    for (const { reason } of refused) assert.equal((reason as { code?: string }).code, 'QUEUE_FULL');
  });

  it('reports its chosen seed, which gives the same answer again', async () => {
    const sampling = { temperature: 1, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
    const first = await cluster.ask(requestFor([1, 9, 8], { sampling }));
    const again = await cluster.ask(requestFor([1, 9, 8], sampled(0)));
    const same = await cluster.ask(requestFor([1, 9, 8], { sampling: { ...sampling, seed: first.started.seed } }));
    assert.deepEqual(first.tokens, same.tokens);
    assert.equal(again.started.seed, 0);
  });

  it('frees all resources when a client leaves in the middle of an answer', async () => {
    const gone = new AbortController();
    const asking = cluster.ask(requestFor([1, 2, 3, 4], { maxTokens: 40 }), gone.signal, (count) => {
      if (count === 5) gone.abort();
    });
    await assert.rejects(asking, { code: 'CANCELLED' });
    await cluster.waitUntil('the sequence is freed', async () => (await cluster.status()).activeSequences === 0);
    const request = requestFor([1, 2, 3, 4]);
    const expected = await collect(reference.generate(request, new AbortController().signal));
    assertSameAnswer(await cluster.ask(request), expected);
  });

  it('forgets a request whose client leaves while it waits', async () => {
    const long = [1, 2].map((token) => cluster.ask(requestFor([1, token], { maxTokens: 30 })));
    await cluster.waitUntil('two are active', async () => (await cluster.status()).activeSequences === 2);
    const gone = new AbortController();
    const waiting = cluster.ask(requestFor([1, 3]), gone.signal);
    await cluster.waitUntil('one waits', async () => (await cluster.status()).queuedRequests === 1);
    gone.abort();
    await assert.rejects(waiting, { code: 'CANCELLED' });
    await cluster.waitUntil('none waits', async () => (await cluster.status()).queuedRequests === 0);
    await Promise.all(long);
  });

  it('releases device memory when answers end, whether they finish or are cancelled', async () => {
    const used = async (): Promise<number[]> =>
      (await cluster.status()).nodes.map(({ deviceMemoryUsedBytes }) => deviceMemoryUsedBytes);
    const sequencesOf = (id: string): number => cluster.deviceOf(id).handles.sequences;
    await cluster.ask(requestFor([1, 2, 3]));
    await cluster.sleep(QUIET_MS);
    const before = await used();
    for (let round = 0; round < ROUNDS; round++) {
      const gone = new AbortController();
      const request = requestFor([1, 2, 3 + round], { maxTokens: 4 + round });
      const answer = cluster.ask(request, gone.signal, (count) => {
        if (round % 3 === 2 && count === 3) gone.abort();
      });
      if (round % 3 === 2) await assert.rejects(answer, { code: 'CANCELLED' });
      else await answer;
    }
    await cluster.sleep(QUIET_MS);
    assert.deepEqual(await used(), before);
    assert.deepEqual([sequencesOf('main'), sequencesOf('shadow')], [0, 0], 'no keys and values are held');
    for (const { id, openCounts } of [...cluster.simulated.nodes.values()].map((node) => ({
      id: node.id,
      openCounts: node.openCounts(),
    })))
      assert.ok(
        Object.values(openCounts ?? {}).every((count) => count === 0),
        `${id} holds ${JSON.stringify(openCounts)}`,
      );
  });

  for (const [what, changes, code] of [
    ['a token that is not in the vocabulary', { promptTokenIds: [1, 300] }, 'REQUEST_INVALID'],
    ['a prompt beyond the context', { promptTokenIds: new Array<number>(TINY_CONTEXT).fill(5) }, 'PROMPT_TOO_LONG'],
    ['no prompt at all', { promptTokenIds: [] }, 'REQUEST_INVALID'],
    ['text for a model without a tokenizer', { promptTokenIds: [], text: 'hello' }, 'TOKENIZER_INVALID'],
    ['a temperature below zero', { sampling: { ...sampled(1).sampling, temperature: -1 } }, 'REQUEST_INVALID'],
  ] as [string, Partial<GenerateRequest>, string][]) {
    it(`answers ${what} with ${code} and goes on serving`, async () => {
      await assert.rejects(cluster.ask(requestFor([1, 2], changes)), { code });
      assert.equal((await cluster.ask(requestFor([1, 2]))).tokens.length, 12);
    });
  }

  it('ends an answer at the end of the context, however many tokens were requested', async () => {
    const promptTokenIds = new Array<number>(TINY_CONTEXT - 3).fill(5);
    const answer = await cluster.ask(requestFor(promptTokenIds, { maxTokens: 2 ** 32 - 1, ignoreEos: true }));
    assert.equal(answer.tokens.length, 3);
    assert.equal(answer.finished.finishReason, 'length');
  });

  it('reports times, nodes and reloads', async () => {
    const { finished } = await cluster.ask(requestFor([1, 2, 3], { maxTokens: 10 }));
    const { timing, sep, nodes, reloads } = finished;
    assert.ok(timing !== null && sep !== null);
    assert.ok(timing.ttftMs > 0 && timing.tpotMs > 0 && timing.outputTokensPerS > 0);
    assert.ok(Math.abs(timing.decodeTokensPerS * timing.tpotMs - 1000) < 1e-6);
    assert.ok(Math.abs(sep.recall - sep.predictedCorrectly / sep.activated) < 1e-12);
    assert.ok(reloads <= sep.activated);
    assert.deepEqual(
      nodes.map(({ identity }) => identity.role),
      ['ROLE_MAIN', 'ROLE_SHADOW', 'ROLE_WORKER', 'ROLE_WORKER', 'ROLE_WORKER'],
    );
  });
});
