import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStoreFiles } from '../../engine/environment/store-files.js';
import { RUNTIME } from '../wall.js';

describe('the files of a store', () => {
  it('are those alone: what is no file there stays, and is not named', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-store-'));
    const files = await openStoreFiles(directory, RUNTIME);
    assert.ok(files !== null);
    try {
      mkdirSync(join(directory, 'a'.repeat(64)));
      await files.write('b', new Uint8Array([1, 2, 3]));
      await files.publish('b');
      const listed = (await files.list()).map(({ name, bytes }) => [name, bytes]);
      assert.deepEqual(listed, [['b', 3]]);
    } finally {
      await files.close();
      rmSync(directory, { recursive: true });
    }
  });
});
