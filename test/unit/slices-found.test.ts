/** What `odmoe inspect` shows of slices that are not whole. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { slicesForQuality } from '../../engine/loading/open-for-quality.js';
import { openPack } from '../../packs/format/open-pack.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { findSlices } from '../../packs/slices/open-slices.js';
import { verifySlices } from '../../packs/slices/verify-slices.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { slice, withPack } from './sliced-pack.js';
import { directoryDigests, refusal } from './tiny-pack.js';

interface Inspected {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function inspect(directory: string, ...flags: readonly string[]): Inspected {
  const command = [join(packageRoot(), 'bin', 'odmoe'), 'inspect', directory, ...flags];
  return spawnSync(process.execPath, command, { encoding: 'utf8', timeout: 60_000 });
}

async function removeLowerSlices(directory: string): Promise<void> {
  for (const name of await readdir(directory)) if (name.endsWith('.lower.bin')) await rm(join(directory, name));
}

describe('slices in a pack that is inspected', function () {
  this.timeout(120_000);

  it('may be the upper ones alone, which are verified without the lower ones', async () => {
    await withPack(async (output) => {
      await slice(output);
      assert.match(inspect(output).stdout, /of lower ones .*\n +worker slot .* upper slice, .* with both slices/);
      await removeLowerSlices(output);
      const pack = await openPack(output);
      const { slices, damage } = await findSlices(pack);
      assert.deepEqual([slices?.opened, damage], ['upper', null]);
      assert.ok(slices !== null);
      assert.deepEqual(await verifySlices(slices, pack, NATIVE_SLICING_TOOLS), []);
      for (const flags of [[], ['--verify']]) {
        const { status, stdout } = inspect(output, ...flags);
        assert.equal(status, 0, stdout);
        assert.match(stdout, /slices +\(8,4\): .* a weight\), no lower ones\n +worker slot .* for an upper slice\n/);
      }
      await truncate(join(output, 'slices-00001.upper.bin'), 5000);
      const damages = await verifySlices(slices, pack, NATIVE_SLICING_TOOLS);
      assert.deepEqual([...new Set(damages.map(({ file }) => file))], ['slices-00001.upper.bin']);
    });
  });

  it('do not hide the pack where they are damaged: the damage is named after it', async () => {
    await withPack(async (output) => {
      await slice(output);
      const { 'slices.json': whole } = await directoryDigests(output);
      const file = 'slices-00000.upper.bin';
      await truncate(join(output, file), 4096);
      const cut = inspect(output);
      assert.equal(cut.status, 3);
      assert.match(cut.stdout, /digest .*\n +slices +\(8,4\)[^]*damaged/);
      assert.match(cut.stderr, /slices-00000\.upper\.bin has 4096 bytes/);
      const { pack } = JSON.parse(inspect(output, '--json').stdout) as { pack: Record<string, unknown> };
      assert.match(String(pack['slices_damage']), /4096 bytes/);
      assert.equal((pack['slices'] as { digest: unknown }).digest, whole);
      await writeFile(join(output, 'slices.json'), '');
      const unreadable = inspect(output);
      assert.equal(unreadable.status, 3);
      assert.match(unreadable.stdout, /digest .*\n +slices +damaged: slices\.json/);
      assert.match(unreadable.stderr, /slices\.json/);
    });
  });

  it('are said to be unfinished, and that packing goes on with them', async () => {
    await withPack(async (output) => {
      const none = await findSlices(await openPack(output));
      assert.deepEqual(none, { slices: null, isUnfinished: false, damage: null });
      await slice(output);
      await rename(join(output, 'slices.json'), join(output, 'slicing.jsonl'));
      const { status, stdout } = inspect(output);
      assert.equal(status, 0);
      assert.match(stdout, /slices +unfinished: "odmoe pack .* --slices" with the same bits goes on with them/);
      await assert.rejects(
        slicesForQuality(await openPack(output), { kind: 'high', split: 'sliced84' }),
        refusal('PACK_INCOMPLETE', /the slices are unfinished, .* go on with them by "odmoe pack .* --slices 8,4"/),
      );
    });
  });
});
