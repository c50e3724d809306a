import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { FoundPeer } from '../../shared/transport/discovery/txt-record.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import type { InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import { dialAddress, hostOf, isAddress } from '../../shared/wire/addresses.js';
import {
  ARRIVALS_OF_PLAIN_PEER,
  ARRIVALS_OF_TENSOR_PEER,
  GREETED_PEERS_LIMIT,
  GREETINGS_OF_PEER,
} from '../../shared/wire/limits.js';
import { reportedEpoch } from '../../shared/wire/epochs.js';
import { noDaemonAnswers } from '../../shared/transport/rpc-errors.js';
import { identityRefusal } from '../../shared/transport/call-permission.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import { countedName, type PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { Transport } from '../../shared/transport/transport.js';
import type { JoinReply, NodeIdentity, PeerProblem, WorkerReply, Refusal } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { TokenBuckets } from '../../shared/base/runtime/token-buckets.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { IDENTIFY_TIMEOUT_MS, PeerDial, serveStream } from './peer-dial.js';
import { mayDial } from './dialled-host.js';
import type { Roster } from './roster.js';
import { RosterPost, type RosterSource } from './roster-post.js';
import { ShadowLink, type ShadowListener } from './shadow-link.js';
import { WorkerLink } from './worker-link.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { identifyPeer, openShadowStream, openWorkerStream } from '../../shared/transport/node-clients.js';

/** Most refusals that are remembered: of all hosts, and of one host. */
export const REFUSED_PEERS_LIMITS = { all: 128, ofHost: 16 };
/** A refused peer asks again every few seconds. One that has not asked for so long is gone, or has joined. */
export const FORGET_REFUSED_AFTER_MS = 10 * 60_000;

interface Refused {
  problem: PeerProblem;
  askedMs: number;
}

/** Remembers why peers that asked to join were refused, by address, as long as they go on asking. */
export class RefusedPeers {
  private readonly refused = new FairAddresses<Refused>(REFUSED_PEERS_LIMITS);

  constructor(private readonly now: () => number) {}

  /** Returns true if this problem of the peer is new. */
  add(problem: PeerProblem): boolean {
    const before = this.refused.get(problem.address);
    this.refused.set(problem.address, { problem, askedMs: this.now() });
    return before === undefined || this.isOver(before) || before.problem.message !== problem.message;
  }

  delete(address: string): void {
    this.refused.delete(address);
  }

  /** Problems in the order in which the peers last asked. */
  problems(): PeerProblem[] {
    const all = this.refused.values();
    for (const entry of all) if (this.isOver(entry)) this.refused.delete(entry.problem.address);
    const lasting = all.filter((entry) => !this.isOver(entry));
    return lasting.sort((left, right) => left.askedMs - right.askedMs).map(({ problem }) => problem);
  }

  private isOver({ askedMs }: Refused): boolean {
    return askedMs <= this.now() - FORGET_REFUSED_AFTER_MS;
  }
}

/** Most addresses that are dialled. A full list forgets those that have failed for longest. */
export const MAX_KNOWN_ADDRESSES = 1024;
/** A peer that asked to join and then does not answer for so long must ask again. */
export const FORGET_JOINED_AFTER_MS = 60_000;
/** The same for a peer found by mDNS or by its name, which will be found again there if it lives. */
export const FORGET_DISCOVERED_AFTER_MS = 60 * 60_000;

/** A peer that let an execute run out of time, or that floods main, is not used for so long, unless it is restarted. */
export const UNRESPONSIVE_PAUSE_MS = 60_000;

/** Most peers that are left unused in this way at a time. */
export const MAX_LEFT_ALONE = 256;

/** Most addresses of daemons that have not been welcomed yet, of all hosts and of one host: anybody can send as many as they like. */
export const STRANGERS_LIMITS = { all: 768, ofHost: 128 };
/** Limits for dials to new addresses: of one host, and of all hosts. */
export const NEW_STRANGERS_OF_HOST = { burst: 128, perSecond: 2 };
export const NEW_STRANGERS = { burst: 1024, perSecond: 50 };
/** Most hosts whose strangers are counted. */
const MAX_COUNTED_HOSTS = 1024;

