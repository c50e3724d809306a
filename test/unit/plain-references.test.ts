import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { PlainForward } from './plain-forward.js';
import { at, type Vector } from './plain-mixers.js';

interface Reference {
  prompt_token_ids: number[];
  token_ids: number[];
  logprobs: number[];
  first_logits: number[];
}

/** transformers computes in FP32. */
const TOLERANCE = 2e-4;
/** Families whose formulas no other test checks in FP64. */
const NAMES = ['deepseekv4', 'glm5next', 'hyv4'];

function logSumExp(logits: Vector): number {
  const highest = Math.max(...logits);
  return highest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
}

describe('formulas in FP64, beside what transformers gives', () => {
  for (const name of NAMES) {
    const folder = join(packageRoot(), 'test', 'fixtures', name);

    it(`${name} has the same logits, tokens and log-probabilities`, async () => {
      const text = readFileSync(join(folder, 'reference.json'), 'utf8');
      const { references } = JSON.parse(text) as { references: Reference[] };
      const plain = new PlainForward(await openCheckpoint(folder));
      for (const { prompt_token_ids: prompt, token_ids: tokens, logprobs, first_logits: first } of references) {
        const rows = plain.run([...prompt, ...tokens.slice(0, -1)]).slice(prompt.length - 1);
        const off = first.map((logit, id) => Math.abs(logit - at(rows[0] ?? [], id)));
        assert.ok(Math.max(...off) < TOLERANCE, `the first logits are up to ${Math.max(...off)} off`);
        assert.deepEqual(
          rows.map((row) => row.indexOf(Math.max(...row))),
          tokens,
        );
        for (const [index, row] of rows.entries()) {
          const found = Math.max(...row) - logSumExp(row);
          const error = Math.abs(found - (logprobs[index] ?? NaN));
          assert.ok(error < TOLERANCE, `token ${index}: ${found} is ${error} off`);
        }
      }
    });
  }
});
