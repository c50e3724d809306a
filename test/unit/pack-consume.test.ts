import assert from 'node:assert/strict';
import {
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { checkConsume, type DeletionSystem } from '../../packs/packing/check-consume.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { peakBytes, type SourceFile } from '../../packs/packing/checkpoint-file-consumer.js';
import { tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { failingAt, pack, refusal, TOOLS } from './tiny-pack.js';

const CHECKPOINT_FILES = 4;

/** A checkpoint of several files whose tensors lie in the order of a forward pass, as published ones do, and a place for its pack. */
async function withCheckpointFiles(use: (checkpoint: string, output: string) => Promise<void>): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    const tensors = tinyTensors();
    const size = Math.ceil(tensors.length / CHECKPOINT_FILES);
    // writeTinyCheckpoint deals tensors out in turn: put in order, a file holds neighbours.
    const dealt = tensors.map(
      (_, index) => tensors[(index % CHECKPOINT_FILES) * size + Math.floor(index / CHECKPOINT_FILES)],
    );
    const checkpoint = join(directory, 'tiny');
    await writeTinyCheckpoint(
      checkpoint,
      dealt.filter((tensor) => tensor !== undefined),
      { shards: CHECKPOINT_FILES },
    );
    await use(checkpoint, join(directory, 'pack'));
  });
}

function checkpointFilesIn(checkpoint: string): string[] {
  return readdirSync(checkpoint).filter((name) => name.endsWith('.safetensors'));
}

