import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPack } from '../../packs/format/open-pack.js';
import { PREDICTOR_FILE } from '../../packs/format/pack-layout.js';
import { writePredictor } from '../../packs/predictor/predictor-file.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { randomPredictor } from '../../simulator/faults/drawn-maps.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { packOf } from '../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const REQUEST = requestFor([1, 17, 250, 3, 88, 120, 9], { maxTokens: 24, logprobs: 5 });
const TRAINED = { source: 'trained', layersAhead: 1 } as const;
const LAYERS = 4;
const EXPERTS_PER_TOKEN = 2;
const WARNING = 'the trained predictor is not used';

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

describe('a simulated cluster with trained maps', () => {
  let directory: string;
  let expected: CollectedAnswer;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-maps-'));
    cpSync(await packOf('tiny'), directory, { recursive: true });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    rmSync(directory, { recursive: true, force: true });
  });

  async function addMaps(): Promise<void> {
    const { shape } = await openPack(directory);
    await writePredictor(directory, randomPredictor(shape, new SeededRandom(7)));
  }

  const start = async (plan: Omit<Parameters<typeof VirtualCluster.start>[0], 'packDirectory'>) =>
    (cluster = await VirtualCluster.start({ packDirectory: directory, ...plan }));

  for (const [what, main] of [
    ['', {}],
    [', spread over all workers', { spread: 'all' }],
    [', with strict homes', { homes: 'strict' }],
  ] as const) {
    it(`answers as the engine does${what}, and predicts experts of every layer without a shadow`, async () => {
      await addMaps();
      const started = await start({ workers: 5, main: { prediction: TRAINED, ...main } });
      const answer = await started.ask(REQUEST);
      assertSameAnswer(answer, expected);
      const { sep } = answer.finished;
      assert.equal(sep?.activated, (answer.tokens.length - 1) * LAYERS * EXPERTS_PER_TOKEN);
      // Even random maps are right now and then.
      assert.ok((sep?.predictedCorrectly ?? 0) > 0);
    });
  }

  it('answers as the engine does to several clients at once', async () => {
    await addMaps();
    const started = await start({ workers: 3, main: { prediction: TRAINED } });
    const answers = await Promise.all([1, 2, 3].map(() => started.ask(REQUEST)));
    for (const answer of answers) assertSameAnswer(answer, expected);
  });

  it('goes on to predict when its shadow is lost in the middle of an answer', async () => {
    await addMaps();
    const started = await start({ workers: 3, shadow: 'fp16' });
    const answer = await started.ask(REQUEST, undefined, (count) => {
      if (count === 8) started.node('shadow').kill();
    });
    assertSameAnswer(answer, expected);
    const { correctByIteration: correct = [] } = answer.finished.sep ?? {};
    // A shadow in FP16 predicts nearly all experts; the maps are random.
    assert.ok(sum(correct.slice(0, 4)) >= 4 * (LAYERS * EXPERTS_PER_TOKEN - 1), correct.join());
    const alone = correct.slice(12);
    assert.ok(sum(alone) > 0 && sum(alone) < alone.length * LAYERS * EXPERTS_PER_TOKEN, correct.join());
  });

  it('says that a damaged predictor is not used, and predicts by routers', async () => {
    await addMaps();
    const path = join(directory, PREDICTOR_FILE);
    const bytes = readFileSync(path);
    const last = bytes.length - 1;
    bytes[last] = (bytes[last] ?? 0) ^ 1;
    writeFileSync(path, bytes);
    const started = await start({ workers: 3, main: { prediction: TRAINED } });
    const answer = await started.ask(REQUEST);
    assertSameAnswer(answer, expected);
    const { correctByIteration: correct = [] } = answer.finished.sep ?? {};
    assert.ok(sum(correct) > 0);
    const [warning] = started.log.matching(WARNING);
    assert.match(warning ?? '', /odmoe fit/);
    assert.match(warning ?? '', /router-ahead/);
  });

  it('does not start without a predictor that the settings ask for, and names the command that makes one', async () => {
    await assert.rejects(start({ workers: 1, main: { prediction: TRAINED } }), {
      code: 'CONFIG_INVALID',
      message: /run "odmoe fit .*--prediction router-ahead/,
    });
  });
});
