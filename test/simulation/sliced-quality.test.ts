/** Clusters whose workers compute experts with slices: every answer equals that of one process with the same quality, to the bit. */
import assert from 'node:assert/strict';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import { assertSameAnswer, collect, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import type { ClusterPlan } from '../integration/harness/test-cluster.js';
import { openReference, openReferenceOf, slicedPackOf } from '../integration/harness/test-models.js';
import type { SettingsChanges } from '../integration/harness/test-settings.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

/** More than the decode steps after which a miss budget pulls its first levers. */
const TOKENS = 20;
const KILLED_AT = 4;
/** Between the lowest and the highest weight of a router that chooses two experts. */
const THETA = { critical: 0.3, theta: 0.55 };
const QUALITIES = [
  'sliced(8,4)',
  'sliced(8,4,low)',
  'sliced(8,4,critical=0.3)',
  'sliced(8,4,cached=200000,miss=0.05)',
  'sliced(8,4,cached=200000,miss=0.3,dbsc=background,routing=cumulative(0.9,1))',
  'sliced(8,4,cached=200000,miss=0.3,dbsc=never,routing=cache-prior(0.4,1))',
];

const qualityOf = (text: string): Quality => {
  const read = readQuality(text);
  return 'quality' in read ? read.quality : assert.fail(read.problem);
};

/** Plans by what they show. `main` has the settings of main beside its quality. */
const PLANS: [what: string, plan: Omit<ClusterPlan, 'main'> & { main?: SettingsChanges }, kills: boolean][] = [
  ['1 worker and no shadow', { workers: 1 }, false],
  ['3 workers and a shadow', { workers: 3, shadow: 'int8' }, false],
  [
    '7 workers of two slots, a sliced shadow, and drafts',
    { workers: 7, shadow: 'sliced(8,4,low)', main: { drafting: { rows: 4 } } },
    false,
  ],
  ['3 workers, one of which is killed', { workers: 3, shadow: 'nf4', main: { main: { prefillRows: 8 } } }, true],
  [
    '3 workers and routers that are asked ahead',
    { workers: 3, main: { prediction: { source: 'router-ahead', layersAhead: 1 } } },
    false,
  ],
];

describe('a cluster of a sliced quality', function () {
  this.timeout(60_000);
  let pack: string;
  let cluster: VirtualCluster | null = null;
  const requests = [0, 5].map((first) =>
    requestFor(
      Array.from({ length: 23 }, (_, index) => (index * 37 + first) % 300),
      { maxTokens: TOKENS, logprobs: 5 },
    ),
  );

  before(async () => {
    pack = await slicedPackOf('tiny', [THETA]);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  const start = async (quality: Quality, plan: ClusterPlan): Promise<VirtualCluster> => {
    const main = { ...plan.main, main: { ...plan.main?.main, quality } };
    const worker = (): SettingsChanges => ({ main: { quality }, slots: 2 });
    return (cluster = await VirtualCluster.start({ ...plan, packDirectory: pack, main, worker }));
  };

  const answersOf = async (engine: LocalEngine, asked: readonly GenerateRequest[]): Promise<CollectedAnswer[]> => {
    const answers: CollectedAnswer[] = [];
    for (const request of asked) answers.push(await collect(engine.generate(request, new AbortController().signal)));
    return answers;
  };

  for (const text of QUALITIES) {
    describe(text, () => {
      const quality = qualityOf(text);
      let engine: LocalEngine;
      let expected: CollectedAnswer[];

      before(async () => {
        engine = await openReferenceOf(pack, quality);
        expected = await answersOf(engine, requests);
      });

      after(() => engine.dispose());

      it('differs from exact answers, and says how it computes', async () => {
        const exact = await openReference('tiny');
        try {
          const [answer] = await answersOf(exact, requests);
          assert.notDeepEqual(answer?.tokens, expected[0]?.tokens);
        } finally {
          exact.dispose();
        }
        assert.equal(expected[0]?.started.arithmetic, text);
      });

      for (const [what, plan, kills] of PLANS) {
        it(`answers two users at once as one process answers each: ${what}`, async () => {
          const running = await start(quality, plan);
          const answers = await Promise.all(
            requests.map((request) =>
              running.ask(request, undefined, (token) => {
                if (kills && token === KILLED_AT && running.node('worker-1').isAlive) running.node('worker-1').kill();
              }),
            ),
          );
          answers.forEach((answer, index) => {
            assertSameAnswer(answer, expected[index] ?? assert.fail('no answer is expected'));
            assert.equal(answer.started.arithmetic, text);
          });
          assert.equal((await running.status()).arithmetic, text);
        });
      }
    });
  }

  it('refuses a request for exact answers, and takes one for its own arithmetic', async () => {
    const running = await start(qualityOf('sliced(8,4,low)'), { workers: 1 });
    const [request = assert.fail()] = requests;
    await assert.rejects(running.ask({ ...request, arithmetic: 'exact' }), {
      code: 'REQUEST_INVALID',
      message: /wants "exact".*computes answers as "sliced\(8,4,low\)"/,
    });
    const answer = await running.ask({ ...request, arithmetic: 'sliced(8,4,low)' });
    assert.equal(answer.tokens.length, TOKENS);
  });

  it('reads from storage no lower slice for low, and both of each expert for high', async () => {
    const reads: number[] = [];
    for (const text of ['sliced(8,4,low)', 'sliced(8,4,critical=0.3)', 'sliced(8,4)']) {
      const running = await start(qualityOf(text), { workers: 1 });
      const [request = assert.fail()] = requests;
      await running.ask(request);
      const worker = (await running.status()).nodes.find(({ identity }) => identity.role === 'ROLE_WORKER');
      assert.ok(worker !== undefined && worker.loads > 0);
      reads.push(worker.storageReadBytes / worker.loads);
      await running.stop();
      cluster = null;
    }
    const [low = 0, critical = 0, high = 0] = reads;
    assert.ok(low < critical && critical < high, `${low} < ${critical} < ${high} bytes a load`);
  });

  it('refuses a worker of another quality in words', async () => {
    const running = await start(qualityOf('sliced(8,4,low)'), { workers: 1 });
    await running.addWorker('stranger', { main: { quality: qualityOf('exact') } });
    await running.waitUntil('main reports the worker', async () =>
      (await running.status()).problems.some(
        ({ message }) => message.includes('the quality is') && message.includes('main.quality'),
      ),
    );
  });
});
