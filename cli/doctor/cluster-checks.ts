/** Checks of the network: ports, multicast, and the nodes that answer or do not answer. */
import { nodesOfThisHost } from '../../shared/settings/resolve-node-settings.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import {
  fetchProgress,
  NO_WORKERS_ADVICE,
  SILENT_PEER_ADVICE,
} from '../../shared/decisions/diagnosis/cluster-problems.js';
import { type MulticastProbe, probeMulticast } from './probe-multicast.js';
import type { DiscoveredPeer } from '../../shared/transport/discovery/txt-record.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { OWN_VERSIONS, protocolsOf, spokenProtocol } from '../../shared/wire/versions.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { formatAddress } from '../../shared/wire/addresses.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';
import { fail, ok, warn, type Check } from './check.js';
import { LOCAL_MAIN_ADDRESS } from '../../engine/daemon/find-cluster.js';
import { runtime } from '../client/process-runtime.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import type { Transport } from '../../shared/transport/transport.js';
import { fetchStatus } from '../../shared/transport/node-clients.js';
import { diagnosePeer, type PeerDiagnosis, transportTo } from './diagnose-peer.js';
import { identitiesOnce, isCertified, type IdentitiesOf } from './own-identities.js';
import { type Admission, type Clocks, probeAdmission, type ShownByTls } from './probe-tls.js';
import { type MainProbe, trustChecks } from './trust-checks.js';

export interface ClusterQuestion {
  config: ClusterConfig;
  /** The cluster to which peers should belong; null: any. */
  cluster: string | null;
  /** The main that is asked, whatever its cluster: by a flag or a variable. */
  mainAddress: string | null;
  /** The same, by the configuration; null: it is found by mDNS. */
  configuredMain: string | null;
  interfaceAddress: string | null;
  timeoutMs: number;
}

/** Ports to check if no configuration names any: the daemons' default ports. */
const DEFAULT_PORTS = [7600, 7601, 7602];

/** `clocks`: those of a main that told its time, and of this machine; null: none did. */
export async function checkCluster(
  question: ClusterQuestion,
  identitiesOf: IdentitiesOf = identitiesOnce(),
): Promise<{ checks: Check[]; clocks: Clocks | null }> {
  const ports = await checkPorts(question, identitiesOf);
  const { checks, peers } = await checkMulticast(question);
  const { checks: ofPeers, clocks } = await checkPeers(question, peers, identitiesOf);
  return { checks: [...ports, ...checks, ...ofPeers], clocks };
}

async function checkPorts({ config, timeoutMs }: ClusterQuestion, identitiesOf: IdentitiesOf): Promise<Check[]> {
  const own = nodesOfThisHost(config).map(({ id, address }) => ({ id, port: address.port }));
  const ports = own.length > 0 ? own : DEFAULT_PORTS.map((port) => ({ id: null, port }));
  return Promise.all(
    ports.map(async ({ id, port }) => {
      return portCheck(port, id, await diagnosePeer(`127.0.0.1:${port}`, timeoutMs, identitiesOf));
    }),
  );
}

/** `expectedId`: the node that the configuration has at this port; null: any. */
export function portCheck(port: number, expectedId: string | null, found: PeerDiagnosis): Check {
  const name = `port ${port}`;
  const choose = 'stop it, or choose another port';
  switch (found.kind) {
    case 'closed':
    case 'odmoe': {
      const { id, words } = found.kind === 'odmoe' ? describe(found.identity) : describeShown(found.shown);
      const who = `${words} listens`;
      return expectedId === null || id === expectedId
        ? ok(name, who)
        : fail(name, `${who}, but the configuration gives the port to ${expectedId}`, choose);
    }
    case 'refused':
      return ok(name, 'free');
    case 'silent':
    case 'unreachable':
      return warn(name, 'cannot be looked at: a firewall may drop connections to it', 'allow it in the firewall');
    case 'stranger':
      return fail(name, 'another program than odmoe listens', choose);
  }
}

