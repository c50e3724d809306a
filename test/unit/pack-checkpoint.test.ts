import assert from 'node:assert/strict';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../packs/open-model-source.js';
import { packCheckpoint, type PackOptions } from '../../packs/packing/pack-checkpoint.js';
import type { PackingTools } from '../../packs/packing/packing-context.js';
import { readSafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import type { ExpertMatrix, TensorSource } from '../../shared/model/tensor-source.js';
import { openPack } from '../../packs/format/open-pack.js';
import { CHUNK_ALIGNMENT_BYTES } from '../../packs/format/pack-layout.js';
import { referenceCrc32c, referenceMergePlanes } from './reference-planes.js';
import { noise, TINY_CONFIG, tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, pack, refusal, TOOLS, withCheckpoint } from './tiny-pack.js';

/** The row-major values of a tensor, put together from its chunks as docs/pack-format.md says. */
async function valuesOf(tensor: TensorSource): Promise<Uint8Array> {
  const planes: Uint8Array[][] = [];
  for (const chunk of tensor.chunks) {
    const file = await readFile(chunk.path);
    const stored = new Uint8Array(file.subarray(chunk.offsetBytes, chunk.offsetBytes + chunk.storedBytes));
    assert.equal(stored.length, chunk.storedBytes);
    assert.equal(referenceCrc32c(stored, 0), chunk.crc32c);
    (planes[chunk.plane] ??= []).push(stored);
  }
  return referenceMergePlanes(
    planes.map((chunks) => Buffer.concat(chunks)),
    tensor.split,
  );
}

/** Every value of a two-byte type: as many as there are. */
function allPatterns(): Uint8Array {
  return new Uint8Array(Uint16Array.from({ length: 65536 }, (_, index) => index).buffer);
}

describe('packing a checkpoint', () => {
  for (const dtype of ['BF16', 'F16', 'F32'] as const) {
    it(`gives back every tensor bit for bit (${dtype})`, async () => {
      const tensors = tinyTensors(TINY_CONFIG, () => dtype);
      await withCheckpoint(async (checkpoint, output) => {
        await pack(checkpoint, output);
        const shipped = await openModelSource(checkpoint);
        const packed = await openPack(output);
        assert.equal(packed.shippedFormat, shipped.shippedFormat);
        assert.deepEqual(packed.shape, shipped.shape);
        assert.deepEqual(packed.eosTokenIds, shipped.eosTokenIds);
        for (const layer of [0, 1]) {
          for (const expert of [0, 1, 2]) {
            for (const part of ['gate', 'up', 'down'] as const satisfies readonly ExpertMatrix[]) {
              const found = packed.expert(layer, expert)[part];
              assert.deepEqual(await valuesOf(found), await plainValues(shipped.expert(layer, expert)[part]));
              for (const chunk of found.chunks) assert.equal(chunk.offsetBytes % CHUNK_ALIGNMENT_BYTES, 0);
            }
          }
        }
        for (const role of ['query', 'router', 'feedForwardNorm'] as const) {
          assert.deepEqual(await plainValues(packed.dense(role, 1)), await plainValues(shipped.dense(role, 1)));
        }
      }, tensors);
    });
  }

  /** A checkpoint whose first expert matrix is 256 x 256. */
  const squareConfig = { ...TINY_CONFIG, hidden_size: 256, intermediate_size: 256 };
  for (const dtype of ['BF16', 'F16'] as const) {
    it(`keeps all 65,536 patterns of ${dtype}`, async () => {
      const square = tinyTensors(squareConfig, () => dtype).map((tensor) =>
        tensor.name.endsWith('layers.0.block_sparse_moe.experts.0.w1.weight')
          ? { ...tensor, data: allPatterns() }
          : tensor,
      );
      await withCheckpoint(
        async (checkpoint, output) => {
          await pack(checkpoint, output, { shards: 7 });
          const packed = await openPack(output);
          const { gate } = packed.expert(0, 0);
          assert.equal(gate.chunks.length, 8);
          assert.deepEqual(Buffer.from(await valuesOf(gate)), Buffer.from(allPatterns()));
        },
        square,
        squareConfig,
      );
    });
  }

  it('keeps NaN payloads, infinities, denormals and negative zero of F32', async () => {
    const special = Uint32Array.from([
      0x7fc00001, 0xffbfffff, 0x7f800000, 0xff800000, 1, 0x80000001, 0x80000000, 0x7f7fffff,
    ]);
    const tensors = tinyTensors(TINY_CONFIG, () => 'F32');
    for (const tensor of tensors) if (tensor.name.includes('experts')) tensor.data.set(new Uint8Array(special.buffer));
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, output);
      const found = await valuesOf((await openPack(output)).expert(1, 1).down);
      assert.deepEqual(new Uint32Array(Uint8Array.from(found.subarray(0, 32)).buffer), special);
    }, tensors);
  });

  it('gives the same bytes for the same checkpoint, in one file or in shards', async () => {
    await withTemporaryDirectory(async (directory) => {
      const places = ['a', 'b'].map((name) => join(directory, name, 'tiny'));
      await writeTinyCheckpoint(places[0] ?? '', tinyTensors());
      await writeTinyCheckpoint(places[1] ?? '', tinyTensors(), { shards: 3 });
      const first = await pack(places[0] ?? '', join(directory, 'first'));
      const second = await pack(places[1] ?? '', join(directory, 'second'));
      assert.equal(second.digest, first.digest);
      assert.deepEqual(
        await directoryDigests(join(directory, 'second')),
        await directoryDigests(join(directory, 'first')),
      );
      assert.equal((await openPack(join(directory, 'first'))).packDigest, first.digest);
    });
  });

  it('gives another digest for one changed bit of one weight', async () => {
    const tensors = tinyTensors();
    await withCheckpoint(async (checkpoint, output) => {
      const { digest } = await pack(checkpoint, output);
      const last = tensors.at(-1);
      assert.ok(last);
      last.data.set([(last.data[0] ?? 0) ^ 1]);
      await writeTinyCheckpoint(checkpoint, tensors);
      assert.notEqual((await pack(checkpoint, `${output}-2`)).digest, digest);
    }, tensors);
  });

  it('copies the small files and writes a valid dense.safetensors, and nothing else', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      for (const name of ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja']) {
        await writeFile(join(checkpoint, name), `{"file": "${name}"}`);
      }
      await writeFile(join(checkpoint, 'README.md'), 'not for the pack');
      await pack(checkpoint, output);
      assert.deepEqual((await readdir(output)).sort(), [
        'chat_template.jinja',
        'config.json',
        'dense.safetensors',
        'experts-00000.bin',
        'experts-00001.bin',
        'manifest.json',
        'tokenizer.json',
        'tokenizer_config.json',
      ]);
      assert.deepEqual(await readFile(join(output, 'tokenizer.json'), 'utf8'), '{"file": "tokenizer.json"}');
      const dense = await readSafetensorsFile(join(output, 'dense.safetensors'));
      assert.equal(dense.tensors.size, 2 * 7 + 3);
      assert.ok(![...dense.tensors.keys()].some((name) => name.includes('experts')));
    });
  });

  it('refuses a pointer of Git LFS in place of a small file, and writes nothing', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      for (const name of ['tokenizer.json', 'chat_template.jinja']) {
        await writeFile(
          join(checkpoint, name),
          'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n',
        );
        await assert.rejects(pack(checkpoint, output), refusal('MODEL_CORRUPT', /a pointer of Git LFS .*git lfs pull/));
        await rm(join(checkpoint, name));
      }
      await assert.rejects(openPack(output), refusal('MODEL_NOT_FOUND', /./));
    });
  });

  it('reports every byte of the weights as progress', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const seen: [number, number][] = [];
      const outcome = await pack(checkpoint, output, { onProgress: (done, total) => seen.push([done, total]) });
      assert.deepEqual(seen.at(-1), [outcome.sourceBytes, outcome.sourceBytes]);
    });
  });

  it('packs tensors larger than a row range', async () => {
    const config = { ...TINY_CONFIG, hidden_size: 1024, intermediate_size: 2304, num_hidden_layers: 1 };
    const single = { ...config, num_local_experts: 1, num_experts_per_tok: 1 };
    const tensors = tinyTensors(single, () => 'F32', repeated);
    const plainSplit: PackingTools['splitPlanes'] = (values) => {
      const planes = [
        new Uint8Array(values.length / 4),
        new Uint8Array(values.length / 4),
        new Uint8Array(values.length / 2),
      ];
      for (let i = 0; i < values.length / 4; i += 1) {
        planes[0]?.set([values[i * 4 + 3] ?? 0], i);
        planes[1]?.set([values[i * 4 + 2] ?? 0], i);
        planes[2]?.set(values.subarray(i * 4, i * 4 + 2), i * 2);
      }
      return planes;
    };
    const sum = (bytes: Uint8Array, seed: number): number => (seed * 31 + bytes.length) >>> 0;
    await withCheckpoint(
      async (checkpoint, output) => {
        const options: PackOptions = {
          codec: { codec: 'raw', level: null },
          shards: 1,
          name: null,
          onDamagedPack: 'refuse',
        };
        await packCheckpoint(checkpoint, output, options, {
          ...TOOLS,
          splitPlanes: plainSplit,
          crc32c: sum,
        });
        const { up } = (await openPack(output)).expert(0, 0);
        const file = await readFile(up.chunks[0]?.path ?? '');
        const values = repeated(1024 * 2304 * 4);
        for (const chunk of up.chunks) {
          const width = chunk.plane === 2 ? 2 : 1;
          const first = [3, 2, 0][chunk.plane] ?? 0;
          for (let value = 0; value < 1024 * 2304; value += 99_991) {
            assert.equal(file[chunk.offsetBytes + value * width], values[value * 4 + first]);
          }
        }
      },
      tensors,
      single,
    );
  });
});

function repeated(sizeBytes: number): Uint8Array {
  const block = noise(65_521, 5);
  const bytes = new Uint8Array(sizeBytes);
  for (let at = 0; at < sizeBytes; at += block.length)
    bytes.set(block.subarray(0, Math.min(block.length, sizeBytes - at)), at);
  return bytes;
}

async function plainValues(tensor: TensorSource): Promise<Uint8Array> {
  const [chunk] = tensor.chunks;
  assert.ok(chunk);
  const file = await readFile(chunk.path);
  return Buffer.from(file.subarray(chunk.offsetBytes, chunk.offsetBytes + chunk.storedBytes));
}
