import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { MethodRules } from '../../shared/transport/methods.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { ScheduledEvent, VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { StandstillMeter } from '../../shared/base/runtime/standstill-meter.js';
import type { CertifiedPeer } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import type { DialledPeer } from '../../shared/transport/trust/dialled-peer.js';
import { recordedBytes } from './connection-trust.js';
import type { LinkModel } from './link-model.js';

/** The method that a connection is for, with the request. A stream has no request. */
export interface Opening {
  path: string;
  bytes: Buffer;
  servedBy: MethodRules['servedBy'];
}

/** A frame on a channel; frames of one direction arrive in order. */
export type ChannelFrame =
  | ({ kind: 'open' } & Opening)
  | { kind: 'accepted' }
  | { kind: 'message'; bytes: Buffer }
  /** The reader has taken a reply. */
  | { kind: 'credit' }
  /** Asks whether the process at the other end answers. */
  | { kind: 'ping' }
  | { kind: 'pong'; standstillMs: number }
  | { kind: 'end' }
  | { kind: 'failed'; code: ErrorCode; text: string }
  | { kind: 'cancel' };

/** A process on the network: its host's name, its runtime, and its way to notice that a peer is gone. */
export interface ChannelOwner {
  readonly host: string;
  readonly runtime: VirtualRuntime;
  /** Time after which a silent peer counts as gone; Infinity: the user of the connection sends pings. */
  readonly silenceLimitMs: number;
  /** For a process that serves: measures its recent standstills. */
  readonly standstills?: StandstillMeter;
  /** Its part in the trust of its cluster; null: the cluster has no authority, or the process is a stranger, which checks nobody. */
  readonly trust: ClusterTrust | null;
  /** The certificate (DER) that a stranger shows; left out: none. */
  readonly strangerCertificate?: Buffer;
}

/** Receives each message when it is sent and when it arrives, with the ids of both nodes. */
export type MessageTap = (way: 'sent' | 'arrived', from: string, to: string, message: PeerMessage) => void;

/** Message bytes of one stream. */
export interface CarriedBytes {
  sent: number;
  arrived: number;
}

/** The services that a side needs of its network. */
export interface ChannelNetwork {
  readonly clock: VirtualClock;
  readonly links: LinkModel;
  tap: MessageTap | null;
  /** Largest number of bytes that one side had under way, and largest number of replies that waited for a reader. */
  mostBacklogBytes: number;
  mostUnread: number;
  carries(from: string, to: string): boolean;
  slowness(from: string, to: string): number;
  deliverOpen(side: ChannelSide, frame: ChannelFrame): void;
  recordArrival(side: ChannelSide, frame: ChannelFrame, recorded: Buffer | null): void;
  sideOver(side: ChannelSide): void;
  noteWelcome(side: ChannelSide): void;
}

/** With this many bytes on the way to a peer, further frames wait before they leave. */
const WINDOW_BYTES = 1024 * 1024;
/** Bytes of a frame beside its contents. */
const FRAME_BYTES = 32;

/** Number of sent messages that a side remembers, because it may repeat them. */
const REMEMBERED_FRAMES = 16;

interface FrameUnderWay {
  frame: ChannelFrame;
  bytes: number;
  /** Bytes that the history gets; null: those of the frame. */
  recorded: Buffer | null;
  message: PeerMessage | null;
  written: (() => void) | null;
  /** Null: it does not move, because the link is cut. */
  arrival: ScheduledEvent | null;
  /** It has reached the peer's process, which may be stopped. */
  landed: boolean;
}

