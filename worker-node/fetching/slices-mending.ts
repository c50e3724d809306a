import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import { PartialSlices } from '../../packs/fetching/partial-slices.js';
import { anyPackOfManifest, type Pack } from '../../packs/format/open-pack.js';
import { type Slice, SLICES, SLICES_FILE } from '../../packs/format/pack-layout.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { Mending, type MendingFetch } from './mending.js';
import { SlicesSupply } from './slices-supply.js';

/** Mends slices of experts, each by itself: the other one is still read from the pack. */
export class SlicesMending extends Mending {
  private partial: PartialSlices | null = null;

  constructor(
    pack: Pack,
    private readonly slices: Slices,
    settings: NodeSettings,
    environment: NodeEnvironment,
    log: Logger,
  ) {
    super(pack, settings, environment, log);
  }

  /** Null also if one of the slices is to be mended and has not come. */
  find(layer: number, expert: number, slices: readonly Slice[]): ExpertSource | null {
    const mended = this.mendedOf(layer, expert);
    const { partial } = this;
    if (partial === null || mended.length === 0) return null;
    const missing = mended.some((slice) => slices.includes(slice) && !partial.held[slice].has(layer, expert));
    return missing ? null : mixed(this.slices.expert(layer, expert), partial.slices.expert(layer, expert), mended);
  }

  protected async openFetch(directory: string): Promise<MendingFetch> {
    const { runtime } = this.environment;
    const partialPack = await this.openPartial(directory, anyPackOfManifest);
    try {
      const { digest, opened: set } = this.slices;
      const wanted = { pack: partialPack.pack, digest, set };
      this.partial = await runtime.outside(async () => {
        const resumed = await PartialSlices.resume(wanted, runtime);
        return (
          resumed ?? PartialSlices.begin(wanted, await readFile(join(this.slices.directory, SLICES_FILE)), runtime)
        );
      });
      return new SlicesSupply(partialPack, this.partial, this.settings, this.environment, () => undefined, this.log);
    } catch (thrown) {
      await partialPack.close();
      throw thrown;
    }
  }
}

/** The expert with these slices from `other`. */
function mixed(own: ExpertSource, other: ExpertSource, slices: readonly Slice[]): ExpertSource {
  const takesOther = (plane: number): boolean => SLICES.some((slice, of) => of === plane && slices.includes(slice));
  const matrix = (name: 'gate' | 'up' | 'down'): TensorSource => ({
    ...own[name],
    chunks: own[name].chunks.map((chunk, index) =>
      takesOther(chunk.plane) ? (other[name].chunks[index] ?? chunk) : chunk,
    ),
  });
  return {
    gate: matrix('gate'),
    up: matrix('up'),
    down: matrix('down'),
    gluLimit: own.gluLimit,
    get biases() {
      return (slices.includes('upper') ? other : own).biases;
    },
  };
}
