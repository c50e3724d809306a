import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openPack } from '../../packs/format/open-pack.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { verifyPack } from '../../packs/packing/verify-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { GenerateRequest, TokenReply } from '../../shared/wire/messages.js';
import { collect } from './harness/answers.js';
import { openReferenceOf } from './harness/test-models.js';

/** The packs of earlier releases, which those have made themselves. */
const FOLDER = join(packageRoot(), 'test', 'fixtures', 'packs-of-releases');

/** What the release that made a pack has answered with it. */
interface Recorded {
  request: GenerateRequest;
  tokens: TokenReply[];
}

for (const entry of readdirSync(FOLDER, { withFileTypes: true }).filter((each) => each.isDirectory())) {
  const release = join(FOLDER, entry.name);

  describe(`the packs of release ${entry.name}`, () => {
    for (const file of readdirSync(release).filter((name) => name.endsWith('.json'))) {
      const pack = file.slice(0, -'.json'.length);

      it(`${pack} is read, and gives the recorded tokens to the bit`, async () => {
        const directory = join(release, pack);
        assert.deepEqual(await verifyPack(await openPack(directory), NATIVE_PACKING_TOOLS), []);
        const answers = JSON.parse(readFileSync(join(release, file), 'utf8')) as Recorded[];
        assert.equal(answers.length, 2);
        const engine = await openReferenceOf(directory, { kind: 'exact' });
        try {
          for (const { request, tokens } of answers) {
            const answer = await collect(engine.generate(request, new AbortController().signal));
            assert.equal(answer.tokens.length, request.maxTokens);
            assert.deepEqual(answer.tokens, tokens);
          }
        } finally {
          engine.dispose();
        }
      });
    }
  });
}
