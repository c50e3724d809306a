import type { StateRecorder } from '../engine/recording/state-recorder.js';
import type { RunningNode } from '../engine/daemon/running-node.js';
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { realEnvironment, type NodeEnvironment, type OwnWorker } from '../engine/environment/node-environment.js';
import { PackServer } from '../packs/fetching/pack-server.js';
import { type ServedSlices, servedSlices, slicesToServe } from '../packs/fetching/served-slices.js';
import { exitWithParent, leaveNoCore, openHandles, requireAddon, sendServiceNotice } from '../native/index.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import { advertisedAddress } from '../engine/daemon/advertised-address.js';
import { followAddresses } from '../engine/daemon/follow-addresses.js';
import { ProcessCounts } from '../engine/daemon/process-counts.js';
import { createNodeIdentity, identifiedModel } from '../engine/daemon/node-identity.js';
import { closeAll } from '../engine/daemon/close-all.js';
import { describeMachine } from '../engine/devices/describe-machine.js';
import { afterEntering } from '../engine/daemon/enter-cluster.js';
import { type GiveUp, runDaemon } from '../engine/daemon/run-daemon.js';
import type { Stoppable } from '../shared/transport/discovery/discovery.js';
import { toOdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Logger } from '../shared/base/log/logger.js';
import { assemble, type ComponentSources, openCounts, type MainComponents } from './assemble-main.js';
import type { HttpApi } from '../http-api/start-http-api.js';
import { NOBODY_WATCHES } from '../http-api/delivery/generation-watch.js';
import { countedName } from '../shared/transport/peer-context.js';
import { openHttpApi, planHttpApi, type PlannedHttpApi } from './open-http-api.js';
import type { RpcServer, RpcServerOptions } from '../shared/transport/transport.js';
import { allowServedPack } from './enrolment/allow-packs.js';
import { Admission } from './enrolment/admission.js';
import { OperatorService } from './enrolment/operator-service.js';
import { arithmeticOf, disposeLoaded, loadMain, type LoadedMain } from './load-main.js';
import { openRowStore } from './stored-rows/open-row-store.js';
import type { RowStore } from './stored-rows/row-store.js';
import { type RunningOwnWorker, startOwnWorker } from './own-worker.js';

/** Handle of a running main. */
export interface RunningMain extends RunningNode {
  /** "host:port" at which HTTP clients are served; null: they are not served. */
  readonly httpAddress: string | null;
}

/**
 * Starts a main in this process: loads all but the experts, serves users and gathers the cluster. Throws if something cannot be opened, loaded or
 * listened on. `giveUp`: called when its device is lost. `abandoned`: aborts when main is not to start any more.
 */
export async function startMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  giveUp: GiveUp = () => undefined,
  abandoned: AbortSignal = new AbortController().signal,
): Promise<RunningMain> {
  const httpApi = await planHttpApi(settings, environment, log);
  const loaded = await loadMain(settings, environment, log, abandoned);
  let ownWorker: RunningOwnWorker | null = null;
  let admission: Admission | null = null;
  let stored: RowStore | null = null;
  let recorder: StateRecorder | null = null;
  try {
    ownWorker = await startOwnWorker(settings, { ...loaded, environment }, { giveUp, abandoned }, log);
    const transport = ownWorker?.transport ?? environment.transport;
    const experts = ownWorker?.memory ?? null;
    stored = await storeOfMain(settings, loaded, environment, log);
    recorder = await recorderOfMain(settings, loaded, environment, log);
    const components = { ...loaded, environment: { ...environment, transport }, experts, stored, recorder };
    admission = Admission.open(settings, environment, log);
    return await serveMain(settings, components, { httpApi, giveUp, ownWorker, admission }, log);
  } catch (thrown) {
    const opened = [() => admission?.stop(), () => stored?.close(), () => recorder?.close(), () => ownWorker?.stop()];
    await closeAll([opened, [() => disposeLoaded(loaded)]]).catch((fault: unknown) => {
      log.warn('main did not stop cleanly after a failed start', { error: toOdmoeError(fault) });
    });
    throw thrown;
  }
}

