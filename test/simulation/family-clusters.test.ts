import assert from 'node:assert/strict';
import { openPack } from '../../packs/format/open-pack.js';
import { isRecurrent } from '../../shared/model/model-shape.js';
import { familyFixtures, packOf } from '../integration/harness/test-models.js';
import { isQuick, modelsAnswer } from './family-answers.js';

describe('a cluster with a model of each family answers as one process does, to the bit:', () => {
  modelsAnswer(familyFixtures(), isQuick);

  it('the families include recurrences, latent attention, pools and layers without experts', async () => {
    const kinds = new Set<string>();
    for (const model of familyFixtures()) {
      const { layers, expertLayers } = (await openPack(await packOf(model))).shape;
      for (const { mixer } of layers) kinds.add(isRecurrent(mixer) ? 'recurrence' : mixer.kind);
      if (expertLayers < layers.length) kinds.add('dense');
    }
    assert.deepEqual([...kinds].sort(), ['attention', 'dense', 'latent', 'pooled', 'recurrence']);
  });
});
