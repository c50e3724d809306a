import { timesPowerOfTwo } from '../../shared/base/arithmetic/elementary.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { HeldExperts } from '../format/held-experts.js';
import type { Slice } from '../format/pack-layout.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { PackDescription } from '../../shared/wire/messages.js';
import { PACK_SOURCES_LIMIT } from '../../shared/wire/limits.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Most experts that are fetched from one peer at a time. */
export const MAX_STREAMS_PER_PEER = 4;
/** Longest time for a peer's description of what it holds. */
const DESCRIBE_TIMEOUT_MS = 3000;
/** A peer that does not hold everything is asked again after this time. */
const DESCRIBE_AGAIN_MS = 1000;
/** Pauses after failures of a peer: the first, doubled at each further failure, and the longest. */
const FIRST_PAUSE_MS = 500;
const LAST_PAUSE_MS = 10_000;
/** Pause after a temporary refusal. */
const BUSY_PAUSE_MS = 300;
/** Temporary refusals: the peer serves its most readers, or a read paused for so long that the peer ended it. */
const TEMPORARY: ReadonlySet<ErrorCode> = new Set(['QUEUE_FULL', 'TIMEOUT']);
/** A peer that sent wrong bytes for an expert is not asked for that expert again for this time. */
const DAMAGED_PAUSE_MS = 30_000;
/** A peer that sent wrong bytes this often in a row is not asked for anything for DAMAGED_PAUSE_MS. */
const DAMAGES_LIMIT = 3;

export interface PackPeersOptions {
  packDigest: string;
  layers: number;
  experts: number;
  /** The slice that is fetched, of the slices with this digest; left out: the lossless parts are fetched. */
  slice?: { slice: Slice; digest: string };
  connect(address: string): PackSource;
  runtime: Runtime;
  log: Logger;
  /** Called when a peer has described what it holds. */
  onDescribed(): void;
}

export class PackPeer {
  source: PackSource | null = null;
  held: HeldExperts | null = null;
  whole = false;
  streams = 0;
  describing = false;
  describedMs = -Infinity;
  pausedUntilMs = 0;
  failures = 0;
  damages = 0;
  /** Experts for which the peer sent wrong bytes, and the time until which they are not requested again. */
  readonly damagedExperts = new Map<number, { error: OdmoeError; untilMs: number }>();
  problem: OdmoeError | null = null;

  constructor(
    readonly address: string,
    /** Rank of this address among main's, from 0: a later one is used if the earlier ones do not answer. null: the peer is not main. */
    public mainRank: number | null,
  ) {}
}

/** The daemons that may hold experts that this one lacks: what each holds, how busy it is, and whether it has failed. */
export class PackPeers {
  private readonly options: PackPeersOptions;
  private readonly peers = new Map<string, PackPeer>();
  private readonly asking = new Set<Promise<void>>();
  private closed = false;

  constructor(options: PackPeersOptions) {
    this.options = options;
  }

  /**
   * Replaces the addresses of the peers. Main is asked last among equals, because it has other work. Only one of main's addresses is used at a
   * time: the first that answers.
   */
  setAddresses(mainAddresses: readonly string[], others: readonly string[]): void {
    const wanted = new Map<string, number | null>();
    for (const address of others.slice(0, PACK_SOURCES_LIMIT - mainAddresses.length)) wanted.set(address, null);
    for (const [rank, address] of [...new Set(mainAddresses)].entries()) wanted.set(address, rank);
    for (const [address, peer] of this.peers) {
      if (wanted.has(address)) continue;
      peer.source?.close();
      this.peers.delete(address);
    }
    for (const [address, mainRank] of wanted) {
      const known = this.peers.get(address) ?? new PackPeer(address, mainRank);
      known.mainRank = mainRank;
      this.peers.set(address, known);
    }
    this.refresh();
  }

  /** Asks the peers whose description is missing or may have changed. */
  refresh(): void {
    const nowMs = this.options.runtime.nowMs();
    for (const peer of this.peers.values()) {
      const due = peer.held === null || (!peer.whole && nowMs - peer.describedMs >= DESCRIBE_AGAIN_MS);
      if (this.closed || peer.describing || !due || peer.pausedUntilMs > nowMs) continue;
      const asked = this.describe(peer);
      this.asking.add(asked);
      void asked.finally(() => this.asking.delete(asked));
    }
  }

  /** The peer to ask for an expert: of those that hold it, the least busy one; null: none at present. */
  choose(layer: number, expert: number): PackPeer | null {
    const nowMs = this.options.runtime.nowMs();
    const place = layer * this.options.experts + expert;
    return this.best(
      (peer) => peer.held?.has(layer, expert) === true && (peer.damagedExperts.get(place)?.untilMs ?? 0) <= nowMs,
      nowMs,
    );
  }

  /** The peer to ask for a file that does not hold experts. */
  chooseWhole(): PackPeer | null {
    return this.best((peer) => peer.whole, this.options.runtime.nowMs());
  }

  succeeded(peer: PackPeer): void {
    peer.failures = 0;
    peer.damages = 0;
    peer.problem = null;
  }

