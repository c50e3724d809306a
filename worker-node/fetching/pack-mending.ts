import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { Mending, type MendingFetch } from './mending.js';
import { PackFetch } from './pack-fetch.js';

/** Mends whole experts. */
export class PackMending extends Mending {
  find(layer: number, expert: number): ExpertSource | null {
    if (this.mendedOf(layer, expert).length === 0) return null;
    return this.fetch?.find(layer, expert, []) ?? null;
  }

  protected async openFetch(directory: string): Promise<MendingFetch> {
    const partial = await this.openPartial(directory);
    return new PackFetch(partial, this.settings, this.environment, () => undefined, this.log);
  }
}
