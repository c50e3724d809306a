import type { NodeSettings } from '../config/node-settings.js';
import { OdmoeError, toOdmoeError } from '../errors/odmoe-error.js';
import type { Logger } from '../log/logger.js';
import { parseAddress } from '../rpc/addresses.js';
import type { NodeIdentity } from '../rpc/messages.js';
import { timeForPeers } from '../runtime/peer-wait.js';
import type { Runtime } from '../runtime/runtime.js';
import { SERVICE_TYPE, closeMulticast, listen, openMulticast, publish } from './multicast.js';
import { encodeTxt, type DiscoveredPeer } from './txt-record.js';

export interface Stoppable {
  /** Idempotent. */
  stop(): Promise<void>;
}

/** How daemons hear of one another: by mDNS, or in one process by the simulator's network. Neither does anything under static discovery. */
export interface Discovery {
  /** Announces this daemon until stopped. */
  advertise(settings: NodeSettings, identity: NodeIdentity, log: Logger): Promise<Stoppable>;
  /** Reports the cluster's daemons as they are heard (again at another boot), but not this one. */
  watchPeers(settings: NodeSettings, onPeer: (peer: DiscoveredPeer) => void, log: Logger): Promise<Stoppable>;
}

/** Discovery by mDNS. */
export function multicastDiscovery(runtime: Runtime): Discovery {
  return {
    advertise: (settings, identity, log) => advertise(runtime, settings, identity, log),
    watchPeers: (settings, onPeer, log) => watchPeers(runtime, settings, onPeer, log),
  };
}

const NOTHING: Stoppable = { stop: async () => undefined };

/**
 * Announces this daemon by mDNS until stopped; does nothing under static discovery. The port is taken from
 * `identity.address`. That peers are alive is never mDNS's to say: a killed daemon's announcement outlives it by hours.
 */
async function advertise(
  runtime: Runtime,
  settings: NodeSettings,
  identity: NodeIdentity,
  log: Logger,
): Promise<Stoppable> {
  if (settings.discovery.provider !== 'mdns') return NOTHING;
  const multicast = openMulticast(settings.discovery.interfaceAddress, (error) => {
    log.warn('multicast failed: other nodes may not find this one', { error });
  });
  publish(multicast, {
    // Clusters of different names may use the same ids on one LAN.
    name: `${identity.cluster}-${identity.id}`.slice(0, SERVICE_NAME_LIMIT),
    type: SERVICE_TYPE,
    port: parseAddress(`host:${identity.address.split(':').at(-1)}`).port,
    txt: encodeTxt(identity),
    // Probing for the name costs a second and would only find ourselves of the boot before.
    probe: false,
  });
  return stopOnce(() => closeMulticast(multicast, runtime));
}

/** A DNS label. */
const SERVICE_NAME_LIMIT = 63;

/** Reports the cluster's daemons as they are heard (again at another boot), but not this one. Static: reports none. */
async function watchPeers(
  runtime: Runtime,
  settings: NodeSettings,
  onPeer: (peer: DiscoveredPeer) => void,
  log: Logger,
): Promise<Stoppable> {
  if (settings.discovery.provider !== 'mdns') return NOTHING;
  const multicast = openMulticast(settings.discovery.interfaceAddress, (error) => {
    log.warn('multicast failed: this node may not find others', { error });
  });
  const stopListening = listen(
    multicast,
    (peer) => {
      if (peer.cluster !== settings.cluster) {
        log.debug('ignored a node of another cluster', { peer: peer.id, cluster: peer.cluster, address: peer.address });
      } else if (peer.id !== settings.id) {
        onPeer(peer);
      }
    },
    log,
    runtime,
  );
  return stopOnce(async () => {
    stopListening();
    await closeMulticast(multicast, runtime);
  });
}

/** The mains heard within the time, for the command line; of every cluster when `cluster` is null. */
export async function findMains(
  runtime: Runtime,
  cluster: string | null,
  timeoutMs: number,
  interfaceAddress: string | null = null,
): Promise<DiscoveredPeer[]> {
  const found = await findPeers(runtime, timeoutMs, interfaceAddress);
  return found.filter((peer) => peer.role === 'main' && (cluster === null || peer.cluster === cluster));
}

/** Everyone heard within the time, by cluster and id; the last announcement counts. Throws NO_MAIN when multicast fails. */
async function findPeers(
  runtime: Runtime,
  timeoutMs: number,
  interfaceAddress: string | null,
): Promise<DiscoveredPeer[]> {
  const peers = new Map<string, DiscoveredPeer>();
  let fault: string | null = null;
  const multicast = openMulticast(interfaceAddress, (error) => {
    fault = toOdmoeError(error).message;
  });
  const stopListening = listen(multicast, (peer) => peers.set(`${peer.cluster}/${peer.id}`, peer), null, runtime);
  await timeForPeers(runtime, timeoutMs);
  stopListening();
  await closeMulticast(multicast, runtime);
  if (fault !== null && peers.size === 0) {
    throw new OdmoeError('NO_MAIN', `multicast failed (${String(fault)}): give an address, or run \`odmoe doctor\``);
  }
  return [...peers.values()];
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
