import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DraftHead } from '../../engine/generation/draft-head.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { type Device, type Model, openHandles } from '../../native/index.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { DraftHeadSource, ModelSource } from '../../shared/model/tensor-source.js';
import { openTestDevice } from './native-test-model.js';
import { PlainForward } from './plain-forward.js';
import type { Vector } from './plain-mixers.js';

const PROMPT = [1, 5, 9, 200, 31, 77, 120, 176, 297, 95, 56, 72, 8, 250];
const ROWS = PROMPT.length - 1;
const DRAFTS = 3;
const TOLERANCE = 2e-4;
const FIXTURES = [
  { fixture: 'deepseekv3', shared: [] },
  { fixture: 'deepseekv32', shared: [] },
  { fixture: 'glmmoedsa', shared: [] },
  { fixture: 'glm45', shared: [] },
  { fixture: 'qwen3next', shared: ['embedding', 'lmHead'] },
  { fixture: 'qwen35moe', shared: ['embedding', 'lmHead'] },
  { fixture: 'mimov2flash', shared: ['embedding', 'lmHead'] },
];

async function sourcesOf(fixture: string): Promise<{ source: ModelSource; head: DraftHeadSource }> {
  const source = await openCheckpoint(join(packageRoot(), 'test', 'fixtures', fixture));
  assert.equal(source.draftHeadProblem, null);
  const head = source.draftHead;
  assert.ok(head !== null && head !== undefined, `${fixture} has a head`);
  return { source, head };
}

async function load(device: Device, source: ModelSource): Promise<Model> {
  const model = device.createModel(source.shape);
  await loadDenseWeights(model, source, 'bf16');
  await loadResidentExperts(model, source, 'bf16');
  return model;
}

const highest = (logits: ArrayLike<number>): number => Array.from(logits).indexOf(Math.max(...Array.from(logits)));

function assertNear(found: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  assert.equal(found.length, expected.length, what);
  const errors = Array.from(found, (value, index) => Math.abs(value - (expected[index] ?? NaN)));
  assert.ok(Math.max(...errors) < TOLERANCE, `${what}: differs by ${Math.max(...errors)}`);
}

/** The published formula in FP64: the logits of each row of the prompt, and drafts with their logits in a chain. */
function reference(
  source: ModelSource,
  head: DraftHeadSource,
): { logits: Vector[]; chained: Vector[]; drafts: number[] } {
  const main = new PlainForward(source);
  const plain = new PlainForward(head);
  const isNormed = head.shape.draftHead?.chained === 'normed';
  const states = main.states(PROMPT.slice(0, ROWS)).map((row) => main.finalNorm(row));
  const tokens = PROMPT.slice(1);
  const logits = plain.run(tokens, states);
  const chained: Vector[] = [];
  const drafts: number[] = [];
  for (let step = 0; step < DRAFTS; step += 1) {
    const rows = plain.states(tokens, states);
    const last = rows.at(-1) ?? new Float64Array(0);
    const found = plain.run(tokens, states).at(-1) ?? new Float64Array(0);
    chained.push(found);
    drafts.push(highest(found));
    tokens.push(highest(found));
    states.push(isNormed ? plain.finalNorm(last) : last);
  }
  return { logits, chained, drafts };
}

/** The model's last states of the prompt's rows, behind the final norm. */
async function statesOf(model: Model, rows: number): Promise<Float32Array> {
  const sequence = model.createSequence();
  const pass = model.createPass(rows);
  const positions = Int32Array.from({ length: rows }, (_, row) => row);
  await pass.begin([sequence], new Int32Array(rows), positions, Int32Array.from(PROMPT.slice(0, rows)));
  await pass.forward(null);
  const states = await pass.states(positions, true);
  pass.dispose();
  sequence.dispose();
  return states;
}

