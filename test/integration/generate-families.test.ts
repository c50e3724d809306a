import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { openResidentModel, type ResidentTestModel } from './generate-resident-model.js';
import { assertAnswersAlike, referencesOf } from './harness/reference-answers.js';

const fixtures = join(packageRoot(), 'test', 'fixtures');

const names = readdirSync(fixtures).filter((name) => existsSync(join(fixtures, name, 'reference.json')));

describe("every family's fixture in the single-process engine", () => {
  it('each family has a fixture to run in the single-process engine', () => {
    assert.ok(names.length >= 19, names.join(', '));
  });

  for (const name of names) {
    describe(`the fixture ${name}`, () => {
      let model: ResidentTestModel;
      before(async () => {
        model = await openResidentModel(join(fixtures, name));
      });
      after(() => {
        model.dispose();
      });

      for (const [index, reference] of referencesOf(join(fixtures, name)).entries()) {
        it(`answers prompt ${index} as transformers does: logits, tokens, log-probabilities, experts`, async () => {
          await assertAnswersAlike(model, reference);
        });
      }
    });
  }
});
