import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { DiscoveredPeer } from '../../shared/transport/discovery/txt-record.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { History } from './history.js';
import {
  ChannelSide,
  type CarriedBytes,
  type ChannelOwner,
  type ChannelFrame,
  type ChannelNetwork,
  type MessageTap,
} from './channel.js';
import type { LinkModel } from './link-model.js';
import { PackSources } from './pack-sources.js';

/** Takes the connections that come to a port. */
export interface Listener extends ChannelOwner {
  /** `peerHost`: the host that they come from. */
  accept(side: ChannelSide, path: string, bytes: Buffer, peerHost: string): void;
}

/** The state of a link in one direction. */
interface LinkFault {
  cut: boolean;
  /** Times everything takes. */
  slowness: number;
}

/** Who has no address any more is looked for here. */
const NOWHERE = 'nowhere';
/** After so long a connection is over whose other end has another address. */
const SEVERED_SILENCE_MS = 10_000;
const SOUND: LinkFault = { cut: false, slowness: 1 };
/** Until an announcement has gone round, and how often everybody is asked for theirs: one that was lost is heard then. */
const ANNOUNCEMENT_MS = 10;
const ASK_INTERVAL_MS = 5000;

/** A peer that announces itself, and who listens. */
interface Announcement {
  peer: DiscoveredPeer;
  host: string;
}

/**
 * The network of a simulated cluster: hosts by name, each with a process at a time, links that may be slow or cut in either direction,
 * connections that notice after a while that nobody answers, and announcements that everybody hears.
 */
export class MemoryNetwork implements ChannelNetwork {
  private readonly listeners = new Map<string, Listener>();
  private readonly sides = new Set<ChannelSide>();
  private readonly faults = new Map<string, LinkFault>();
  private readonly announcements = new Map<string, Announcement>();
  private readonly watchers = new Map<object, (announcement: Announcement) => void>();
  private nextPort = 40_000;
  /** Of hosts that have another address than their name. */
  private readonly addresses = new Map<string, string>();
  private readonly ownWorkers = new Map<string, string>();
  /** Hears of every message between peers as it is sent and as it arrives, with the nodes that it goes from and to. */
  tap: MessageTap | null = null;
  /** The most replies that waited for a reader, and the most bytes that one side of a connection had under way. */
  mostUnread = 0;
  mostBacklogBytes = 0;
  readonly packSources = new PackSources();
  /** Streams whose opener has been welcomed, whether they are over or not. */
  private readonly welcomed = new Set<ChannelSide>();

  constructor(
    readonly clock: VirtualClock,
    readonly links: LinkModel,
    private readonly history: History | null = null,
  ) {}

  /** Connections of a host's process that are not over. */
  openSides(host: string): number {
    return [...this.sides].filter(({ owner, isOpen }) => isOpen && owner.host === host).length;
  }

  /** The worker at a host is not the host's own node, but runs in its process (main.experts). */
  setOwnWorker(host: string, id: string): void {
    this.ownWorkers.set(host, id);
  }

  /** Id of whoever serves as a worker at a host. */
  workerAt(host: string): string {
    return this.ownWorkers.get(host) ?? host;
  }

  noteWelcome(side: ChannelSide): void {
    this.welcomed.add(side);
  }

  /** Bytes of messages on the streams that a process has opened, by the node at their other end. */
  carriedBytes(runtime: VirtualRuntime): Map<string, CarriedBytes> {
    const byPeer = new Map<string, CarriedBytes>();
    for (const { owner, names, carried } of this.welcomed) {
      if (owner.runtime !== runtime) continue;
      const before = byPeer.get(names.peer) ?? { sent: 0, arrived: 0 };
      byPeer.set(names.peer, { sent: before.sent + carried.sent, arrived: before.arrived + carried.arrived });
    }
    return byPeer;
  }

