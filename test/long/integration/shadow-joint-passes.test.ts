import assert from 'node:assert/strict';
import type { Pass } from '../../../native/index.js';
import { wrapHandle } from '../../../native/wrap-handle.js';
import { isRecurrent } from '../../../shared/model/model-shape.js';
import type { AlignRows, BeginSequence } from '../../../shared/wire/messages.js';
import type { RetainedLimits } from '../../../shadow-node/predictor/retained-sequences.js';
import { Predictor } from '../../../shadow-node/predictor/predictor.js';
import { packOf, type TestModel } from '../../integration/harness/test-models.js';
import { ResidentModel } from '../../integration/shadow/resident-model.js';
import { RUNTIME } from '../../wall.js';

const SEQUENCES = 8;
const ITERATIONS = 6;
const PASS_ROWS = 16;
const KEPT: RetainedLimits = { sequences: 16, bytes: 2 ** 30 };

/** Everything that main sends to shadow about one answer: the prompt and, for each iteration, the new rows and a token. */
interface Story {
  promptIds: number[];
  iterations: { rows: Omit<AlignRows, 'epoch' | 'sequence'>[]; tokenId: number }[];
}

/** "position/layer" -> experts. */
type Predictions = Map<string, number[]>;

/** By the exact model. */
async function tellStory(main: ResidentModel, promptIds: number[]): Promise<Story> {
  const stepped = await main.start(promptIds);
  const { cache } = stepped.sequence;
  const iterations: Story['iterations'] = [];
  let written = 0;
  for (let iteration = 0; iteration < ITERATIONS; iteration += 1) {
    const { length } = cache;
    const rows = main.shape.layers.map(({ mixer }, layer) => {
      const position = isRecurrent(mixer) ? Math.max(written, cache.oldestPosition) : written;
      const count = length - position;
      return { layer, position, rows: count, values: cache.readRows(layer, position, count) };
    });
    written = length;
    iterations.push({ rows, tokenId: stepped.next });
    await stepped.step(stepped.next);
  }
  await stepped.end();
  return { promptIds, iterations };
}

/** A predictor, and what main says to it. */
class Follower {
  readonly predictions = new Map<number, Predictions>();
  readonly kept = new Map<number, number>();
  passes = 0;
  private readonly predictor: Predictor;
  private readonly pass: Pass;

  constructor(shadow: ResidentModel) {
    const pass = shadow.model.createPass(PASS_ROWS);
    this.pass = wrapHandle(pass, {
      forward: (onRouter) => {
        this.passes += 1;
        return pass.forward(onRouter);
      },
    });
    this.predictor = new Predictor(
      shadow.model,
      this.pass,
      PASS_ROWS,
      {
        onPrediction: (sequence, { position, layer, experts }) => {
          const predictions = this.predictions.get(sequence) ?? new Map<string, number[]>();
          this.predictions.set(sequence, predictions.set(`${position}/${layer}`, experts));
        },
        onDraft: () => undefined,
        onRestart: (_, position) => assert.fail(`started again at ${position}`),
        onPrefixKept: (sequence, positions) => this.kept.set(sequence, positions),
        onFailure: (_, error) => assert.fail(error),
      },
      RUNTIME,
      undefined,
      KEPT,
    );
  }

  begin(sequence: number, { promptIds }: Story, prefix: Partial<BeginSequence> = {}): void {
    this.predictor.begin({
      epoch: 1,
      sequence,
      tokenIds: promptIds,
      alignTokenPeriod: 1,
      alignKvPeriod: 1,
      promptTokens: promptIds.length,
      maxPositions: promptIds.length + ITERATIONS,
      optimistic: false,
      spread: false,
      sampling: null,
      ...prefix,
    });
  }

  /** `from`: rows before it are known. */
  tell(sequence: number, story: Story, iteration: number, from = 0): void {
    const { rows, tokenId } = story.iterations[iteration] ?? assert.fail('no such iteration');
    for (const given of rows) {
      const known = Math.min(given.rows, Math.max(0, from - given.position));
      if (known === given.rows) continue;
      const values = given.values.subarray((known * given.values.byteLength) / given.rows);
      const place = { epoch: 1, sequence, layer: given.layer, position: given.position + known };
      this.predictor.addRows({ ...place, rows: given.rows - known, values });
    }
    const position = story.promptIds.length + iteration;
    this.predictor.announceToken({ epoch: 1, sequence, position, tokenId, rows: 1, nextRows: 1, branch: 0 });
  }

