import assert from 'node:assert/strict';
import { packCompression } from '../../packs/pack-compression.js';
import { paddingLine } from '../../cli/output/padding-line.js';
import { openPack } from '../../packs/format/open-pack.js';
import { codecSetting } from '../../packs/format/pack-codec.js';
import { MEDIUM_CONFIG, weightTensors } from './medium-checkpoint.js';
import { TINY_CONFIG, tinyTensors, type TinyTensor } from './tiny-checkpoint.js';
import { pack, withCheckpoint } from './tiny-pack.js';

async function compressionOf(
  tensors: TinyTensor[],
  config: Readonly<Record<string, unknown>>,
): Promise<ReturnType<typeof packCompression>> {
  let compression: ReturnType<typeof packCompression> | null = null;
  await withCheckpoint(
    async (checkpoint, output) => {
      await pack(checkpoint, output, { codec: codecSetting('huffman', null), shards: 2 });
      compression = packCompression((await openPack(output)).manifest);
    },
    tensors,
    config,
  );
  return compression ?? assert.fail();
}

describe('the report on the compression of a pack', () => {
  it('lists each plane, against the bytes of the checkpoint', async () => {
    const tensors = weightTensors('F16');
    const experts = tensors.filter(({ name }) => name.includes('experts'));
    const { shippedBytes, storedBytes, ratio, planes } = await compressionOf(tensors, MEDIUM_CONFIG);
    assert.equal(
      shippedBytes,
      experts.reduce((sum, { data }) => sum + data.length, 0),
    );
    assert.equal(ratio, storedBytes / shippedBytes);
    assert.deepEqual(
      planes.map(({ split, plane, codec, plainBytes }) => [split, plane, codec, plainBytes]),
      [
        ['fp16-e5-lo8-s1m2', 0, 'huffman', shippedBytes / 2],
        ['fp16-e5-lo8-s1m2', 1, 'raw', shippedBytes / 2],
        ['fp16-e5-lo8-s1m2', 2, 'packed3', shippedBytes / 2],
      ],
    );
    assert.equal(
      storedBytes,
      planes.reduce((sum, plane) => sum + plane.storedBytes, 0),
    );
    const [exponents, low, high] = planes.map((plane) => plane.ratio);
    assert.ok((exponents ?? 1) < 0.5 && low === 1 && (high ?? 1) < 0.45, `${exponents} ${low} ${high}`);
    assert.ok(planes.every((plane) => plane.chunksLeftRaw === 0));
  });

  it('counts padding, and warns where it cancels the saving', async () => {
    const tiny = await compressionOf(tinyTensors(TINY_CONFIG), TINY_CONFIG);
    assert.ok(tiny.diskBytes % 4096 === 0 && tiny.diskBytes >= tiny.storedBytes);
    const sizes = { ratio: 0.75, shippedBytes: 8e6, storedBytes: 6e6, rawDiskBytes: 8.1e6, planes: [] };
    assert.match(
      paddingLine({ ...sizes, diskBytes: 8e6 }) ?? '',
      /padding eats the saving.*4096.*8\.0. MB.*8\.1. MB as raw/,
    );
    assert.equal(paddingLine({ ...sizes, diskBytes: 6.2e6 }), null);
    assert.equal(paddingLine({ ...sizes, storedBytes: 8e6, diskBytes: 8.1e6 }), null, 'a raw pack');
  });

  it('lists each type, and the chunks that the codec did not make smaller', async () => {
    const mixed = tinyTensors(TINY_CONFIG, ({ name }) => (name.includes('w2') ? 'F32' : 'BF16'));
    const { planes } = await compressionOf(mixed, TINY_CONFIG);
    assert.deepEqual(
      planes.map(({ split, plane, chunks, chunksLeftRaw }) => [split, plane, chunks, chunksLeftRaw]),
      [
        ['bf16-e8-sm8', 0, 24, 24],
        ['bf16-e8-sm8', 1, 12, 0],
        ['fp32-e8-sm8-r16', 0, 12, 12],
        ['fp32-e8-sm8-r16', 1, 6, 0],
        ['fp32-e8-sm8-r16', 2, 6, 0],
      ],
    );
  });
});
