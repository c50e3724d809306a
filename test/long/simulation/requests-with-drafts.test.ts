import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { RpcServer } from '../../../shared/transport/transport.js';
import type { AlignToken, GenerateRequest } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';
import { openReference, type TestModel } from '../../integration/harness/test-models.js';
import { draftingScript } from '../../simulation/drafting-script.js';
import { joinScriptedShadow } from '../../simulation/scripted-shadow.js';

const WORKERS = 3;
const ROWS = 8;
const PROMPT = [1, 17, 250, 3, 88, 120, 9];

const answerOf = (reference: LocalEngine, request: GenerateRequest): Promise<CollectedAnswer> =>
  collect(reference.generate(request, new AbortController().signal));

const tokenIdsOf = ({ tokens }: CollectedAnswer): number[] => tokens.map(({ tokenId }) => tokenId);

describe('requests to a cluster that drafts,', () => {
  let reference: LocalEngine;
  let cluster: VirtualCluster;
  let shadow: RpcServer | null = null;
  const heard: AlignToken[] = [];

  beforeEach(() => {
    heard.length = 0;
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    await shadow?.stop();
    shadow = null;
  });

  /** With a shadow whose drafts, also those beyond the answer's end, are those of `answer`. */
  async function startRight(model: TestModel, answer: readonly number[]): Promise<void> {
    const drafting = { optimistic: false, rows: ROWS };
    cluster = await VirtualCluster.start({ model, workers: WORKERS, main: { drafting } });
    const script = draftingScript({ optimistic: false, answer: () => answer, guess: (_, right) => right, heard });
    shadow = await joinScriptedShadow(cluster, WORKERS, script);
  }

  describe('with the tiny model,', () => {
    before(async () => {
      reference = await openReference('tiny');
    });

    after(() => {
      reference.dispose();
    });

    for (const [precision, rows] of [
      ['int8', 'auto'],
      ['nf4', 4],
    ] as const) {
      it(`several at a time, ${precision} shadow, ${rows} rows: each is answered as alone`, async () => {
        cluster = await VirtualCluster.start({
          workers: 5,
          shadow: precision,
          main: { drafting: { optimistic: true, rows }, spread: 'all', main: { maxActiveSequences: 3 } },
        });
        const requests = [3, 50, 299].map((token, index) =>
          requestFor([1, token, index + 2, 9], {
            maxTokens: 10 + index,
            logprobs: 300,
            sampling: { temperature: index, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 1.1, seed: index },
          }),
        );
        const answers = await Promise.all(requests.map((request) => cluster.ask(request)));
        for (const [index, request] of requests.entries()) {
          const answer = answers[index] as CollectedAnswer;
          assertSameAnswer(answer, await answerOf(reference, request));
          assert.ok(answer.finished.drafts !== null);
        }
      });
    }

    it('cancelled while main waits for drafts: no pass begins, and the next is answered', async () => {
      const request = requestFor(PROMPT, { maxTokens: 20, logprobs: 300 });
      const expected = await answerOf(reference, request);
      const right = draftingScript({
        optimistic: false,
        answer: () => tokenIdsOf(expected),
        guess: (_, token) => token,
        heard,
      });
      cluster = await VirtualCluster.start({ workers: WORKERS, main: { drafting: { optimistic: false, rows: ROWS } } });
      const gone = new AbortController();
      shadow = await joinScriptedShadow(cluster, WORKERS, {
        ...right,
        onToken: (stream, token) => {
          if (gone.signal.aborted) {
            right.onToken?.(stream, token);
            return;
          }
          heard.push(token);
          // One draft of many, and the word that the next takes long.
          const { epoch, sequence, position, branch } = token;
          const draft = { epoch, sequence, position: position + 1, tokenId: 1, branch, passPosition: position };
          stream.send({ kind: 'draft', draft: { ...draft, runUs: 2 ** 32 - 1 } });
          setImmediate(() => {
            gone.abort();
          });
        },
      });
      await assert.rejects(cluster.ask(request, gone.signal), { code: 'CANCELLED' });
      await cluster.waitUntil('the sequence is freed', async () => (await cluster.status()).activeSequences === 0);
      assert.deepEqual(
        heard.map(({ position, rows }) => [position, rows]),
        [[PROMPT.length, 0]],
      );
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      assert.ok((answer.finished.drafts?.accepted ?? 0) > 0, 'the next has drafts');
    });

    it('cancelled within a pass of several rows: the next is answered', async () => {
      const request = requestFor(PROMPT, { maxTokens: 60, logprobs: 300 });
      const expected = await answerOf(reference, request);
      const right = draftingScript({
        optimistic: false,
        answer: () => tokenIdsOf(expected),
        guess: (_, token) => token,
        heard,
      });
      cluster = await VirtualCluster.start({ workers: WORKERS, main: { drafting: { optimistic: false, rows: ROWS } } });
      const gone = new AbortController();
      shadow = await joinScriptedShadow(cluster, WORKERS, {
        ...right,
        onToken: (stream, token) => {
          right.onToken?.(stream, token);
          if (token.rows > 1 && token.position > PROMPT.length) gone.abort();
        },
      });
      await assert.rejects(cluster.ask(request, gone.signal), { code: 'CANCELLED' });
      await cluster.waitUntil('the sequence is freed', async () => (await cluster.status()).activeSequences === 0);
      assert.ok(heard.some(({ rows, position }) => rows === ROWS && position === PROMPT.length + ROWS));
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      assert.equal(answer.finished.drafts?.accepted, answer.finished.drafts?.proposed);
    });
  });

  describe('with the demo model, in words,', () => {
    const request = requestFor([], { text: 'Tell me a story about a fox.', raw: false, maxTokens: 240 });
    let whole: CollectedAnswer;

    before(async () => {
      reference = await openReference('demo');
      whole = await answerOf(reference, request);
    });

    after(() => {
      reference.dispose();
    });

    /** The answer ends at a token that was one of the drafts of the last pass, and not the last of them. */
    async function endsWithinDrafts(ending: GenerateRequest): Promise<CollectedAnswer> {
      const expected = await answerOf(reference, ending);
      assert.equal(expected.finished.finishReason, 'stop');
      await startRight('demo', tokenIdsOf(whole));
      const answer = await cluster.ask(ending);
      assertSameAnswer(answer, expected);
      assert.ok(heard.every(({ branch }) => branch === 0));
      const last = heard.findLast(({ rows }) => rows > 0);
      const end = answer.started.promptTokenIds.length + answer.tokens.length - 1;
      assert.ok(last !== undefined && last.position < end && end < last.position + last.rows - 1);
      assertSameAnswer(await cluster.ask(request), whole);
      return answer;
    }

    it('can be ended by the end-of-sequence token among accepted drafts', async () => {
      const { tokens } = await endsWithinDrafts({ ...request, ignoreEos: false });
      assert.ok(tokens.length < whole.tokens.length);
    });

    it('can be ended by a stop string among accepted drafts', async () => {
      const stop = whole.finished.text.slice(50, 56);
      const { finished } = await endsWithinDrafts({ ...request, stop: [stop] });
      assert.ok(!finished.text.includes(stop) && finished.text.length >= 40, finished.text);
    });
  });
});
