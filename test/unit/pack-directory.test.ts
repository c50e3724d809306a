import assert from 'node:assert/strict';
import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openPack } from '../../packs/format/open-pack.js';
import { tinyTensors, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, pack, refusal, withCheckpoint } from './tiny-pack.js';

describe('packing into a directory', () => {
  it('recognizes an existing whole pack of the same checkpoint', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const first = await pack(checkpoint, output);
      const before = await directoryDigests(output);
      await utimes(join(checkpoint, 'model.safetensors'), 1, 1);
      const second = await pack(checkpoint, output);
      assert.equal(second.alreadyWhole, true);
      assert.equal(second.digest, first.digest);
      assert.deepEqual(await directoryDigests(output), before);
    });
  });

  it('does not overwrite a whole pack of anything else', async () => {
    const tensors = tinyTensors();
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, output);
      await assert.rejects(pack(checkpoint, output, { shards: 3 }), refusal('USAGE', /has 4 shards, not 3/));
      await assert.rejects(pack(checkpoint, output, { name: 'x' }), refusal('USAGE', /its name is "tiny", not "x"/));
      await writeFile(join(checkpoint, 'tokenizer.json'), '{}');
      await assert.rejects(pack(checkpoint, output), refusal('USAGE', /its tokenizer\.json is not the checkpoint's/));
      await rm(join(checkpoint, 'tokenizer.json'));
      tensors[5]?.data.fill(0, 0, 2);
      await writeTinyCheckpoint(checkpoint, tensors);
      await assert.rejects(pack(checkpoint, output), refusal('USAGE', /its weights are not those of the checkpoint/));
      await openPack(output);
    }, tensors);
  });

  it('leaves a damaged pack unchanged, or replaces it on request', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, output);
      await rm(join(output, 'experts-00001.bin'));
      await assert.rejects(pack(checkpoint, output), refusal('PACK_CORRUPT', /experts-00001\.bin is missing/));
      const replaced = await pack(checkpoint, output, { onDamagedPack: 'replace' });
      assert.equal(replaced.digest, digest);
      await openPack(output);
    });
  });

  it('creates missing parent directories, and reports where it cannot', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, join(output, 'above', 'it'));
      await openPack(join(output, 'above', 'it'));
      // The existing /proc answers that it does not exist.
      await assert.rejects(pack(checkpoint, '/proc/odmoe/pack'), refusal('STORAGE_FAILED', /\/proc\/odmoe.*ENOENT/));
    });
  });

  it('refuses directories with other content, and changes nothing in them', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await assert.rejects(pack(checkpoint, checkpoint), refusal('USAGE', /is the checkpoint itself/));
      await assert.rejects(pack(checkpoint, `${checkpoint}/../tiny`), refusal('USAGE', /is the checkpoint itself/));
      await mkdir(output);
      await writeFile(join(output, 'thesis.doc'), 'x');
      await assert.rejects(pack(checkpoint, output), refusal('USAGE', /no pack's \(thesis\.doc\)/));
      assert.deepEqual(await readdir(output), ['thesis.doc']);
      await rm(join(output, 'thesis.doc'));
      await writeFile(join(output, 'config.json'), '{}');
      await assert.rejects(pack(checkpoint, output), refusal('USAGE', /config\.json of something else/));
      await assert.rejects(pack(checkpoint, join(output, 'config.json')), refusal('USAGE', /not a directory/));
    });
  });

  it('refuses impossible levels and numbers of shards', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await assert.rejects(
        pack(checkpoint, output, { codec: { codec: 'zstd', level: 23 } }),
        refusal('USAGE', /level 23: expected a level of zstd from 1 to 22/),
      );
      for (const shards of [0, -1, 1.5, 65, NaN]) {
        await assert.rejects(
          pack(checkpoint, output, { shards }),
          refusal('USAGE', /expected a whole number from 1 to 64/),
        );
      }
      await assert.rejects(readdir(output), { code: 'ENOENT' });
    });
  });

  it('records the given name, and refuses impossible ones', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await assert.rejects(pack(checkpoint, output, { name: '' }), refusal('USAGE', /name "": expected 1 to 100/));
      await assert.rejects(pack(checkpoint, output, { name: 'a\nb' }), refusal('USAGE', /printable/));
      assert.equal((await pack(checkpoint, output, { name: 'Mixtral' })).name, 'Mixtral');
      assert.equal((await openPack(output)).name, 'Mixtral');
    });
  });

  it('refuses to pack a pack', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, output);
      await assert.rejects(pack(output, `${output}-2`), refusal('USAGE', /is a pack already/));
    });
  });
});
