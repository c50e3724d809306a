import { ExpertFetcher, type FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import { PackPeers } from '../../packs/fetching/pack-peers.js';
import type { PartialPack } from '../../packs/fetching/partial-pack.js';
import { crc32c } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { neededExperts } from '../../shared/decisions/placement/needed-experts.js';
import type { NodeStatus, Placement, Prospect } from '../../shared/wire/messages.js';
import type { NodeEnvironment } from '../../engine/environment/node-environment.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import type { ExpertSupply } from '../loader/expert-loader.js';
import { openPackSource } from '../../shared/transport/node-clients.js';

/** Longest reason that a status carries. */
const PROBLEM_LENGTH_LIMIT = 1000;

type FetchStatus = Pick<
  NodeStatus,
  'fetchNeededBytes' | 'fetchHeldBytes' | 'fetchReceivedBytes' | 'fetchReadyFor' | 'fetchProblem'
>;

/** Fetches the experts that the worker needs of main's pack. Main's prospect tells which; main gets the progress. */
export class PackFetch implements ExpertSupply {
  private readonly partial: PartialPack;
  private readonly peers: PackPeers;
  private readonly fetcher: ExpertFetcher;
  private readonly workerId: string;
  private readonly mainAddress: string | null;
  private readonly onReady: () => void;
  private prospect: Prospect | null = null;
  private wasReady = false;

  /** `onReady`: all experts of the prospect have come, and main waits for this news. */
  constructor(
    partial: PartialPack,
    settings: NodeSettings,
    { runtime, transport }: Pick<NodeEnvironment, 'runtime' | 'transport'>,
    onReady: () => void,
    log: Logger,
  ) {
    this.partial = partial;
    this.workerId = settings.id;
    this.mainAddress = settings.mainAddress;
    this.onReady = onReady;
    const { packDigest, shape } = partial.pack;
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
      partial,
      peers: this.peers,
      crc32c,
      runtime,
      log,
      onFetched: () => {
        this.fetched();
      },
    });
  }

  /** Some experts or files are still missing. */
  get isPartial(): boolean {
    return !this.partial.isWhole;
  }

  get progress(): FetchProgress {
    return this.fetcher.progress;
  }

  get status(): FetchStatus {
    const { neededBytes, heldBytes, receivedBytes, ready, problem } = this.fetcher.progress;
    return {
      fetchNeededBytes: neededBytes,
      fetchHeldBytes: heldBytes,
      fetchReceivedBytes: receivedBytes,
      fetchReadyFor: ready ? (this.prospect?.number ?? 0) : 0,
      fetchProblem: problem.replaceAll(/\p{Cc}+/gu, ' ').slice(0, PROBLEM_LENGTH_LIMIT),
    };
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

  /** Sets main as a source of damaged experts; if no prospect comes, main is the only source. `toldAddress`: as in takeProspect. */
  takeMain(reportedAddress: string): void {
    const sources = this.isPartial ? (this.prospect?.sources ?? []) : [];
    this.peers.setAddresses(this.mainAddresses(reportedAddress), sources);
  }

  /** `toldAddress`: main's address as main itself gives it. */
  takeProspect(prospect: Prospect, reportedAddress: string): void {
    this.prospect = prospect;
    this.wasReady = false;
    this.peers.setAddresses(this.mainAddresses(reportedAddress), prospect.sources);
    this.fetcher.need(inTurn(prospect.placement, this.workerId));
    this.fetched();
  }

  close(): Promise<void> {
    return this.fetcher.close();
  }

  /** The address in the settings may be the only one that reaches main from here, or an old address that main has left. */
  private mainAddresses(reportedAddress: string): string[] {
    return this.mainAddress === null ? [reportedAddress] : [this.mainAddress, reportedAddress];
  }

  private fetched(): void {
    if (this.wasReady || this.prospect === null || !this.fetcher.progress.ready) return;
    this.wasReady = true;
    this.onReady();
  }
}

/**
 * The experts that the worker needs, starting at a different point for each worker. Workers that fetch at the same time get different experts
 * first, and can then give them to each other. Pure.
 */
export function inTurn(placement: Placement, workerId: string): ExpertId[] {
  const needed = neededExperts(placement, workerId);
  const index = placement.workers.findIndex(({ id }) => id === workerId);
  const start = Math.floor((needed.length * Math.max(0, index)) / Math.max(1, placement.workers.length));
  return [...needed.slice(start), ...needed.slice(0, start)];
}