async function checkMulticast(question: ClusterQuestion): Promise<{ checks: Check[]; peers: DiscoveredPeer[] }> {
  const { interfaceAddress, timeoutMs, cluster } = question;
  const probe = await probeMulticast(runtime, interfaceAddress, timeoutMs);
  const { peers } = probe;
  const elsewhere = probe.elsewhere.filter((peer) => cluster === null || peer.cluster === cluster);
  return { checks: [multicastCheck(question, probe), ...elsewhere.map(elsewhereCheck)], peers };
}

/** A daemon that listens on the loopback of another host. */
export function elsewhereCheck({ address, role, id, cluster }: DiscoveredPeer): Check {
  const found = `${role} "${id}" of cluster "${cluster}" listens on the loopback of its own host alone`;
  return warn(`peer ${address}`, found, 'start it with --lan if other machines are to use it');
}

function multicastCheck(question: ClusterQuestion, { heardOneself, peers, fault }: MulticastProbe): Check {
  const name = 'multicast';
  const where = question.interfaceAddress ?? 'the networks of this machine';
  if (heardOneself) return ok(name, `reaches ${where}; ${peers.length} nodes of all clusters advertise themselves`);
  const found = `our own advertisement did not come back from ${where}${fault === null ? '' : ` (${fault})`}`;
  const advice =
    'choose the interface (discovery.interface, --interface), allow UDP port 5353 in the firewall, ' +
    'or list the nodes under static discovery';
  const needed = question.config.discovery.provider === 'mdns' && question.mainAddress === null;
  return needed ? fail(name, found, advice) : warn(name, found, advice);
}

export interface Candidate {
  address: string;
  /** The node that the configuration has at this address; null: the address comes from mDNS or a flag. */
  expectedId: string | null;
  /** True: only mDNS named this address; no configuration expects a node there. */
  heardOnly: boolean;
}

/** An address, and what answers there. */
export interface DiagnosedPeer {
  readonly candidate: Candidate;
  readonly diagnosis: PeerDiagnosis;
}

async function checkPeers(
  question: ClusterQuestion,
  heard: readonly DiscoveredPeer[],
  identitiesOf: IdentitiesOf,
): Promise<{ checks: Check[]; clocks: Clocks | null }> {
  const candidates = candidatesOf(question, heard);
  const diagnosed = await Promise.all(
    [...candidates, ...ownMain(candidates)].map(async (candidate) => ({
      candidate,
      diagnosis: await diagnosePeer(candidate.address, question.timeoutMs, identitiesOf),
    })),
  );
  // Nobody expects a daemon at main's usual port, so only a main there counts.
  const diagnoses = diagnosed.filter(
    ({ candidate, diagnosis }) => candidates.includes(candidate) || isMain(diagnosis, question, candidate),
  );
  const mains = diagnoses.filter(({ candidate, diagnosis }) => isMain(diagnosis, question, candidate));
  const main = mains.find(({ diagnosis }) => diagnosis.kind === 'odmoe') ?? mains[0];
  const mainIdentity = main?.diagnosis.kind === 'odmoe' ? main.diagnosis.identity : null;
  const checks = diagnoses.map(({ candidate, diagnosis }) =>
    peerCheck(candidate, diagnosis, question.cluster, mainIdentity),
  );
  const trust = await Promise.all(mains.map((one) => trustOfMain(one, question, identitiesOf)));
  const clocks = mains.map(({ diagnosis }) => shownBy(diagnosis)?.clocks ?? null).find((told) => told !== null);
  const ofMain = await mainChecks(main, question.timeoutMs, identitiesOf);
  return { checks: [...checks, ...ofMain, ...trust.flat()], clocks: clocks ?? null };
}

async function mainChecks(
  main: DiagnosedPeer | undefined,
  timeoutMs: number,
  identitiesOf: IdentitiesOf,
): Promise<Check[]> {
  if (main === undefined) {
    const advice = 'start it (`odmoe main`, `odmoe up`) or give its address by --main HOST:PORT';
    return [warn('main node', 'none answers', advice)];
  }
  const { candidate, diagnosis } = main;
  // The check of trust says why this machine may not ask.
  const asking = diagnosis.kind === 'odmoe' ? await transportTo(diagnosis.shown, identitiesOf) : null;
  return asking === null ? [] : problemsOfMain(asking, candidate.address, timeoutMs);
}

