import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { PlainForward } from './plain-forward.js';
import { at } from './plain-mixers.js';

const fixture = join(packageRoot(), 'test', 'fixtures', 'glm5next');
/** FP64 against transformers' FP32. */
const TOLERANCE = 2e-4;

interface Reference {
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
}

function references(): Reference[] {
  const read = JSON.parse(readFileSync(join(fixture, 'reference.json'), 'utf8')) as { references: Reference[] };
  return read.references;
}

describe('GLM-5-Next in plain FP64', () => {
  // 4 pools of 4 positions are chosen. The longest prompt would take too long.
  const short = references().filter(({ prompt_token_ids: prompt }) => prompt.length < 100);
  for (const { prompt_token_ids: prompt, token_ids: tokens, logprobs } of short) {
    it(`gives transformers' tokens and log-probabilities behind ${prompt.join(' ').slice(0, 40)}`, async () => {
      const checkpoint = await openCheckpoint(fixture);
      const rows = new PlainForward(checkpoint).run([...prompt, ...tokens.slice(0, -1)]).slice(prompt.length - 1);
      for (const [index, row] of rows.entries()) {
        const best = [...row.keys()].reduce((first, one) => (at(row, one) > at(row, first) ? one : first), 0);
        assert.equal(best, tokens[index], `token ${index}`);
        const highest = at(row, best);
        const logprob = -Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
        assert.ok(Math.abs(logprob - at(logprobs, index)) < TOLERANCE, `log-probability ${index}`);
      }
    });
  }
});
