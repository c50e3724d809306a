import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { openPack } from '../../../packs/format/open-pack.js';
import { REPRODUCIBLE_CODECS } from '../../../packs/format/pack-codec.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { SCENARIO_MODELS } from '../../../simulator/faults/scenario.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';
import { directoryDigests } from '../../unit/tiny-pack.js';

const KEPT = join(packageRoot(), 'test', 'fixtures', 'packs');

/** Digests of all files but the manifest, which names the release that made the pack. */
async function digestsOf(directory: string): Promise<unknown> {
  const digests = await directoryDigests(directory);
  return Object.entries(digests).filter(([name]) => name !== 'manifest.json');
}

function manifestOf(directory: string): string {
  const text = readFileSync(join(directory, 'manifest.json'), 'utf8');
  const anyRelease = text.replace(/"odmoe_version":"[^"]*"/, '"odmoe_version":"any"');
  assert.notEqual(anyRelease, text);
  return anyRelease;
}

describe('the stored packs of the scenarios', () => {
  it('equal the output of remake.sh: to the byte but for the version that made them, or by their weights where a library makes the bytes', async () => {
    await withTemporaryDirectory(async (directory) => {
      execFileSync(join(KEPT, 'remake.sh'), [directory], { stdio: ['ignore', 'ignore', 'inherit'] });
      assert.deepEqual(readdirSync(directory).sort(), [...SCENARIO_MODELS].sort());
      for (const model of SCENARIO_MODELS) {
        const [kept, made] = [await openPack(join(KEPT, model)), await openPack(join(directory, model))];
        assert.equal(made.manifest.source.fingerprint, kept.manifest.source.fingerprint, model);
        if (!REPRODUCIBLE_CODECS.has(kept.manifest.codec)) continue;
        assert.deepEqual(await digestsOf(made.directory), await digestsOf(kept.directory));
        assert.equal(manifestOf(made.directory), manifestOf(kept.directory));
      }
    });
  }).timeout(600_000);
});
