import assert from 'node:assert/strict';
import { ShadowedRunner } from '../../engine/generation/shadowed-runner.js';
import { SHAPE, PASS_ROWS, ScriptedModel } from './scripted-shadow-model.js';

describe('a model and its shadow in one process', () => {
  it('free the sequences of both at the end', async () => {
    const models = [new ScriptedModel(), new ScriptedModel()] as const;
    const runner = new ShadowedRunner(...models, SHAPE, PASS_ROWS);
    await runner.end();
    assert.deepEqual(
      models.map(({ disposed }) => disposed),
      [[0], [0]],
    );
  });
});
