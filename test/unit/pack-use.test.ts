import assert from 'node:assert/strict';
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { takeUnusedPack, usePack } from '../../packs/format/pack-use.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { refusal } from './tiny-pack.js';

describe('the use of a pack', () => {
  it('is shared by daemons, also where they may not write, and ends with the last of them', async () => {
    await withTemporaryDirectory(async (directory) => {
      chmodSync(directory, 0o555);
      const leaves = [await usePack(directory), await usePack(directory)];
      for (const leave of leaves) {
        assert.equal(await takeUnusedPack(directory), null);
        await leave();
      }
      const leave = await takeUnusedPack(directory);
      assert.ok(leave !== null, 'nobody uses it');
      await assert.rejects(usePack(directory), refusal('STORAGE_FAILED', /"odmoe rm" is deleting this pack/));
      await leave();
      await (
        await usePack(directory)
      )();
    });
  });

  it('hinders nobody where there is nothing to hold', async () => {
    await withTemporaryDirectory(async (directory) => {
      const gone = join(directory, 'gone');
      await (
        await usePack(gone)
      )();
      const leave = await takeUnusedPack(gone);
      assert.ok(leave !== null);
      await leave();
    });
  });
});
