import assert from 'node:assert/strict';
import { openModelSource } from '../../packs/open-model-source.js';
import { openResidentModel, type ResidentTestModel } from './generate-resident-model.js';
import { formatFixtures, fixtureFolder, modelPath } from './harness/test-models.js';
import { assertAnswersAlike, referencesOf } from './harness/reference-answers.js';

/** Every format of docs/formats.md but fp8, whose fixtures are among the families. */
const FORMATS = [
  'bf16 fp16 mxfp4 mxfp8 nvfp4-multiplied nvfp4-divided fp8-row fp8-tile',
  'q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs',
  'grouped4 grouped8',
].flatMap((line) => line.split(' '));

describe('checkpoints in quantized formats, and GGUF files, in the single-process engine', () => {
  it('the fixtures have weights of every format', async () => {
    const found = new Set<string>();
    for (const fixture of formatFixtures()) {
      const { tensors } = await openCheckpointOf(fixture);
      for (const { source } of tensors)
        found.add(source.split.replace(/^none-/, '').replace(/^(grouped[48]).*$/, '$1'));
    }
    assert.deepEqual(
      FORMATS.filter((format) => !found.has(format)),
      [],
    );
  });

  for (const fixture of formatFixtures()) {
    describe(`the fixture ${fixture}`, () => {
      let model: ResidentTestModel;
      before(async () => {
        model = await openResidentModel(modelPath(fixture));
      });
      after(() => {
        model.dispose();
      });

      for (const [index, reference] of referencesOf(fixtureFolder(fixture)).entries()) {
        it(`answers prompt ${index} as its dequantized weights do: logits, tokens, log-probabilities, experts`, async () => {
          await assertAnswersAlike(model, reference);
        });
      }
    });
  }
});

async function openCheckpointOf(fixture: Parameters<typeof modelPath>[0]) {
  const source = await openModelSource(modelPath(fixture));
  assert.ok(source.kind === 'checkpoint');
  return source;
}
