import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { DiscoveredPeer } from '../../shared/transport/discovery/txt-record.js';
import type { MethodRules } from '../../shared/transport/methods.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
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
  type Opening,
} from './channel.js';
import { DialledPeer } from '../../shared/transport/trust/dialled-peer.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { admittedDialler, serverRefusal } from './connection-trust.js';
import type { LinkModel } from './link-model.js';
import { PackSources } from './pack-sources.js';

/** Accepts the connections to a port. */
export interface Listener extends ChannelOwner {
  accept(side: ChannelSide, path: string, bytes: Buffer, peer: PeerContext): void;
}

/** Records what happens to callers at the ports of a cluster's daemons. */
export interface DoorWatch {
  /** A caller has reached the handler of a method. `side`: the end at the server. */
  handled(side: ChannelSide, method: MethodRules & { path: string }, peer: PeerContext): void;
  /** A port has refused a connection. */
  refused(side: ChannelSide, reason: string): void;
}

/** The state of a link in one direction. */
interface LinkFault {
  cut: boolean;
  /** Factor for all times. */
  slowness: number;
}

/** Target for connections to an address that no host has any more. */
const NOWHERE = 'nowhere';
/** Time after which a connection ends if its other end has a new address. */
const SEVERED_SILENCE_MS = 10_000;
const SOUND: LinkFault = { cut: false, slowness: 1 };
/** Time until all hosts have got an advertisement, and interval at which all are asked for theirs, so that a lost one is repeated. */
const ANNOUNCEMENT_MS = 10;
const ASK_INTERVAL_MS = 5000;

/** An advertised peer, and its host. */
interface Advertisement {
  peer: DiscoveredPeer;
  host: string;
}

/**
 * The network of a simulated cluster: named hosts with one process at a time each, links that may be slow or cut in either direction,
 * connections that notice after some time that the peer does not answer, and advertisements that all hosts receive.
 */
export class MemoryNetwork implements ChannelNetwork {
  private readonly listeners = new Map<string, Listener>();
  private readonly sides = new Set<ChannelSide>();
  private readonly faults = new Map<string, LinkFault>();
  private readonly advertisements = new Map<string, Advertisement>();
  private readonly watchers = new Map<object, (advertisement: Advertisement) => void>();
  private nextPort = 40_000;
  /** Addresses of hosts whose address differs from their name. */
  private readonly addresses = new Map<string, string>();
  private readonly ownWorkers = new Map<string, string>();
  /** Receives every message between peers when it is sent and when it arrives, with the ids of both nodes. */
  tap: MessageTap | null = null;
  /** Is told of every call and stream that reaches a handler, and of every connection that a port refuses. */
  doorWatch: DoorWatch | null = null;
  /** Largest number of replies that waited for a reader, and largest number of bytes that one side of a connection had under way. */
  mostUnread = 0;
  mostBacklogBytes = 0;
  readonly packSources = new PackSources();
  /** Streams whose opener has got a welcome, both open and ended ones. */
  private readonly welcomed = new Set<ChannelSide>();

  constructor(
    readonly clock: VirtualClock,
    readonly links: LinkModel,
    private readonly history: History | null = null,
  ) {}

  /** Connections of a process that have not ended. */
  openSidesOf(runtime: VirtualRuntime): ChannelSide[] {
    return [...this.sides].filter(({ owner, isOpen }) => isOpen && owner.runtime === runtime);
  }

  /** Number of connections of a host's process that have not ended. */
  openSides(host: string): number {
    return [...this.sides].filter(({ owner, isOpen }) => isOpen && owner.host === host).length;
  }

  /** The worker at this host runs in the process of the host's node (main.experts) and has this id. */
  setOwnWorker(host: string, id: string): void {
    this.ownWorkers.set(host, id);
  }

  /** Id of the worker at a host. */
  workerAt(host: string): string {
    return this.ownWorkers.get(host) ?? host;
  }

  noteWelcome(side: ChannelSide): void {
    this.welcomed.add(side);
  }

  /** Message bytes on the streams that a process has opened, by the node at the other end. */
  carriedBytes(runtime: VirtualRuntime): Map<string, CarriedBytes> {
    const byPeer = new Map<string, CarriedBytes>();
    for (const { owner, names, carried } of this.welcomed) {
      if (owner.runtime !== runtime) continue;
      const before = byPeer.get(names.peer) ?? { sent: 0, arrived: 0 };
      byPeer.set(names.peer, { sent: before.sent + carried.sent, arrived: before.arrived + carried.arrived });
    }
    return byPeer;
  }

  /** Returns the port; null: it is in use. */
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

  /** Opens a connection to an address; `open` is its first frame. */
  connect(owner: ChannelOwner, address: string, open: Opening): ChannelSide {
    const colon = address.lastIndexOf(':');
    const host = this.hostAt(address.slice(0, colon));
    const dialled = owner.trust && new DialledPeer(owner.trust);
    const side = new ChannelSide(this, owner, host, `${host}${address.slice(colon)}`, open.path, dialled);
    this.sides.add(side);
    side.send({ kind: 'open', ...open });
    this.check(side);
    return side;
  }

