import assert from 'node:assert/strict';
import { MOST_POSITIONS } from '../../engine/loading/served-shape.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { assertSameAnswer, collect, type CollectedAnswer, requestFor } from './harness/answers.js';
import { stopCluster, TestCluster } from './harness/test-cluster.js';
import { longPackOf, openReferenceOf } from './harness/test-models.js';

const MODEL_POSITIONS = 512;
const POSITIONS = 2048;
const PROMPT = Array.from({ length: 1500 }, (_, index) => 3 + ((index * 7) % 290));
const REQUEST = requestFor(PROMPT, { logprobs: 300, ignoreEos: true });
const LONG = { main: { maxContextPositions: POSITIONS } };

describe('a context past what the model was made for', function () {
  this.timeout(120_000);
  let cluster: TestCluster | null = null;
  let expected: CollectedAnswer;

  before(async () => {
    const reference = await openReferenceOf(await longPackOf('tiny', POSITIONS), { kind: 'exact' });
    try {
      expected = await collect(reference.generate(REQUEST, new AbortController().signal));
    } finally {
      reference.dispose();
    }
  });

  afterEach(async function () {
    await stopCluster(this, cluster);
    cluster = null;
  });

  /** The answer of a cluster whose shadow has these settings. */
  async function answered(shadow: object): Promise<CollectedAnswer> {
    cluster = await TestCluster.start({ model: 'tiny', workers: 2, main: LONG });
    await cluster.addShadow('shadow', { precision: 'int8', ...shadow });
    await cluster.waitForRoster(2, 1);
    return cluster.ask(REQUEST);
  }

  it('gives the bits of a model that was made for it, shadow follows, and main says so at its start', async () => {
    const answer = await answered(LONG);
    assertSameAnswer(answer, expected);
    assert.ok((answer.finished.sep?.recall ?? 0) > 0.5, `recall ${answer.finished.sep?.recall}`);
    const [line, ...others] = cluster?.log.matching('the context goes past what the model was made for') ?? [];
    assert.deepEqual(others, []);
    const { contextPositions, madeForPositions } = (await cluster?.status()) ?? assert.fail();
    assert.deepEqual([contextPositions, madeForPositions], [POSITIONS, MODEL_POSITIONS]);
    assert.match(line ?? '', /main: warn .*"contextPositions":2048,"madeForPositions":512/);
  });

  it('gives the same bits where shadow has the context of the model, which does not follow the answer and says why', async () => {
    assertSameAnswer(await answered({}), expected);
    assert.match(
      cluster?.log.matching('shadow sent an error').join() ?? '',
      /does not fit a model of 512 positions.*one --max-context/,
    );
  });

  it('is refused where a prompt does not fit either, with the flags that make it longer', async () => {
    cluster = await TestCluster.start({ model: 'tiny', workers: 1 });
    const tooLong = requestFor(new Array<number>(MODEL_POSITIONS).fill(5));
    await assert.rejects(cluster.ask(tooLong), ({ code, message }: OdmoeError) => {
      assert.equal(code, 'PROMPT_TOO_LONG');
      assert.match(
        message,
        /has 512 tokens, but the context holds 512, .*shorten the prompt, or start main with a longer.*--max-context.*odmoe demo: --context/,
      );
      return true;
    });
  });

  it('ends main at its start where positions would not be exact', async () => {
    const main = { main: { maxContextPositions: MOST_POSITIONS + 1 } };
    await assert.rejects(TestCluster.start({ model: 'tiny', workers: 1, main }), {
      code: 'CONFIG_INVALID',
      message: /1048577 positions .*past the 512 that the model was made for, and past 1048576/,
    });
  });
});