describe('heads that draft', () => {
  let device: Device;
  before(() => void (device = openTestDevice()));
  after(() => device.dispose());

  for (const { fixture, shared } of FIXTURES) {
    it(`have the logits of the published formula: ${fixture}`, async () => {
      const { source, head } = await sourcesOf(fixture);
      assert.deepEqual([...head.sharedRoles].sort(), shared);
      const expected = reference(source, head);
      const main = await load(device, source);
      const states = await statesOf(main, ROWS);
      const model = await load(device, head);
      const sequence = model.createSequence();
      const pass = model.createPass(ROWS);
      const positions = Int32Array.from({ length: ROWS }, (_, row) => row);
      await pass.begin([sequence], new Int32Array(ROWS), positions, Int32Array.from(PROMPT.slice(1)), states);
      await pass.forward(null);
      const logits = await pass.logits(positions);
      const { vocabSize } = head.shape;
      for (const [row, wanted] of expected.logits.entries()) {
        assertNear(logits.subarray(row * vocabSize, (row + 1) * vocabSize), wanted, `row ${row}`);
      }
      const isNormed = head.shape.draftHead?.chained === 'normed';
      let [last, state] = [logits.subarray(-vocabSize), await pass.states(Int32Array.of(ROWS - 1), isNormed)];
      for (const [step, wanted] of expected.chained.entries()) {
        assertNear(last, wanted, `draft ${step}`);
        await pass.begin([sequence], Int32Array.of(0), Int32Array.of(ROWS + step), Int32Array.of(highest(last)), state);
        await pass.forward(null);
        [last, state] = [await pass.logits(Int32Array.of(0)), await pass.states(Int32Array.of(0), isNormed)];
      }
      pass.dispose();
      sequence.dispose();
      model.dispose();
      main.dispose();
    });

    it(`draft the same tokens, however their rows are fed: ${fixture}`, async () => {
      const { source, head: headSource } = await sourcesOf(fixture);
      const { drafts } = reference(source, headSource);
      const main = await load(device, source);
      const states = await statesOf(main, ROWS);
      const { hiddenSize } = headSource.shape;
      const head = await DraftHead.load(device, headSource, 'bf16');
      for (const mostRows of [1, 4, ROWS]) {
        const drafter = head.createDrafter(mostRows);
        assert.deepEqual(await drafter.draft(DRAFTS), []);
        // Rows that are fed, drafted from and then replaced leave nothing behind.
        await drafter.feed(0, states.subarray(0, 5 * hiddenSize), [3, 3, 3, 3, 3]);
        assert.equal((await drafter.draft(DRAFTS)).length, DRAFTS);
        await drafter.feed(0, states.subarray(0, 2 * hiddenSize), PROMPT.slice(1, 3));
        await drafter.draft(1);
        await drafter.feed(2, states.subarray(2 * hiddenSize), PROMPT.slice(3));
        assert.equal(drafter.length, ROWS);
        assert.deepEqual(await drafter.draft(DRAFTS), drafts);
        assert.deepEqual(await drafter.draft(1), drafts.slice(0, 1));
        drafter.dispose();
      }
      head.dispose();
      main.dispose();
    });
  }

  it('leave nothing behind where a drafter cannot be made whole', async () => {
    const { head: headSource } = await sourcesOf('glm45');
    const head = await DraftHead.load(device, headSource, 'bf16');
    const before = openHandles();
    // Its sequence is made, and then its pass is not.
    assert.throws(() => head.createDrafter(0));
    assert.deepEqual(openHandles(), before);
    head.dispose();
  });

  it('are fed a state for every token, and no other model is', async () => {
    const { source, head } = await sourcesOf('glm45');
    const one = Int32Array.of(0);
    for (const [of, states] of [
      [source, new Float32Array(head.shape.hiddenSize)],
      [head, undefined],
      [head, new Float32Array(head.shape.hiddenSize - 1)],
    ] as const) {
      const model = await load(device, of);
      const sequence = model.createSequence();
      const pass = model.createPass(2);
      await assert.rejects(pass.begin([sequence], one, one, one, states), { code: 'INTERNAL' });
      pass.dispose();
      sequence.dispose();
      model.dispose();
    }
  });
});