/** The way by which main learned an address. */
type Origin = 'configured' | 'discovered' | 'joined';

/** null: the address is never forgotten. */
const FORGET_AFTER_MS: Readonly<Record<Origin, number | null>> = {
  configured: null,
  discovered: FORGET_DISCOVERED_AFTER_MS,
  joined: FORGET_JOINED_AFTER_MS,
};

interface KnownAddress {
  address: string;
  /** Empty until the peer has sent its id. */
  id: string;
  origin: Origin;
  dial: PeerDial;
  /** null: connected, or not tried yet. */
  problem: OdmoeError | null;
  /** Time since which there has been a problem; null: there is none. */
  failingSinceMs: number | null;
}

export interface MembershipOptions {
  identity: () => NodeIdentity;
  network: NodeSettings['network'];
  runtime: Runtime;
  transport: Transport;
  /** null: the cluster has no authority, and daemons get no roster of it. */
  trust: RosterSource | null;
  shape: ModelShape;
  roster: Roster;
  shadowListener: ShadowListener;
  /** This machine's addresses: a daemon beside main may be reached by loopback. */
  interfaces: Pick<InterfaceWatch, 'addresses'>;
  /** False: main's own worker runs all experts, and no other worker is taken (main.experts: local). True if left out. */
  usesWorkers?: boolean;
  log: Logger;
  /** MAX_KNOWN_ADDRESSES if left out. */
  maxKnownAddresses?: number;
}

/** Finds the other daemons of the cluster, opens one stream to each and keeps it open. */
export class Membership {
  private readonly known = new Map<string, KnownAddress>();
  private readonly refused: RefusedPeers;
  /** The entries of `known` that are not configured and have not been welcomed yet. */
  private readonly strangers = new FairAddresses<KnownAddress>(STRANGERS_LIMITS);
  private readonly joins: TokenBuckets;
  private readonly newOfHost: TokenBuckets;
  private readonly newOfAll: TokenBuckets;
  private readonly streams = new Set<PeerStream<never, unknown>>();
  /** Running dials, including those of addresses that have been forgotten. */
  private readonly dials = new Set<PeerDial>();
  /** Boot ids of peers that a hello is being sent to: a peer with two known addresses gets one stream. */
  private readonly greeting = new Set<string>();
  /** Boot ids of peers that hang or flood, with the time until which they are not used. */
  private readonly unresponsive = new RecentMap<string, number>(MAX_LEFT_ALONE);
  private readonly rosterPost: RosterPost | null;
  private stopped = false;
  private readonly halt = new AbortController();

  constructor(private readonly options: MembershipOptions) {
    const { trust, roster } = options;
    const connected = (): (WorkerLink | ShadowLink)[] => [...roster.connectedWorkers(), ...roster.connectedShadows()];
    this.rosterPost = trust && new RosterPost(trust, connected);
    const now = (): number => options.runtime.nowMs();
    this.refused = new RefusedPeers(now);
    this.joins = new TokenBuckets(GREETINGS_OF_PEER, GREETED_PEERS_LIMIT, now);
    this.newOfHost = new TokenBuckets(NEW_STRANGERS_OF_HOST, MAX_COUNTED_HOSTS, now);
    this.newOfAll = new TokenBuckets(NEW_STRANGERS, 1, now);
  }

  /** The worker in main's own process. */
  addOwn(address: string, id: string): void {
    this.add(address, id, 'configured');
  }

  /** This host has another address now: the worker in main's own process is placed there. */
  moveOwn(address: string, id: string): void {
    const left = [...this.known.values()].filter((entry) => entry.id === id && entry.address !== address);
    if (left.length === 0) return;
    for (const entry of left) this.forget(entry);
    this.addOwn(address, id);
    this.options.roster
      .connectedWorkers()
      .find((link) => link.id === id)
      ?.close();
  }