  /** Returns the port; null: it is taken. */
  listen(host: string, port: number, listener: Listener): number | null {
    const chosen = port === 0 ? this.nextPort++ : port;
    const key = `${host}:${chosen}`;
    if (this.listeners.has(key)) return null;
    this.listeners.set(key, listener);
    return chosen;
  }

  unlisten(host: string, port: number): void {
    this.listeners.delete(`${host}:${port}`);
  }

  /** A connection to an address; `open` is the first thing that is said. */
  connect(owner: ChannelOwner, address: string, open: { path: string; bytes: Buffer }): ChannelSide {
    const colon = address.lastIndexOf(':');
    const host = this.hostAt(address.slice(0, colon));
    const side = new ChannelSide(this, owner, host, `${host}${address.slice(colon)}`);
    this.sides.add(side);
    side.send({ kind: 'open', ...open });
    this.check(side);
    return side;
  }

  /** By what a host is reached: its name, or what it has moved to. */
  addressOf(host: string): string {
    return this.addresses.get(host) ?? host;
  }

  /** The host has another address from now on (its name: the first one again). Connections by the old one say nothing any more. */
  move(host: string, address: string): void {
    if (address === host) this.addresses.delete(host);
    else this.addresses.set(host, address);
    for (const side of [...this.sides]) {
      if (side.owner.host !== host && side.peerHost !== host) continue;
      if (side.isSevered) continue;
      side.sever();
      side.silentSinceMs = null;
      this.check(side);
    }
  }

  private hostAt(address: string): string {
    for (const [host, moved] of this.addresses) if (moved === address) return host;
    return this.addresses.has(address) ? NOWHERE : address;
  }

  carries(from: string, to: string): boolean {
    return !this.fault(from, to).cut;
  }

  slowness(from: string, to: string): number {
    return this.fault(from, to).slowness;
  }

  /** From one host to another only; both directions are two calls. */
  setLink(from: string, to: string, changes: Partial<LinkFault>): void {
    this.faults.set(`${from}>${to}`, { ...this.fault(from, to), ...changes });
    for (const side of [...this.sides]) {
      if (side.owner.host === from && side.peerHost === to) {
        if (this.carries(from, to)) side.relaunch();
        else side.halt();
      }
      if (side.owner.host === from || side.peerHost === from) this.check(side);
    }
  }

  /** The process of the host has been stopped (SIGSTOP), or goes on: its peers notice. */
  processPaused(host: string): void {
    for (const side of [...this.sides]) if (side.peerHost === host) this.check(side);
  }

  /** Somebody says to the host what was said to it under an older placement. What holds comes once: connections repeat nothing. */
  replay(host: string, random: SeededRandom): void {
    const stale = [...this.sides].filter((side) => side.isOpen && side.peerHost === host && side.hasStale);
    if (stale.length > 0) random.pick(stale).repeat(random);
  }

  /** The process of the host is gone: its ports are closed, its peers hear of it, unless the link is cut. */
  processGone(runtime: VirtualRuntime): void {
    for (const [key, listener] of [...this.listeners]) {
      if (listener.runtime === runtime) this.listeners.delete(key);
    }
    for (const side of [...this.sides]) {
      if (side.owner.runtime !== runtime) continue;
      const { peer } = side;
      side.destroy();
      if (peer !== null) this.check(peer);
    }
  }

  /** First word of a connection: somebody listens there, or nobody does. */
  deliverOpen(side: ChannelSide, frame: ChannelFrame): void {
    const listener = this.listeners.get(side.label);
    if (frame.kind !== 'open' || !side.isOpen) return;
    if (listener === undefined) {
      this.resetSoon(side, `connect ECONNREFUSED ${side.label}`);
      return;
    }
    const answering = new ChannelSide(this, listener, side.owner.host, side.label);
    answering.peer = side;
    side.peer = answering;
    this.sides.add(answering);
    listener.runtime.happen(() => {
      this.recordArrival(side, frame);
      answering.send({ kind: 'accepted' });
      listener.accept(answering, frame.path, frame.bytes, this.addressOf(side.owner.host));
    });
  }

