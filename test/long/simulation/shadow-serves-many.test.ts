import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { openReference } from '../../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from '../../simulation/virtual-cluster.js';

const USERS = 8;
const MAX_TOKENS = 12;
/** Shadow tells what it has done in a status. */
const SETTLE_MS = 6000;

const sampled = (seed: number): Partial<GenerateRequest> => ({
  sampling: { temperature: 1, topK: 40, topP: 0, minP: 0, repetitionPenalty: 0, seed },
});
const requestOf = (user: number): GenerateRequest =>
  requestFor(
    Array.from({ length: 6 + 5 * user }, (_, place) => 1 + ((place * (user + 3)) % 250)),
    { maxTokens: MAX_TOKENS, ignoreEos: true, logprobs: 5, ...sampled(user) },
  );

describe('a simulated shadow with many sequences:', () => {
  let reference: LocalEngine;
  let cluster: VirtualCluster;
  const expected: CollectedAnswer[] = [];

  before(async () => {
    reference = await openReference('tiny');
    for (let user = 0; user < USERS; user += 1) {
      expected.push(await collect(reference.generate(requestOf(user), new AbortController().signal)));
    }
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  async function start(main: Parameters<typeof VirtualCluster.start>[0]['main'] = {}): Promise<void> {
    cluster = await VirtualCluster.start({ workers: 4, shadow: 'int8', main });
  }

  const askAll = (): Promise<CollectedAnswer[]> => Promise.all(expected.map((_, user) => cluster.ask(requestOf(user))));

  for (const [what, drafting, leastShare] of [
    ['without drafts', { rows: 1, optimistic: false }, 1],
    // The time at which messages come decides which drafts a pass has, and so which rows are aligned.
    ['optimistic, with drafts', { rows: 3, optimistic: true }, 0.97],
  ] as const) {
    it(`eight at a time are answered as alone, and predicted as well, ${what}`, async () => {
      await start({ drafting });
      const alone: CollectedAnswer[] = [];
      for (const user of expected.keys()) alone.push(await cluster.ask(requestOf(user)));
      const together = await askAll();
      for (const [user, answer] of together.entries()) {
        const right = expected[user];
        assert.ok(right !== undefined);
        assertSameAnswer(answer, right);
        const [recall, recallAlone] = [answer, alone[user]].map((one) => one?.finished.sep?.recall ?? 0);
        assert.ok(recall !== undefined && recallAlone !== undefined && recallAlone > 0.9);
        assert.ok(recall >= recallAlone * leastShare, `user ${user}: ${recall}, alone ${recallAlone}`);
      }
      if (drafting.optimistic) return;
      const late = together.map(({ finished }) => finished.sep?.late ?? 0);
      assert.deepEqual(
        late,
        expected.map(() => 0),
        'shadow runs them together, and in time',
      );
    });
  }

  it('a chat’s next turn is predicted as well as if it were the first, and only new rows are sent', async () => {
    const first = requestOf(4);
    const turn = async (): Promise<{ answer: CollectedAnswer; rows: number; cached: number }> => {
      const opening = await cluster.ask(first);
      const promptTokenIds = [...first.promptTokenIds, ...opening.tokens.map(({ tokenId }) => tokenId), 9, 17];
      const rowsSoFar = async (): Promise<number> => {
        await cluster.sleep(SETTLE_MS);
        const shadow = (await cluster.status()).nodes.find(({ identity }) => identity.role === 'ROLE_SHADOW');
        return shadow?.alignedKvRows ?? 0;
      };
      const before = await rowsSoFar();
      const answer = await cluster.ask({ ...first, promptTokenIds });
      return { answer, rows: (await rowsSoFar()) - before, cached: answer.finished.cachedTokens ?? 0 };
    };
    await start({ main: { reusePrefixes: false } });
    const anew = await turn();
    await cluster.stop();
    await start();
    const reused = await turn();
    assertSameAnswer(reused.answer, anew.answer);
    assert.deepEqual([anew.cached, reused.cached], [0, first.promptTokenIds.length + MAX_TOKENS - 1]);
    assert.equal(reused.rows, anew.rows - reused.cached);
    assert.equal(reused.answer.finished.sep?.recall, anew.answer.finished.sep?.recall);
  });
});
