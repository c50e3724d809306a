import type { NodeSettings } from '../../settings/node-settings.js';
import { OdmoeError, toOdmoeError } from '../../base/errors/odmoe-error.js';
import type { Logger } from '../../base/log/logger.js';
import { parseAddress } from '../../wire/addresses.js';
import type { NodeIdentity } from '../../wire/messages.js';
import { timeForPeers } from '../../base/runtime/peer-wait.js';
import type { Runtime } from '../../base/runtime/runtime.js';
import { FairAddresses } from './fair-addresses.js';
import { hostAddresses, type InterfaceWatch, spokenAddresses } from './host-interfaces.js';
import { SERVICE_TYPE, listen, Multicast } from './multicast.js';
import { authorityProblem, LeftOutPeers } from './left-out-peers.js';
import { encodeTxt, type DiscoveredPeer, type FoundPeer } from './txt-record.js';

export interface Stoppable {
  /** Idempotent. */
  stop(): Promise<void>;
}

/** The way in which daemons find one another: mDNS, names (DNS), or in one process the simulator's network. None does anything under static discovery. */
export interface Discovery<Peer extends FoundPeer = FoundPeer> {
  /** Advertises this daemon until stopped. */
  advertise(settings: NodeSettings, identity: NodeIdentity, log: Logger): Promise<Stoppable>;
  /** Reports the cluster's daemons of the same authority when they are heard, and again after a restart, but not this one. */
  watchPeers(settings: NodeSettings, onPeer: (peer: Peer) => void, log: Logger): Promise<Stoppable>;
}

/** The parts of a daemon's environment that multicast needs. */
interface Surroundings {
  runtime: Runtime;
  interfaces: InterfaceWatch;
  /** The first digits of the digest of the daemon's authority (shortAuthorityDigest); null: its cluster has none. */
  authority: string | null;
}

/**
 * Discovery by mDNS, through the networks that the host has at each time. `authority`: the first digits of the digest of the daemon's authority
 * (shortAuthorityDigest); null: its cluster has none.
 */
export function multicastDiscovery(
  runtime: Runtime,
  interfaces: InterfaceWatch,
  authority: string | null = null,
): Discovery<DiscoveredPeer> {
  const surroundings = { runtime, interfaces, authority };
  return {
    advertise: (settings, identity, log) => advertise(surroundings, settings, identity, log),
    watchPeers: (settings, onPeer, log) => watchPeers(surroundings, settings, onPeer, log),
  };
}

const NOTHING: Stoppable = { stop: async () => undefined };

/**
 * Advertises this daemon by mDNS until stopped; does nothing under static discovery. The port is taken from `identity.address`. mDNS never shows
 * that a peer is alive: the advertisement of a killed daemon outlives it by hours.
 */
async function advertise(
  { runtime, interfaces, authority }: Surroundings,
  settings: NodeSettings,
  identity: NodeIdentity,
  log: Logger,
): Promise<Stoppable> {
  if (settings.discovery.provider !== 'mdns') return NOTHING;
  const multicast = new Multicast((error) => {
    log.warn('multicast failed: other nodes may not find this one', { error });
  });
  let moves = 0;
  const advertise = (): void =>
    multicast.publish({
      // Clusters with different names may use the same ids on one LAN.
      name: `${identity.cluster}-${identity.id}`.slice(0, SERVICE_NAME_LIMIT),
      type: SERVICE_TYPE,
      port: parseAddress(`host:${identity.address.split(':').at(-1)}`).port,
      txt: encodeTxt(identity, authority, moves),
      // A probe for the name costs a second, and could only find this daemon's advertisement from before its restart.
      probe: false,
    });
  const stopFollowing = follow(interfaces, settings.discovery.interfaceAddress, multicast, () => {
    moves += 1;
    advertise();
  });
  advertise();
  return stopOnce(async () => {
    stopFollowing();
    await multicast.close(runtime);
  });
}

/** Uses the networks that the host has, now and later. `onMove`: called when they change. Returns a function that stops this. */
function follow(
  interfaces: InterfaceWatch,
  given: string | null,
  multicast: Multicast,
  onMove: () => void = () => undefined,
): () => void {
  let followed: string | null = null;
  const speak = (): void => {
    const spoken = spokenAddresses(interfaces.addresses, given, followed);
    ({ followed } = spoken);
    multicast.speakThrough(spoken.addresses);
  };
  const stop = interfaces.watch({
    changed: () => {
      onMove();
      speak();
    },
    // follow-addresses.ts follows the daemon's own address and reports this failure once.
    failed: () => undefined,
  });
  speak();
  return stop;
}

