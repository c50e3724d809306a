import type { FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import type { PartialPack } from '../../packs/fetching/partial-pack.js';
import type { PartialSlices } from '../../packs/fetching/partial-slices.js';
import { SlicesFetch } from '../../packs/fetching/slices-fetch.js';
import type { Slice } from '../../packs/format/pack-layout.js';
import { PackGate } from '../../engine/trust/pack-gate.js';
import { crc32c } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import type { ExpertSupply } from '../loader/expert-loader.js';
import { openPackSource } from '../../shared/transport/node-clients.js';
import { ProspectFetch } from './prospect-fetch.js';

/** Fetches the slices that the worker needs of main's pack, and no lossless parts. */
export class SlicesSupply extends ProspectFetch implements ExpertSupply {
  private readonly fetch: SlicesFetch;

  /** `pack`: in whose directory the slices are. Closing this closes both. `onReady`: as for ProspectFetch. */
  constructor(
    private readonly pack: Pick<PartialPack, 'close'>,
    private readonly partial: PartialSlices,
    settings: Pick<NodeSettings, 'id' | 'mainAddress'>,
    { runtime, transport, trust }: Pick<NodeEnvironment, 'runtime' | 'transport' | 'trust'>,
    onReady: () => void,
    log: Logger,
  ) {
    super(settings, onReady, new PackGate(trust, 'slices', partial.digest));
    const connect = (address: string): ReturnType<typeof openPackSource> => openPackSource(transport, address);
    const onFetched = (): void => this.fetched();
    this.fetch = new SlicesFetch({ partial, connect, crc32c, runtime, log, onFetched });
  }

  get isPartial(): boolean {
    return !this.partial.isWhole;
  }

  get progress(): FetchProgress {
    return this.withGate(this.fetch.progress);
  }

  /** Rejects if one of the slices does not come. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal, slices: readonly Slice[]): Promise<void> | null {
    const arrivals = slices.flatMap((slice) => this.fetch.awaitSlice({ layer, expert }, slice, signal) ?? []);
    return arrivals.length === 0 ? null : Promise.all(arrivals).then(() => undefined);
  }

  async forget(layer: number, expert: number, slices: readonly Slice[]): Promise<void> {
    for (const slice of slices) await this.fetch.forget({ layer, expert }, slice);
  }

  find(layer: number, expert: number, slices: readonly Slice[]): ExpertSource | null {
    const { held, slices: described } = this.partial;
    return slices.every((slice) => held[slice].has(layer, expert)) ? described.expert(layer, expert) : null;
  }

  async close(): Promise<void> {
    this.leaveGate();
    await this.fetch.close();
    await this.pack.close();
  }

  protected setAddresses(mainAddresses: readonly string[], others: readonly string[]): void {
    this.fetch.setAddresses(mainAddresses, others);
  }

  protected need(experts: readonly ExpertId[]): void {
    this.fetch.need(experts);
  }
}