/** One end of a connection between two processes, for a stream or a call. */
export class ChannelSide {
  peer: ChannelSide | null = null;
  onFrame: (frame: ChannelFrame) => void = () => undefined;
  /** Called when the peer's process has answered a ping. */
  onPong: (standstillMs: number) => void = () => undefined;
  /** Called when the connection is lost without a reason from the peer; at most once, and not after close(). */
  onLost: (reason: string) => void = () => undefined;
  private readonly underWay: FrameUnderWay[] = [];
  private bytesUnderWay = 0;
  private lastArrivalMs = 0;
  private open = true;
  private severed = false;
  private gone = false;
  private readonly sentBefore: { frame: ChannelFrame; message: PeerMessage | null }[] = [];
  /** Time since which the peer would not have answered a ping; null: it would answer. */
  silentSinceMs: number | null = null;
  /** Ids of both nodes; most hosts have one node with the host's name. */
  readonly names: { own: string; peer: string };
  readonly carried: CarriedBytes = { sent: 0, arrived: 0 };
  /** The certificate (DER) that this end shows; null: none. */
  readonly shown: Buffer | null;
  /** The peer that the certificate of the other end names; null: the cluster has no authority, or the connection does not stand yet. */
  certified: CertifiedPeer | null = null;

  constructor(
    readonly network: ChannelNetwork,
    readonly owner: ChannelOwner,
    readonly peerHost: string,
    readonly label: string,
    /** The method that the connection is for. */
    readonly path: string,
    /** Checks the other end, if this end has dialled it in a cluster with an authority. */
    readonly dialled: DialledPeer | null = null,
  ) {
    this.names = { own: owner.host, peer: peerHost };
    // A renewal changes the certificate of later connections only.
    this.shown = owner.trust?.own.certificate ?? owner.strangerCertificate ?? null;
  }

  get isOpen(): boolean {
    return this.open;
  }

  get isSevered(): boolean {
    return this.severed;
  }

  /** True if no process is at this end any more and nothing of it is under way. */
  get isGone(): boolean {
    return this.gone;
  }

  /** True if it is closed and everything that was sent has arrived. */
  get isOver(): boolean {
    return !this.open && this.underWay.length === 0;
  }

  /** `written`: called when the frame has left for the network. */
  send(frame: ChannelFrame, message: PeerMessage | null = null, written: (() => void) | null = null): void {
    if (!this.open) return;
    if (frame.kind === 'message') this.remember(frame, message);
    const recorded = recordedBytes(message);
    const bytes = FRAME_BYTES + ('bytes' in frame ? (recorded ?? frame.bytes).length : 0);
    const entry: FrameUnderWay = { frame, bytes, recorded, message, written, arrival: null, landed: false };
    this.underWay.push(entry);
    this.bytesUnderWay += bytes;
    this.network.mostBacklogBytes = Math.max(this.network.mostBacklogBytes, this.bytesUnderWay);
    if (this.bytesUnderWay <= WINDOW_BYTES) leave(entry);
    if (this.network.carries(this.owner.host, this.peerHost) && !this.severed) this.launch(entry);
  }

  /** This side sends or gets a message of this many bytes: reports it to the network's tap. */
  tell(way: 'sent' | 'arrived', message: PeerMessage, bytes: number): void {
    this.carried[way] += bytes;
    if (way === 'arrived' && message.kind === 'welcome') this.network.noteWelcome(this);
    const { own, peer } = this.names;
    const [from, to] = way === 'sent' ? [own, peer] : [peer, own];
    this.network.tap?.(way, from, to, message);
  }

  /** Records that this many replies have come and have not been taken. */
  noteUnread(replies: number): void {
    this.network.mostUnread = Math.max(this.network.mostUnread, replies);
  }

  /** Sends a message again that was sent under an older placement; does nothing if there is none. */
  repeat(random: SeededRandom): void {
    const latest = Math.max(...this.sentBefore.map(({ message }) => epochOf(message)));
    const stale = this.sentBefore.filter(({ message }) => epochOf(message) > 0 && epochOf(message) < latest);
    if (stale.length === 0) return;
    const { frame, message } = random.pick(stale);
    this.send(frame, message);
  }

  /** True if a message was sent here under a placement older than the latest. */
  get hasStale(): boolean {
    const epochs = this.sentBefore.map(({ message }) => epochOf(message)).filter((epoch) => epoch > 0);
    return epochs.some((epoch) => epoch < Math.max(...epochs));
  }

