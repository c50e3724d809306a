import type { WorkerReply, NodeIdentity, NodeStatus } from '../shared/wire/messages.js';
import type { RunningNode } from '../engine/daemon/running-node.js';
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fillNodeDevice, type NodeDevice, requireNamedGpu } from '../engine/devices/open-node-device.js';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import { PackServer } from '../packs/fetching/pack-server.js';
import {
  type Device,
  exitWithParent,
  leaveNoCore,
  openHandles,
  requireAddon,
  sendServiceNotice,
} from '../native/index.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import { advertisedAddress } from '../engine/daemon/advertised-address.js';
import { followAddresses } from '../engine/daemon/follow-addresses.js';
import { ProcessCounts } from '../engine/daemon/process-counts.js';
import { createNodeIdentity, identifiedModel } from '../engine/daemon/node-identity.js';
import { closeAll, type Closer } from '../engine/daemon/close-all.js';
import { describeMachine } from '../engine/devices/describe-machine.js';
import { NATIVE_DEVICES } from '../engine/devices/devices.js';
import { followTrust } from '../engine/daemon/follow-trust.js';
import { afterEntering } from '../engine/daemon/enter-cluster.js';
import { type GiveUp, requireWanted, runDaemon } from '../engine/daemon/run-daemon.js';
import { JoinLoop } from '../shared/transport/discovery/join-loop.js';
import { assertInvariant } from '../shared/base/errors/assert-invariant.js';
import type { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Logger } from '../shared/base/log/logger.js';
import { activationCountsPath } from '../shared/base/files/state-directory.js';
import type { Pack } from '../packs/format/open-pack.js';
import type { HeldExperts } from '../packs/format/held-experts.js';
import { servedSlices } from '../packs/fetching/served-slices.js';
import { withHeadLayer } from '../engine/loading/head-layer.js';
import type { RuledSlices } from '../engine/loading/open-for-quality.js';
import { readsLowerSlices } from '../shared/decisions/slices/plan-readings.js';
import type { ModelSource } from '../shared/model/tensor-source.js';
import { STATUS_INTERVAL_MS, ownNodeStatus, type ProcessFigures } from '../shared/wire/node-status.js';
import type { Runtime } from '../shared/base/runtime/runtime.js';
import { rosterTaker } from '../engine/trust/take-roster.js';
import { ActivationRecord } from './cache/activation-record.js';
import type { HostMemoryOptions } from './cache/host-memory.js';
import { makeWorkerSlots } from './cache/make-slots.js';
import { ExpertService } from './executor/expert-service.js';
import { besideHead, servedHead, type ServedHead } from './loader/served-head.js';
import { reportFetch } from '../engine/fetching/fetch-report.js';
import { openWorkerPack, type WorkerPack } from './fetching/open-worker-pack.js';
import { ProspectFetch } from './fetching/prospect-fetch.js';
import { SlicesSupply } from './fetching/slices-supply.js';
import { PackFetch } from './fetching/pack-fetch.js';
import type { Mending } from './fetching/mending.js';
import { PackMending } from './fetching/pack-mending.js';
import { SlicesMending } from './fetching/slices-mending.js';
import { WorkerSessions } from './rpc/worker-sessions.js';

/**
 * Starts a worker in this process: opens its pack, or waits for main to fetch a pack from it; makes its slots; listens. Throws the errors of
 * opening a pack, such as MODEL_NOT_FOUND, DEVICE_OUT_OF_MEMORY when the budget does not hold one expert, PORT_UNAVAILABLE. `giveUp`: called
 * when its device is lost. `abandoned`: aborts the start.
 */