  addConfigured(peers: readonly { role: RoleSetting; id: string; address: string }[]): void {
    for (const peer of peers) if (this.uses(peer.role)) this.add(peer.address, peer.id, 'configured');
  }

  /** Ignores daemons of other clusters on the same network. */
  addDiscovered(peer: FoundPeer): void {
    if (!this.uses(peer.role) || peer.cluster !== this.options.identity().cluster) return;
    this.add(peer.address, peer.id, 'discovered');
  }

  /** Handles Cluster.Join. The caller's host is used if the peer cannot know its own. */
  join(peer: NodeIdentity, context: PeerContext): JoinReply {
    const { roster } = this.options;
    const { host } = context;
    const name = countedName(context);
    if (!this.joins.take(name)) return { kind: 'refusal', refusal: tooOften(name) };
    const own = this.options.identity();
    const address = dialAddress(peer.address, host);
    if (!isAddress(address)) return { kind: 'refusal', refusal: badAddress(peer) };
    const ownHosts = this.options.interfaces.addresses.map(({ address: one }) => one);
    if (!mayDial(hostOf(address), host, ownHosts)) return { kind: 'refusal', refusal: foreignAddress(peer, host) };
    const refusal = identityRefusal(peer, context) ?? joinRefusal(own, peer, this.options.usesWorkers !== false);
    if (refusal !== null) {
      const problem = { address, id: peer.id, ...refusal };
      if (this.refused.add(problem)) this.options.log.warn('peer refused', problem);
      return { kind: 'refusal', refusal };
    }
    this.refused.delete(address);
    this.add(address, peer.id, 'joined');
    const connectedBootId = this.options.roster.connectedBootId(peer.id);
    // It is dialled all the same: the connected daemon may be an earlier start of this one, whose end is not known yet.
    if (connectedBootId !== null && connectedBootId !== peer.bootId) {
      const { code, message } = sameId(peer, address);
      return { kind: 'refusal', refusal: { code, message } };
    }
    return {
      kind: 'welcome',
      welcome: { identity: own, partialPack: false, highestEpoch: reportedEpoch(roster.epoch) },
    };
  }

  /** Peers that were refused or do not answer; those of the cluster come first, strangers last. */
  problems(): PeerProblem[] {
    const ofNodes = [...this.known.values()].filter(({ address }) => this.strangers.get(address) === undefined);
    const failing = [...ofNodes, ...this.strangers.values()].flatMap(({ address, id, problem }) =>
      problem === null ? [] : [{ address, id, code: problem.code, message: problem.message }],
    );
    return [...this.options.roster.problems(), ...failing, ...this.refused.problems()];
  }

  /** Closes every stream and resolves when no dial runs any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.rosterPost?.stop();
    this.halt.abort();
    for (const dial of this.dials) dial.stop();
    for (const stream of [...this.streams]) stream.close();
    await Promise.all([...this.dials].map((dial) => dial.finished));
  }

  private uses(role: RoleSetting): boolean {
    return role === 'shadow' || (role === 'worker' && this.options.usesWorkers !== false);
  }

  private add(address: string, id: string, origin: Origin): void {
    if (this.stopped) return;
    const known = this.known.get(address);
    if (known !== undefined) {
      known.dial.wake();
      return;
    }
    this.forgetOldAddress(id);
    if (origin !== 'configured' && !this.mayTry(address)) return;
    if (!this.makeRoom()) {
      this.options.log.warn('peer ignored', {
        address,
        id,
        reason: `${this.known.size} addresses are known and none fails`,
      });
      return;
    }
    const dial = this.dial(address, origin);
    const entry: KnownAddress = { address, id, origin, problem: null, failingSinceMs: null, dial };
    this.known.set(address, entry);
    if (origin === 'configured') return;
    for (const left of this.strangers.set(address, entry)) this.forget(left);
  }

  /** Dials cost time: a host with more addresses than it could have daemons gets no more dials. */
  private mayTry(address: string): boolean {
    return this.newOfHost.take(hostOf(address)) && this.newOfAll.take('');
  }

