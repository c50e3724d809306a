import assert from 'node:assert/strict';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { PAPER_SET_UP, paperSetUp } from '../../bench/paper/set-up.js';
import { Testbed } from '../../bench/paper/testbed.js';
import { testbedPrompts } from '../../bench/paper/testbed-prompts.js';
import { packForServing } from '../../engine/loading/index.js';
import { packageRoot } from '../../shared/config/index.js';
import { loadTokenizer } from '../../shared/tokenizer/index.js';
import { RUNTIME } from '../wall.js';

const TOKENS = 6;

describe('the testbed of bench paper', function () {
  this.timeout(180_000);
  let packPath = '';
  let prompt: number[] = [];

  before(async () => {
    packPath = await packForServing(join(packageRoot(), 'models', 'demo'), null, RUNTIME);
    prompt = testbedPrompts(await loadTokenizer(packPath), 16, 1)[0] ?? [];
  });

  it('gives as many tokens as asked, and the same without shadow', async () => {
    const signal = new AbortController().signal;
    const tokens: number[][] = [];
    for (const setUp of [PAPER_SET_UP, paperSetUp({ prediction: 'off' })]) {
      const testbed = await Testbed.start(
        { packPath, workers: 2, precision: 'int8', setUp, profilePath: null },
        signal,
      );
      try {
        const { tokenIds, finished } = await testbed.answer(prompt, TOKENS, signal);
        tokens.push(tokenIds);
        assert.equal(finished.finishReason, 'length');
        assert.ok((finished.timing?.decodeTokensPerS ?? 0) > 0);
        assert.equal(finished.nodes.length, setUp.prediction === 'off' ? 3 : 4);
      } finally {
        await testbed.stop();
      }
    }
    assert.equal(tokens[0]?.length, TOKENS);
    assert.deepEqual(tokens[1], tokens[0]);
  });

  it('ends its daemons when it is interrupted', async () => {
    const controller = new AbortController();
    const starting = Testbed.start(
      { packPath, workers: 2, precision: 'int8', setUp: PAPER_SET_UP, profilePath: null },
      controller.signal,
    );
    await delay(100);
    controller.abort();
    await assert.rejects(starting, { code: 'CANCELLED' });
  });

  it('says what a daemon said that could not start', async () => {
    const wrong = {
      packPath,
      workers: 1,
      precision: 'int8',
      setUp: PAPER_SET_UP,
      profilePath: '/nowhere/profile.yaml',
    } as const;
    await assert.rejects(
      Testbed.start(wrong, new AbortController().signal),
      /cannot read the device profile \/nowhere\/profile\.yaml/,
    );
  });
});
