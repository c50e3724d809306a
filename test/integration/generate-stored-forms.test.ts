import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { generateTokens } from '../../engine/generation/generate-tokens.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { configOfFixture, REWRITTEN, tensorsOfFixture } from '../unit/rewritten-experts.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from '../unit/tiny-checkpoint.js';
import { pack } from '../unit/tiny-pack.js';
import { openResidentModel } from './generate-resident-model.js';
import { RUNTIME } from '../wall.js';

const TOKENS = 12;

interface Reference {
  prompt_token_ids: number[];
  token_ids: number[];
}

function firstReference(fixture: string): Reference {
  const path = join(packageRoot(), 'test', 'fixtures', fixture, 'reference.json');
  const { references } = JSON.parse(readFileSync(path, 'utf8')) as { references: Reference[] };
  const [first] = references;
  assert.ok(first !== undefined);
  return first;
}

async function answer(directory: string, prompt: readonly number[]): Promise<number[]> {
  const model = await openResidentModel(directory);
  try {
    const options = {
      maxTokens: TOKENS,
      sampling: resolveSampling(null, () => 0),
      stop: [],
      ignoreEos: true,
      eosTokenIds: [],
      logprobs: 0,
      constraint: null,
      promptLogprobs: false,
      showSpecialTokens: false,
    };
    const tokens: number[] = [];
    const { signal } = new AbortController();
    for await (const step of generateTokens(model.createRunner(64), [...prompt], options, null, signal, RUNTIME)) {
      if (step.kind === 'token') tokens.push(step.token.tokenId);
    }
    return tokens;
  } finally {
    model.dispose();
  }
}

describe('experts stored in another form', () => {
  for (const { fixture, form, rewrite } of REWRITTEN) {
    it(`answer with the tokens of transformers, from the checkpoint and from a pack: ${fixture}, ${form}`, async () => {
      const { prompt_token_ids: prompt, token_ids: expected } = firstReference(fixture);
      await withTemporaryDirectory(async (directory) => {
        const checkpoint = join(directory, 'checkpoint');
        const tensors = rewrite(await tensorsOfFixture(fixture));
        await writeTinyCheckpoint(checkpoint, tensors, { config: configOfFixture(fixture) });
        assert.deepEqual(await answer(checkpoint, prompt), expected.slice(0, TOKENS));
        await pack(checkpoint, join(directory, 'pack'), { tools: NATIVE_BYTE_TOOLS });
        assert.deepEqual(await answer(join(directory, 'pack'), prompt), expected.slice(0, TOKENS));
      });
    });
  }
});