/** Asks main as each daemon of this machine that has joined its cluster, and judges. */
export async function trustOfMain(
  { candidate, diagnosis }: DiagnosedPeer,
  { timeoutMs, ...question }: ClusterQuestion,
  identitiesOf: IdentitiesOf,
): Promise<Check[]> {
  const { address, heardOnly } = candidate;
  const shown = shownBy(diagnosis);
  const cluster = diagnosis.kind === 'odmoe' ? diagnosis.identity.cluster : (shown?.peer?.cluster ?? '');
  const own = isIdentifier(cluster) ? await identitiesOf(cluster) : [];
  const admissions = new Map<string, Admission>();
  for (const one of own) {
    if (one.kind !== 'joined' || shown === null || !isCertified(shown.certificate, one.credentials)) continue;
    admissions.set(one.id, await probeAdmission(address, one.credentials, timeoutMs));
  }
  const isNamed = !heardOnly || question.cluster !== null;
  const main: MainProbe = { address, cluster, isNamed, shown, admissions };
  return trustChecks(main, own);
}

function shownBy(diagnosis: PeerDiagnosis): ShownByTls | null {
  return 'shown' in diagnosis ? diagnosis.shown : null;
}

function isMain(diagnosis: PeerDiagnosis, question: ClusterQuestion, { address }: Candidate): boolean {
  const named = namesOf(diagnosis);
  if (named?.role !== 'main') return false;
  if (question.mainAddress !== null) return address === question.mainAddress;
  if (address === question.configuredMain) return true;
  return question.cluster === null || named.cluster === question.cluster;
}

/** The role and cluster that the peer says it has; null: it is none of odmoe. */
function namesOf(diagnosis: PeerDiagnosis): { role: string; cluster: string } | null {
  if (diagnosis.kind === 'closed') return diagnosis.shown.peer;
  if (diagnosis.kind !== 'odmoe') return null;
  return { role: roleOf(diagnosis.identity), cluster: diagnosis.identity.cluster };
}

function candidatesOf(question: ClusterQuestion, heard: readonly DiscoveredPeer[]): Candidate[] {
  const candidates = new Map<string, Candidate>();
  for (const { address } of heard) candidates.set(address, { address, expectedId: null, heardOnly: true });
  for (const node of question.config.nodes) {
    const host = node.address.host === 'localhost' ? '127.0.0.1' : node.address.host;
    const address = formatAddress(host, node.address.port);
    candidates.set(address, { address, expectedId: node.id, heardOnly: false });
  }
  const { mainAddress } = question;
  if (mainAddress !== null && !candidates.has(mainAddress)) {
    candidates.set(mainAddress, { address: mainAddress, expectedId: null, heardOnly: false });
  }
  return [...candidates.values()];
}

/** A main on this machine that nothing names, where commands look for it, too (find-main.ts). */
function ownMain(candidates: readonly Candidate[]): Candidate[] {
  if (candidates.some(({ address }) => address === LOCAL_MAIN_ADDRESS)) return [];
  return [{ address: LOCAL_MAIN_ADDRESS, expectedId: null, heardOnly: true }];
}

/** `main`: the identity with which peers must agree; null: no main answers. */
export function peerCheck(
  { address, expectedId, heardOnly }: Candidate,
  diagnosis: PeerDiagnosis,
  cluster: string | null,
  main: NodeIdentity | null,
): Check {
  const name = `peer ${address}`;
  const who = expectedId === null ? '' : `${expectedId}: `;
  const absent = heardOnly ? warn : fail;
  switch (diagnosis.kind) {
    case 'odmoe':
      return answeringPeer(name, expectedId, diagnosis.identity, cluster, main);
    case 'closed':
      return closedPeer(name, expectedId, diagnosis.shown, cluster);
    case 'refused':
      return absent(name, `${who}the host is there, but nothing listens at the port`, 'start the daemon there');
    case 'silent':
      return absent(name, `${who}no answer`, SILENT_PEER_ADVICE);
    case 'unreachable':
      return absent(name, `${who}cannot be reached (${diagnosis.reason})`, 'check the name or address and the network');
    case 'stranger':
      return fail(name, `${who}something listens that is not odmoe (${diagnosis.reason})`, 'check the port');
  }
}

