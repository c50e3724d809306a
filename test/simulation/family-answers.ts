import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import { instructionSets } from '../../native/index.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { openReference, type TestModel } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { VirtualCluster, stopVirtualCluster } from './virtual-cluster.js';

/** Long enough for several passes of prefill, and long enough that a recurrence cannot be cut back to its beginning. */
const PROMPT_TOKENS = 75;
const TOKENS = 16;
const KILLED_AT = 4;
const BACK_AT = 9;
const SETS = instructionSets() as ('avx512' | 'avx2' | 'neon' | 'scalar')[];

type Disturbance = (cluster: VirtualCluster, token: number) => Promise<void>;

const killWorker: Disturbance = async (cluster, token) => {
  if (token === KILLED_AT) cluster.node('worker-1').kill();
};

const replaceShadow: Disturbance = async (cluster, token) => {
  if (token === KILLED_AT) cluster.node('shadow').kill();
  if (token === BACK_AT) await cluster.startAgain('shadow');
};

/** Settings by which the workers use the instruction sets of this machine in turn. */
const mixed = (index: number): SettingsChanges => ({
  device: { instructionSet: SETS[index % SETS.length] ?? 'scalar' },
});

const PLANS: [what: string, plan: ClusterPlan, disturb: Disturbance | null][] = [
  ['1 worker, an int8 shadow and drafts', { workers: 1, shadow: 'int8', main: { drafting: { rows: 4 } } }, null],
  [
    '3 workers, one of which is killed, an nf4 shadow, drafts and optimism',
    {
      workers: 3,
      shadow: 'nf4',
      main: { drafting: { rows: 4, optimistic: true }, main: { prefillRows: 32, miniBatchRows: 8 } },
    },
    killWorker,
  ],
  [
    '5 workers of all instruction sets and an int8 shadow that is killed and comes back, aligned every 3 iterations',
    {
      workers: 5,
      shadow: 'int8',
      worker: mixed,
      main: { align: { tokenPeriod: 1, keyValuePeriod: 3 }, device: { instructionSet: SETS.at(-1) ?? 'scalar' } },
    },
    replaceShadow,
  ],
];

/** npm test runs one plan for each model, and every plan for some model. npm run test:long runs the others. */
export function isQuick(model: number, plan: number): boolean {
  return model % PLANS.length === plan;
}

/** Call this in a describe: it adds a test of each model with each chosen plan. Model and plan are given by their indexes in the lists. */
export function modelsAnswer(models: readonly TestModel[], isChosen: (model: number, plan: number) => boolean): void {
  let cluster: VirtualCluster | null = null;

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  for (const [index, model] of models.entries()) {
    describe(model, () => {
      let reference: LocalEngine | null = null;
      let request: GenerateRequest;
      let expected: CollectedAnswer;

      before(async () => {
        const engine = await openReference(model);
        reference = engine;
        const { vocabSize } = engine.source.shape;
        const prompt = Array.from({ length: PROMPT_TOKENS }, (_, index) => (index * 37 + 3) % vocabSize);
        request = requestFor(prompt, { maxTokens: TOKENS, logprobs: vocabSize });
        expected = await collect(engine.generate(request, new AbortController().signal));
      });

      after(() => {
        reference?.dispose();
      });

      for (const [what, plan, disturb] of PLANS.filter((_, number) => isChosen(index, number))) {
        it(`with ${what}`, async () => {
          const running = await VirtualCluster.start({ ...plan, model });
          cluster = running;
          const answer = await running.ask(request, undefined, async (token) => disturb?.(running, token));
          assertSameAnswer(answer, expected);
          const { sep, drafts } = answer.finished;
          assert.ok(sep !== null && sep.predictedCorrectly > 0, 'shadow predicts');
          assert.equal(drafts === null, plan.main?.drafting === undefined);
        });
      }
    });
  }
}
