import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { openOnDisk, PackFile, type OpenFile } from '../../packs/packing/pack-file.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { directoryDigests, failingAt, pack, refusal, withCheckpoint } from './tiny-pack.js';

describe('interrupted packing', () => {
  it('continues with the unfinished files, to the same bytes', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const reference = await pack(checkpoint, `${output}-whole`);
      const openFile = await failingAt(0.95, checkpoint);
      await assert.rejects(
        pack(checkpoint, output, { openFile }),
        refusal('STORAGE_FAILED', /experts-00001\.bin: cannot be written/),
      );
      await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
      assert.ok(!(await readdir(output)).some((name) => name.endsWith('.partial') || name === 'manifest.json'));
      const resumed = await pack(checkpoint, output);
      assert.equal(resumed.resumedFiles, 3);
      assert.equal(resumed.digest, reference.digest);
      assert.deepEqual(await directoryDigests(output), await directoryDigests(`${output}-whole`));
    });
  });

  it('never looks complete, wherever it stops', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-whole`);
      for (const share of [0, 0.001, 0.02, 0.3, 0.5, 0.6, 0.8, 0.999]) {
        await rm(output, { recursive: true, force: true });
        await assert.rejects(pack(checkpoint, output, { openFile: await failingAt(share, checkpoint) }));
        await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /not finished/));
      }
      assert.equal((await pack(checkpoint, output)).digest, digest);
    });
  });

  it('stops on request and can be continued', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const controller = new AbortController();
      let calls = 0;
      const onProgress = (): void => {
        calls += 1;
        if (calls === 40) controller.abort();
      };
      const stopped = pack(checkpoint, output, { signal: controller.signal, onProgress });
      await assert.rejects(stopped, refusal('CANCELLED', /run the same command again/));
      assert.ok(!(await readdir(output)).some((name) => name.endsWith('.partial') || name.startsWith('packing.lock')));
      assert.ok((await pack(checkpoint, output)).resumedFiles > 0);
    });
  });

  it("continues after a kill that left a partial file, a torn journal line and a dead process's lock", async () => {
    await withCheckpoint(async (checkpoint, output) => {
      await assert.rejects(pack(checkpoint, output, { openFile: await failingAt(0.5, checkpoint) }));
      await writeFile(join(output, 'experts-00001.bin.partial'), 'half');
      const journal = join(output, 'packing.jsonl');
      const text = await readFile(journal, 'utf8');
      await writeFile(journal, `${text}{"file":{"name":"dense.saf`);
      await writeFile(join(output, 'packing.lock'), '{"pid":');
      const { digest } = await pack(checkpoint, output);
      assert.equal(digest, (await pack(checkpoint, `${output}-2`)).digest);
      assert.ok(!(await readdir(output)).some((name) => name.startsWith('pack')));
    });
  });

  it('packs a file again that is missing or has another size', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-whole`);
      await assert.rejects(pack(checkpoint, output, { openFile: await failingAt(0.95, checkpoint) }));
      await rm(join(output, 'dense.safetensors'));
      await writeFile(join(output, 'experts-00000.bin'), 'short');
      const resumed = await pack(checkpoint, output);
      assert.equal(resumed.resumedFiles, 1);
      assert.equal(resumed.digest, digest);
    });
  });

  it('starts again for other options or another checkpoint', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const interrupt = async (): Promise<void> =>
        assert.rejects(pack(checkpoint, output, { openFile: await failingAt(0.7, checkpoint) }));
      await interrupt();
      assert.equal((await pack(checkpoint, output, { shards: 2 })).resumedFiles, 0);
      await rm(output, { recursive: true });
      await interrupt();
      await utimes(join(checkpoint, 'model.safetensors'), 1, 1);
      assert.equal((await pack(checkpoint, output)).resumedFiles, 0);
    });
  });

  it('continues what another release began, if its packs have the same format', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-whole`);
      const journal = join(output, 'packing.jsonl');
      const begunBy = async (pattern: RegExp, other: string): Promise<void> => {
        await assert.rejects(pack(checkpoint, output, { openFile: await failingAt(0.95, checkpoint) }));
        const text = await readFile(journal, 'utf8');
        assert.match(text, pattern);
        await writeFile(journal, text.replace(pattern, other));
      };
      await begunBy(/"pack_format_version":\d+/, '"pack_format_version":0');
      assert.equal((await pack(checkpoint, output)).resumedFiles, 0);
      await rm(output, { recursive: true });
      await begunBy(/"odmoe_version":"[^"]*"/, '"odmoe_version":"0.0.1"');
      const resumed = await pack(checkpoint, output);
      assert.equal(resumed.resumedFiles, 3);
      assert.equal(resumed.digest, digest);
    });
  });

  it('reports the space that a full disk lacks, and continues when there is room', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const full = pack(checkpoint, output, { openFile: await failingAt(0.8, checkpoint, 'ENOSPC') });
      await assert.rejects(
        full,
        refusal('STORAGE_FULL', /experts-00001\.bin: the disk is full.*about [\d.]+ KiB more are needed/),
      );
      await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
      assert.ok((await pack(checkpoint, output)).resumedFiles > 0);
    });
  });

  it('fills a small disk and continues once there is room', async function () {
    await withCheckpoint(async (checkpoint, output) => {
      await mkdir(output);
      try {
        execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=100k', 'odmoe-test', output], { stdio: 'pipe' });
      } catch {
        console.log('      skipped: mounting a tmpfs is not allowed here');
        this.skip();
      }
      try {
        const early = pack(checkpoint, output);
        await assert.rejects(early, refusal('STORAGE_FULL', /KiB are needed and [\d.]+ KiB are free/));
        execFileSync('mount', ['-o', 'remount,size=500k', output]);
        const late = pack(checkpoint, output, { openFile: await fillingDisk(output) });
        await assert.rejects(late, refusal('STORAGE_FULL', /the disk is full \(ENOSPC.*more are needed/));
        await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
        execFileSync('mount', ['-o', 'remount,size=2m', output]);
        const { digest } = await pack(checkpoint, output);
        assert.equal(digest, (await pack(checkpoint, `${output}-2`)).digest);
      } finally {
        execFileSync('umount', [output]);
      }
    });
  });
});

describe('a file of a pack', () => {
  it('is on the disk before it is renamed to its final name', async () => {
    await withTemporaryDirectory(async (directory) => {
      const calls: string[] = [];
      const openFile: OpenFile = async (path) => {
        const file = await openOnDisk(path);
        const note = (call: string): void => {
          calls.push(`${call}${existsSync(join(directory, 'a.bin')) ? ' after the renaming' : ''}`);
        };
        return {
          read: (...place) => file.read(...place),
          write: (...place) => file.write(...place),
          truncate: (size) => file.truncate(size),
          sync: async () => {
            note('sync');
            await file.sync();
          },
          close: async () => {
            note('close');
            await file.close();
          },
        };
      };
      const file = await PackFile.create(directory, 'a.bin', openFile);
      await file.writeAt(0, Buffer.from('abc'));
      await file.completeThrough(3);
      await file.finish();
      assert.deepEqual(calls, ['sync', 'close']);
      assert.equal(await readFile(join(directory, 'a.bin'), 'utf8'), 'abc');
    });
  });
});

/** Files like any other, opened on a disk that something else fills up just before the second one. */
async function fillingDisk(output: string): Promise<OpenFile> {
  let opened = 0;
  return async (path) => {
    opened += 1;
    if (opened === 2)
      await writeFile(join(output, 'packing.lock.filler'), new Uint8Array(1_000_000)).catch(() => undefined);
    return openOnDisk(path);
  };
}
