import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import { timeForPeers } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { onePerNode, placeOf } from '../../shared/transport/discovery/discovery.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import { hostAddresses, spokenAddresses } from '../../shared/transport/discovery/host-interfaces.js';
import { SERVICE_TYPE, listen, Multicast } from '../../shared/transport/discovery/multicast.js';
import { encodeTxt, type DiscoveredPeer } from '../../shared/transport/discovery/txt-record.js';

/** Cluster name of the probe: no real cluster has it, because a name begins with a letter or digit. */
const PROBE_CLUSTER = '_probe';
/** The discard port, because peers must not connect to a probe. */
const PROBE_PORT = 9;

/** Most peers that are heard at a time, in all and of one host. */
const HEARD_LIMITS = { all: 1024, ofHost: 128 };

export interface MulticastProbe {
  /** True: our own advertisement came back from the interface. */
  heardOneself: boolean;
  /** All other peers that were heard meanwhile. */
  peers: DiscoveredPeer[];
  /** Those that listen on the loopback of another host, and must not be dialled. */
  elsewhere: DiscoveredPeer[];
  /** The socket's error; null: it did not fail. */
  fault: string | null;
}

/** Advertises a service, listens on a second socket for `timeoutMs`, and returns the peers that were heard. */
export async function probeMulticast(
  runtime: Runtime,
  interfaceAddress: string | null,
  timeoutMs: number,
): Promise<MulticastProbe> {
  const id = runtime.randomId();
  const peers = new FairAddresses<DiscoveredPeer>(HEARD_LIMITS);
  const elsewhere = new FairAddresses<DiscoveredPeer>(HEARD_LIMITS);
  let heardOneself = false;
  let fault: string | null = null;
  const failed = (error: unknown): void => {
    fault = toOdmoeError(error).message;
  };
  const { addresses } = spokenAddresses(hostAddresses(), interfaceAddress, null);
  const listener = new Multicast(failed);
  listener.speakThrough(addresses);
  const stopListening = listen(listener, {
    ownAddresses: hostAddresses,
    onPeer: (peer) => {
      if (peer.cluster === PROBE_CLUSTER) heardOneself ||= peer.id === id;
      else peers.set(placeOf(peer), peer);
    },
    onElsewhere: (peer) => void elsewhere.set(placeOf(peer), peer),
    log: null,
    runtime,
  });
  const advertiser = new Multicast(failed);
  advertiser.speakThrough(addresses);
  const probe = {
    id,
    role: 'ROLE_WORKER',
    cluster: PROBE_CLUSTER,
    protocolVersion: OLDEST_PROTOCOL,
    modelName: '',
    packDigest: '',
    bootId: id,
    address: '',
    device: '',
    release: '',
  } as const;
  const txt = encodeTxt(probe, null);
  advertiser.publish({ name: `probe-${id}`, type: SERVICE_TYPE, port: PROBE_PORT, txt, probe: false });
  await timeForPeers(runtime, timeoutMs);
  stopListening();
  await Promise.all([advertiser.close(runtime), listener.close(runtime)]);
  return { heardOneself, peers: onePerNode(peers.values()), elsewhere: onePerNode(elsewhere.values()), fault };
}