const ELSEWHERE = 'it listens on the loopback of its own host alone: start it with --lan if others are to use it';

/** Longest DNS label. */
const SERVICE_NAME_LIMIT = 63;

/**
 * Reports the cluster's daemons of the same authority when they are heard, and again after a restart, but not this one. Static discovery: reports
 * none.
 */
async function watchPeers(
  { runtime, interfaces, authority }: Surroundings,
  settings: NodeSettings,
  onPeer: (peer: DiscoveredPeer) => void,
  log: Logger,
): Promise<Stoppable> {
  if (settings.discovery.provider !== 'mdns') return NOTHING;
  const multicast = new Multicast((error) => {
    log.warn('multicast failed: this node may not find others', { error });
  });
  const leftOut = new LeftOutPeers(log, runtime);
  const isOther = (peer: DiscoveredPeer): boolean => {
    if (peer.cluster === settings.cluster) return peer.id !== settings.id;
    log.debug('ignored a node of another cluster', { peer: peer.id, cluster: peer.cluster, address: peer.address });
    return false;
  };
  const stopListening = listen(multicast, {
    ownAddresses: () => interfaces.addresses,
    onPeer: (peer) => {
      if (!isOther(peer)) return;
      const problem = authorityProblem(peer, authority);
      if (problem === null) onPeer(peer);
      else leftOut.add(peer, problem);
    },
    onElsewhere: (peer) => {
      if (isOther(peer)) leftOut.add(peer, ELSEWHERE);
    },
    log,
    runtime,
  });
  const stopFollowing = follow(interfaces, settings.discovery.interfaceAddress, multicast);
  return stopOnce(async () => {
    stopFollowing();
    stopListening();
    await multicast.close(runtime);
  });
}

/** The mains heard within the time, of every authority, for the command line. `cluster` null: mains of every cluster. */
export async function findMains(
  runtime: Runtime,
  cluster: string | null,
  timeoutMs: number,
  interfaceAddress: string | null = null,
): Promise<DiscoveredPeer[]> {
  const found = await findPeers(runtime, timeoutMs, interfaceAddress);
  return found.filter((peer) => peer.role === 'main' && (cluster === null || peer.cluster === cluster));
}

/** Most peers that one search records, in all and of one host. */
const FOUND_LIMITS = { all: 1024, ofHost: 128 };

/** All peers heard within the time, by address; the last advertisement of each counts. Throws NO_MAIN if multicast fails. */
async function findPeers(
  runtime: Runtime,
  timeoutMs: number,
  interfaceAddress: string | null,
): Promise<DiscoveredPeer[]> {
  const peers = new FairAddresses<DiscoveredPeer>(FOUND_LIMITS);
  let fault: string | null = null;
  const multicast = new Multicast((error) => {
    fault = toOdmoeError(error).message;
  });
  multicast.speakThrough(spokenAddresses(hostAddresses(), interfaceAddress, null).addresses);
  const stopListening = listen(multicast, {
    ownAddresses: hostAddresses,
    onPeer: (peer) => void peers.set(placeOf(peer), peer),
    log: null,
    runtime,
  });
  await timeForPeers(runtime, timeoutMs);
  stopListening();
  await multicast.close(runtime);
  if (fault !== null && peers.size === 0) {
    throw new OdmoeError('NO_MAIN', `multicast failed (${String(fault)}): give an address, or run \`odmoe doctor\``);
  }
  return onePerNode(peers.values());
}

/** Key of a peer among the peers of its host. Two peers with one address, of which one has ended, get different keys. Pure. */
export function placeOf({ address, cluster, id }: DiscoveredPeer): string {
  return `${address}/${encodeURIComponent(cluster)}/${encodeURIComponent(id)}`;
}

/** A peer that is heard by several addresses is reported once. One that takes the names of another is another peer by its authority. Pure. */
export function onePerNode(peers: readonly DiscoveredPeer[]): DiscoveredPeer[] {
  return [...new Map(peers.map((peer) => [JSON.stringify([peer.cluster, peer.id, peer.authority]), peer])).values()];
}

function stopOnce(stop: () => Promise<void>): Stoppable {
  let stopping: Promise<void> | null = null;
  return {
    stop: () => {
      stopping ??= stop();
      return stopping;
    },
  };
}
