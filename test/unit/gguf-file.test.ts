import assert from 'node:assert/strict';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readGgufModel } from '../../packs/gguf/gguf-file.js';
import { readPartName } from '../../packs/gguf/gguf-parts.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ggufBytes, ggufParts, writeGgufParts, type WrittenKey, type WrittenTensor } from './gguf-writer.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const FORMATS = join(packageRoot(), 'test', 'fixtures', 'formats');

async function typesOf(fixture: string): Promise<Record<string, number>> {
  const text = await readFile(join(FORMATS, fixture, 'reference.json'), 'utf8');
  return (JSON.parse(text) as { tensor_types: Record<string, number> }).tensor_types;
}

async function refused(path: string, code: string, pattern: RegExp): Promise<void> {
  await assert.rejects(readGgufModel(path), (thrown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.match(thrown.message, pattern);
    assert.equal(thrown.code, code);
    return true;
  });
}

function tensor(name: string, values = 4): WrittenTensor {
  return { name, type: 'F32', dimensions: [values], data: new Uint8Array(4 * values) };
}

const KEYS: WrittenKey[] = [{ name: 'general.architecture', type: 'text', value: 'qwen3moe' }];
const PARTS = [[tensor('a'), tensor('b')], [tensor('c')], [tensor('d', 9)]];

describe('the reader of GGUF files', () => {
  for (const [fixture, file, count] of [
    ['gguf-qwen3moe-align128', 'qwen3moe-align128.gguf', 1],
    ['gguf-qwen3moe-bf16-split', 'qwen3moe-bf16-split-00001-of-00003.gguf', 3],
  ] as const) {
    it(`reads all tensors of ${fixture}`, async () => {
      const model = await readGgufModel(join(FORMATS, fixture, file));
      const found: Record<string, number> = {};
      for (const { type } of model.tensors.values()) found[type] = (found[type] ?? 0) + 1;
      assert.deepEqual(found, await typesOf(fixture));
      assert.equal(model.keys.get('general.architecture'), 'qwen3moe');
      assert.deepEqual(model.tensors.get('token_embd.weight')?.dimensions, [320, 64]);
      assert.equal(model.parts.length, count);
      // Files of llama.cpp end with the padding of their last tensor.
      const alignment = Number(model.keys.get('general.alignment') ?? 32);
      for (const { path, sizeBytes, headerDigest } of model.parts) {
        assert.equal((await readFile(path)).length, sizeBytes);
        assert.match(headerDigest, /^[0-9a-f]{64}$/);
        const ends = [...model.tensors.values()].filter((one) => one.path === path);
        const last = Math.max(...ends.map((one) => one.offsetBytes + one.sizeBytes));
        assert.equal(Math.ceil(last / alignment) * alignment, sizeBytes);
        assert.ok(ends.every((one) => one.offsetBytes % alignment === 0));
      }
    });
  }

  it('refuses a big-endian file in words', async () => {
    const path = join(FORMATS, 'gguf-qwen3moe-bigendian', 'qwen3moe-bigendian.gguf');
    await refused(path, 'MODEL_UNSUPPORTED', /qwen3moe-bigendian\.gguf: a GGUF file of version 3 in big-endian order/);
  });

  it('says what is wrong with a file that cannot be read', async () => {
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'model.gguf');
      await refused(path, 'MODEL_NOT_FOUND', /model\.gguf: no such file; download/);
      await writeFile(path, '<!doctype html><html><title>Sign in</title></html>');
      await refused(path, 'MODEL_CORRUPT', /an HTML page \("Sign in"\) stands in place of the file/);
      await writeFile(path, ggufBytes({ keys: KEYS, tensors: [tensor('a', 100)] }).subarray(0, -300));
      await refused(path, 'MODEL_CORRUPT', /model\.gguf: .*; 284 bytes are missing, the file was cut/);
      await rm(path);
      await mkdir(path);
      await refused(path, 'STORAGE_FAILED', /not a regular file/);
    });
  });
});

