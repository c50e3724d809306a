import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fillNodeDevice } from '../engine/devices/index.js';
import { PackShare } from '../engine/fetching/index.js';
import { eventTimeMs, exitWithParent, waitUntil } from '../native/index.js';
import type { NodeSettings, RunningNode } from '../shared/config/node-settings.js';
import { advertisedAddress, createNodeIdentity, runDaemon, type GiveUp } from '../shared/daemon/index.js';
import { advertise, JoinLoop } from '../shared/discovery/index.js';
import { networkTransitOf } from '../shared/emulation/index.js';
import { toOdmoeError, type OdmoeError } from '../shared/errors/index.js';
import type { Logger } from '../shared/log/index.js';
import { activationCountsPath } from '../shared/files/state-directory.js';
import type { Pack } from '../shared/pack/open-pack.js';
import { startRpcServer, STATUS_INTERVAL_MS, type NodeIdentity } from '../shared/rpc/index.js';
import { ActivationRecord } from './cache/activation-record.js';
import { makeWorkerSlots } from './cache/make-slots.js';
import { ExpertService } from './executor/expert-service.js';
import { reportFetch } from './fetching/fetch-report.js';
import { openWorkerPack } from './fetching/open-worker-pack.js';
import { PackFetch } from './fetching/pack-fetch.js';
import { WorkerSessions } from './rpc/worker-sessions.js';
import { workerStatus } from './worker-status.js';

/**
 * A worker in this process: opens its pack, or waits for main's to fetch from, makes its slots, listens. Throws MODEL_NOT_FOUND and
 * its like, DEVICE_OUT_OF_MEMORY when the budget does not hold one expert, PORT_UNAVAILABLE. `giveUp`: its device is lost.
 */
export async function startWorker(
  settings: NodeSettings,
  log: Logger,
  giveUp: GiveUp = () => undefined,
): Promise<RunningNode> {
  const opened: Closer[] = [];
  const close = async (): Promise<void> => {
    const faults: unknown[] = [];
    for (const closer of opened.splice(0).reverse()) {
      await Promise.resolve()
        .then(closer)
        .catch((thrown: unknown) => faults.push(thrown));
    }
    if (faults.length > 0) throw toOdmoeError(faults[0]);
  };
  try {
    const address = await openWorker(settings, log, opened, giveUp);
    let stopping: Promise<void> | null = null;
    return { address, stop: () => (stopping ??= close()) };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}

/** Undoes one step of a start. Steps are undone in reverse order. */
type Closer = () => Promise<void> | void;

/** The worker as a process of its own: `odmoe worker`. */
export function runWorker(): Promise<never> {
  return runDaemon('worker', startWorker, exitWithParent);
}

/** Returns the address that the worker listens on; adds to `opened` what a stop has to close. */
async function openWorker(settings: NodeSettings, log: Logger, opened: Closer[], giveUp: GiveUp): Promise<string> {
  const startedMs = performance.now();
  const { source, partial } = await openWorkerPack(settings, log);
  const fetch = partial === null ? null : new PackFetch(partial, settings, () => sendStatus(), log);
  if (fetch !== null) opened.push(reportFetch(fetch, log), () => fetch.close());
  const record = await openRecord(settings, source, log);
  if (record !== null) opened.push(() => record.close());
  const { nodeDevice, slots } = await fillNodeDevice(settings, log, async (nodeDevice) => {
    const { device, emulation } = nodeDevice;
    const counts = record?.counts ?? null;
    return { nodeDevice, slots: await makeWorkerSlots({ device, emulation, source, settings, counts, log }) };
  });
  const { device } = nodeDevice;
  opened.push(() => {
    device.dispose();
  });
  const onDeviceLost = (error: OdmoeError): void => {
    const { code, message } = error;
    sessions.sendToMain({ kind: 'error', error: { code, message, requestId: 0, epoch: 0 } });
    giveUp(error);
  };
  const experts = new ExpertService(slots, {
    source,
    nowMs: () => performance.now(),
    log,
    supply: fetch,
    onDeviceLost,
  });
  opened.push(() => experts.close());
  const identity = createNodeIdentity(settings, source, device.info());
  const sendStatus = (): void => {
    const uptimeMs = performance.now() - startedMs;
    sessions.sendToMain({
      kind: 'status',
      status: workerStatus(identity, uptimeMs, nodeDevice, experts, sessions, fetch),
    });
  };
  const sessions = new WorkerSessions(experts, source.shape, () => identity, sendStatus, log, fetch);
  const share = new PackShare(source, () => (partial === null || partial.isWhole ? null : partial.held));
  const address = await listen(settings, identity, { sessions, share }, log, opened);
  const statusTimer = setInterval(sendStatus, STATUS_INTERVAL_MS);
  opened.push(() => {
    clearInterval(statusTimer);
  });
  log.info('worker is ready', { address, model: source.name, device: identity.device, slots: experts.counters.slots });
  return address;
}

/** The record of what this worker is asked for; null for one that keeps nothing. */
async function openRecord(
  { stateDirectory, id, worker }: NodeSettings,
  { packDigest, shape }: Pack,
  log: Logger,
): Promise<ActivationRecord | null> {
  if (worker.cacheBytes === 0 && worker.pools === null) return null;
  const path = activationCountsPath(stateDirectory, packDigest, id);
  return ActivationRecord.open(path, { packDigest, experts: shape.experts }, log);
}

async function listen(
  settings: NodeSettings,
  identity: NodeIdentity,
  { sessions, share }: { sessions: WorkerSessions; share: PackShare },
  log: Logger,
  opened: Closer[],
): Promise<string> {
  const server = await startRpcServer({
    ...{ host: settings.listenHost, port: settings.listenPort, network: settings.network, log },
    transit: networkTransitOf(settings.emulation, { waitUntil, now: eventTimeMs }),
    identity: () => identity,
    pack: share,
    worker: (stream, peerHost) => {
      sessions.serve(stream, peerHost);
    },
  });
  opened.push(() => server.stop());
  identity.address = advertisedAddress(settings, server.port);
  if (settings.mainAddress !== null) {
    const joining = new JoinLoop({
      mainAddress: settings.mainAddress,
      identity: () => identity,
      isServed: () => sessions.hasMain,
      retryDelayMs: settings.network.reconnectDelayMs,
      log,
    });
    opened.push(() => joining.stop());
  }
  const advertisement = await advertise(settings, identity, log);
  opened.push(() => advertisement.stop());
  return server.address;
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runWorker();