  /** All that can run has run. */
  async idle(): Promise<void> {
    do await new Promise((resolve) => setImmediate(resolve));
    while ((this.predictor.openCounts['passes'] ?? 0) > 0);
  }

  end(sequence: number): void {
    this.predictor.end(sequence);
  }

  async stop(): Promise<void> {
    await this.predictor.stop();
    this.pass.dispose();
  }
}

for (const model of ['tiny', 'fixtures/qwen3next'] satisfies TestModel[]) {
  describe(`passes of several sequences on the shadow (${model})`, () => {
    let main: ResidentModel;
    let shadow: ResidentModel;
    let follower: Follower;
    const stories: Story[] = [];
    const alone: Predictions[] = [];

    before(async () => {
      const pack = await packOf(model);
      main = await ResidentModel.load(pack, 'fp32');
      shadow = await ResidentModel.load(pack, 'int8');
      for (let index = 0; index < SEQUENCES; index += 1) {
        const promptIds = Array.from({ length: 5 + 7 * index }, (_, place) => 1 + ((place * (index + 3)) % 200));
        const story = await tellStory(main, promptIds);
        stories.push(story);
        const single = new Follower(shadow);
        single.begin(index, story);
        await single.idle();
        for (const iteration of story.iterations.keys()) {
          single.tell(index, story, iteration);
          await single.idle();
        }
        alone.push(single.predictions.get(index) ?? assert.fail('nothing was predicted'));
        await single.stop();
      }
    });

    after(() => {
      shadow.dispose();
      main.dispose();
    });

    beforeEach(() => {
      follower = new Follower(shadow);
    });

    afterEach(() => follower.stop());

    it('predict for each of eight the same as alone, in as many passes as one takes', async () => {
      for (const [index, story] of stories.entries()) follower.begin(index, story);
      await follower.idle();
      follower.passes = 0;
      for (let iteration = 0; iteration < ITERATIONS; iteration += 1) {
        for (const [index, story] of stories.entries()) follower.tell(index, story, iteration);
        await follower.idle();
      }
      assert.equal(follower.passes, ITERATIONS);
      for (const index of stories.keys())
        assert.deepEqual(follower.predictions.get(index), alone[index], `sequence ${index}`);
    });

    it('predict the same in any order of events, with prompts in between', async () => {
      const begun = new Map<number, number>();
      for (let turn = 0; begun.size < SEQUENCES || [...begun.values()].some((next) => next < ITERATIONS); turn += 1) {
        if (turn % 2 === 0 && begun.size < SEQUENCES) {
          follower.begin(begun.size, stories[begun.size] ?? assert.fail());
          begun.set(begun.size, 0);
        }
        for (const [index, next] of begun) {
          if ((turn + index) % 3 === 0 || next === ITERATIONS) continue;
          follower.tell(index, stories[index] ?? assert.fail(), next);
          begun.set(index, next + 1);
        }
        if (turn % 4 !== 1) await follower.idle();
      }
      await follower.idle();
      for (const index of stories.keys())
        assert.deepEqual(follower.predictions.get(index), alone[index], `sequence ${index}`);
    });

    it("predict for a sequence with another one's beginning the same as without it", async () => {
      const [story] = stories.slice(-1);
      const [whole] = alone.slice(-1);
      assert.ok(story !== undefined && whole !== undefined);
      const { promptIds, iterations } = story;
      // Another turn of the same chat: the prompt, four tokens of the answer, and so on.
      const longer = { promptIds: [...promptIds, ...iterations.slice(0, 4).map(({ tokenId }) => tokenId), 7, 9] };
      const next = await tellStory(main, longer.promptIds);
      follower.begin(1, next);
      await follower.idle();
      for (const iteration of next.iterations.keys()) {
        follower.tell(1, next, iteration);
        await follower.idle();
      }
      follower.begin(2, story);
      await follower.idle();
      for (const iteration of iterations.keys()) {
        follower.tell(2, story, iteration);
        await follower.idle();
      }
      follower.end(2);
      const positions = promptIds.length + 4;
      follower.begin(3, next, { prefixSequence: 2, prefixPositions: positions });
      await follower.idle();
      assert.equal(follower.kept.get(3), positions);
      for (const iteration of next.iterations.keys()) {
        follower.tell(3, next, iteration, positions);
        await follower.idle();
      }
      assert.deepEqual(follower.predictions.get(3), follower.predictions.get(1));
    });
  });
}
