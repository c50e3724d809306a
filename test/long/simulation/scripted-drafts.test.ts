import assert from 'node:assert/strict';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import { MAX_SILENT_WAITS } from '../../../main-node/decode/sequence-drafting.js';
import type { RpcServer } from '../../../shared/transport/transport.js';
import type { AlignToken, BeginSequence, GenerateRequest } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { draftingScript, type Guess } from '../../simulation/drafting-script.js';
import { joinScriptedShadow, type ShadowScript } from '../../simulation/scripted-shadow.js';
import { plainPrediction, restartAt } from '../../unit/wire-messages.js';

const WORKERS = 3;
const TOKENS = 20;
const PROMPT = [1, 17, 250, 3, 88, 120, 9];
const REQUESTS: GenerateRequest[] = [
  requestFor(PROMPT, { maxTokens: TOKENS, logprobs: 300 }),
  requestFor(PROMPT, {
    maxTokens: TOKENS,
    logprobs: 300,
    sampling: { temperature: 1, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 1.2, seed: 5 },
  }),
];

const wrongThird: Guess = (position, right) => (position % 3 === 0 ? (right + 1) % 300 : right);

/** Passes for whose drafts main waited: it sent their first token before it began them. */
function waitsIn(heard: readonly AlignToken[]): number {
  return heard.filter(({ position, rows }, index) => rows > 0 && heard[index - 1]?.position === position).length;
}