  /** A daemon that is found at a new address has left its earlier one, unless it is connected there. */
  private forgetOldAddress(id: string): void {
    if (id === '') return;
    for (const old of this.known.values()) {
      if (old.id === id && old.origin !== 'configured' && old.problem !== null) this.forget(old);
    }
  }

  /** True if nothing answers at the address any more, and its daemon is connected at another address or was removed from the cluster. */
  private isLeft({ id, origin, problem }: KnownAddress): boolean {
    if (id === '' || origin === 'configured' || problem === null) return false;
    if (this.removalOf(id) !== null) return true;
    // Another daemon with the same id is a lasting problem.
    return problem.code !== 'NODE_REFUSED' && this.options.roster.connectedBootId(id) !== null;
  }

  private removalOf(id: string): string | null {
    return this.options.trust?.removalOf(id) ?? null;
  }

  private forgetLeftAddresses(): void {
    for (const entry of this.known.values()) if (this.isLeft(entry)) this.forget(entry);
  }

  /** Returns false if the most addresses are known, and none of those that are not configured fails. */
  private makeRoom(): boolean {
    if (this.known.size < (this.options.maxKnownAddresses ?? MAX_KNOWN_ADDRESSES)) return true;
    for (const stranger of this.strangers.takeOne()) {
      this.forget(stranger);
      return true;
    }
    let longest: KnownAddress | null = null;
    for (const entry of this.known.values()) {
      if (entry.origin === 'configured' || entry.failingSinceMs === null) continue;
      if (entry.failingSinceMs < (longest?.failingSinceMs ?? Infinity)) longest = entry;
    }
    if (longest === null) return false;
    this.forget(longest);
    return true;
  }

  private forget(entry: KnownAddress): void {
    entry.dial.stop();
    this.known.delete(entry.address);
    this.strangers.delete(entry.address);
    this.options.log.info('peer forgotten', { address: entry.address, id: entry.id });
  }

  private dial(address: string, origin: Origin): PeerDial {
    const dial = new PeerDial({
      address,
      reconnectDelayMs: this.options.network.reconnectDelayMs,
      forgetAfterMs: FORGET_AFTER_MS[origin],
      runtime: this.options.runtime,
      attempt: (connected) => this.connect(address, connected),
      onFailure: (error) => {
        this.setProblem(address, error);
      },
      onForgotten: () => {
        const entry = this.known.get(address);
        if (entry !== undefined) this.forget(entry);
      },
    });
    this.dials.add(dial);
    void dial.finished.finally(() => this.dials.delete(dial));
    return dial;
  }

  /** Null: main was stopped meanwhile. */
  private async identify(address: string): Promise<NodeIdentity | null> {
    try {
      return await identifyPeer(this.options.transport, address, IDENTIFY_TIMEOUT_MS, this.halt.signal);
    } catch (thrown) {
      if (this.stopped) return null;
      throw noDaemonAnswers(address, thrown);
    }
  }

  private async connect(address: string, connected: () => void): Promise<void> {
    // This is asked first, so that a daemon with two known addresses does not get two streams.
    const peer = await this.identify(address);
    const entry = this.known.get(address);
    // The peer may have answered just before main was stopped.
    if (entry === undefined || peer === null || this.stopped) return;
    entry.id = peer.id;
    const connectedBootId = this.options.roster.connectedBootId(peer.id);
    if (connectedBootId === peer.bootId || this.greeting.has(peer.bootId)) {
      this.recovered(entry);
      return;
    }
    if (connectedBootId !== null) throw sameId(peer, address);
    this.requireResponsive(peer, address);
    this.greeting.add(peer.bootId);
    try {
      await this.greet(peer, address, () => {
        this.greeting.delete(peer.bootId);
        this.strangers.delete(address);
        this.recovered(entry);
        connected();
      });
    } finally {
      this.greeting.delete(peer.bootId);
    }
  }

