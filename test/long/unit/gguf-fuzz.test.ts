import assert from 'node:assert/strict';
import { parseMutations } from '../../unit/gguf-mutations.js';

const MUTATIONS = 50_000;

describe('a mutated GGUF header', function () {
  this.timeout(600_000);

  it('is read once, in bounded memory, and either parsed or refused in our words', async () => {
    const parsed = await parseMutations(MUTATIONS, 20_260_727);
    assert.ok(parsed > MUTATIONS / 100 && parsed < MUTATIONS / 2, `${parsed} were parsed`);
  });
});