function answeringPeer(
  name: string,
  expectedId: string | null,
  identity: NodeIdentity,
  cluster: string | null,
  main: NodeIdentity | null,
): Check {
  const found = `${describe(identity).words} answers`;
  if (expectedId !== null && identity.id !== expectedId) {
    return fail(name, `${found}, not ${expectedId}`, WRONG_ID_ADVICE);
  }
  if (spokenProtocol(OWN_VERSIONS, identity) === null) {
    const versions = `protocol ${protocolsOf(identity)} there and ${protocolsOf(OWN_VERSIONS)} here`;
    return fail(name, `${found}: ${versions}`, 'update odmoe on the older of both');
  }
  if (cluster !== null && identity.cluster !== cluster && expectedId === null) {
    return ok(name, `${found}; it is of another cluster and left alone`);
  }
  const refusal = main === null ? null : checkPeer(main, identity);
  if (refusal === null) return ok(name, found);
  return fail(name, found, refusal.message);
}

const WRONG_ID_ADVICE = 'correct the address in cluster.yaml, or the id of the daemon';

/** A daemon that speaks TLS and does not answer this machine. */
function closedPeer(name: string, expectedId: string | null, shown: ShownByTls, cluster: string | null): Check {
  const { id, words } = describeShown(shown);
  if (expectedId !== null && id !== expectedId)
    return fail(name, `${words} answers, not ${expectedId}`, WRONG_ID_ADVICE);
  if (cluster !== null && shown.peer?.cluster !== cluster && expectedId === null) {
    return ok(name, `${words} answers; it is of another cluster and left alone`);
  }
  return ok(name, `${words} speaks TLS, and tells no more to this machine`);
}

/** Main's own reports about peers that it cannot use. */
async function problemsOfMain(transport: Transport, address: string, timeoutMs: number): Promise<Check[]> {
  const name = `main node ${address}`;
  try {
    const status = await fetchStatus(transport, address, timeoutMs);
    const workers = status.nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER').length;
    const found = `serves with ${workers === 1 ? '1 worker' : `${workers} workers`}`;
    const summary = workers > 0 ? ok(name, found) : warn(name, found, NO_WORKERS_ADVICE);
    return [
      summary,
      ...status.nodes.map(deviceCheck),
      ...status.nodes.flatMap((node) => fetchCheck(name, node)),
      ...status.problems.map((problem) =>
        warn(name, `${problem.id || problem.address}: ${problem.code}`, problem.message),
      ),
    ];
  } catch (thrown) {
    return [fail(name, 'does not tell its status', toOdmoeError(thrown).message)];
  }
}

/** The device of a node, and the reason for it. */
export function deviceCheck({ identity, deviceName, deviceReason }: NodeStatus): Check {
  const named = deviceName === '' ? identity.device : `${identity.device} (${deviceName})`;
  return ok(`device of ${identity.id}`, deviceReason === '' ? named : `${named}: ${deviceReason}`);
}

/** A check of a worker without a copy of the pack, until it has fetched all that it needs. */
export function fetchCheck(name: string, node: NodeStatus): Check[] {
  const { fetchNeededBytes, fetchHeldBytes, fetchProblem } = node;
  const found = fetchProgress(node);
  if (fetchProblem !== '') return [warn(name, found, fetchProblem)];
  return fetchHeldBytes < fetchNeededBytes ? [ok(name, `${found} that it needs of the pack`)] : [];
}

interface Described {
  readonly id: string;
  readonly words: string;
}

function describe(identity: NodeIdentity): Described {
  const { id, cluster, modelName } = identity;
  return { id, words: `${roleOf(identity)} "${id}" of cluster "${cluster}", model ${modelName || '(none)'}` };
}

/** By its certificate alone. */
function describeShown({ peer }: ShownByTls): Described {
  const id = peer?.id ?? '';
  return { id, words: `${peer?.role ?? 'node'} "${id}" of cluster "${peer?.cluster ?? ''}" (so its certificate)` };
}

function roleOf({ role }: NodeIdentity): string {
  return role.replace('ROLE_', '').toLowerCase();
}