describe('the reader of a split GGUF model', () => {
  it('reads all parts, whichever is named', async () => {
    await withTemporaryDirectory(async (directory) => {
      const paths = await writeGgufParts(directory, 'model-Q8_0', ggufParts(KEYS, PARTS));
      for (const path of paths) {
        const model = await readGgufModel(path);
        assert.equal(model.path, paths[0]);
        assert.deepEqual(
          model.parts.map((part) => part.path),
          paths,
        );
        assert.equal(model.keys.get('general.architecture'), 'qwen3moe');
        assert.deepEqual(
          [...model.tensors.values()].map((one) => [one.name, one.path]),
          [
            ['a', paths[0]],
            ['b', paths[0]],
            ['c', paths[1]],
            ['d', paths[2]],
          ],
        );
      }
    });
  });

  it('reads a first part without tensors, and a model of one part', async () => {
    await withTemporaryDirectory(async (directory) => {
      const [first = ''] = await writeGgufParts(directory, 'a', ggufParts(KEYS, [[], [tensor('a')]]));
      assert.deepEqual([...(await readGgufModel(first)).tensors.keys()], ['a']);
      const [only = ''] = await writeGgufParts(directory, 'b', ggufParts(KEYS, [[tensor('a')]]));
      assert.equal((await readGgufModel(only)).parts.length, 1);
      const plain = join(directory, 'c-00001-of-00001.gguf');
      await writeFile(plain, ggufBytes({ keys: KEYS }));
      assert.equal((await readGgufModel(plain)).parts.length, 1);
    });
  });

  it('names the parts that are missing', async () => {
    await withTemporaryDirectory(async (directory) => {
      const paths = await writeGgufParts(directory, 'model', ggufParts(KEYS, PARTS));
      await rm(paths[0] ?? '');
      await refused(paths[1] ?? '', 'MODEL_NOT_FOUND', /model-00001-of-00003\.gguf: no such file, one of the 3 parts/);
      await refused(
        join(directory, 'x-00002-of-65535.gguf'),
        'MODEL_NOT_FOUND',
        /x-00005-of-65535\.gguf, and 65530 more: no such file/,
      );
    });
  });

  it('refuses parts that do not belong together', async () => {
    await withTemporaryDirectory(async (directory) => {
      const parts = ggufParts(KEYS, PARTS);
      const write = (changed: readonly (Buffer | undefined)[]): Promise<string[]> =>
        writeGgufParts(
          directory,
          'm',
          changed.map((bytes) => bytes ?? Buffer.alloc(0)),
        );
      const attempt = async (changed: readonly (Buffer | undefined)[], pattern: RegExp): Promise<void> => {
        const [path = ''] = await write(changed);
        await refused(path, 'MODEL_CORRUPT', pattern);
      };
      const [first, second, third] = parts;
      await attempt(
        [first, third, second],
        /m-00002-of-00003\.gguf: its keys say that it is part 3 of 3, but it stands for part 2/,
      );
      await attempt([first, second], /part 1 of 3, but it stands for part 1 of 2/);
      await attempt([first, ggufBytes({ tensors: [tensor('c')] }), third], /"split\.count": missing/);
      await attempt([first, second, ggufParts(KEYS, [[], [], [tensor('a')]])[2]], /tensor "a" stands also in .*00001/);
      await attempt([first, second, ggufParts(KEYS, [[], [], []])[2]], /says 4 tensors, but the 3 parts have 3/);
      const [path = ''] = await write(parts);
      await copyFile(path, join(directory, 'renamed.gguf'));
      await refused(
        join(directory, 'renamed.gguf'),
        'MODEL_CORRUPT',
        /part 1 of 3, but it stands for part 1 of 1; give/,
      );
    });
  });
});

describe('the name of a part', () => {
  it('gives the paths of all parts in its folder', () => {
    assert.deepEqual(readPartName('/d-00001-of-00009.gguf/m-00002-of-00002.gguf'), {
      number: 2,
      count: 2,
      paths: ['/d-00001-of-00009.gguf/m-00001-of-00002.gguf', '/d-00001-of-00009.gguf/m-00002-of-00002.gguf'],
    });
    for (const name of [
      'm.gguf',
      'm-1-of-2.gguf',
      'm-00000-of-00002.gguf',
      'm-00003-of-00002.gguf',
      'm-00001-of-99999.gguf',
    ]) {
      assert.equal(readPartName(name), null);
    }
  });
});