describe('drafts of a scripted shadow', () => {
  let reference: LocalEngine;
  const expected: CollectedAnswer[] = [];
  let cluster: VirtualCluster;
  let shadow: RpcServer | null = null;

  before(async () => {
    reference = await openReference('tiny');
    for (const request of REQUESTS) {
      expected.push(await collect(reference.generate(request, new AbortController().signal)));
    }
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    await shadow?.stop();
    shadow = null;
  });

  function drafter(optimistic: boolean, guess: Guess, heard: AlignToken[]): ShadowScript {
    const answer = (begin: BeginSequence): number[] => {
      const isGreedy = begin.sampling?.temperature === 0;
      return (expected[isGreedy ? 0 : 1] as CollectedAnswer).tokens.map(({ tokenId }) => tokenId);
    };
    return draftingScript({ optimistic, answer, guess, heard });
  }

  async function answersWith(
    drafting: { optimistic: boolean; rows: number | 'auto' },
    guess: Guess,
    heard: AlignToken[] = [],
  ): Promise<CollectedAnswer[]> {
    cluster = await VirtualCluster.start({ workers: WORKERS, main: { drafting } });
    shadow = await joinScriptedShadow(cluster, WORKERS, drafter(drafting.optimistic, guess, heard));
    const answers: CollectedAnswer[] = [];
    for (const request of REQUESTS) answers.push(await cluster.ask(request));
    answers.forEach((answer, index) => {
      assertSameAnswer(answer, expected[index] as CollectedAnswer);
    });
    return answers;
  }

  for (const optimistic of [true, false]) {
    const when = optimistic ? 'ahead of the token' : 'behind the token';

    it(`${when}, always right: a pass yields all its rows, and none is beyond the answer`, async () => {
      const heard: AlignToken[] = [];
      const answers = await answersWith({ optimistic, rows: 4 }, (_position, right) => right, heard);
      for (const { finished } of answers) {
        assert.ok(finished.drafts !== null && finished.drafts.proposed > 0);
        if (!optimistic) {
          assert.deepEqual(finished.drafts, { proposed: 14, accepted: 14 }, '19 positions in passes of 4, 4, 4, 4, 3');
          assert.deepEqual(finished.sep?.activatedByIteration.length, 5);
        }
        assert.equal(finished.drafts.accepted, finished.drafts.proposed);
      }
      assert.ok(heard.every(({ position, rows }) => position + rows < PROMPT.length + TOKENS));
      assert.ok(heard.every(({ branch }) => branch === 0));
    });

    it(`${when}, wrong at every third position: these begin new passes`, async () => {
      const heard: AlignToken[] = [];
      const answers = await answersWith({ optimistic, rows: 4 }, wrongThird, heard);
      for (const { finished } of answers) {
        assert.ok(finished.drafts !== null && finished.drafts.accepted > 0);
        assert.ok(finished.drafts.accepted < finished.drafts.proposed);
      }
      assert.ok(heard.some(({ branch }) => branch > 2));
    });

    it(`${when}, wrong at every third position: shadow gets the rows of these anew, and all others once`, async () => {
      const heard: AlignToken[] = [];
      const rowsOf: number[] = [];
      const main = { drafting: { optimistic, rows: 4 }, align: { keyValuePeriod: 1 } };
      cluster = await VirtualCluster.start({ workers: WORKERS, main });
      shadow = await joinScriptedShadow(cluster, WORKERS, {
        ...drafter(optimistic, wrongThird, heard),
        onRows: ({ layer, position, rows }) => {
          if (layer === 0) for (let row = 0; row < rows; row++) rowsOf.push(position + row);
        },
      });
      await cluster.ask(REQUESTS[0] as GenerateRequest);
      const passes = [{ position: 0, rows: PROMPT.length }, ...heard];
      const ran = passes.flatMap(({ position, rows }) => Array.from({ length: rows }, (_, row) => position + row));
      assert.ok(new Set(ran).size < ran.length);
      assert.deepEqual(rowsOf, ran);
    });

    it(`${when}, nonsense: the answer is as without it`, async () => {
      const answers = await answersWith({ optimistic, rows: 8 }, (position) => (position * 31) % 300);
      for (const { finished } of answers) assert.ok((finished.drafts?.accepted ?? TOKENS) < TOKENS / 2);
    });

    it(`${when}, as many as pay`, async () => {
      const heard: AlignToken[] = [];
      const answers = await answersWith({ optimistic, rows: 'auto' }, (_position, right) => right, heard);
      assert.ok(answers.every(({ finished }) => finished.drafts !== null));
      assert.ok(
        heard.some(({ rows }) => rows > 1),
        'a pass had drafts',
      );
    });
  }

  it('are impossible where shadow does not get every token: main logs it, and runs a position a pass', async () => {
    const main = { drafting: { rows: 4 }, align: { tokenPeriod: 2 } };
    cluster = await VirtualCluster.start({ workers: WORKERS, main });
    assert.equal(cluster.log.matching('no drafts').length, 1);
    const heard: AlignToken[] = [];
    shadow = await joinScriptedShadow(cluster, WORKERS, { onToken: (_stream, token) => void heard.push(token) });
    assertSameAnswer(await cluster.ask(REQUESTS[0] as GenerateRequest), expected[0] as CollectedAnswer);
    assert.ok(heard.length > 0 && heard.every(({ rows }) => rows === 1));
  });

  it('that never arrive make main wait a little, then no more', async () => {
    cluster = await VirtualCluster.start({ workers: WORKERS, main: { drafting: { optimistic: false, rows: 4 } } });
    const heard: AlignToken[] = [];
    shadow = await joinScriptedShadow(cluster, WORKERS, { onToken: (_stream, token) => void heard.push(token) });
    const answer = await cluster.ask(REQUESTS[0] as GenerateRequest);
    assertSameAnswer(answer, expected[0] as CollectedAnswer);
    assert.deepEqual(answer.finished.drafts, { proposed: 0, accepted: 0 });
    assert.equal(waitsIn(heard), MAX_SILENT_WAITS);
  });

  for (const optimistic of [true, false]) {
    const when = optimistic ? 'ahead of the token' : 'behind the token';
    it(`come out of order, twice, of other branches and passes, ${when}: the answer is as without them`, async () => {
      cluster = await VirtualCluster.start({ workers: WORKERS, main: { drafting: { optimistic, rows: 8 } } });
      let heard: AlignToken[] = [];
      shadow = await joinScriptedShadow(cluster, WORKERS, {
        onToken: (stream, token) => {
          heard.push(token);
          const { epoch, sequence, position, branch } = token;
          const place = { epoch, sequence, runUs: 2 ** 32 - 1 };
          for (const ahead of [9, 1, 3, 2, 2, 1_000_000]) {
            for (const other of [branch + 1, branch, 0]) {
              const draft = { ...place, position: position + ahead, tokenId: (ahead * 7) % 300, branch: other };
              stream.send({ kind: 'draft', draft: { ...draft, passPosition: position + (ahead % 3) } });
            }
          }
          stream.send({
            kind: 'restart',
            restart: restartAt({ epoch, sequence, position: position + 2 }),
          });
          stream.send({
            kind: 'predict',
            predict: plainPrediction({
              epoch,
              sequence,
              position: position + 1,
              layer: 1,
              experts: [1, 2],
              workers: [0, 99],
            }),
          });
          stream.send({
            kind: 'draft',
            draft: { ...place, sequence: 4711, position, tokenId: 1, branch, passPosition: 0 },
          });
        },
      });
      for (const [index, request] of REQUESTS.entries()) {
        heard = [];
        assertSameAnswer(await cluster.ask(request), expected[index] as CollectedAnswer);
        assert.ok(heard.length >= TOKENS - 1);
        const waits = waitsIn(heard);
        assert.ok(waits <= (optimistic ? 0 : MAX_SILENT_WAITS + 1), `main waited ${waits} times`);
      }
    });
  }
});
