import assert from 'node:assert/strict';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { openTensor } from '../../../native/index.js';
import { packExtents } from '../../../packs/format/extents.js';
import type { Manifest } from '../../../packs/format/manifest.js';
import { openPack, parseManifest } from '../../../packs/format/open-pack.js';
import { isPackFileName } from '../../../packs/format/pack-layout.js';
import { NATIVE_BYTE_TOOLS } from '../../../packs/packing/native-tools.js';
import { openCheckpoint } from '../../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import { densePlaces } from '../../../shared/model/dense-roles.js';
import { shapeProblem } from '../../../shared/model/shape-problem.js';
import type { Split, TensorSource } from '../../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../../shared/model/weight-dtype.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';
import { manifestFile, pack } from '../../unit/tiny-pack.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Path = (string | number)[];

const FIXTURES = join(packageRoot(), 'test', 'fixtures');
const FAMILIES = readdirSync(FIXTURES).filter((name) => existsSync(join(FIXTURES, name, 'config.json')));
/** Numbers that lie, and such as people may write. */
const NUMBERS = [-1, 0, 1, 2, 3, 7, 64, 65, 4096, 2 ** 31 - 1, 2 ** 31, 2 ** 53, 1e300, 0.5, 1e-45];

/** Paths to every value within. */
function pathsOf(value: Json): Path[] {
  if (typeof value !== 'object' || value === null) return [[]];
  const entries: [string | number, Json][] = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return entries.flatMap(([key, property]) => [[key], ...pathsOf(property).map((path) => [key, ...path])]);
}

/** Undefined: the key goes. */
function changed(root: Json, path: Path, value: Json | undefined): Json {
  const copy = structuredClone(root);
  let target = copy as Record<string | number, Json>;
  for (const key of path.slice(0, -1)) target = target[key] as Record<string | number, Json>;
  const last = path.at(-1) ?? '';
  if (value !== undefined) target[last] = value;
  else if (Array.isArray(target)) target.splice(Number(last), 1);
  else Reflect.deleteProperty(target, last);
  return copy;
}

const lies = fc.oneof(
  fc.constantFrom<Json | undefined>(...NUMBERS, undefined, null, true, false, '', 'x', [], {}),
  fc.jsonValue().map((value) => value as Json),
);

function assertOurs(thrown: unknown, codes: RegExp): void {
  assert.ok(thrown instanceof OdmoeError && codes.test(thrown.code), thrown instanceof Error ? thrown.stack : '');
}

describe('a manifest changed in any one place', function () {
  this.timeout(120_000);

  for (const family of ['gptoss-mxfp4', 'deepseekv3-fp8', 'gemma4moe']) {
    it(`is refused by an error of ours, or describes sound extents (${family})`, async () => {
      let written: Json = null;
      await withTemporaryDirectory(async (directory) => {
        await pack(join(FIXTURES, family), join(directory, 'pack'), { tools: NATIVE_BYTE_TOOLS });
        written = manifestFile((await openPack(join(directory, 'pack'))).manifest) as Json;
      });
      fc.assert(
        fc.property(fc.constantFrom(...pathsOf(written)), lies, (path, value) => {
          let found: Manifest;
          try {
            found = parseManifest(changed(written, path, value), 'manifest.json');
          } catch (thrown) {
            assertOurs(thrown, /^(PACK_CORRUPT|MODEL_UNSUPPORTED)$/);
            return;
          }
          const sizes = new Map(found.files.map((file) => [file.name, file.size_bytes]));
          for (const { file, offsetBytes, storedBytes } of packExtents(found)) {
            assert.ok(isPackFileName(file) && offsetBytes + storedBytes <= (sizes.get(file) ?? -1));
          }
          assert.equal(shapeProblem(found.model.shape), null);
        }),
        { numRuns: 150 },
      );
    });
  }
});

