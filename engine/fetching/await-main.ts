import type { NodeEnvironment } from '../environment/node-environment.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { refusalByMain } from '../trust/key-renewal.js';
import { followAddresses } from '../daemon/follow-addresses.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { FairAddresses } from '../../shared/transport/discovery/fair-addresses.js';
import { requireWanted } from '../daemon/run-daemon.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { OWN_VERSIONS, protocolsOf, spokenProtocol } from '../../shared/wire/versions.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import type { Transport } from '../../shared/transport/transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';

const IDENTIFY_TIMEOUT_MS = 2000;
/** Most mains that are asked, in all and per host: any program can advertise one. */
const ADVERTISED_LIMITS = { all: 32, ofHost: 4 };
const PACK_DIGEST = /^[0-9a-f]{64}$/;

export interface FoundMain {
  address: string;
  identity: NodeIdentity;
}

/**
 * Waits for the main of this node's cluster to answer, at the address in the settings or at the addresses that mDNS or DNS gives. `known`: the
 * main that answered before. If the settings give an address, mDNS or DNS is searched for that same main only, because it may have moved. A problem
 * that prevents this is logged once.
 * @throws MODEL_NOT_FOUND when main cannot be found in any way, NODE_REMOVED when main says that this worker was removed, CANCELLED when the start
 * is abandoned
 */
export async function awaitMain(
  settings: NodeSettings,
  { runtime, transport, trust, discovery, interfaces }: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
  known: FoundMain | null = null,
): Promise<FoundMain> {
  if (settings.mainAddress === null && settings.discovery.provider === 'static') {
    throw new OdmoeError(
      'MODEL_NOT_FOUND',
      `no pack at ${settings.modelPath ?? '(no --model)'} that has all that is needed, and no main to fetch it from: give --main HOST:PORT, ` +
        'or the directory of a pack',
    );
  }
  const advertised = new FairAddresses<string>(ADVERTISED_LIMITS);
  const watch = await discovery.watchPeers(
    settings,
    (peer) => {
      if (peer.role === 'main') advertised.set(peer.address, peer.address);
    },
    log,
  );
  const stopFollowing = followAddresses(interfaces, settings, log);
  const { provider, name } = settings.discovery;
  const searched = provider === 'dns' ? `DNS (${name ?? ''})` : 'mDNS';
  const where = settings.mainAddress ?? `${searched} (cluster ${settings.cluster})`;
  log.info('looking for main', { where });
  let reported = '';
  try {
    for (;;) {
      requireWanted(abandoned);
      const addresses = addressesToAsk(settings, advertised.values(), known);
      // All are asked at the same time: an address that does not answer must not delay the others.
      const replies = await Promise.all(addresses.map((address) => askMain(transport, address, settings, abandoned)));
      for (const [index, address] of addresses.entries()) {
        const reply = requirePresent(replies[index], 'Each address was asked.');
        if ('identity' in reply) {
          if (address === settings.mainAddress || mayBe(reply, settings, known)) return reply;
          continue;
        }
        requireWanted(abandoned);
        const { code, message } = reply.problem;
        // Any daemon of the cluster may answer this question by such words, so main itself is asked.
        const refusal =
          code === 'TRUST_REFUSED' && trust !== null ? await refusalByMain(trust, transport, address, abandoned) : null;
        if (refusal !== null) throw refusal;
        if (message !== reported) log.warn('main cannot be used yet', { main: address, reason: message });
        reported = message;
      }
      await runtime.sleep(settings.network.reconnectDelayMs, abandoned);
    }
  } finally {
    stopFollowing();
    await watch.stop();
  }
}

/** The address of the settings comes first. */
function addressesToAsk(
  { mainAddress }: NodeSettings,
  advertised: readonly string[],
  known: FoundMain | null,
): readonly string[] {
  if (mainAddress === null) return advertised;
  return known === null ? [mainAddress] : [mainAddress, ...advertised.filter((address) => address !== mainAddress)];
}

/** True if an advertised main is this node's main. */
function mayBe({ identity }: FoundMain, { mainAddress }: NodeSettings, known: FoundMain | null): boolean {
  return mainAddress === null || identity.id === known?.identity.id;
}

async function askMain(
  transport: Transport,
  address: string,
  settings: NodeSettings,
  abandoned: AbortSignal,
): Promise<FoundMain | { problem: OdmoeError }> {
  try {
    const identity = await identifyPeer(transport, address, IDENTIFY_TIMEOUT_MS, abandoned);
    const problem = problemOf(identity, settings);
    return problem === null ? { address, identity } : { problem: new OdmoeError('NODE_REFUSED', problem) };
  } catch (thrown) {
    return { problem: toOdmoeError(thrown) };
  }
}

/** The reason why this daemon cannot name a pack for a node to fetch; null when it can. Pure. */
export function problemOf(identity: NodeIdentity, settings: Pick<NodeSettings, 'cluster'>): string | null {
  if (identity.role !== 'ROLE_MAIN') return `${identity.id} is no main: give main's address`;
  if (identity.cluster !== settings.cluster) {
    return `main ${identity.id} is of cluster "${identity.cluster}", this node of "${settings.cluster}": give both one name (--cluster)`;
  }
  if (spokenProtocol(OWN_VERSIONS, identity) === null) {
    return `main ${identity.id} speaks protocol ${protocolsOf(identity)}, this node ${protocolsOf(OWN_VERSIONS)}: update odmoe on the older of both`;
  }
  // The digest becomes the name of a directory.
  if (!PACK_DIGEST.test(identity.packDigest)) {
    return `main ${identity.id} names no pack by a SHA-256 digest: install the same version of odmoe on both`;
  }
  return null;
}
