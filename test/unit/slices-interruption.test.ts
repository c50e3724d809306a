import assert from 'node:assert/strict';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { openModelSource } from '../../packs/open-model-source.js';
import { openOnDisk, type OpenFile } from '../../packs/packing/pack-file.js';
import { openSlices } from '../../packs/slices/open-slices.js';
import { slice, withPack } from './sliced-pack.js';
import { directoryDigests, refusal } from './tiny-pack.js';

/** Files whose writes fail from the `write`th one on. */
function failingAt(write: number, code = 'EIO'): OpenFile {
  let writes = 0;
  return async (path) => {
    const file = await openOnDisk(path);
    return {
      read: (...place) => file.read(...place),
      truncate: (size) => file.truncate(size),
      sync: () => file.sync(),
      close: () => file.close(),
      write: async (...place) => {
        writes += 1;
        if (writes >= write) throw Object.assign(new Error(`${code}: injected`), { code });
        return file.write(...place);
      },
    };
  };
}

/** Two layers of three experts of three matrices, in two slices. */
const WRITES = 36;

describe('interrupted slicing', () => {
  it('continues with the unfinished layers, to the same bytes, and never looks complete', async () => {
    await withPack(async (output) => {
      const before = await directoryDigests(output);
      const { digest } = await slice(output);
      const whole = await directoryDigests(output);
      await fc.assert(
        fc.asyncProperty(fc.integer({ min: 1, max: WRITES }), fc.boolean(), async (write, wasKilled) => {
          await removeSlices(output);
          await assert.rejects(
            slice(output, 'sliced84', { openFile: failingAt(write) }),
            refusal('STORAGE_FAILED', /slices-0000[01]\.upper\.bin: cannot be written/),
          );
          assert.ok(!(await readdir(output)).some((name) => name.endsWith('.partial')));
          if (wasKilled) await leaveAsKilled(output);
          await assert.rejects(openSlices(output), refusal('PACK_INCOMPLETE', /odmoe pack --slices/));
          assert.equal((await openModelSource(output)).kind, 'pack');
          const resumed = await slice(output);
          assert.deepEqual([resumed.digest, resumed.resumedLayers], [digest, write > WRITES / 2 ? 1 : 0]);
          assert.deepEqual(await directoryDigests(output), whole);
        }),
        {
          numRuns: 20,
          examples: [
            [1, true],
            [WRITES / 2 + 1, true],
            [WRITES, false],
          ],
        },
      );
      await removeSlices(output);
      assert.deepEqual(await directoryDigests(output), before);
    });
  });

  it('makes a finished layer again whose file is missing or cut', async () => {
    await withPack(async (output) => {
      const { digest } = await slice(output);
      for (const change of [rm, async (path: string) => writeFile(path, 'short')]) {
        await removeSlices(output);
        await assert.rejects(slice(output, 'sliced84', { openFile: failingAt(WRITES) }));
        await change(join(output, 'slices-00000.lower.bin'));
        const resumed = await slice(output);
        assert.deepEqual([resumed.digest, resumed.resumedLayers], [digest, 0]);
      }
    });
  });

  it('begins again for another pair of bits', async () => {
    await withPack(async (output) => {
      await assert.rejects(slice(output, 'sliced63', { openFile: failingAt(WRITES) }));
      assert.equal((await slice(output, 'sliced42')).resumedLayers, 0);
      assert.equal((await openSlices(output)).split, 'sliced42');
    });
  });

  it('reports the space that a full disk lacks, and continues when there is room', async () => {
    await withPack(async (output) => {
      await assert.rejects(
        slice(output, 'sliced84', { openFile: failingAt(WRITES, 'ENOSPC') }),
        refusal('STORAGE_FULL', /slices-00001\.upper\.bin: the disk is full.*about [\d.]+ KiB more are needed/),
      );
      assert.equal((await slice(output)).resumedLayers, 1);
    });
  });

  it('stops on request and can be continued', async () => {
    await withPack(async (output) => {
      const controller = new AbortController();
      let calls = 0;
      const onProgress = (): void => {
        calls += 1;
        if (calls === 12) controller.abort();
      };
      const stopped = slice(output, 'sliced84', { signal: controller.signal, onProgress });
      await assert.rejects(stopped, refusal('CANCELLED', /run the same command again/));
      assert.ok(!(await readdir(output)).some((name) => name.endsWith('.partial') || name.startsWith('packing.lock')));
      assert.equal((await slice(output)).resumedLayers, 1);
    });
  });

  it('that ended between slices.json and the removal of its journal is finished', async () => {
    await withPack(async (output) => {
      await slice(output);
      const whole = await directoryDigests(output);
      await writeFile(join(output, 'slicing.jsonl'), '{}\n');
      await openSlices(output);
      assert.equal((await slice(output)).alreadyWhole, true);
      assert.deepEqual(await directoryDigests(output), whole);
    });
  });
});

async function removeSlices(output: string): Promise<void> {
  for (const name of await readdir(output)) if (name.startsWith('slic')) await rm(join(output, name));
}

/** A kill leaves partial files, a torn line of the journal, a lock of a process that is gone. */
async function leaveAsKilled(output: string): Promise<void> {
  await writeFile(join(output, 'slices-00001.upper.bin.partial'), 'half of it');
  await writeFile(join(output, 'slices.json.partial'), '{"format"');
  const journal = join(output, 'slicing.jsonl');
  await writeFile(journal, `${await readFile(journal, 'utf8')}{"layer":1,"files":[`);
  await writeFile(join(output, 'packing.lock'), '{"pid":');
}
