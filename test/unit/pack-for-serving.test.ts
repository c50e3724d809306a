import assert from 'node:assert/strict';
import { readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packForServing } from '../../packs/pack-for-serving.js';
import { DEFAULT_CODEC } from '../../packs/packing/pack-checkpoint.js';
import { openPack } from '../../packs/format/open-pack.js';
import { tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, pack, refusal } from './tiny-pack.js';
import { RUNTIME } from '../wall.js';

async function withCheckpointAndCache(use: (checkpoint: string, cache: string) => Promise<void>): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(join(directory, 'tiny'));
    await use(join(directory, 'tiny'), join(directory, 'cache', 'packs'));
  });
}

describe('a pack for serving', () => {
  it('is the given pack itself', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const output = join(cache, '..', '..', 'pack');
      await pack(checkpoint, output);
      assert.equal(await packForServing(output, cache, RUNTIME), (await openPack(output)).directory);
    });
  });

  it('is packed once and found again, with the same bytes as from odmoe pack', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const calls: number[] = [];
      const first = await packForServing(checkpoint, cache, RUNTIME, (done) => calls.push(done));
      assert.ok(calls.length > 0);
      const again = await packForServing(checkpoint, cache, RUNTIME, () => assert.fail('packed again'));
      assert.equal(again, first);
      await pack(checkpoint, join(cache, 'reference'), { codec: DEFAULT_CODEC });
      assert.deepEqual(await directoryDigests(first), await directoryDigests(join(cache, 'reference')));
    });
  });

  it('is packed again for a checkpoint that has changed', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const first = await packForServing(checkpoint, cache, RUNTIME);
      const tensors = tinyTensors();
      tensors[0]?.data.fill(1);
      await writeTinyCheckpoint(checkpoint, tensors);
      await utimes(join(checkpoint, 'model.safetensors'), 100, 100);
      const second = await packForServing(checkpoint, cache, RUNTIME);
      assert.notEqual(second, first);
      assert.notEqual((await openPack(second)).packDigest, (await openPack(first)).packDigest);
    });
  });

  it('is packed once for many simultaneous requests', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const places = await Promise.all(Array.from({ length: 4 }, () => packForServing(checkpoint, cache, RUNTIME)));
      assert.equal(new Set(places).size, 1);
      assert.equal((await readdir(cache)).length, 1);
      await openPack(places[0] ?? '');
    });
  });

  it('stops when it is cancelled, and is continued later', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const caller = new AbortController();
      const cancelled = packForServing(checkpoint, cache, RUNTIME, () => caller.abort(), caller.signal);
      await assert.rejects(cancelled, refusal('CANCELLED', /interrupted/));
      await openPack(await packForServing(checkpoint, cache, RUNTIME));
    });
  });

  it('is packed again where the cached one is damaged', async () => {
    await withCheckpointAndCache(async (checkpoint, cache) => {
      const first = await packForServing(checkpoint, cache, RUNTIME);
      const { packDigest } = await openPack(first);
      await writeFile(join(first, 'experts-00000.bin'), 'damage');
      assert.equal(await packForServing(checkpoint, cache, RUNTIME), first);
      assert.equal((await openPack(first)).packDigest, packDigest);
    });
  });

  it('is refused where the cache directory cannot be made, and where there is no model', async () => {
    await withCheckpointAndCache(async (checkpoint) => {
      const file = join(checkpoint, 'config.json');
      await assert.rejects(
        packForServing(checkpoint, join(file, 'cache'), RUNTIME),
        refusal('STORAGE_FAILED', /set XDG_CACHE_HOME/),
      );
      await assert.rejects(
        packForServing(join(checkpoint, 'nothing'), null, RUNTIME),
        refusal('MODEL_NOT_FOUND', /nothing/),
      );
    });
  });
});