describe('packing that consumes its checkpoint', () => {
  it('gives the same pack, and leaves everything but weights', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-kept`);
      assert.equal(checkpointFilesIn(checkpoint).length, CHECKPOINT_FILES);
      const outcome = await pack(checkpoint, output, { consume: true });
      assert.deepEqual([outcome.digest, outcome.consumedShards], [digest, CHECKPOINT_FILES]);
      assert.deepEqual(readdirSync(checkpoint).sort(), ['config.json', 'model.safetensors.index.json']);
      assert.equal((await openModelSource(output)).packDigest, digest);
      assert.ok(!existsSync(join(output, 'packing.jsonl')));
      await assert.rejects(
        pack(checkpoint, output, { consume: true }),
        refusal('MODEL_NOT_FOUND', /holds a whole pack: if its checkpoint was consumed, nothing is left to do/),
      );
    });
  });

  it('continues from any interruption, and deletes only data that is in verified files', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-kept`);
      // Every read and write takes a checksum. The work is stopped at one checksum after another.
      let last = 0;
      for (let limit = 7; ; limit += 23) {
        let calls = 0;
        const crc32c: typeof TOOLS.crc32c = (bytes, seed) => {
          calls += 1;
          if (calls > limit) throw Object.assign(new Error('EIO: injected'), { code: 'EIO' });
          return TOOLS.crc32c(bytes, seed);
        };
        try {
          const outcome = await pack(checkpoint, output, { consume: true, tools: { crc32c } });
          assert.deepEqual([outcome.digest, outcome.consumedShards], [digest, CHECKPOINT_FILES]);
          break;
        } catch (thrown) {
          assert.match(String(thrown), /injected/);
        }
        last += 1;
        assert.ok(last < 200, 'it comes to an end');
      }
      assert.ok(last > 2, `${last} interruptions`);
      assert.deepEqual(checkpointFilesIn(checkpoint), []);
    });
  });

  it('finishes a deletion that was recorded and not done', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      // Whole seconds, which a copy keeps.
      for (const name of checkpointFilesIn(checkpoint)) utimesSync(join(checkpoint, name), 1, 1);
      cpSync(checkpoint, `${checkpoint}-copy`, { recursive: true, preserveTimestamps: true });
      const openFile = await failingAt(0.9, checkpoint);
      await assert.rejects(pack(checkpoint, output, { consume: true, openFile }));
      const gone = readdirSync(`${checkpoint}-copy`).filter((name) => !existsSync(join(checkpoint, name)));
      assert.ok(gone.length > 0 && gone.length < CHECKPOINT_FILES, `${gone.length} are gone`);
      const [first = ''] = gone;
      cpSync(join(`${checkpoint}-copy`, first), join(checkpoint, first), { preserveTimestamps: true });
      const outcome = await pack(checkpoint, output, { consume: true });
      assert.equal(outcome.consumedShards, CHECKPOINT_FILES);
      assert.deepEqual(checkpointFilesIn(checkpoint), []);
    });
  });

  it('leaves a new file in the place of a deleted one alone', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      cpSync(checkpoint, `${checkpoint}-copy`, { recursive: true });
      await assert.rejects(pack(checkpoint, output, { consume: true, openFile: await failingAt(0.9, checkpoint) }));
      const [gone = ''] = readdirSync(`${checkpoint}-copy`).filter((name) => !existsSync(join(checkpoint, name)));
      // This stands for a file of another checkpoint with the same names, because its header is the same.
      cpSync(join(`${checkpoint}-copy`, gone), join(checkpoint, gone));
      const left = checkpointFilesIn(checkpoint);
      await assert.rejects(
        pack(checkpoint, output, { consume: true }),
        refusal('USAGE', /begun here from another checkpoint.*were deleted since/s),
      );
      assert.deepEqual(checkpointFilesIn(checkpoint), left);
    });
  });

  it('deletes no file that has changed since it was read', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const files = checkpointFilesIn(checkpoint);
      let changed = false;
      const crc32c: typeof TOOLS.crc32c = (bytes, seed) => {
        if (!changed) for (const name of files) utimesSync(join(checkpoint, name), 1, 1);
        changed = true;
        return TOOLS.crc32c(bytes, seed);
      };
      await assert.rejects(
        pack(checkpoint, output, { consume: true, tools: { crc32c } }),
        refusal('STORAGE_FAILED', /has changed while it was packed; it is not deleted/),
      );
      assert.deepEqual(checkpointFilesIn(checkpoint), files);
    });
  });

  it('can be finished without deleting more', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, `${output}-kept`);
      await assert.rejects(pack(checkpoint, output, { consume: true, openFile: await failingAt(0.9, checkpoint) }));
      const left = checkpointFilesIn(checkpoint);
      assert.equal((await pack(checkpoint, output)).digest, digest);
      assert.deepEqual(checkpointFilesIn(checkpoint), left);
    });
  });

  it('cannot restart with other options after a deletion', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      await assert.rejects(pack(checkpoint, output, { consume: true, openFile: await failingAt(0.9, checkpoint) }));
      const files = readdirSync(output).sort();
      await assert.rejects(
        pack(checkpoint, output, { consume: true, shards: 2 }),
        refusal('USAGE', /were deleted since.*--shards 4/s),
      );
      assert.deepEqual(readdirSync(output).sort(), files);
    });
  });

  it('names the lost data when a finished file is damaged whose sources are gone', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      await assert.rejects(pack(checkpoint, output, { consume: true, openFile: await failingAt(0.9, checkpoint) }));
      writeFileSync(join(output, 'dense.safetensors'), 'short');
      await assert.rejects(
        pack(checkpoint, output, { consume: true }),
        refusal('PACK_CORRUPT', /dense\.safetensors was finished and is not whole any more.*was deleted/s),
      );
    });
  });

  it('deletes nothing when the written data does not read back', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const openFile: NonNullable<Parameters<typeof pack>[2]>['openFile'] = async (path) => {
        const { openOnDisk } = await import('../../packs/packing/pack-file.js');
        const file = await openOnDisk(path);
        return {
          write: (...place) => file.write(...place),
          read: (...place) => file.read(...place),
          truncate: (size) => file.truncate(size),
          sync: () => file.sync(),
          close: async () => {
            await file.close();
            if (!path.includes('dense')) return;
            const bytes = readFileSync(path);
            bytes.writeUInt8(bytes.readUInt8(bytes.length - 3) ^ 1, bytes.length - 3);
            writeFileSync(path, bytes);
          },
        };
      };
      await assert.rejects(
        pack(checkpoint, output, { consume: true, openFile }),
        refusal('STORAGE_FAILED', /not what is read back: dense\.safetensors.*run the same command again/),
      );
      assert.equal(checkpointFilesIn(checkpoint).length, CHECKPOINT_FILES);
      await pack(checkpoint, output, { consume: true });
      assert.equal(checkpointFilesIn(checkpoint).length, 0);
    });
  });

  it('deletes the weights of a checkpoint that has a whole pack, once both agree', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, output);
      const outcome = await pack(checkpoint, output, { consume: true });
      assert.deepEqual(
        [outcome.digest, outcome.alreadyWhole, outcome.consumedShards],
        [digest, true, CHECKPOINT_FILES],
      );
      assert.deepEqual(checkpointFilesIn(checkpoint), []);
      rmSync(checkpoint, { recursive: true });
      assert.equal((await openModelSource(output)).packDigest, digest);
    });
  });
});