export async function startWorker(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  giveUp: GiveUp = () => undefined,
  abandoned: AbortSignal = new AbortController().signal,
): Promise<RunningNode> {
  const opened: Closer[] = [];
  const close = (): Promise<void> =>
    closeAll(
      opened
        .splice(0)
        .reverse()
        .map((closer) => [closer]),
    );
  try {
    const { experts, ...opening } = await openWorker(settings, environment, log, { opened, giveUp, abandoned });
    let stopping: Promise<void> | null = null;
    return { ...opening, memory: experts.memory, stop: () => (stopping ??= close()) };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}

const requireDevice = (settings: NodeSettings): void => requireNamedGpu(NATIVE_DEVICES, settings);

/** Runs the worker as its own process: `odmoe worker`. */
export function runWorker(): Promise<never> {
  return runDaemon(
    'worker',
    afterEntering(
      ({ settings, opened }, log, giveUp, abandoned) =>
        startWorker(settings, realEnvironment(settings, null, opened), log, giveUp, abandoned),
      describeMachine,
    ),
    { requireAddon, requireDevice, exitWithParent, leaveNoCore, sendServiceNotice },
  );
}

/** Returns the worker's address and components; adds to `opened` the functions that a stop must call. */
async function openWorker(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  { opened, giveUp, abandoned }: { opened: Closer[]; giveUp: GiveUp; abandoned: AbortSignal },
): Promise<Pick<RunningNode, 'address' | 'openCounts' | 'components' | 'hasMain'> & { experts: ExpertService }> {
  const { runtime } = environment;
  const startedMs = runtime.nowMs();
  const pack = await openWorkerPack(settings, environment, log, abandoned);
  const { source, sliced } = pack;
  const supply = supplyOf(pack, settings, environment, () => sendStatus(), log);
  const head = servedHead(pack, supply, settings.drafting);
  if (supply instanceof ProspectFetch) opened.push(reportFetch(supply, runtime, log));
  opened.push(() => supply.close());
  opened.push(await environment.usePack(source.directory));
  requireWanted(abandoned);
  const record = await openRecord(settings, source, runtime, log);
  if (record !== null) opened.push(() => record.close());
  const { nodeDevice, slots } = await openSlots(pack, head, settings, environment, record, log);
  const { device } = nodeDevice;
  opened.push(() => device.dispose());
  const onDeviceLost = (error: OdmoeError): void => {
    sessions.sendToMain(lostDeviceReply(error));
    giveUp(error);
  };
  const loaded = { ...besideHead(head, loadedSource(source, sliced), supply), rule: sliced?.rule ?? null };
  const memory = { ...hostMemoryOf(settings, pack, head, record), ...sharedMemoryOf(settings, device) };
  const experts = new ExpertService(slots, { ...loaded, runtime, log, ...memory, onDeviceLost });
  opened.push(() => experts.close());
  requireWanted(abandoned);
  const identity = createNodeIdentity(settings, identifiedModel(pack), device.info(), environment);
  const sendStatus = (): void => {
    const figures = { uptimeMs: runtime.nowMs() - startedMs, memoryBytes: runtime.memoryBytes() };
    const status = workerStatus(identity, figures, nodeDevice, experts, sessions, supply);
    sessions.sendToMain({ kind: 'status', status });
  };
  const sessions = new WorkerSessions({
    experts,
    shape: source.shape,
    draftHead: head,
    identity: () => identity,
    tellStatus: sendStatus,
    takeRoster: rosterTaker(environment.trust, log),
    runtime,
    log,
    fetch: supply,
  });
  const share = openShare(pack, runtime);
  const components = (): object[] => [experts, sessions, supply, share, record ?? {}];
  const listening = { ...environment, identity, sessions, share, components, giveUp };
  const address = await listen(settings, listening, log, opened);
  const hasMain = (): boolean => sessions.hasMain;
  opened.push(followTrust({ settings, environment, hasMain, mainAddress: () => sessions.mainAddress, giveUp }, log));
  const statusTimer = runtime.every(STATUS_INTERVAL_MS, sendStatus);
  opened.push(() => statusTimer.cancel());
  log.info('worker is ready', { address, model: source.name, device: identity.device, slots: experts.counters.slots });
  const openCounts = () => ({ ...experts.openCounts, earlyPredictions: sessions.earlyPredictions });
  return { address, openCounts, components, hasMain, experts };
}

/** Takes the device, and makes the slots of the experts in it. */
async function openSlots(
  { source, sliced }: WorkerPack,
  head: ServedHead | null,
  settings: NodeSettings,
  environment: NodeEnvironment,
  record: ActivationRecord | null,
  log: Logger,
) {
  const { runtime, measureReads, chooseWeightForm } = environment;
  return fillNodeDevice(environment, settings, log, async (nodeDevice) => ({
    nodeDevice,
    slots: await makeWorkerSlots({
      ...nodeDevice,
      source: loadedSource(source, sliced),
      sliced: sliced && { split: sliced.slices.split, lower: readsLowerSlices(sliced.rule) },
      head: head?.source ?? null,
      settings,
      runtime,
      log,
      measureReads,
      chooseWeightForm,
      counts: keepsExperts(settings) ? (record?.counts ?? null) : null,
    }),
  }));
}

/** Brings experts that are missing or damaged here. */
function supplyOf(
  { source, partial, sliced, fetched }: WorkerPack,
  settings: NodeSettings,
  environment: NodeEnvironment,
  onReady: () => void,
  log: Logger,
): PackFetch | SlicesSupply | Mending {
  if (partial !== null && fetched !== null)
    return new SlicesSupply(partial, fetched, settings, environment, onReady, log);
  if (sliced !== null) return new SlicesMending(source, sliced.slices, settings, environment, log);
  if (partial === null) return new PackMending(source, settings, environment, log);
  return new PackFetch(partial, settings, environment, onReady, log);
}

/** Gives other nodes what is here of the pack. */
function openShare({ source, partial, sliced, fetched }: WorkerPack, runtime: Runtime): PackServer {
  const held = (): HeldExperts | null => (partial === null || partial.isWhole ? null : partial.held);
  const slices = fetched ?? (sliced && servedSlices(sliced.slices, source.shape));
  return new PackServer(source, runtime, { held, slices });
}

/** The model as the worker loads it. */
function loadedSource(source: Pack, sliced: RuledSlices | null): ModelSource {
  if (sliced === null) return source;
  return { ...source, expert: (layer, expert) => sliced.slices.expert(layer, expert) };
}

/** The message that reports a lost device to main, without an execute that asked for it. */
function lostDeviceReply({ code, message }: OdmoeError): WorkerReply {
  return { kind: 'error', error: { code, message, requestId: 0, epoch: 0 } };
}

/** The options of the worker's host memory, with its use counts; null if the settings ask for none. */
function hostMemoryOf(
  { worker }: NodeSettings,
  { source, partial }: WorkerPack,
  head: ServedHead | null,
  record: ActivationRecord | null,
): { hostMemory: HostMemoryOptions | null } {
  if (worker.hostMemory === 0) return { hostMemory: null };
  assertInvariant(record !== null, 'a worker that keeps experts in host memory counts their uses');
  const isHere = (layer: number, expert: number): boolean => {
    if (layer === head?.layer) return head.isHere;
    return partial === null || partial.held.has(layer, expert);
  };
  const held = head === null ? source : withHeadLayer(source, head.source);
  return { hostMemory: { setting: worker.hostMemory, source: held, counts: record.counts, isHere } };
}

/** The bytes that others leave free on a shared device; nothing for a worker that has the device for itself. */
function sharedMemoryOf({ worker }: NodeSettings, device: Device): { freeDeviceBytes?: () => number } {
  if (!worker.yields) return {};
  return {
    freeDeviceBytes: () => {
      const { budgetBytes, usedBytes } = device.info();
      return Math.max(0, budgetBytes - usedBytes);
    },
  };
}

/** True if the worker caches experts on its device between uses. */
function keepsExperts({ worker }: NodeSettings): boolean {
  return worker.cacheBytes > 0 || worker.pools !== null;
}

/** The record of the experts that main asks this worker for; null if the worker caches nothing. */
async function openRecord(
  settings: NodeSettings,
  { packDigest, shape }: Pack,
  runtime: Runtime,
  log: Logger,
): Promise<ActivationRecord | null> {
  if (!keepsExperts(settings) && settings.worker.hostMemory === 0) return null;
  const { stateDirectory, id } = settings;
  const path = activationCountsPath(stateDirectory, packDigest, id);
  return ActivationRecord.open(path, { packDigest, experts: shape.experts }, runtime, log);
}

interface ListeningWorker extends NodeEnvironment {
  identity: NodeIdentity;
  sessions: WorkerSessions;
  share: PackServer;
  components: () => readonly object[];
  giveUp: GiveUp;
}

async function listen(
  settings: NodeSettings,
  { runtime, transport, trust, discovery, interfaces, identity, sessions, share, components, giveUp }: ListeningWorker,
  log: Logger,
  opened: Closer[],
): Promise<string> {
  const counts = new ProcessCounts(runtime, components, () => ({ ...openHandles() }));
  const server = await transport.serve({
    host: settings.listenHost,
    port: settings.listenPort,
    network: settings.network,
    log,
    node: { identify: () => identity, counts: () => counts.reply() },
    pack: share,
    worker: sessions,
  });
  opened.push(() => server.stop());
  identity.address = advertisedAddress(settings, server.port);
  let joining: JoinLoop | null = null;
  if (settings.mainAddress !== null) {
    const loop = new JoinLoop({
      runtime,
      transport,
      mainAddress: settings.mainAddress,
      identity: () => identity,
      isServed: () => sessions.hasMain,
      retryDelayMs: settings.network.reconnectDelayMs,
      endRefused: trust === null ? null : giveUp,
      log,
    });
    opened.push(() => loop.stop());
    joining = loop;
  }
  opened.push(followAddresses(interfaces, settings, log, () => joining?.askAnew()));
  const advertisement = await discovery.advertise(settings, identity, log);
  opened.push(() => advertisement.stop());
  return server.address;
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runWorker();

/** The status that `odmoe status` shows for the worker. */
function workerStatus(
  identity: NodeIdentity,
  figures: ProcessFigures,
  { device, reason }: Pick<NodeDevice, 'device' | 'reason'>,
  experts: ExpertService,
  sessions: WorkerSessions,
  supply: { readonly status: Partial<NodeStatus> },
): NodeStatus {
  const { droppedPredictions, ...counters } = experts.counters;
  const { epoch, staleMessages, droppedPredictions: droppedEarly, servesDraftHead } = sessions.counters;
  return {
    ...ownNodeStatus(identity, figures, device.info(), reason),
    ...counters,
    ...supply.status,
    epoch,
    staleMessages,
    servesDraftHead,
    droppedPredictions: droppedPredictions + droppedEarly,
  };
}