/** Rows of earlier requests on main's disk; null: there are none. */
function storeOfMain(
  settings: NodeSettings,
  loaded: LoadedMain,
  { runtime, versions, openStoreFiles }: NodeEnvironment,
  log: Logger,
): Promise<RowStore | null> {
  const { main, stateDirectory } = settings;
  const { packDigest, slicesDigest = '' } = identifiedModel(loaded);
  const { arithmeticVersion } = versions;
  const wanted = {
    stateDirectory,
    limitBytes: main.prefixStoreBytes,
    reusesPrefixes: main.reusePrefixes,
    shape: loaded.source.shape,
    origin: { packDigest, slicesDigest, arithmetic: arithmeticOf(settings, loaded), arithmeticVersion },
    decides: main.quality.kind === 'cached',
  };
  return openRowStore(wanted, runtime, openStoreFiles, log);
}

/** Records the states of answers; null: nothing is recorded. */
async function recorderOfMain(
  { main: { recordTokens: tokens } }: NodeSettings,
  { source: pack }: LoadedMain,
  { runtime, openRecorder }: NodeEnvironment,
  log: Logger,
): Promise<StateRecorder | null> {
  return tokens === 0 ? null : await openRecorder({ pack, tokens }, runtime, log);
}

/** The daemon `odmoe main`. `ownWorker`: starts a worker of main's own (main.experts); null: it has none. */
export async function runMain(ownWorker: OwnWorker['start'] | null = null): Promise<never> {
  return runDaemon(
    'main',
    afterEntering(
      ({ settings, opened }, log, giveUp, abandoned) =>
        startMain(settings, realEnvironment(settings, ownWorker, opened), log, giveUp, abandoned),
      describeMachine,
    ),
    { requireAddon, exitWithParent, leaveNoCore, sendServiceNotice },
  );
}

/** Where HTTP clients are served, and the key that main has made for the page. */
function servedHttp(
  httpApi: HttpApi | null,
  planned: MainSurroundings['httpApi'],
): Pick<RunningMain, 'httpAddress' | 'ownKey'> {
  return { httpAddress: httpApi?.address ?? null, ownKey: planned?.ownKey ?? null };
}

/** The slices that workers fetch from main: those with which they are to compute, or those that lie beside its pack. */
async function slicesOfMain(
  { source, sliced, environment: { openSlices } }: ComponentSources,
  log: Logger,
): Promise<ServedSlices | null> {
  if (sliced !== null) return servedSlices(sliced.slices, source.shape);
  return openSlices && (await slicesToServe(openSlices, source, log));
}