  sideOver(side: ChannelSide): void {
    this.sides.delete(side);
  }

  recordArrival(side: ChannelSide, frame: ChannelFrame): void {
    const what = frame.kind === 'open' ? `open ${frame.path}` : frame.kind;
    this.history?.add(`${side.owner.host}>${side.peerHost} ${what}`, 'bytes' in frame ? frame.bytes : null);
  }

  announce(host: string, peer: DiscoveredPeer): () => void {
    const announcement = { host, peer };
    this.announcements.set(host, announcement);
    this.clock.schedule(this.clock.nowMs + ANNOUNCEMENT_MS, () => {
      for (const watcher of [...this.watchers.values()]) watcher(announcement);
    });
    return () => {
      if (this.announcements.get(host) === announcement) this.announcements.delete(host);
    };
  }

  /** `onPeer` is told of everybody that is announced, now and later. */
  watchAnnouncements(
    { host, runtime }: Pick<ChannelOwner, 'host' | 'runtime'>,
    settings: Pick<NodeSettings, 'cluster' | 'id'>,
    onPeer: (peer: DiscoveredPeer) => void,
  ): () => void {
    const key = {};
    const hear = ({ host: from, peer }: Announcement): void => {
      const isOther = peer.cluster === settings.cluster && peer.id !== settings.id;
      if (isOther && this.carries(from, host)) runtime.happen(() => this.watchers.has(key) && onPeer(peer));
    };
    this.watchers.set(key, hear);
    const askAfter = (delayMs: number): void => {
      this.clock.schedule(this.clock.nowMs + delayMs, () => {
        if (!this.watchers.has(key) || runtime.isDead) return;
        for (const announcement of [...this.announcements.values()]) hear(announcement);
        askAfter(ASK_INTERVAL_MS);
      });
    };
    askAfter(ANNOUNCEMENT_MS);
    return () => {
      this.watchers.delete(key);
    };
  }

  private fault(from: string, to: string): LinkFault {
    return this.faults.get(`${from}>${to}`) ?? SOUND;
  }

  /** The other end has closed the connection without a word. */
  private resetSoon(side: ChannelSide, reason = 'the connection was reset'): void {
    const { owner, peerHost } = side;
    const nowMs = this.clock.nowMs;
    const dueMs = this.links.arrivalMs(peerHost, owner.host, null, 0, nowMs);
    this.clock.schedule(dueMs, () => {
      owner.runtime.happen(() => {
        side.lose(reason);
      });
    });
  }

  /** Something has changed that the side notices: at once where the peer is gone, after a while where nobody answers its pings. */
  private check(side: ChannelSide): void {
    if (!side.isOpen) return;
    if (this.answers(side)) {
      side.silentSinceMs = null;
      if (side.peer?.isGone === true) this.resetSoon(side);
      return;
    }
    // Whoever is patient with a process that stands still is not with an address that is nobody's.
    const limitMs = side.isSevered
      ? Math.min(side.owner.silenceLimitMs, SEVERED_SILENCE_MS)
      : side.owner.silenceLimitMs;
    if (side.silentSinceMs !== null || limitMs === Infinity) return;
    const sinceMs = this.clock.nowMs;
    const { owner, peerHost } = side;
    side.silentSinceMs = sinceMs;
    this.clock.schedule(sinceMs + limitMs, () => {
      owner.runtime.happen(() => {
        if (side.silentSinceMs === sinceMs) side.lose(`${peerHost} has not answered for ${limitMs} ms`);
      });
    });
  }

  /** Of connections without pings of their own: whether one would be answered now. A host whose process is gone says so itself. */
  private answers({ owner, peer, peerHost, isSevered }: ChannelSide): boolean {
    if (isSevered) return false;
    const carries = this.carries(owner.host, peerHost) && this.carries(peerHost, owner.host);
    return carries && (peer === null || peer.isGone || peer.owner.runtime.isRunning);
  }
}