  /** Sends a hello and serves the stream until it ends. */
  private greet(peer: NodeIdentity, address: string, connected: () => void): Promise<void> {
    switch (peer.role) {
      case 'ROLE_WORKER':
        return this.serveWorker(address, connected);
      case 'ROLE_SHADOW':
        return this.serveShadow(address, connected);
      case 'ROLE_MAIN':
      case 'ROLE_UNSPECIFIED':
        throw new OdmoeError('NODE_REFUSED', `${address} is ${peer.id}, neither a worker nor a shadow`);
    }
  }

  private async tracked(stream: PeerStream<never, unknown>, served: Promise<void>): Promise<void> {
    this.streams.add(stream);
    try {
      await served;
    } finally {
      this.streams.delete(stream);
    }
  }

  private serveWorker(address: string, connected: () => void): Promise<void> {
    const { network, shape, roster, log, runtime, transport } = this.options;
    const own = this.options.identity();
    const stream = openWorkerStream(transport, address, network);
    const arrivals = new ArrivalBound(ARRIVALS_OF_TENSOR_PEER, runtime);
    stream.boundArrivals(arrivals);
    const limits = {
      hiddenSize: expertRowSize(shape),
      experts: shape.experts,
      executeTimeoutMs: network.executeTimeoutMs,
      runtime,
    };
    const served = serveStream(
      stream,
      { kind: 'hello', hello: own },
      own,
      runtime,
      (peer, { partialPack, highestEpoch }) => {
        if (roster.connectedBootId(peer.id) !== null) throw sameId(peer, address);
        roster.goAbove(highestEpoch, peer.id);
        stream.takeTensors();
        const link = new WorkerLink(peer, address, stream, limits, log, partialPack);
        this.rosterPost?.welcomed(link);
        roster.addWorker(link);
        connected();
        return {
          receive: (reply) => {
            link.receive(reply);
            if (reply.kind === 'status') roster.workerReported(link);
            this.judge(link, reply);
          },
          streamClosed: (error) => {
            roster.removeWorker(link, reasonOf(error));
            link.streamClosed(error);
            this.wakeOthers(peer.id, address);
            if (link.unresponsive || arrivals.isBroken) this.leaveAlone(peer.bootId);
          },
        };
      },
    );
    return this.tracked(stream, served);
  }

  /** Records what the worker's reply shows about the worker. */
  private judge(link: WorkerLink, reply: WorkerReply): void {
    const { roster } = this.options;
    if (reply.kind === 'error') roster.workerFailed(link, reply.error.code, reply.error.message);
    if (reply.kind !== 'result') return;
    for (const { failure } of reply.result.experts) {
      if (failure === null) roster.workerSucceeded(link);
      else if (failure.code === 'PACK_CORRUPT') roster.workerDamaged(link, failure.message);
      else roster.workerFailed(link, failure.code, failure.message);
    }
  }

  private leaveAlone(bootId: string): void {
    this.unresponsive.set(bootId, this.options.runtime.nowMs() + UNRESPONSIVE_PAUSE_MS);
  }

  private requireResponsive(peer: NodeIdentity, address: string): void {
    const now = this.options.runtime.nowMs();
    for (const [bootId, untilMs] of this.unresponsive) if (untilMs <= now) this.unresponsive.delete(bootId);
    if (this.unresponsive.get(peer.bootId) === undefined) return;
    throw new OdmoeError(
      'WORKER_LOST',
      `${peer.id} at ${address} let an execute run out of time, or sent what nobody asked for, and is left alone for ` +
        `${UNRESPONSIVE_PAUSE_MS / 1000} s; restart it if it hangs`,
    );
  }

