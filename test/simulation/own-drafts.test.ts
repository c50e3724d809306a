import assert from 'node:assert/strict';
import type { SamplingMessage } from '../../shared/wire/messages.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { BLOCK_POSITIONS, DEVICE_BYTES } from '../../simulator/faults/draw-budget.js';
import { assertSameAnswer, referenceAnswer, requestFor } from '../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

const PROMPT = [1, 17, 250, 3, 88, 120, 9, 33, 60];
/** Tokens that the bias leaves: one alone repeats, and of several a random one comes. */
const [ONE, ...OTHERS] = [17, 250, 88, 33] as const;

function biased(temperature: number, tokenIds: readonly number[]): SamplingMessage {
  const logitBias = tokenIds.map((tokenId) => ({ tokenId, bias: 100 }));
  return { temperature, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0, seed: 5, logitBias };
}

const REPEATS = requestFor(PROMPT, { maxTokens: 48, sampling: biased(0, [ONE]) });
const RANDOM = requestFor(PROMPT, { maxTokens: 48, sampling: biased(1.5, [ONE, ...OTHERS]) });
const USUAL = requestFor(PROMPT, { maxTokens: 32, logprobs: 300 });
const REQUESTS = [REPEATS, RANDOM, USUAL];

type Drafting = Partial<NodeSettings['drafting']>;

const OFF = { source: 'off', layersAhead: 1 } as const;
/** Room for few of the answers: layers of the model, and blocks of positions. */
const CONTEXT_BYTES = 4 * BLOCK_POSITIONS * DEVICE_BYTES.cacheRowBytes * 4;
const LONG = { ...REPEATS, promptTokenIds: Array.from({ length: 230 }, (_, place) => 1 + (place % 40)) };

describe('a simulated cluster whose main drafts', () => {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (drafting: Drafting, plan: { shadow?: 'int8'; main?: object } = {}): Promise<VirtualCluster> => {
    const { shadow, main = {} } = plan;
    const settings = { drafting, ...(shadow === undefined ? { prediction: OFF } : {}), ...main };
    return (cluster = await VirtualCluster.start({ workers: 2, ...(shadow && { shadow }), main: settings }));
  };

  for (const rows of [2, 5, 16, 'auto'] as const)
    it(`answers as one process does with ${rows} rows, and accepts what repeats`, async () => {
      const running = await start({ rows, source: 'lookup' });
      for (const request of REQUESTS) {
        const answer = await running.ask(request);
        assertSameAnswer(answer, await referenceAnswer('tiny', request));
        const { proposed = 0, accepted = 0 } = answer.finished.drafts ?? {};
        assert.ok(proposed >= accepted);
        if (request === REPEATS && rows !== 'auto') assert.ok(accepted >= 20, `${accepted} of ${proposed}`);
        if (request === RANDOM && rows !== 'auto') assert.ok(accepted < proposed, 'some drafts are wrong');
      }
    });

  it('runs no row that the answer cannot need', async () => {
    const running = await start({ rows: 16, source: 'lookup' });
    for (const maxTokens of [1, 2, 3, 5]) {
      const request = { ...REPEATS, maxTokens };
      const answer = await running.ask(request);
      assertSameAnswer(answer, await referenceAnswer('tiny', request));
      assert.ok((answer.finished.drafts?.proposed ?? 0) <= Math.max(0, maxTokens - 2));
    }
  });

  for (const optimistic of [false, true])
    it(`answers as one process does beside a shadow that drafts, too${optimistic ? ', optimistically' : ''}`, async () => {
      const running = await start({ rows: 4, source: 'auto', optimistic }, { shadow: 'int8' });
      const expected = await Promise.all(REQUESTS.map((request) => referenceAnswer('tiny', request)));
      for (const [index, request] of REQUESTS.entries()) {
        const answer = await running.ask(request);
        assertSameAnswer(answer, expected[index] ?? assert.fail());
        if (request !== REPEATS) continue;
        const { proposed = 0, accepted = 0 } = answer.finished.drafts ?? {};
        assert.ok(accepted >= 20, `${accepted} of ${proposed}`);
      }
      const together = await Promise.all(REQUESTS.map((request) => running.ask(request)));
      for (const [index, answer] of together.entries()) assertSameAnswer(answer, expected[index] ?? assert.fail());
    });

  it('leaves experts in their groups', async () => {
    const running = await start({ rows: 'auto', source: 'auto' }, { shadow: 'int8', main: { groupSize: 1 } });
    assertSameAnswer(await running.ask(USUAL), await referenceAnswer('tiny', USUAL));
    assert.equal((await running.status()).placement?.groups.length, 2);
  });

  it('answers many at once, also where memory has room for few of them', async () => {
    const main = { main: { maxActiveSequences: 4, contextMemoryBytes: CONTEXT_BYTES } };
    const running = await start({ rows: 6, source: 'lookup' }, { main });
    const requests = [0, 1, 2, 3].map((seed) => ({ ...LONG, promptTokenIds: [seed + 50, ...LONG.promptTokenIds] }));
    const answers = await Promise.all(requests.map((request) => running.ask(request)));
    for (const [index, request] of requests.entries())
      assertSameAnswer(answers[index] ?? assert.fail(), await referenceAnswer('tiny', request));
    assert.ok(((await running.status()).passes?.preemptions ?? 0) > 0);
  });

  it('frees an answer that is cancelled', async () => {
    const running = await start({ rows: 6, source: 'lookup' });
    const client = new AbortController();
    await assert.rejects(
      running.ask(REPEATS, client.signal, (count) => {
        if (count === 7) client.abort();
      }),
    );
    assertSameAnswer(await running.ask(REPEATS), await referenceAnswer('tiny', REPEATS));
  });
});
