import assert from 'node:assert/strict';
import { instructionSets } from '../../../native/index.js';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../../integration/harness/answers.js';
import { VirtualCluster, stopVirtualCluster } from '../../simulation/virtual-cluster.js';
import type { ClusterPlan } from '../../integration/harness/test-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import type { SettingsChanges } from '../../integration/harness/test-settings.js';

const TINY_VOCABULARY = 300;
const WORKER_COUNTS = [1, 5];
const SHADOWS = [
  ['int8', 1],
  ['int8', 4],
  ['nf4', 0],
] as const;

/** Main's optional ways to decode, each alone and all together. */
const VARIANTS: [string, SettingsChanges][] = [
  ['drafts of 2 rows', { drafting: { rows: 2 } }],
  ['drafts of 4 rows, optimistic', { drafting: { rows: 4, optimistic: true } }],
  ['as many drafts as pay, spread over all', { drafting: { rows: 'auto', optimistic: false }, spread: 'all' }],
  ['as many drafts as pay, optimistic', { drafting: { rows: 'auto', optimistic: true } }],
  ['optimistic departure', { drafting: { optimistic: true } }],
  ['experts spread over all', { spread: 'all' }],
  ['key and value rows at the end of an iteration', { align: { streamKeyValues: false } }],
  [
    'drafts of 4 rows, optimistic, spread over all, rows at the end',
    { drafting: { rows: 4, optimistic: true }, spread: 'all', align: { streamKeyValues: false } },
  ],
  ['drafts of 16 rows', { drafting: { rows: 16 }, spread: 'all' }],
  [
    'optimistic departure, aligned every 3 iterations',
    { drafting: { optimistic: true }, align: { tokenPeriod: 3, keyValuePeriod: 2 } },
  ],
  ['random prefetch', { prediction: { source: 'random', layersAhead: 1 } }],
  ['routers ahead', { prediction: { source: 'router-ahead', layersAhead: 2 } }],
  ['no prediction', { prediction: { source: 'off', layersAhead: 1 } }],
];

const REQUESTS: GenerateRequest[] = [
  requestFor([1, 17, 250, 3, 88], { maxTokens: 14, logprobs: TINY_VOCABULARY }),
  requestFor([1, 5, 9, 13, 200, 201, 202, 7, 7, 7, 42], {
    maxTokens: 9,
    logprobs: TINY_VOCABULARY,
    sampling: { temperature: 0.9, topK: 0, topP: 0.95, minP: 0, repetitionPenalty: 1.1, seed: 11 },
  }),
];

