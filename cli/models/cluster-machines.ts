import { readAuthorityFiles } from '../../engine/trust/authority-files.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { fetchStatus } from '../../shared/transport/node-clients.js';
import { socketAddress } from '../../shared/wire/addresses.js';
import type { StatusReply } from '../../shared/wire/messages.js';
import type { WorkerBoxes } from '../../simulator/plan/planned-profile.js';
import { runtime } from '../client/process-runtime.js';

/** A main of this host that answers does so at once, unless it computes. */
const STATUS_TIMEOUT_MS = 3000;

/** The machines on which a cluster can count beside main. */
export interface Machines {
  workers: number;
  hasShadow: boolean;
  /**
   * asked: the user gave their number; cluster: they are in the cluster's list, or among its configured addresses; measured: they are connected to the
   * main that runs on this host.
   */
  source: 'asked' | 'cluster' | 'measured';
  /** The measurements of the workers, one entry each; empty if none is known. */
  boxes: readonly WorkerBoxes[];
}

/**
 * Machines that are connected to the main of this host, or else those that its cluster has let in, or that its configuration names. `asked`: their
 * number; null: it is looked up. @throws as readAuthorityFiles
 */
export async function presentMachines(
  settings: Pick<NodeSettings, 'stateDirectory' | 'cluster' | 'discovery'>,
  asked: number | null,
): Promise<Machines> {
  const { stateDirectory, cluster, discovery } = settings;
  const state = await readAuthorityFiles(stateDirectory, cluster);
  const listed = state?.roster.entries.filter(({ removed }) => removed === undefined) ?? [];
  const count = (role: 'worker' | 'shadow'): number =>
    Math.max(
      listed.filter((entry) => entry.role === role).length,
      discovery.peers.filter((peer) => peer.role === role).length,
    );
  const hasShadow = count('shadow') > 0;
  if (asked !== null) return { workers: asked, hasShadow, source: 'asked', boxes: [] };
  const status = await statusOfThisHost(stateDirectory);
  const connected = status === null ? null : machinesOf(status);
  if (connected !== null && connected.workers > 0) return connected;
  return { workers: count('worker'), hasShadow, source: 'cluster', boxes: [] };
}

/** Null: no main of the cluster runs on this host, or it does not answer. */
async function statusOfThisHost(stateDirectory: string): Promise<StatusReply | null> {
  const path = operatorSocketPath(stateDirectory);
  if (!(await fileExists(path))) return null;
  try {
    return await fetchStatus(new GrpcTransport(runtime), socketAddress(path), STATUS_TIMEOUT_MS);
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}

/**
 * The machines by main's status. A worker that has loaded experts tells how fast, whatever model they were of: its storage, its decoding and the
 * way to its device, GPU or processor, are in the time of a load. Pure.
 */
export function machinesOf({ nodes }: Pick<StatusReply, 'nodes'>): Machines {
  const main = nodes.find(({ identity }) => identity.role === 'ROLE_MAIN');
  // Main's own worker has main's address, and is no machine more.
  const workers = nodes.filter(
    ({ identity }) => identity.role === 'ROLE_WORKER' && identity.address !== main?.identity.address,
  );
  const boxes = workers.map(({ loads, loadMsMean, slotBytes, deviceMemoryBudgetBytes: budgetBytes }) => ({
    count: 1,
    linkBytesPerS: loads > 0 && loadMsMean > 0 ? (slotBytes / loadMsMean) * 1000 : null,
    memoryBytes: budgetBytes > 0 ? budgetBytes : null,
  }));
  const hasShadow = nodes.some(({ identity }) => identity.role === 'ROLE_SHADOW');
  return { workers: boxes.length, hasShadow, source: 'measured', boxes };
}