  /** The link carries messages again: waiting frames leave. */
  relaunch(): void {
    if (this.severed) return;
    for (const entry of this.underWay) if (entry.arrival === null && !entry.landed) this.launch(entry);
  }

  /** One of the two ends has a new address: nothing arrives any more, and neither process is notified. */
  sever(): void {
    this.severed = true;
    this.halt();
  }

  /** The link carries nothing any more: frames under way wait. */
  halt(): void {
    for (const entry of this.underWay) {
      if (entry.landed) continue;
      entry.arrival?.cancel();
      entry.arrival = null;
    }
  }

  /** Nothing more is sent or received here. Frames under way still arrive. */
  close(): void {
    if (!this.open) return;
    this.open = false;
    this.dialled?.stop();
    if (this.isOver) this.network.sideOver(this);
  }

  /** Ends everything at once: frames under way never arrive. */
  destroy(): void {
    this.halt();
    this.underWay.length = 0;
    this.gone = true;
    this.open = false;
    this.dialled?.stop();
    this.network.sideOver(this);
  }

  /** The connection broke: notifies this process, if the side is still open. */
  lose(reason: string): void {
    if (!this.open) return;
    this.send({ kind: 'cancel' });
    this.close();
    this.onLost(reason);
  }

  /** Remembers the first messages and the latest ones. */
  private remember(frame: ChannelFrame, message: PeerMessage | null): void {
    this.sentBefore.push({ frame, message });
    if (this.sentBefore.length > REMEMBERED_FRAMES) this.sentBefore.splice(REMEMBERED_FRAMES / 2, 1);
  }

  private launch(entry: FrameUnderWay): void {
    const { clock, links } = this.network;
    const nowMs = clock.nowMs;
    const due = links.arrivalMs(this.owner.host, this.peerHost, entry.message, entry.bytes, nowMs);
    const slowed = nowMs + (due - nowMs) * this.network.slowness(this.owner.host, this.peerHost);
    this.lastArrivalMs = Math.max(this.lastArrivalMs, slowed);
    entry.arrival = clock.schedule(this.lastArrivalMs, () => {
      this.arrive(entry);
    });
  }

  private arrive(entry: FrameUnderWay): void {
    const { peer } = this;
    if (peer === null) {
      this.network.deliverOpen(this, entry.frame);
      this.taken(entry);
      return;
    }
    entry.landed = true;
    peer.owner.runtime.happen(() => {
      this.taken(entry);
      if (!peer.open) return;
      if (entry.frame.kind === 'ping') {
        peer.send({ kind: 'pong', standstillMs: peer.owner.standstills?.recentMs ?? 0 });
        return;
      }
      if (entry.frame.kind === 'pong') {
        peer.onPong(entry.frame.standstillMs);
        return;
      }
      this.network.recordArrival(this, entry.frame, entry.recorded);
      peer.onFrame(entry.frame);
    });
  }

  private taken(entry: FrameUnderWay): void {
    const place = this.underWay.indexOf(entry);
    if (place < 0) return;
    this.underWay.splice(place, 1);
    this.bytesUnderWay -= entry.bytes;
    let leftBytes = 0;
    for (const waiting of this.underWay) {
      leftBytes += waiting.bytes;
      if (leftBytes <= WINDOW_BYTES) leave(waiting);
    }
    leave(entry);
    if (this.isOver) this.network.sideOver(this);
  }
}

/** Epoch of the placement that a message belongs to; 0: none. */
function epochOf(message: PeerMessage | null): number {
  if (message?.kind === 'placement') return message.placement.epoch;
  if (message?.kind === 'predict') return message.predict.epoch;
  if (message?.kind === 'announce') return message.announce.epoch;
  if (message?.kind === 'restart') return message.restart.epoch;
  if (message?.kind === 'execute') return message.execute.epoch;
  if (message?.kind === 'release') return message.release.epoch;
  if (message?.kind === 'token') return message.token.epoch;
  return message?.kind === 'cacheRows' ? message.cacheRows.epoch : 0;
}

function leave(entry: FrameUnderWay): void {
  const { written } = entry;
  entry.written = null;
  written?.();
}
