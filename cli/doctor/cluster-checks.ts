/** Checks of the network: ports, multicast, and the nodes that answer or do not answer. */
import { nodesOfThisHost } from '../../shared/settings/resolve-node-settings.js';
import type { ClusterConfig } from '../../shared/settings/cluster-config.js';
import {
  fetchProgress,
  NO_WORKERS_ADVICE,
  SILENT_PEER_ADVICE,
} from '../../shared/decisions/diagnosis/cluster-problems.js';
import { probeMulticast } from './probe-multicast.js';
import type { DiscoveredPeer } from '../../shared/transport/discovery/txt-record.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { PROTOCOL_VERSION } from '../../shared/wire/limits.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';
import { fail, ok, warn, type Check } from './check.js';
import { runtime, transport } from '../client/process-runtime.js';
import { connect } from 'node:net';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { fetchStatus, identifyPeer } from '../../shared/transport/node-clients.js';

export interface ClusterQuestion {
  config: ClusterConfig;
  /** The cluster to which peers should belong; null: any. */
  cluster: string | null;
  mainAddress: string | null;
  interfaceAddress: string | null;
  timeoutMs: number;
}

/** Ports to check if no configuration names any: the daemons' default ports. */
const DEFAULT_PORTS = [7600, 7601, 7602];

export async function checkCluster(question: ClusterQuestion): Promise<Check[]> {
  const ports = await checkPorts(question);
  const { check, peers } = await checkMulticast(question);
  return [...ports, check, ...(await checkPeers(question, peers))];
}

async function checkPorts({ config, timeoutMs }: ClusterQuestion): Promise<Check[]> {
  const own = nodesOfThisHost(config).map(({ id, address }) => ({ id, port: address.port }));
  const ports = own.length > 0 ? own : DEFAULT_PORTS.map((port) => ({ id: null, port }));
  return Promise.all(
    ports.map(async ({ id, port }) => portCheck(port, id, await diagnosePeer(`127.0.0.1:${port}`, timeoutMs))),
  );
}