describe('the check before a checkpoint is consumed', () => {
  /** A system of another user, whose checks of permission fail with these codes. */
  function systemOf(codes: Readonly<Record<string, string>>, change: Partial<DeletionSystem> = {}): DeletionSystem {
    return {
      accessForWriting: async (path) => {
        const code = Object.entries(codes).find(([end]) => path.endsWith(end))?.[1];
        if (code !== undefined) throw Object.assign(new Error(code), { code, path, syscall: 'access' });
        return Promise.resolve();
      },
      ownership: async () => Promise.resolve({ mode: 0o755, uid: 7 }),
      userId: 1000,
      ...change,
    };
  }

  it('refuses what could not be deleted, and deletes nothing', async () => {
    await withCheckpointFiles(async (checkpoint) => {
      const { files } = await openCheckpoint(checkpoint);
      const sticky = async (path: string): Promise<{ mode: number; uid: number }> =>
        Promise.resolve({ mode: path.endsWith('tiny') ? 0o1777 : 0o644, uid: 7 });
      const cases: [DeletionSystem, RegExp][] = [
        [
          systemOf({ tiny: 'EACCES' }),
          /of its directory, this user may not use it; check the permissions.*without --consume/,
        ],
        [systemOf({ tiny: 'EROFS' }), /of its directory, the file system is read-only; .*mount it for writing/],
        [
          systemOf({ '.safetensors': 'EPERM' }),
          /\.safetensors: --consume could not delete it: it is immutable; .*chattr -i/,
        ],
        [
          systemOf({}, { ownership: sticky }),
          /belongs to another user \(uid 7\), and its directory has the sticky bit/,
        ],
      ];
      for (const [system, words] of cases) {
        await assert.rejects(checkConsume(files, system), refusal('STORAGE_FAILED', words));
      }
      const allowed = [
        systemOf({ '.safetensors': 'EACCES' }),
        systemOf({}, { ownership: sticky, userId: 7 }),
        systemOf({}, { ownership: sticky, userId: 0 }),
        systemOf({}, { ownership: sticky, userId: null }),
      ];
      for (const system of allowed) assert.equal(await checkConsume(files, system), null);
      assert.equal(checkpointFilesIn(checkpoint).length, CHECKPOINT_FILES);
    });
  });

  it('examines what links lead to, and says before the work that it is deleted too', async () => {
    await withCheckpointFiles(async (checkpoint, output) => {
      const blobs = join(checkpoint, '..', 'blobs');
      mkdirSync(blobs);
      for (const name of checkpointFilesIn(checkpoint)) {
        renameSync(join(checkpoint, name), join(blobs, name));
        symlinkSync(join('..', 'blobs', name), join(checkpoint, name));
      }
      const { files } = await openCheckpoint(checkpoint);
      await assert.rejects(
        checkConsume(files, systemOf({ blobs: 'EACCES' })),
        refusal('STORAGE_FAILED', /blobs\/model-00001.*of its directory/),
      );
      const [shared = ''] = checkpointFilesIn(checkpoint);
      linkSync(join(blobs, shared), join(blobs, 'another-name'));
      const seen: string[] = [];
      const warnings: string[] = [];
      await pack(checkpoint, output, {
        consume: true,
        onWarning: (warning) => warnings.push(warning),
        onProgress: () => seen.push(...(warnings.length === 0 ? ['work before words'] : [])),
      });
      assert.deepEqual(seen, []);
      assert.equal(warnings.length, 1);
      assert.match(
        warnings[0] ?? '',
        /4 of the weight files are links.* in \S+\/blobs is deleted with them, also for other revisions/,
      );
      assert.match(warnings[0] ?? '', new RegExp(`${shared}: has another name on the disk`));
      assert.deepEqual(readdirSync(blobs), ['another-name']);
    });
  });
});

describe('the disk space that packing needs', () => {
  const source = (name: string, sizeBytes: number, neededFor: string[]): SourceFile => ({
    file: { path: `/checkpoint/${name}`, sizeBytes, modifiedMs: 0, headerDigest: '', tensors: new Map() },
    neededFor,
  });
  const planned = ['dense', 'a', 'b', 'c'].map((name) => ({ name, expectedBytes: 100 }));
  const sources = [source('1', 150, ['dense', 'a']), source('2', 120, ['a', 'b']), source('3', 90, ['c'])];

  it('is the size of the pack where nothing is deleted', () => {
    assert.equal(peakBytes(planned, new Set(), [], new Set()), 400);
    assert.equal(peakBytes(planned, new Set(['dense', 'b']), [], new Set()), 200);
  });

  it('is the largest need at any time where checkpoint files are deleted', () => {
    assert.equal(peakBytes(planned, new Set(), sources, new Set()), 200);
    assert.equal(peakBytes(planned, new Set(['dense', 'a']), sources, new Set(['1'])), 100);
  });
});
