import { ExpertFetcher, type FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import { PackPeers } from '../../packs/fetching/pack-peers.js';
import type { PartialPack } from '../../packs/fetching/partial-pack.js';
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

/** Fetches the experts that the worker needs of main's pack. */
export class PackFetch extends ProspectFetch implements ExpertSupply {
  private readonly partial: PartialPack;
  private readonly peers: PackPeers;
  private readonly fetcher: ExpertFetcher;

  /** `onReady`: as for ProspectFetch. */
  constructor(
    partial: PartialPack,
    settings: NodeSettings,
    { runtime, transport, trust }: Pick<NodeEnvironment, 'runtime' | 'transport' | 'trust'>,
    onReady: () => void,
    log: Logger,
  ) {
    const { packDigest, shape } = partial.pack;
    super(settings, onReady, new PackGate(trust, 'pack', packDigest));
    this.partial = partial;
    this.peers = new PackPeers({
      packDigest,
      layers: shape.expertLayers,
      experts: shape.experts,
      runtime,
      log,
      connect: (address) => openPackSource(transport, address),
      onDescribed: () => {
        this.fetcher.peersChanged();
      },
    });
    this.fetcher = new ExpertFetcher({
      store: partial,
      peers: this.peers,
      crc32c,
      runtime,
      log,
      onFetched: () => {
        this.fetched();
      },
    });
  }

  get isPartial(): boolean {
    return !this.partial.isWhole;
  }

  get progress(): FetchProgress {
    return this.withGate(this.fetcher.progress);
  }

  awaitExpert(layer: number, expert: number, signal: AbortSignal): Promise<void> | null {
    return this.fetcher.awaitExpert(layer, expert, signal);
  }

  forget(layer: number, expert: number): Promise<void> {
    return this.fetcher.forget(layer, expert);
  }

  find(layer: number, expert: number): ExpertSource | null {
    return this.partial.held.has(layer, expert) ? this.partial.pack.expert(layer, expert) : null;
  }

  close(): Promise<void> {
    this.leaveGate();
    return this.fetcher.close();
  }

  protected setAddresses(mainAddresses: readonly string[], others: readonly string[]): void {
    this.peers.setAddresses(mainAddresses, others);
  }

  protected need(experts: readonly ExpertId[]): void {
    this.fetcher.need(experts);
  }
}
