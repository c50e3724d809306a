import assert from 'node:assert/strict';
import { modelDirectory } from '../../simulator/faults/scenario-world.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { DRAFT_MAKERS, type DraftMaker } from '../../main-node/drafting/choose-drafts.js';
import { assertSameAnswer, collect, type CollectedAnswer, requestFor } from '../integration/harness/answers.js';
import { openReferenceOf } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const GREEDY = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
/** A text for a model with a tokenizer. */
const TEXT: GenerateRequest = {
  ...requestFor([], { maxTokens: 40, logprobs: 3 }),
  text: 'Tell me of a fox.',
  sampling: GREEDY,
};
/** The tokenizer has a token for each byte of these letters, and none for several. */
const LETTERS = 'ЖЖЖЖЖЖ';
const FORCED: GenerateRequest = {
  ...TEXT,
  ignoreEos: false,
  sampling: {
    ...GREEDY,
    outputFormat: { alternatives: [{ parts: [{ kind: 'literal', literal: LETTERS }] }] },
  },
};
const OFF = { source: 'off', layersAhead: 1 } as const;

type Verdicts = Record<DraftMaker, { right: number; wrong: number }>;

describe('drafts by who made them, in a simulated cluster', () => {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (
    packDirectory: string,
    drafting: NonNullable<SettingsChanges['drafting']>,
    shadow?: 'int8',
  ): Promise<VirtualCluster> => {
    const main = shadow === undefined ? { drafting, prediction: OFF } : { drafting };
    return (cluster = await VirtualCluster.start({ packDirectory, workers: 2, ...(shadow && { shadow }), main }));
  };

  /** The counters of main's metrics. */
  const verdicts = async (running: VirtualCluster): Promise<Verdicts> => {
    const lines = (await running.passing(running.node('main').metrics())).split('\n');
    const count = (source: DraftMaker, verdict: string): number => {
      const name = `odmoe_draft_tokens_verified_total{source="${source}",verdict="${verdict}"} `;
      return Number(lines.find((line) => line.startsWith(name))?.slice(name.length) ?? 0);
    };
    const entries = DRAFT_MAKERS.map((maker) => [
      maker,
      { right: count(maker, 'right'), wrong: count(maker, 'wrong') },
    ]);
    return Object.fromEntries(entries) as Verdicts;
  };

  const assertCounted = async (running: VirtualCluster, answers: readonly CollectedAnswer[]): Promise<Verdicts> => {
    const counted = await verdicts(running);
    const sum = (of: 'right' | 'wrong'): number => DRAFT_MAKERS.reduce((total, maker) => total + counted[maker][of], 0);
    const drafts = answers.flatMap(({ finished }) => finished.drafts ?? []);
    const accepted = drafts.reduce((total, one) => total + one.accepted, 0);
    const proposed = drafts.reduce((total, one) => total + one.proposed, 0);
    assert.deepEqual([sum('right'), sum('wrong')], [accepted, proposed - accepted]);
    return counted;
  };

  const expectedOf = async (directory: string, request: GenerateRequest): Promise<CollectedAnswer> => {
    const engine = await openReferenceOf(directory, { kind: 'exact' });
    try {
      return await collect(engine.generate(request, new AbortController().signal));
    } finally {
      engine.dispose();
    }
  };

  it('a text that the client expects makes them, and a wrong one changes nothing', async () => {
    const directory = modelDirectory('four-experts');
    const expected = await expectedOf(directory, TEXT);
    const running = await start(directory, { rows: 5, source: 'lookup' });
    const plain = await running.ask(TEXT);
    const right = await running.ask({ ...TEXT, expectedText: expected.finished.text });
    const wrong = await running.ask({ ...TEXT, expectedText: 'The moon is not a fox, and a fox is not the moon.' });
    for (const answer of [plain, right, wrong]) assertSameAnswer(answer, expected);
    const accepted = ({ finished }: CollectedAnswer): number => finished.drafts?.accepted ?? 0;
    assert.ok(accepted(right) > accepted(plain), `${accepted(right)} with the text, ${accepted(plain)} without`);
    const counted = await assertCounted(running, [plain, right, wrong]);
    assert.equal(counted.lookup.right, accepted(plain) + accepted(right) + accepted(wrong));
  });

  it('a format forces them, and they are all right', async () => {
    const directory = modelDirectory('four-experts');
    const expected = await expectedOf(directory, FORCED);
    assert.equal(expected.finished.text, LETTERS);
    const running = await start(directory, { rows: 4, source: 'lookup' });
    const answer = await running.ask(FORCED);
    assertSameAnswer(answer, expected);
    const { forced } = await assertCounted(running, [answer]);
    assert.ok(forced.right > 0);
    assert.ok(forced.wrong <= 1, 'the token after which the answer ends counts as wrong');
  });

  for (const rows of [3, 'auto'] as const)
    it(`the model's own head makes them, with ${rows} rows, beside lookup`, async () => {
      const directory = modelDirectory('draft-head');
      const expected = await expectedOf(directory, TEXT);
      const running = await start(directory, { rows, source: 'mtp' });
      const answers: CollectedAnswer[] = [];
      for (let asked = 0; asked < 3; asked += 1) answers.push(await running.ask(TEXT));
      for (const answer of answers) assertSameAnswer(answer, expected);
      const { mtp } = await assertCounted(running, answers);
      if (rows !== 'auto') assert.ok(mtp.right + mtp.wrong > 0);
      assert.deepEqual(running.log.matching("the model's own head has failed"), []);
    });

  it('shadow makes them where it is surer than main', async () => {
    const directory = modelDirectory('four-experts');
    const expected = await expectedOf(directory, TEXT);
    const running = await start(directory, { rows: 4, source: 'auto' }, 'int8');
    const answers = [await running.ask(TEXT), await running.ask({ ...TEXT, expectedText: expected.finished.text })];
    for (const answer of answers) assertSameAnswer(answer, expected);
    const { shadow } = await assertCounted(running, answers);
    assert.ok(shadow.right > 0, 'shadow drafts');
  });
});