  /** The address of a host: its name, or the address that it has moved to. */
  addressOf(host: string): string {
    return this.addresses.get(host) ?? host;
  }

  /** The host has a new address from now on (its name: the first one again). Connections by the old address carry nothing any more. */
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

  /** Changes one direction of a link; for both directions call it twice. */
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

  /** The process of the host was stopped (SIGSTOP) or continues: its peers check their connections. */
  processPaused(host: string): void {
    for (const side of [...this.sides]) if (side.peerHost === host) this.check(side);
  }

  /**
   * Sends a message to the host again that was sent under an older placement. Messages of the current placement are not repeated, because
   * real connections repeat nothing.
   */
  replay(host: string, random: SeededRandom): void {
    const stale = [...this.sides].filter((side) => side.isOpen && side.peerHost === host && side.hasStale);
    if (stale.length > 0) random.pick(stale).repeat(random);
  }

  /** The process is gone: its ports are closed, and its peers notice unless the link is cut. */
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

  /** The first frame of a connection: it is accepted if a process listens there and both ends admit each other, otherwise refused. */
  deliverOpen(side: ChannelSide, frame: ChannelFrame): void {
    const listener = this.listeners.get(side.label);
    if (frame.kind !== 'open' || !side.isOpen) return;
    if (listener === undefined) {
      this.resetSoon(side, `connect ECONNREFUSED ${side.label}`);
      return;
    }
    const refusal = serverRefusal(side.dialled, frame.servedBy, listener.trust);
    if (refusal !== null) {
      this.resetSoon(side, refusal);
      return;
    }
    side.certified = side.dialled?.peer ?? null;
    const answering = new ChannelSide(this, listener, side.owner.host, side.label, side.path);
    answering.peer = side;
    side.peer = answering;
    this.sides.add(answering);
    listener.runtime.happen(() => {
      this.recordArrival(side, frame, null);
      this.accept(listener, answering, frame);
    });
  }

  private accept(listener: Listener, side: ChannelSide, { path, bytes }: Opening): void {
    const caller = listener.trust && admittedDialler(side.peer?.shown ?? null, listener.trust);
    if (caller !== null && isRefusal(caller)) {
      this.doorWatch?.refused(side, caller.refusal);
      side.send({ kind: 'failed', code: 'TRUST_REFUSED', text: caller.refusal });
      side.close();
      return;
    }
    side.certified = caller;
    side.send({ kind: 'accepted' });
    listener.accept(side, path, bytes, { host: this.addressOf(side.peerHost), caller });
  }

  sideOver(side: ChannelSide): void {
    this.sides.delete(side);
  }

  recordArrival(side: ChannelSide, frame: ChannelFrame, recorded: Buffer | null): void {
    const what = frame.kind === 'open' ? `open ${frame.path}` : frame.kind;
    this.history?.add(
      `${side.owner.host}>${side.peerHost} ${what}`,
      'bytes' in frame ? (recorded ?? frame.bytes) : null,
    );
  }

  advertise(host: string, peer: DiscoveredPeer): () => void {
    const advertisement = { host, peer };
    this.advertisements.set(host, advertisement);
    this.clock.schedule(this.clock.nowMs + ANNOUNCEMENT_MS, () => {
      for (const watcher of [...this.watchers.values()]) watcher(advertisement);
    });
    return () => {
      if (this.advertisements.get(host) === advertisement) this.advertisements.delete(host);
    };
  }

  /** `onPeer` is called with every advertised peer, now and later. */
  watchAdvertisements(
    { host, runtime }: Pick<ChannelOwner, 'host' | 'runtime'>,
    settings: Pick<NodeSettings, 'cluster' | 'id'>,
    onPeer: (peer: DiscoveredPeer) => void,
  ): () => void {
    const key = {};
    const hear = ({ host: from, peer }: Advertisement): void => {
      const isOther = peer.cluster === settings.cluster && peer.id !== settings.id;
      if (isOther && this.carries(from, host)) runtime.happen(() => this.watchers.has(key) && onPeer(peer));
    };
    this.watchers.set(key, hear);
    const askAfter = (delayMs: number): void => {
      this.clock.schedule(this.clock.nowMs + delayMs, () => {
        if (!this.watchers.has(key) || runtime.isDead) return;
        for (const advertisement of [...this.advertisements.values()]) hear(advertisement);
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

  /** The other end has closed the connection without a message. */
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

  /** The side checks a change: it reacts at once if the peer is gone, and after some time if the peer does not answer. */
  private check(side: ChannelSide): void {
    if (!side.isOpen) return;
    if (this.answers(side)) {
      side.silentSinceMs = null;
      if (side.peer?.isGone === true) this.resetSoon(side);
      return;
    }
    // A process may wait long for a stopped process, but not for an address that no host has.
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

  /** For connections without pings: true if a ping would be answered now. A host whose process is gone reports that itself. */
  private answers({ owner, peer, peerHost, isSevered }: ChannelSide): boolean {
    if (isSevered) return false;
    const carries = this.carries(owner.host, peerHost) && this.carries(peerHost, owner.host);
    return carries && (peer === null || peer.isGone || peer.owner.runtime.isRunning);
  }
}
