import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requireWritableFile } from '../../shared/base/files/require-writable-file.js';

describe('an output file for results', () => {
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-writable-'));

  after(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  it('is checked before the work, and left unchanged', () => {
    const fresh = join(directory, 'fresh.svg');
    requireWritableFile(fresh);
    assert.equal(existsSync(fresh), false);
    const old = join(directory, 'old.svg');
    writeFileSync(old, 'earlier');
    requireWritableFile(old);
    assert.equal(readFileSync(old, 'utf8'), 'earlier');
  });

  it('is refused where it cannot be written', () => {
    for (const path of [join(directory, 'nowhere', 'x.svg'), directory]) {
      assert.throws(
        () => {
          requireWritableFile(path);
        },
        { code: 'STORAGE_FAILED' },
      );
    }
  });
});