  private serveShadow(address: string, connected: () => void): Promise<void> {
    const { network, shape, roster, log, shadowListener, runtime, transport } = this.options;
    const own = this.options.identity();
    const stream = openShadowStream(transport, address, network);
    const arrivals = new ArrivalBound(ARRIVALS_OF_PLAIN_PEER, runtime);
    stream.boundArrivals(arrivals);
    const served = serveStream(stream, { kind: 'hello', hello: own }, own, runtime, (peer, { highestEpoch }) => {
      if (roster.connectedBootId(peer.id) !== null) throw sameId(peer, address);
      roster.goAbove(highestEpoch, peer.id);
      const link = new ShadowLink(peer, address, stream, shape, shadowListener, log);
      this.rosterPost?.welcomed(link);
      roster.addShadow(link);
      connected();
      return {
        receive: (reply) => {
          link.receive(reply);
        },
        streamClosed: (error) => {
          link.streamClosed();
          roster.removeShadow(link, reasonOf(error));
          if (arrivals.isBroken) this.leaveAlone(peer.bootId);
          this.wakeOthers(peer.id, address);
        },
      };
    });
    return this.tracked(stream, served);
  }

  /** The daemon is not connected any more: it may have moved to one of its other known addresses. */
  private wakeOthers(id: string, address: string): void {
    for (const entry of this.known.values()) if (entry.id === id && entry.address !== address) entry.dial.wake();
  }

  private recovered(entry: KnownAddress): void {
    entry.problem = null;
    entry.failingSinceMs = null;
    this.forgetLeftAddresses();
  }

  private setProblem(address: string, thrown: unknown): void {
    const entry = this.known.get(address);
    if (entry === undefined) return;
    const removal = this.removalOf(entry.id);
    const error = removal === null ? toOdmoeError(thrown) : new OdmoeError('NODE_REMOVED', removal);
    const news = entry.problem?.message !== error.message;
    entry.problem = error;
    entry.failingSinceMs ??= this.options.runtime.nowMs();
    if (this.isLeft(entry)) {
      this.forget(entry);
      return;
    }
    if (news)
      this.options.log.warn('peer cannot be used', { address, id: entry.id, code: error.code, message: error.message });
  }
}

function reasonOf(error: OdmoeError | null): string {
  return error?.message ?? 'it ended the stream';
}

function sameId(peer: NodeIdentity, address: string): OdmoeError {
  return new OdmoeError(
    'NODE_REFUSED',
    `the daemon at ${address} has the id ${peer.id}, as one has that is connected already; give each its own --id (one that was ` +
      'restarted just now gets its place back when its last connection is known to have ended)',
  );
}

/** The reason why a daemon may not join main; null: it may. `usesWorkers`: false if main's own worker runs all experts. Pure. */
function joinRefusal(own: NodeIdentity, peer: NodeIdentity, usesWorkers: boolean): Refusal | null {
  if (peer.role === 'ROLE_MAIN') return secondMain(own, peer);
  if (peer.role === 'ROLE_WORKER' && !usesWorkers) return unusedWorker(own, peer);
  return checkPeer(own, peer);
}

function tooOften(name: string): Refusal {
  const { burst, perSecond } = GREETINGS_OF_PEER;
  return {
    code: 'QUEUE_FULL',
    message: `${name} asks to join too often: ${burst} times at once and ${perSecond} a second are taken; try again later`,
  };
}

/** The refusal of a peer whose own address cannot be dialled. */
function badAddress(peer: NodeIdentity): Refusal {
  return {
    code: 'PROTOCOL_VIOLATION',
    message: `${peer.id} says that it is reached at "${peer.address}", which is not HOST:PORT: nothing can be dialled there`,
  };
}

function foreignAddress(peer: NodeIdentity, host: string): Refusal {
  return {
    code: 'NODE_REFUSED',
    message:
      `${peer.id} asks from ${host} and says that it is reached at "${peer.address}", which is no address of another machine: start it ` +
      'without --host, or give it the address of its network',
  };
}

function secondMain(own: NodeIdentity, peer: NodeIdentity): Refusal {
  return {
    code: 'NODE_REFUSED',
    message: `${peer.id} is a main and so is ${own.id}: a cluster has one; give one of them another cluster name`,
  };
}

function unusedWorker(own: NodeIdentity, peer: NodeIdentity): Refusal {
  return {
    code: 'NODE_REFUSED',
    message:
      `main ${own.id} runs all experts itself (main.experts: local) and has no use for worker ${peer.id}: start main with ` +
      '--experts both, or stop the worker',
  };
}
