/** All scores that routers answer, and the weights that follow from them, for the families of models. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { openDevice, type RouterChoice } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { chooseExperts, type RouterScores } from '../../shared/decisions/slices/choose-experts.js';
import { otherChoiceProblem, outputWeights, routersOf } from '../../shared/decisions/slices/output-weights.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { familyFixtures } from './harness/test-models.js';

const CPU = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;
const TOKENS = Int32Array.from({ length: 12 }, (_, index) => index * 7 + 1);
const NO_CACHE = { isCached: () => false, meanRange: 0 };

interface Seen {
  readonly shape: ModelShape;
  /** By expert layer. */
  readonly choices: readonly RouterChoice[];
}

async function choicesOf(directory: string, allScores = false): Promise<Seen> {
  const source = await openModelSource(directory);
  const { shape } = source;
  const device = openDevice(CPU);
  const model = device.createModel(shape);
  try {
    await loadDenseWeights(model, source, 'shipped');
    const pass = model.createPass(TOKENS.length, allScores);
    const sequence = model.createSequence();
    await pass.begin(
      [sequence],
      new Int32Array(TOKENS.length),
      TOKENS.map((_, row) => row),
      TOKENS,
    );
    const hidden = new Uint8Array(TOKENS.length * shape.hiddenSize * 4);
    const outputs = new Uint8Array(hidden.length * shape.expertsPerToken);
    const choices: RouterChoice[] = [];
    for (let layer = 0; layer < shape.expertLayers; layer += 1) {
      const choice = await pass.attend(layer, hidden);
      choices.push(choice);
      await pass.combine(layer, outputs, choice.weights);
    }
    for (const used of [sequence, pass]) used.dispose();
    return { shape, choices };
  } finally {
    model.dispose();
    device.dispose();
  }
}

describe('the scores of all experts', function () {
  this.timeout(60_000);
  const families = familyFixtures().map((name) => join(packageRoot(), 'test', name));

  it('give the weights of the routers own choice, to the bit', async () => {
    const refused: string[] = [];
    let withNormalization = 0;
    let withScale = 0;
    for (const directory of families) {
      const { shape } = await openModelSource(directory);
      const problem = otherChoiceProblem(shape);
      if (problem !== null) refused.push(problem);
      const routers = routersOf(shape);
      if (routers.some(({ score, expertScale }) => score === 'sparsemixer' || expertScale)) continue;
      const { choices } = await choicesOf(directory, true);
      assert.equal(routers.length, choices.length);
      withNormalization += routers.filter(({ normalize }) => normalize).length;
      withScale += routers.filter(({ scale }) => scale !== 1).length;
      for (const [layer, { experts, weights, logits, scores }] of choices.entries()) {
        if (logits === undefined || scores === undefined) assert.fail('the pass answers all scores');
        const router = routers[layer] ?? assert.fail();
        const { experts: count, expertsPerToken: perToken } = shape;
        const rowOf = (values: Float32Array, row: number): Float32Array =>
          values.subarray(row * count, (row + 1) * count);
        for (let row = 0; row < TOKENS.length; row += 1) {
          const own = [...experts.subarray(row * perToken, (row + 1) * perToken)];
          const ofRouter: RouterScores = { logits: rowOf(logits, row), scores: rowOf(scores, row) };
          if (problem === null)
            assert.deepEqual(chooseExperts({ kind: 'top-k' }, ofRouter, perToken, NO_CACHE), own, directory);
          assert.deepEqual(
            outputWeights(router, ofRouter.scores, own),
            weights.slice(row * perToken, (row + 1) * perToken),
            directory,
          );
        }
      }
    }
    assert.ok(withNormalization > 0 && withScale > 0, 'some routers normalize, and some scale');
    assert.equal(new Set(refused).size, 4, refused.join('; '));
  });

  it('change nothing else in the answer of a router, and are absent where nobody asks for them', async () => {
    const directory = join(packageRoot(), 'test', 'fixtures', 'mixtral');
    const all = await choicesOf(directory, true);
    const plain = await choicesOf(directory);
    assert.deepEqual(
      all.choices.map(({ experts, weights }) => ({ experts, weights })),
      plain.choices,
    );
  });

  it('are refused by a router that has none', async () => {
    const directory = join(packageRoot(), 'test', 'fixtures', 'phimoe');
    await assert.rejects(choicesOf(directory, true), { code: 'MODEL_UNSUPPORTED', message: /sparsemixer/ });
  });
});
