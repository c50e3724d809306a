import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { openPack } from '../../../packs/format/open-pack.js';
import { REPRODUCIBLE_CODECS } from '../../../packs/format/pack-codec.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { SCENARIO_MODELS } from '../../../simulator/faults/scenario.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';
import { directoryDigests } from '../../unit/tiny-pack.js';

const KEPT = join(packageRoot(), 'test', 'fixtures', 'packs');

describe('the stored packs of the scenarios', () => {
  it('equal the output of remake.sh: to the byte, or by their weights where a library makes the bytes', async () => {
    await withTemporaryDirectory(async (directory) => {
      execFileSync(join(KEPT, 'remake.sh'), [directory], { stdio: ['ignore', 'ignore', 'inherit'] });
      assert.deepEqual(readdirSync(directory).sort(), [...SCENARIO_MODELS].sort());
      for (const model of SCENARIO_MODELS) {
        const [kept, made] = [await openPack(join(KEPT, model)), await openPack(join(directory, model))];
        assert.equal(made.manifest.source.fingerprint, kept.manifest.source.fingerprint, model);
        if (!REPRODUCIBLE_CODECS.has(kept.manifest.codec)) continue;
        assert.deepEqual(await directoryDigests(made.directory), await directoryDigests(kept.directory));
      }
    });
  }).timeout(180_000);
});
