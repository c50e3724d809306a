import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openModelSource } from '../../../packs/open-model-source.js';
import { matrixValues } from '../../../packs/packing/matrix-values.js';
import { verifyPack } from '../../../packs/packing/verify-pack.js';
import { EXPERT_MATRICES, type TensorSource } from '../../../shared/model/tensor-source.js';
import type { ManifestExpertTensor } from '../../../packs/format/manifest.js';
import { openPack } from '../../../packs/format/open-pack.js';
import { codecSetting, PACK_CODECS, type PackCodec } from '../../../packs/format/pack-codec.js';
import { CHUNK_ALIGNMENT_BYTES } from '../../../packs/format/pack-layout.js';
import { MEDIUM_CONFIG, weightTensors } from '../../unit/medium-checkpoint.js';
import { TINY_CONFIG, tinyTensors, type TinyTensor } from '../../unit/tiny-checkpoint.js';
import { directoryDigests, pack, refusal, TOOLS, withCheckpoint } from '../../unit/tiny-pack.js';

async function shippedValues(tensor: TensorSource): Promise<Buffer> {
  const [chunk] = tensor.chunks;
  assert.ok(chunk);
  return (await readFile(chunk.path)).subarray(chunk.offsetBytes, chunk.offsetBytes + chunk.storedBytes);
}

async function packedValues(matrix: ManifestExpertTensor, path: string): Promise<Buffer> {
  const file = await readFile(path);
  const pieces: Uint8Array[] = [];
  const read = async (offset: number, size: number): Promise<Uint8Array> => file.subarray(offset, offset + size);
  for await (const piece of matrixValues(matrix, read, TOOLS)) pieces.push(piece);
  return Buffer.concat(pieces);
}

/** Packs and compares every value of every expert. Gives the codecs of all chunks of a plane. */
async function packAndCompare(
  checkpoint: string,
  output: string,
  codec: PackCodec,
  shards: number,
): Promise<(plane: number) => Set<string>> {
  await pack(checkpoint, output, { codec: codecSetting(codec, null), shards });
  const shipped = await openModelSource(checkpoint);
  const packed = await openPack(output);
  for (const entry of packed.manifest.experts) {
    for (const part of EXPERT_MATRICES) {
      const expected = await shippedValues(shipped.expert(entry.layer, entry.expert)[part]);
      const found = await packedValues(entry[part], join(output, entry.file));
      assert.ok(
        expected.equals(found),
        `${codec}, ${shards} shards: layer ${entry.layer} expert ${entry.expert} ${part}`,
      );
      for (const chunk of entry[part].chunks) assert.equal(chunk.offset_bytes % CHUNK_ALIGNMENT_BYTES, 0);
    }
  }
  assert.deepEqual(await verifyPack(packed, TOOLS), []);
  const chunks = packed.manifest.experts.flatMap((entry) => EXPERT_MATRICES.flatMap((part) => entry[part].chunks));
  return (plane) => new Set(chunks.filter((chunk) => chunk.plane === plane).map((chunk) => chunk.codec));
}

/** The 65,536 patterns in the first matrix of a checkpoint with 256 x 256 experts, weights everywhere else. */
function withAllPatterns(dtype: 'BF16' | 'F16', config: Readonly<Record<string, unknown>>): TinyTensor[] {
  const patterns = new Uint8Array(Uint16Array.from({ length: 65536 }, (_, index) => index).buffer);
  return weightTensors(dtype, config).map((tensor) =>
    tensor.name.endsWith('layers.0.block_sparse_moe.experts.0.w1.weight') ? { ...tensor, data: patterns } : tensor,
  );
}