async function serveMain(
  settings: NodeSettings,
  loaded: ComponentSources,
  { httpApi: planned, giveUp, ownWorker, admission }: MainSurroundings,
  log: Logger,
): Promise<RunningMain> {
  const { runtime, transport, discovery } = loaded.environment;
  const slices = await slicesOfMain(loaded, log);
  if (admission !== null) await allowServedPack(admission.desk, loaded.source, slices);
  const identity = createNodeIdentity(settings, identifiedModel(loaded), loaded.device.info(), loaded.environment);
  let httpApi: HttpApi | null = null;
  const httpAddress = (): string => httpApi?.address ?? '';
  const options = { identity, giveUp, httpAddress, ownWorkerId: ownWorker?.id ?? '', admission };
  const components = assemble(settings, loaded, options, log);
  const { membership, inference } = components;
  const parts = [components, loaded.formats ?? {}, admission ?? {}];
  const holders = (): object[] => [...parts, httpApi ?? {}, ...(ownWorker?.components() ?? [])];
  const counts = new ProcessCounts(runtime, holders, () => ({ ...openHandles() }));
  const server = await transport.serve({
    host: settings.listenHost,
    port: settings.listenPort,
    network: settings.network,
    log,
    node: { identify: () => identity, counts: () => counts.reply() },
    ...servedBy(components, new PackServer(loaded.source, runtime, { slices }), { ownWorker, admission }, log),
  });
  admission?.countConnectionsOf(server);
  identity.address = advertisedAddress(settings, server.port);
  const started: Stoppable[] = [];
  let advertisement: Stoppable | null = null;
  let stopping: Promise<void> | null = null;
  const serving = { started, server, ownWorker, admission };
  const stop = (): Promise<void> => (stopping ??= stopMain(components, { httpApi, ...serving }, loaded));
  try {
    if (planned !== null) httpApi = await openHttpApi(planned, components, loaded, log);
    if (ownWorker !== null) membership.addOwn(ownWorker.listensOn(server.port), ownWorker.id);
    membership.addConfigured(settings.discovery.peers);
    started.push(follow(settings, loaded, { membership, server, ownWorker }, log));
    started.push(await discovery.watchPeers(settings, (peer) => membership.addDiscovered(peer), log));
    advertisement = await discovery.advertise(settings, identity, log);
    started.push(advertisement);
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  components.feed.start();
  log.info('main is ready', { address: server.address, model: loaded.source.name });
  return {
    address: server.address,
    ...servedHttp(httpApi, planned),
    notice: admission?.notice,
    stop,
    drain: (cut) => drainMain(settings, { inference, server, advertisement }, cut, log),
    openCounts: () => ({ ...openCounts(components), ...ownWorker?.openCounts() }),
    components: holders,
    retainedSequences: () => components.engine.room.heldSequences,
    metrics: () => components.metrics.text(),
    events: (wantsPasses) => components.feed.listen(wantsPasses),
  };
}

/** The handlers for calls of peers and clients, and the ways to main that a cluster with an authority has. */
function servedBy(
  components: MainComponents,
  pack: PackServer,
  { ownWorker, admission }: Pick<MainSurroundings, 'ownWorker' | 'admission'>,
  log: Logger,
): Omit<RpcServerOptions, 'host' | 'port' | 'network' | 'log' | 'node'> {
  const { membership, inference, engine } = components;
  const linksTo = (id: string): number => engine.roster.links().filter(({ peer }) => peer === id).length;
  const connectionsOf = (id: string): number => linksTo(id) + (admission?.connectionsFrom(id) ?? 0);
  return {
    operator: new OperatorService(
      admission?.desk ?? null,
      { connectionsOf, drain: (request) => components.drain(request) },
      log,
    ),
    cluster: {
      join: ({ identity }, peer) => membership.join(identity, peer),
      status: () => components.status(),
    },
    inference: {
      generate: (request, signal, peer) =>
        inference.generate(request, signal, { ...NOBODY_WATCHES, client: countedName(peer) }),
    },
    pack,
    ...(ownWorker === null ? {} : { worker: ownWorker }),
    ...admission?.ways,
  };
}

/** The components that listen, advertise and run beside the components of a main. */
interface Serving {
  readonly httpApi: HttpApi | null;
  readonly started: readonly Stoppable[];
  readonly server: RpcServer;
  readonly ownWorker: RunningOwnWorker | null;
  readonly admission: Admission | null;
}

/** When this host's address changes, the worker in this process is placed at the new one. */
function follow(
  settings: NodeSettings,
  { environment: { interfaces } }: ComponentSources,
  { membership, server, ownWorker }: Pick<MainComponents, 'membership'> & Pick<Serving, 'server' | 'ownWorker'>,
  log: Logger,
): Stoppable {
  const stop = followAddresses(interfaces, settings, log, () => {
    if (ownWorker !== null) membership.moveOwn(ownWorker.listensOn(server.port), ownWorker.id);
  });
  return { stop: async () => stop() };
}

/** The arguments of a main's start beside its components. */
interface MainSurroundings {
  httpApi: PlannedHttpApi | null;
  giveUp: GiveUp;
  ownWorker: RunningOwnWorker | null;
  /** null: the cluster has no authority. */
  admission: Admission | null;
}

/** Takes no new clients and peers; running requests get their whole answers. */
async function drainMain(
  { main: { stopGraceMs } }: NodeSettings,
  { inference, server, advertisement }: Pick<MainComponents, 'inference'> & Pick<Serving, 'server'> & Advertised,
  cut: AbortSignal,
  log: Logger,
): Promise<void> {
  log.info('no new requests are taken; those under way end first', { requests: inference.openCount, stopGraceMs });
  server.tellLeaving();
  await Promise.all([advertisement?.stop(), inference.drain(stopGraceMs, cut)]);
}

/** null: main is not advertised. */
interface Advertised {
  readonly advertisement: Stoppable | null;
}

/** Answers end first, so that their sequences are freed at the workers and the shadow while the streams are still open. */
async function stopMain(
  components: MainComponents,
  { httpApi, started, server, ownWorker, admission }: Serving,
  loaded: LoadedMain,
): Promise<void> {
  const { engine, membership, inference } = components;
  components.feed.stop();
  await closeAll([
    [
      () => httpApi?.close(),
      () => inference.stop(),
      () => admission?.stop(),
      () => server.stop(),
      ...started.map((component) => () => component.stop()),
    ],
    [() => engine.checks?.stop()],
    [() => engine.roster.stop()],
    [() => membership.stop()],
    [() => ownWorker?.stop(), () => engine.room.closeStore()],
    [() => engine.passLoop.dispose(), () => engine.room.dispose(), () => engine.recorder?.close()],
    [() => disposeLoaded(loaded)],
  ]);
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runMain();
