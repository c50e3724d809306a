import assert from 'node:assert/strict';
import { SeededRandom } from '../../../shared/base/runtime/seeded-random.js';
import { readMutatedConfigs } from '../../unit/quantized-configs.js';

const MUTATIONS = 50_000;

describe('a mutated quantization_config', function () {
  this.timeout(600_000);

  it('is read or refused in our words', () => {
    const accepted = readMutatedConfigs(MUTATIONS, new SeededRandom(20_261_128));
    assert.ok(accepted > MUTATIONS / 50 && accepted < MUTATIONS, `${accepted} were accepted`);
  });
});