describe('packing with every codec', () => {
  for (const dtype of ['BF16', 'F16', 'F32'] as const) {
    for (const codec of PACK_CODECS) {
      it(`gives back ${dtype} weights bit for bit (${codec})`, async () => {
        const tensors = weightTensors(dtype);
        await withCheckpoint(
          async (checkpoint, output) => {
            for (const shards of [1, 3]) {
              const codecsOf = await packAndCompare(checkpoint, `${output}-${shards}`, codec, shards);
              if (codec !== 'lz4hc') assert.ok(codecsOf(0).has(codec), `no chunk is stored by ${codec}`);
              assert.deepEqual([...codecsOf(1)], ['raw']);
              if (dtype === 'F16' && codec !== 'raw') assert.deepEqual([...codecsOf(2)], ['packed3']);
            }
          },
          tensors,
          MEDIUM_CONFIG,
        );
      });

      it(`gives back any bits of ${dtype}, and stores raw what does not get smaller (${codec})`, async () => {
        await withCheckpoint(
          async (checkpoint, output) => {
            // Matrices of 16 to 20 rows: 7 does not divide them, 64 are more than there are.
            for (const shards of [7, 64]) await packAndCompare(checkpoint, `${output}-${shards}`, codec, shards);
            const { manifest } = await openPack(`${output}-64`);
            assert.equal(manifest.experts[0]?.down.chunks.filter((chunk) => chunk.plane === 0).length, 16);
          },
          tinyTensors(TINY_CONFIG, () => dtype),
        );
      });
    }
  }

  for (const dtype of ['BF16', 'F16'] as const) {
    it(`keeps all 65,536 patterns of ${dtype}`, async () => {
      const config = {
        ...TINY_CONFIG,
        hidden_size: 256,
        intermediate_size: 256,
        num_hidden_layers: 1,
        num_local_experts: 2,
      };
      await withCheckpoint(
        async (checkpoint, output) => {
          for (const codec of PACK_CODECS) await packAndCompare(checkpoint, `${output}-${codec}`, codec, 7);
        },
        withAllPatterns(dtype, config),
        config,
      );
    }).timeout(60_000);
  }

  it('gives the same bytes however many chunks are encoded at once', async () => {
    await withCheckpoint(
      async (checkpoint, output) => {
        for (const codec of ['huffman', 'zstd'] as const) {
          const setting = codecSetting(codec, null);
          await pack(checkpoint, `${output}-${codec}-1`, { codec: setting, tools: { encodesAtOnce: 1 } });
          await pack(checkpoint, `${output}-${codec}-9`, { codec: setting, tools: { encodesAtOnce: 9 } });
          assert.deepEqual(
            await directoryDigests(`${output}-${codec}-9`),
            await directoryDigests(`${output}-${codec}-1`),
          );
        }
      },
      weightTensors('F16'),
      MEDIUM_CONFIG,
    );
  });

  it('never has more chunks in the encoders than allowed, and waits for them when one fails', async () => {
    await withCheckpoint(
      async (checkpoint, output) => {
        let running = 0;
        let most = 0;
        let calls = 0;
        const encodeChunk: typeof TOOLS.encodeChunk = async (...chunk) => {
          running += 1;
          calls += 1;
          const failing = calls === 20;
          most = Math.max(most, running);
          const stored = await TOOLS.encodeChunk(...chunk).finally(() => (running -= 1));
          if (failing) throw new Error('injected');
          return stored;
        };
        const options = { codec: codecSetting('huffman', null), tools: { encodeChunk, encodesAtOnce: 2 } };
        await assert.rejects(pack(checkpoint, output, options), refusal('STORAGE_FAILED', /injected/));
        assert.equal(running, 0);
        assert.ok(most <= 2);
        await assert.rejects(openModelSource(output), refusal('PACK_INCOMPLETE', /run odmoe pack again/));
        const resumed = await pack(checkpoint, output, { codec: options.codec });
        assert.ok(resumed.resumedFiles > 0);
        assert.deepEqual(await verifyPack(await openPack(output), TOOLS), []);
      },
      weightTensors('BF16'),
      MEDIUM_CONFIG,
    );
  });
});