  /** Records that a request to the peer failed; the peer is not asked for a while. */
  failed(peer: PackPeer, error: OdmoeError): void {
    const nowMs = this.options.runtime.nowMs();
    peer.problem = error;
    if (TEMPORARY.has(error.code)) {
      peer.pausedUntilMs = nowMs + BUSY_PAUSE_MS;
      return;
    }
    peer.pausedUntilMs = nowMs + Math.min(LAST_PAUSE_MS, timesPowerOfTwo(FIRST_PAUSE_MS, peer.failures));
    peer.failures += 1;
    // A broken connection is useless, and so is the peer's description from before.
    peer.source?.close();
    peer.source = null;
    peer.held = null;
    if (peer.failures === 1) this.options.log.info('a peer gives no experts', { peer: peer.address, error });
  }

  /** Records that the peer's bytes differ from those in the manifest. */
  damaged(peer: PackPeer, layer: number, expert: number, error: OdmoeError): void {
    const untilMs = this.options.runtime.nowMs() + DAMAGED_PAUSE_MS;
    peer.damages += 1;
    peer.damagedExperts.set(layer * this.options.experts + expert, { error, untilMs });
    if (peer.damages >= DAMAGES_LIMIT) peer.pausedUntilMs = untilMs;
    const advice = 'run "odmoe inspect --verify" on its pack';
    this.options.log.warn('a peer sent a damaged expert', { peer: peer.address, layer, expert, error, advice });
  }

  /** The reason why no peer gives that expert, as text for people. */
  problem({ layer, expert }: ExpertId): string {
    if (this.peers.size === 0) return 'no daemon is known that could be asked for experts';
    const place = layer * this.options.experts + expert;
    const reasons = [...this.peers.values()].map(({ address, problem, damagedExperts, streams }) => {
      const reason = damagedExperts.get(place)?.error ?? problem;
      return `${address}: ${reason?.message ?? (streams > 0 ? 'sends nothing' : 'has not got it')}`;
    });
    return `nobody gives what is missing (${reasons.join('; ')})`;
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const peer of this.peers.values()) peer.source?.close();
    while (this.asking.size > 0) await Promise.all(this.asking);
    this.peers.clear();
  }

  private best(holds: (peer: PackPeer) => boolean, nowMs: number): PackPeer | null {
    let best: PackPeer | null = null;
    const main = this.mainThatAnswers();
    for (const peer of this.peers.values()) {
      if (peer.mainRank !== null && peer !== main) continue;
      if (peer.pausedUntilMs > nowMs || peer.streams >= MAX_STREAMS_PER_PEER || !holds(peer)) continue;
      if (best === null || load(peer) < load(best)) best = peer;
    }
    return best;
  }

  private mainThatAnswers(): PackPeer | null {
    let first: PackPeer | null = null;
    for (const peer of this.peers.values()) {
      const { mainRank, held } = peer;
      if (mainRank !== null && held !== null && mainRank < (first?.mainRank ?? Infinity)) first = peer;
    }
    return first;
  }

  private async describe(peer: PackPeer): Promise<void> {
    const { packDigest, layers, experts, slice } = this.options;
    peer.describing = true;
    try {
      const source = (peer.source ??= this.options.connect(peer.address));
      const description = await source.describe(DESCRIBE_TIMEOUT_MS);
      if (this.peers.get(peer.address) !== peer || this.closed) return;
      if (description.packDigest !== packDigest || description.layers !== layers || description.experts !== experts) {
        this.failed(peer, otherPack(peer, description.packDigest, packDigest));
        return;
      }
      const digest = description.slices?.digest;
      if (slice !== undefined && digest !== undefined && digest !== slice.digest) {
        this.failed(peer, otherSlices(peer, digest, slice.digest));
        return;
      }
      peer.held = this.heldBy(description);
      peer.whole = slice === undefined ? description.whole : peer.held.isComplete;
      peer.describedMs = this.options.runtime.nowMs();
      this.options.onDescribed();
    } catch (thrown) {
      if (!this.closed) this.failed(peer, toOdmoeError(thrown));
    } finally {
      peer.describing = false;
    }
  }

  /** The experts that a peer has of what is wanted. A peer without slices may get some later. */
  private heldBy({ heldExperts, slices }: PackDescription): HeldExperts {
    const { layers, experts, slice: wanted } = this.options;
    if (wanted === undefined) return HeldExperts.fromBits(layers, experts, heldExperts);
    if (slices === null || slices === undefined) return HeldExperts.none(layers, experts);
    return HeldExperts.fromBits(layers, experts, wanted.slice === 'upper' ? slices.heldUpper : slices.heldLower);
  }
}

/** Load of a peer: streams count first; main counts as busier among equals. */
function load({ streams, mainRank }: PackPeer): number {
  return 2 * streams + (mainRank === null ? 0 : 1);
}

function otherSlices(peer: PackPeer, theirs: string, ours: string): OdmoeError {
  return new OdmoeError(
    'NODE_REFUSED',
    `${peer.address} holds other slices of the pack (${theirs.slice(0, 16)}, not ${ours.slice(0, 16)})`,
  );
}

function otherPack(peer: PackPeer, theirs: string, ours: string): OdmoeError {
  return new OdmoeError(
    'NODE_REFUSED',
    `${peer.address} holds another pack (${theirs.slice(0, 16)}, not ${ours.slice(0, 16)})`,
  );
}