/** `expectedId`: the node that the configuration has at this port; null: any. */
export function portCheck(port: number, expectedId: string | null, found: PeerDiagnosis): Check {
  const name = `port ${port}`;
  const choose = 'stop it, or choose another port';
  switch (found.kind) {
    case 'odmoe': {
      const who = `${describe(found.identity)} listens`;
      const expected = expectedId === null || found.identity.id === expectedId;
      return expected
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

async function checkMulticast(question: ClusterQuestion): Promise<{ check: Check; peers: DiscoveredPeer[] }> {
  const name = 'multicast';
  const { heardOneself, peers, fault } = await probeMulticast(runtime, question.interfaceAddress, question.timeoutMs);
  const where = question.interfaceAddress ?? 'the networks of this machine';
  if (heardOneself) {
    return { check: ok(name, `reaches ${where}; ${peers.length} nodes of all clusters advertise themselves`), peers };
  }
  const found = `our own advertisement did not come back from ${where}${fault === null ? '' : ` (${fault})`}`;
  const advice =
    'choose the interface (discovery.interface, --interface), allow UDP port 5353 in the firewall, ' +
    'or list the nodes under static discovery';
  const needed = question.config.discovery.provider === 'mdns' && question.mainAddress === null;
  return { check: needed ? fail(name, found, advice) : warn(name, found, advice), peers };
}

interface Candidate {
  address: string;
  /** The node that the configuration has at this address; null: the address comes from mDNS or a flag. */
  expectedId: string | null;
  /** True: only mDNS named this address; no configuration expects a node there. */
  heardOnly: boolean;
}

async function checkPeers(question: ClusterQuestion, heard: readonly DiscoveredPeer[]): Promise<Check[]> {
  const candidates = candidatesOf(question, heard);
  const diagnoses = await Promise.all(
    candidates.map(async (candidate) => ({
      candidate,
      diagnosis: await diagnosePeer(candidate.address, question.timeoutMs),
    })),
  );
  const main = diagnoses.find(({ candidate, diagnosis }) => isMain(diagnosis, question, candidate));
  const mainIdentity = main?.diagnosis.kind === 'odmoe' ? main.diagnosis.identity : null;
  const checks = diagnoses.map(({ candidate, diagnosis }) =>
    peerCheck(candidate, diagnosis, question.cluster, mainIdentity),
  );
  if (main === undefined) {
    const advice = 'start it (`odmoe main`, `odmoe up`) or give its address by --main HOST:PORT';
    return [...checks, warn('main node', 'none answers', advice)];
  }
  return [...checks, ...(await problemsOfMain(main.candidate.address, question.timeoutMs))];
}

function isMain(diagnosis: PeerDiagnosis, question: ClusterQuestion, { address }: Candidate): boolean {
  if (diagnosis.kind !== 'odmoe' || diagnosis.identity.role !== 'ROLE_MAIN') return false;
  if (question.mainAddress !== null) return address === question.mainAddress;
  return question.cluster === null || diagnosis.identity.cluster === question.cluster;
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
  const found = `${describe(identity)} answers`;
  if (expectedId !== null && identity.id !== expectedId) {
    return fail(name, `${found}, not ${expectedId}`, 'correct the address in cluster.yaml, or the id of the daemon');
  }
  if (identity.protocolVersion !== PROTOCOL_VERSION) {
    const versions = `protocol ${identity.protocolVersion} there and ${PROTOCOL_VERSION} here`;
    return fail(name, `${found}: ${versions}`, 'install the same version of odmoe on both');
  }
  if (cluster !== null && identity.cluster !== cluster && expectedId === null) {
    return ok(name, `${found}; it is of another cluster and left alone`);
  }
  const refusal = main === null ? null : checkPeer(main, identity);
  if (refusal === null) return ok(name, found);
  return fail(name, found, refusal.message);
}

/** Main's own reports about peers that it cannot use. */
async function problemsOfMain(address: string, timeoutMs: number): Promise<Check[]> {
  const name = `main node ${address}`;
  try {
    const status = await fetchStatus(transport, address, timeoutMs);
    const workers = status.nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER').length;
    const found = `serves with ${workers} workers`;
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

function describe(identity: NodeIdentity): string {
  const role = identity.role.replace('ROLE_', '').toLowerCase();
  return `${role} "${identity.id}" of cluster "${identity.cluster}", model ${identity.modelName || '(none)'}`;
}

/** The node that answers at an address, or the reason why none does. */

type PeerDiagnosis =
  | { kind: 'odmoe'; identity: NodeIdentity }
  /** The machine exists, but no program listens at the port. */
  | { kind: 'refused' }
  /** No reply came at all. */
  | { kind: 'silent' }
  | { kind: 'unreachable'; reason: string }
  /** A program listens, but it is not odmoe. */
  | { kind: 'stranger'; reason: string };

export async function diagnosePeer(address: string, timeoutMs: number): Promise<PeerDiagnosis> {
  const { host, port } = parseAddress(address);
  const failure = await tryConnect(host, port, timeoutMs);
  if (failure === 'ECONNREFUSED') return { kind: 'refused' };
  if (failure === 'timeout' || failure === 'ETIMEDOUT') return { kind: 'silent' };
  if (failure !== null) return { kind: 'unreachable', reason: failure };
  try {
    return { kind: 'odmoe', identity: await identifyPeer(transport, address, timeoutMs) };
  } catch (thrown) {
    return { kind: 'stranger', reason: toOdmoeError(thrown).message };
  }
}

/** Null if a TCP connection succeeds, else the system's error code. */
async function tryConnect(host: string, port: number, timeoutMs: number): Promise<string | null> {
  const socket = connect({ host, port });
  let resolve: (failure: string | null) => void = () => undefined;
  const outcome = new Promise<string | null>((settle) => (resolve = settle));
  const silence = waitForPeer(runtime, timeoutMs, () => resolve('timeout'));
  socket.once('connect', () => resolve(null));
  socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  try {
    return await outcome;
  } finally {
    silence.cancel();
    socket.destroy();
  }
}