describe('a config.json changed in any one place', function () {
  this.timeout(240_000);

  for (const family of FAMILIES) {
    it(`is refused by an error of ours, or gives a model whose tensors can be read (${family})`, async () => {
      const config = JSON.parse(readFileSync(join(FIXTURES, family, 'config.json'), 'utf8')) as Json;
      await withTemporaryDirectory(async (directory) => {
        cpSync(join(FIXTURES, family), directory, { recursive: true });
        await fc.assert(
          fc.asyncProperty(fc.constantFrom(...pathsOf(config)), lies, async (path, value) => {
            writeFileSync(join(directory, 'config.json'), JSON.stringify(changed(config, path, value)));
            try {
              const checkpoint = await openCheckpoint(directory);
              assert.equal(shapeProblem(checkpoint.shape), null);
              for (const { role, layer } of densePlaces(checkpoint.shape, checkpoint.tiedEmbeddings)) {
                await readWhole(checkpoint.dense(role, layer));
              }
            } catch (thrown) {
              assertOurs(thrown, /^(MODEL_CORRUPT|MODEL_UNSUPPORTED|MODEL_NOT_FOUND)$/);
            }
          }),
          { numRuns: 60 },
        );
      });
    });
  }
});

async function readWhole(source: TensorSource): Promise<void> {
  const tensor = openTensor(source);
  try {
    const planes = await tensor.read(source.rows);
    assert.deepEqual(
      planes.map((bytes) => bytes.length),
      planeRowBytes(source.split, source.columns).map((bytes) => bytes * source.rows),
    );
  } finally {
    tensor.dispose();
  }
}

describe('a config.json that asks for more tensors than memory could list', () => {
  it('is refused for the first missing tensor', async () => {
    await withTemporaryDirectory(async (directory) => {
      cpSync(join(FIXTURES, 'gemma4moe'), directory, { recursive: true });
      const config = JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8')) as Json;
      for (const key of ['num_experts', 'num_hidden_layers']) {
        const lie = changed(config, ['text_config', key], 2 ** 31 - 1);
        writeFileSync(join(directory, 'config.json'), JSON.stringify(lie));
        await assert.rejects(openCheckpoint(directory), (thrown) => {
          assertOurs(thrown, /^MODEL_CORRUPT$/);
          return true;
        });
      }
    });
  }).timeout(20_000);
});

describe('a tensor view with any numbers', function () {
  this.timeout(120_000);
  const number = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.constantFrom(0, 1, 32, 128, 2 ** 31 - 1));
  const positive = number.map((value) => Math.max(1, value));
  const splits = fc.constantFrom<Split>('none-bf16', 'none-fp16', 'none-fp32', 'mxfp4', 'fp8');

  it('gives rows of the requested size, or an error of ours', async () => {
    await withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'bytes');
      writeFileSync(path, Buffer.alloc(64 * 1024, 0x35));
      const sources = fc.record({
        rows: positive,
        columns: positive,
        split: splits,
        storedRows: positive,
        storedColumns: positive,
        storedSplit: splits,
        scaleBlockRows: positive,
        firstRow: number,
        blockRows: positive,
        stepRows: number,
        firstColumn: number,
        stepColumns: positive,
        transposed: fc.boolean(),
        multiply: fc.constantFrom(1, 0.5, -1),
        add: fc.constantFrom(0, 1),
      });
      await fc.assert(
        fc.asyncProperty(sources, async ({ rows, columns, split, ...view }) => {
          const sizes = planeRowBytes(view.storedSplit, view.storedColumns).map((bytes) =>
            Math.floor(bytes * view.storedRows),
          );
          const chunks = sizes.map((bytes, plane) => ({
            plane,
            path,
            offsetBytes: 0,
            storedBytes: bytes,
            plainBytes: bytes,
            codec: 'raw' as const,
            crc32c: null,
          }));
          const source: TensorSource = { rows, columns, split, chunks, view };
          if (rows * columns > 2 ** 22) return;
          try {
            await readWhole(source);
          } catch (thrown) {
            assertOurs(thrown, /^(MODEL_CORRUPT|MODEL_UNSUPPORTED|STORAGE_FAILED|INTERNAL)$/);
          }
        }),
        { numRuns: 1500 },
      );
    });
  });
});
