import assert from 'node:assert/strict';
import { cpSync, existsSync, openSync, closeSync, readdirSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { openTensor } from '../../../native/index.js';
import { NATIVE_BYTE_TOOLS } from '../../../packs/packing/native-tools.js';
import { verifyPack } from '../../../packs/packing/verify-pack.js';
import { openPack, type Pack } from '../../../packs/format/open-pack.js';
import { codecSetting } from '../../../packs/format/pack-codec.js';
import { type Checkpoint, openCheckpoint } from '../../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { densePlaces } from '../../../shared/model/dense-roles.js';
import { EXPERT_MATRICES, type TensorSource } from '../../../shared/model/tensor-source.js';
import { isQuantizedSplit, planeRowBytes, rowBytes } from '../../../shared/model/weight-dtype.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';
import { directoryDigests, pack, refusal } from '../../unit/tiny-pack.js';

const FIXTURES = join(packageRoot(), 'test', 'fixtures');
const FAMILIES = readdirSync(FIXTURES).filter((name) => existsSync(join(FIXTURES, name, 'config.json')));

/** Coding is the same for every family: of few, with whole, fused and quantized experts, packs are made without it, too. */
const RAW_TOO: ReadonlySet<string> = new Set(['mixtral', 'gptoss', 'deepseekv3-fp8']);

/** All rows of a tensor, by plane; three rows at a time, so that reading does not depend on where it is cut. */
async function planesOf(source: TensorSource): Promise<Buffer[]> {
  const planes = planeRowBytes(source.split, source.columns).map((): Uint8Array[] => []);
  const rows = openTensor(source);
  try {
    for (let row = 0; row < source.rows; row += 3) {
      const read = await rows.read(Math.min(3, source.rows - row));
      for (const [plane, bytes] of read.entries()) planes[plane]?.push(bytes);
    }
  } finally {
    rows.dispose();
  }
  return planes.map((pieces) => Buffer.concat(pieces));
}

/** Values as they are, or codes and scales. */
async function valuesOf(source: TensorSource): Promise<Buffer[]> {
  const planes = await planesOf(source);
  if (isQuantizedSplit(source.split) || planes.length === 1) return planes;
  return [Buffer.from(NATIVE_BYTE_TOOLS.joinPlanes(planes, source.split))];
}

async function assertSame(packed: TensorSource, shipped: TensorSource, what: string): Promise<void> {
  assert.deepEqual([packed.rows, packed.columns], [shipped.rows, shipped.columns], what);
  const [found, expected] = [await valuesOf(packed), await valuesOf(shipped)];
  assert.equal(found.length, expected.length, what);
  for (const [plane, bytes] of expected.entries()) {
    assert.equal(bytes.length > 0 && found[plane]?.equals(bytes), true, `${what}, plane ${plane}`);
  }
}

async function assertSameModel(packed: Pack, shipped: Checkpoint): Promise<void> {
  assert.deepEqual(packed.shape, shipped.shape);
  assert.equal(packed.shippedFormat, shipped.shippedFormat);
  for (const { role, layer } of densePlaces(shipped.shape, shipped.tiedEmbeddings)) {
    await assertSame(packed.dense(role, layer), shipped.dense(role, layer), `${role} of layer ${layer}`);
  }
  for (let layer = 0; layer < shipped.shape.expertLayers; layer += 1) {
    for (let expert = 0; expert < shipped.shape.experts; expert += 1) {
      const [found, expected] = [packed.expert(layer, expert), shipped.expert(layer, expert)];
      for (const part of EXPERT_MATRICES) await assertSame(found[part], expected[part], `${part} ${layer} ${expert}`);
      assert.deepEqual(found.biases, expected.biases, `biases ${layer} ${expert}`);
      assert.equal(found.gluLimit, expected.gluLimit, `limit ${layer} ${expert}`);
    }
  }
}

describe('packs of every family', function () {
  this.timeout(120_000);

  for (const family of FAMILIES) {
    it(`hold what the checkpoint has, bit for bit (${family})`, async () => {
      await withTemporaryDirectory(async (directory) => {
        const shipped = await openCheckpoint(join(FIXTURES, family));
        for (const codec of RAW_TOO.has(family) ? (['raw', 'huffman'] as const) : (['huffman'] as const)) {
          const output = join(directory, codec);
          await pack(shipped.directory, output, { codec: codecSetting(codec, null), tools: NATIVE_BYTE_TOOLS });
          const packed = await openPack(output);
          assert.deepEqual(await verifyPack(packed, NATIVE_BYTE_TOOLS), []);
          await assertSameModel(packed, shipped);
          assert.equal(packed.manifest.model.family, shipped.family);
          const left = packed.manifest.source.left_out.reduce((sum, { tensors }) => sum + tensors, 0);
          assert.equal(left, shipped.leftOut.filter((name) => shipped.draftHead?.used.has(name) !== true).length);
        }
      });
    });
  }

  it('are the same from a whole checkpoint and from shards one by one', async () => {
    await withTemporaryDirectory(async (directory) => {
      for (const family of ['qwen3next', 'gptoss-mxfp4']) {
        const checkpoint = join(directory, family);
        cpSync(join(FIXTURES, family), checkpoint, { recursive: true });
        const options = { name: family, tools: NATIVE_BYTE_TOOLS };
        await pack(checkpoint, `${checkpoint}-kept`, options);
        const { consumedShards } = await pack(checkpoint, `${checkpoint}-consumed`, { ...options, consume: true });
        assert.equal(consumedShards, family === 'qwen3next' ? 3 : 1);
        assert.ok(!readdirSync(checkpoint).some((name) => name.endsWith('.safetensors')));
        assert.deepEqual(
          await directoryDigests(`${checkpoint}-consumed`),
          await directoryDigests(`${checkpoint}-kept`),
        );
      }
    });
  });
});

describe('packing quantized experts', () => {
  it('stores codes and scales unchanged, and no exponents', async () => {
    await withTemporaryDirectory(async (directory) => {
      const fixture = join(FIXTURES, 'gptoss-mxfp4');
      await pack(fixture, directory, { codec: codecSetting('huffman', null), tools: NATIVE_BYTE_TOOLS });
      const { manifest } = await openPack(directory);
      assert.deepEqual([manifest.codec, manifest.model.shipped_format], ['raw', 'mxfp4']);
      const gate = manifest.experts[0]?.gate;
      assert.deepEqual(
        gate?.chunks.map(({ plane, codec }) => `${plane} ${codec}`),
        ['0 raw', '1 raw'],
      );
      // Row r of gate is row 2 r of the fused matrix; a row of codes is whole in the file.
      const shipped = await openCheckpoint(fixture);
      const source = shipped.expert(0, 0).gate;
      const file = readFileSync(source.chunks[0]?.path ?? '');
      const rowSize = rowBytes('mxfp4', source.columns) - source.columns / 32;
      const packed = readFileSync(join(directory, 'experts-00000.bin'));
      for (const row of [0, 1, source.rows - 1]) {
        const from = (source.chunks[0]?.offsetBytes ?? 0) + 2 * row * rowSize;
        const at = (gate?.chunks[0]?.offset_bytes ?? 0) + row * rowSize;
        assert.ok(packed.subarray(at, at + rowSize).equals(file.subarray(from, from + rowSize)), `row ${row}`);
      }
    });
  });

  /** A copy of a fixture with bytes of one stored tensor overwritten. */
  async function spoilt(
    family: string,
    spoil: (checkpoint: Checkpoint) => { path: string; offsetBytes: number; bytes: Uint8Array },
    message: RegExp,
  ): Promise<void> {
    await withTemporaryDirectory(async (directory) => {
      const checkpoint = join(directory, family);
      cpSync(join(FIXTURES, family), checkpoint, { recursive: true });
      const { path, offsetBytes, bytes } = spoil(await openCheckpoint(checkpoint));
      const file = openSync(path, 'r+');
      writeSync(file, bytes, 0, bytes.length, offsetBytes);
      closeSync(file);
      const output = join(directory, 'pack');
      await assert.rejects(pack(checkpoint, output, { tools: NATIVE_BYTE_TOOLS }), refusal('MODEL_CORRUPT', message));
      const left = readdirSync(output);
      assert.ok(!left.includes('manifest.json') && !left.some((name) => name.endsWith('.partial')), left.join());
      await assert.rejects(openPack(output), refusal('PACK_INCOMPLETE', /not finished/));
    });
  }

  it('distinguishes checkpoints by biases of experts, too', async () => {
    await withTemporaryDirectory(async (directory) => {
      const [checkpoint, output] = [join(directory, 'gptoss'), join(directory, 'pack')];
      cpSync(join(FIXTURES, 'gptoss'), checkpoint, { recursive: true });
      const options = { consume: true, tools: NATIVE_BYTE_TOOLS } as const;
      await pack(checkpoint, output, { tools: NATIVE_BYTE_TOOLS });
      const [file] = (await openCheckpoint(checkpoint)).files;
      const bias = file?.tensors.get('model.layers.0.mlp.experts.down_proj_bias');
      assert.ok(file !== undefined && bias !== undefined);
      const bytes = readFileSync(file.path);
      bytes.writeUInt8(bytes.readUInt8(bias.offsetBytes) ^ 1, bias.offsetBytes);
      writeFileSync(file.path, bytes);
      await assert.rejects(pack(checkpoint, output, options), refusal('USAGE', /its weights are not those/));
      assert.ok(existsSync(file.path));
    });
  });

  it('refuses MXFP4 with a non-finite scale, and writes no partial file', async () => {
    await spoilt(
      'gptoss-mxfp4',
      (checkpoint) => {
        const [, scales] = checkpoint.expert(1, 3).down.chunks;
        return { path: scales?.path ?? '', offsetBytes: (scales?.offsetBytes ?? 0) + 7, bytes: Uint8Array.of(255) };
      },
      /model\.safetensors/,
    );
  });

  it('refuses FP8 with a non-finite scale or weight', async () => {
    const nan = new Uint8Array(Float32Array.of(NaN).buffer);
    await spoilt(
      'deepseekv3-fp8',
      (checkpoint) => {
        const [, scales] = checkpoint.expert(0, 1).up.chunks;
        return { path: scales?.path ?? '', offsetBytes: scales?.offsetBytes ?? 0, bytes: nan };
      },
      /model\.safetensors/,
    );
    await spoilt(
      'deepseekv3-fp8',
      (checkpoint) => {
        const [weights] = checkpoint.expert(0, 1).up.chunks;
        return { path: weights?.path ?? '', offsetBytes: weights?.offsetBytes ?? 0, bytes: Uint8Array.of(0x7f) };
      },
      /model\.safetensors/,
    );
  });

  it('refuses a fused tensor of another shape before it writes anything', async () => {
    await withTemporaryDirectory(async (directory) => {
      const checkpoint = join(directory, 'gptoss');
      cpSync(join(FIXTURES, 'gptoss'), checkpoint, { recursive: true });
      const config = JSON.parse(readFileSync(join(checkpoint, 'config.json'), 'utf8')) as Record<string, number>;
      config['num_local_experts'] = 9;
      writeFileSync(join(checkpoint, 'config.json'), JSON.stringify(config));
      await assert.rejects(
        pack(checkpoint, join(directory, 'pack')),
        refusal('MODEL_CORRUPT', /has shape \[.*expected/),
      );
      assert.ok(!existsSync(join(directory, 'pack')));
    });
  });
});