describe('a simulated cluster answers as the single-process engine does, to the bit,', () => {
  let reference: LocalEngine;
  let expected: CollectedAnswer[];
  let cluster: VirtualCluster | null = null;

  before(async () => {
    reference = await openReference('tiny');
    expected = [];
    for (const request of REQUESTS) expected.push(await answerOf(request));
  });

  after(() => {
    reference.dispose();
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  function answerOf(request: GenerateRequest): Promise<CollectedAnswer> {
    return collect(reference.generate(request, new AbortController().signal));
  }

  async function holds(plan: ClusterPlan): Promise<CollectedAnswer[]> {
    cluster = await VirtualCluster.start(plan);
    const answers: CollectedAnswer[] = [];
    for (const request of REQUESTS) answers.push(await cluster.ask(request));
    answers.forEach((answer, index) => {
      assertSameAnswer(answer, expected[index] as CollectedAnswer);
    });
    return answers;
  }

  it('in every logit: each token brings those of the whole vocabulary', () => {
    assert.equal(expected[0]?.tokens[0]?.top.length, TINY_VOCABULARY);
  });

  for (const workers of WORKER_COUNTS) {
    it(`with ${workers} workers and no shadow`, async () => {
      const answers = await holds({ workers });
      for (const { finished } of answers) assert.equal(finished.sep, null);
    });

    for (const [shadow, period] of SHADOWS) {
      it(`with ${workers} workers and an ${shadow} shadow aligned every ${period} iterations`, async () => {
        const align = { tokenPeriod: period, keyValuePeriod: period };
        const answers = await holds({ workers, shadow, main: { align } });
        for (const { finished, tokens } of answers) {
          const { sep } = finished;
          assert.ok(sep !== null, 'a shadow took part');
          // The first token comes from prefill. Each later token is decoded through 4 layers of 2 experts.
          assert.equal(sep.activated, (tokens.length - 1) * 4 * 2);
          assert.deepEqual(sep.activatedByIteration, new Array(tokens.length - 1).fill(8));
        }
      });
    }
  }

  for (const groupSize of [1, 2, 4] as const) {
    it(`with groups of ${groupSize} among 5 workers`, async () => {
      await holds({ workers: 5, shadow: 'int8', main: { groupSize } });
      const groups = (await (cluster as VirtualCluster).status()).placement?.groups ?? [];
      assert.equal(groups.length, Math.floor(5 / groupSize));
    });
  }

  for (const [what, main] of VARIANTS) {
    it(`with 5 workers, an nf4 shadow and ${what}`, async () => {
      const answers = await holds({ workers: 5, shadow: 'nf4', main });
      const rows = main.drafting?.rows ?? 1;
      for (const { finished } of answers) {
        assert.equal(finished.drafts === null, rows === 1);
        assert.equal(finished.sep === null, main.prediction?.source === 'off');
      }
    });
  }

  it('with mostly correct drafts: most tokens come out of passes that began before them', async () => {
    for (const optimistic of [true, false]) {
      const answers = await holds({
        workers: 4,
        shadow: 'fp16',
        main: { drafting: { optimistic, rows: 4 }, spread: 'all' },
      });
      for (const { finished } of answers) {
        const { proposed, accepted } = finished.drafts ?? { proposed: 0, accepted: 0 };
        assert.ok(
          accepted > 0 && accepted >= 0.5 * proposed,
          `${accepted} of ${proposed} drafts, optimistic ${optimistic}`,
        );
        assert.ok((finished.sep?.recall ?? 0) > 0.8, `recall ${finished.sep?.recall}`);
      }
      await cluster?.stop();
    }
  });

  it('with workers of every instruction set that this machine has', async () => {
    const sets = instructionSets() as ('avx512' | 'avx2' | 'neon' | 'scalar')[];
    assert.ok(sets.length >= 2, `only ${sets.join()} here`);
    await holds({
      workers: 4,
      shadow: 'int8',
      main: { device: { instructionSet: 'scalar' } },
      worker: (index) => ({ device: { instructionSet: sets[index % sets.length] ?? 'scalar' } }),
    });
  });

  it('with prompts that are prefilled in several passes and mini-batches', async () => {
    const prompt = Array.from({ length: 60 }, (_, index) => (index * 37 + 3) % TINY_VOCABULARY);
    const request = requestFor(prompt, { maxTokens: 6, logprobs: TINY_VOCABULARY });
    const wanted = await answerOf(request);
    for (const [prefillRows, miniBatchRows] of [
      [32, 4],
      [60, 7],
      [1, 1],
    ] as const) {
      cluster = await VirtualCluster.start({
        workers: 3,
        shadow: 'int8',
        main: { main: { prefillRows, miniBatchRows } },
      });
      assertSameAnswer(await cluster.ask(request), wanted);
      await cluster.stop();
    }
    cluster = await VirtualCluster.start({ workers: 3, main: { main: { prefillOverlap: false, miniBatchRows: 4 } } });
    assertSameAnswer(await cluster.ask(request), wanted);
  });

  for (const [resident, format] of [
    ['fixed4', 'fixed4'],
    // Nothing is measured where devices are emulated.
    ['auto', 'bf16'],
  ] as const) {
    it(`with main's own weights kept as ${resident} says`, async () => {
      await holds({ workers: 2, shadow: 'int8', main: { main: { resident }, drafting: { rows: 4 } } });
      const { nodes } = await (cluster as VirtualCluster).status();
      assert.deepEqual(
        nodes.map(({ weightFormat }) => weightFormat),
        [format, '', '', ''],
      );
    });
  }

  it('with more workers than experts', async () => {
    await holds({ workers: 11, main: { main: { miniBatchRows: 2 } } });
  });
});
