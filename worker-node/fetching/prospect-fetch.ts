import type { FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import type { PackGate } from '../../engine/trust/pack-gate.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { neededExperts } from '../../shared/decisions/placement/needed-experts.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { NodeStatus, Placement, Prospect } from '../../shared/wire/messages.js';

/** Longest reason that a status carries. */
const PROBLEM_LENGTH_LIMIT = 1000;

export type FetchStatus = Pick<
  NodeStatus,
  'fetchNeededBytes' | 'fetchHeldBytes' | 'fetchReceivedBytes' | 'fetchReadyFor' | 'fetchProblem'
>;

/** Follows main's prospects, which tell what the worker needs; main gets the progress. A subclass fetches it. */
export abstract class ProspectFetch {
  /** The newest prospect of the main that has a stream to this worker; null: it has sent none. */
  private prospect: Prospect | null = null;
  private wasReady = false;
  /** The newest addresses from which to fetch: main's, and others. */
  private offered: readonly [readonly string[], readonly string[]] = [[], []];
  private readonly unwatch: () => void;

  /** `onReady`: all that the prospect needs has come, and main waits for this news. `gate`: of what is fetched. */
  constructor(
    private readonly own: Pick<NodeSettings, 'id' | 'mainAddress'>,
    private readonly onReady: () => void,
    private readonly gate: PackGate,
  ) {
    this.unwatch = gate.watch(() => this.useAddresses());
  }

  /** Some of main's pack is still missing here. */
  abstract get isPartial(): boolean;

  abstract get progress(): FetchProgress;

  get status(): FetchStatus {
    const { neededBytes, heldBytes, receivedBytes, ready, problem } = this.progress;
    return {
      fetchNeededBytes: neededBytes,
      fetchHeldBytes: heldBytes,
      fetchReceivedBytes: receivedBytes,
      fetchReadyFor: ready ? (this.prospect?.number ?? 0) : 0,
      fetchProblem: problem.replaceAll(/\p{Cc}+/gu, ' ').slice(0, PROBLEM_LENGTH_LIMIT),
    };
  }

  /**
   * Main has opened a stream. Sets main as a source of damaged experts; if no prospect comes, main is the only source. `reportedAddress`: as in
   * takeProspect.
   */
  takeMain(reportedAddress: string): void {
    // A main that was restarted counts its prospects from 1 again. A number of its predecessor must not tell it that the experts of its own
    // prospect are here. The fetch goes on meanwhile.
    this.prospect = null;
    const [, sources] = this.offered;
    this.offered = [this.mainAddresses(reportedAddress), this.isPartial ? sources : []];
    this.useAddresses();
  }

  /** `reportedAddress`: main's address as main itself gives it. */
  takeProspect(prospect: Prospect, reportedAddress: string): void {
    this.prospect = prospect;
    this.wasReady = false;
    this.offered = [this.mainAddresses(reportedAddress), prospect.sources];
    this.useAddresses();
    this.need(inTurn(prospect.placement, this.own.id));
    this.fetched();
  }

  /** Nobody is asked for what must not be fetched. */
  private useAddresses(): void {
    const [main, others] = this.gate.refusal === null ? this.offered : [[], []];
    this.setAddresses(main, others);
  }

  /** The progress, with the reason why nothing may be fetched. */
  protected withGate(progress: FetchProgress): FetchProgress {
    const { refusal } = this.gate;
    return refusal === null || !this.isPartial ? progress : { ...progress, problem: refusal };
  }

  /** Ends what the constructor has begun. */
  protected leaveGate(): void {
    this.unwatch();
  }

  /** As PackPeers.setAddresses. */
  protected abstract setAddresses(mainAddresses: readonly string[], others: readonly string[]): void;

  /** Fetches these experts. */
  protected abstract need(experts: readonly ExpertId[]): void;

  /** Something has been fetched. */
  protected fetched(): void {
    if (this.wasReady || this.prospect === null || !this.progress.ready) return;
    this.wasReady = true;
    this.onReady();
  }

  /** The address in the settings may be the only one that reaches main from here, or an old address that main has left. */
  private mainAddresses(reportedAddress: string): string[] {
    const { mainAddress } = this.own;
    return mainAddress === null ? [reportedAddress] : [mainAddress, reportedAddress];
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
