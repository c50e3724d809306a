import assert from 'node:assert/strict';
import { FROM_STORAGE, PLAIN_LOADER, type ExpertSlots } from '../../native/index.js';
import { expertShape } from '../../engine/loading/expert-shape.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import type { ExpertSource, ModelSource } from '../../shared/model/tensor-source.js';
import { codecSetting, PACK_CODECS } from '../../packs/format/pack-codec.js';
import { MEDIUM_CONFIG, weightTensors } from './medium-checkpoint.js';
import { openTestDevice } from './native-test-model.js';
import { pack, withCheckpoint } from './tiny-pack.js';

const HIDDEN = MEDIUM_CONFIG.hidden_size;
const INPUT = new Uint8Array(Float32Array.from({ length: HIDDEN }, (_, index) => Math.sin(index + 1)).buffer);

async function outputOf(slots: ExpertSlots, expert: ExpertSource): Promise<Buffer> {
  const { loaded } = await slots.load(0, slots.register(expert), FROM_STORAGE);
  assert.equal(loaded, true);
  const output = new Uint8Array(HIDDEN * 4);
  await slots.execute(0, 1, INPUT, output);
  return Buffer.from(output);
}

/** Outputs of all experts of a model, each loaded into a slot. */
async function outputsOf(source: ModelSource): Promise<Buffer[]> {
  const device = openTestDevice();
  try {
    const shape = expertShape(source.shape, null, () => allExperts(source));
    const loader = { ...PLAIN_LOADER, ...partSizes(allExperts(source)) };
    const slots = device.createExpertSlots(shape, 1, 1, loader);
    try {
      const outputs: Buffer[] = [];
      for (const expert of allExperts(source)) outputs.push(await outputOf(slots, expert));
      return outputs;
    } finally {
      slots.dispose();
    }
  } finally {
    device.dispose();
  }
}

describe('experts from a coded pack', () => {
  for (const dtype of ['BF16', 'F16', 'F32'] as const) {
    it(`compute what the checkpoint's do, to the bit (${dtype})`, async () => {
      await withCheckpoint(
        async (checkpoint, output) => {
          const expected = await outputsOf(await openModelSource(checkpoint));
          for (const codec of PACK_CODECS) {
            for (const shards of [1, 3]) {
              const directory = `${output}-${codec}-${shards}`;
              await pack(checkpoint, directory, { codec: codecSetting(codec, null), shards });
              const found = await outputsOf(await openModelSource(directory));
              assert.deepEqual(found, expected, `${codec}, ${shards} shards`);
            }
          }
        },
        weightTensors(dtype),
        MEDIUM_CONFIG,
      );
    });
  }
});
