import { slotSizes } from '../../engine/planning/slot-sizes.js';
import { FROM_STORAGE, PLAIN_LOADER, type Device, type ExpertSlots, type RouterChoice } from '../../native/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** All experts of a model in slots, for passes that go expert layer by expert layer. */
export class ResidentExperts {
  private constructor(
    private readonly slots: ExpertSlots,
    private readonly experts: number,
  ) {}

  /** Throws what reading the experts throws, and DEVICE_OUT_OF_MEMORY. */
  static async load(device: Device, source: ModelSource): Promise<ResidentExperts> {
    const { expertLayers, experts } = source.shape;
    const { decompressionThreads, directIo, storageBytesPerS } = PLAIN_LOADER;
    const { shape, loader } = slotSizes(device, source, { decompressionThreads, directIo, storageBytesPerS });
    const slots = device.createExpertSlots(shape, expertLayers * experts, 1, loader);
    try {
      for (let place = 0; place < expertLayers * experts; place += 1) {
        const expert = source.expert(Math.floor(place / experts), place % experts);
        await slots.load(place, slots.register(expert), FROM_STORAGE);
      }
    } catch (thrown) {
      slots.dispose();
      throw thrown;
    }
    return new ResidentExperts(slots, experts);
  }

  /** Of one row: what the chosen experts give, by rank, into `outputs`. */
  async run(layer: number, { experts }: RouterChoice, hidden: Uint8Array, outputs: Uint8Array): Promise<void> {
    for (const [rank, expert] of experts.entries()) {
      const output = outputs.subarray(rank * hidden.length, (rank + 1) * hidden.length);
      await this.slots.execute(layer * this.experts + expert, 1, hidden, output);
    }
  }

  dispose(): void {
    this.slots.dispose();
  }
}
