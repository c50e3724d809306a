import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { packageRoot } from '../../shared/base/files/package-root.js';

const PLAIN = join(packageRoot(), 'test', 'fixtures');
const STORED = join(packageRoot(), 'test', 'fixtures-compressed');
/** Most bytes of all files that Git keeps. */
const TRACKED_LIMIT_BYTES = 110_000_000;

function filesBelow(folder: string, wanted: RegExp): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && wanted.test(entry.name))
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .sort();
}

describe('the weights of fixtures', function () {
  this.timeout(60_000);

  it('are stored compressed, all of them (node scripts/fixture-files.mjs --store)', () => {
    const plain = filesBelow(PLAIN, /\.(safetensors|bin)$/);
    assert.deepEqual(
      filesBelow(STORED, /./),
      plain.map((name) => `${name}.br`),
    );
    for (const name of plain) {
      const stored = brotliDecompressSync(readFileSync(join(STORED, `${name}.br`)));
      assert.ok(stored.equals(readFileSync(join(PLAIN, name))), name);
    }
  });

  it('leave a clone small', function () {
    const listed = spawnSync('git', ['ls-tree', '-r', '-l', 'HEAD'], { cwd: packageRoot(), encoding: 'utf8' });
    if (listed.status !== 0) this.skip();
    const sizes = [...listed.stdout.matchAll(/^\d+ blob \w+ +(\d+)/gm)].map(([, size]) => Number(size));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(bytes > 1_000_000 && bytes < TRACKED_LIMIT_BYTES, `${bytes} bytes`);
  });
});
