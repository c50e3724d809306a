import type { RunningNode } from '../engine/daemon/running-node.js';
import { servedShape } from '../engine/loading/served-shape.js';
import { packQuality, shadowForm, type ShadowForm, type ShadowLoading } from '../engine/loading/shadow-form.js';
import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fillNodeDevice, type NodeDevice, requireNamedGpu } from '../engine/devices/open-node-device.js';
import { deviceMemoryLeft } from '../engine/devices/device-memory-left.js';
import { chooseShadowForm } from '../engine/loading/choose-shadow-form.js';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import { toOdmoeError, type OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../shared/base/errors/registry.js';
import { isSlicesOnly } from '../packs/format/manifest.js';
import { heldSlices } from '../packs/slices/open-slices.js';
import { readShadowRecall } from '../packs/shadow-recall-file.js';
import { PackServer } from '../packs/fetching/pack-server.js';
import { slicesToServe } from '../packs/fetching/served-slices.js';
import type { FormatCompiler } from '../engine/sampling/format-compiler.js';
import { OutputFormats } from '../engine/sampling/output-formats.js';
import {
  exitWithParent,
  leaveNoCore,
  openHandles,
  requireAddon,
  sendServiceNotice,
  type Device,
  type Model,
  type Pass,
} from '../native/index.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import type { ShadowPrecision } from '../shared/settings/setting-choices.js';
import { advertisedAddress } from '../engine/daemon/advertised-address.js';
import { followAddresses } from '../engine/daemon/follow-addresses.js';
import { ProcessCounts } from '../engine/daemon/process-counts.js';
import { createNodeIdentity } from '../engine/daemon/node-identity.js';
import { closeAll, type Closer } from '../engine/daemon/close-all.js';
import { fetchWholePack } from '../engine/fetching/fetch-whole-pack.js';
import { describeMachine } from '../engine/devices/describe-machine.js';
import { NATIVE_DEVICES } from '../engine/devices/devices.js';
import { followTrust } from '../engine/daemon/follow-trust.js';
import { afterEntering } from '../engine/daemon/enter-cluster.js';
import { type GiveUp, requireWanted, runDaemon } from '../engine/daemon/run-daemon.js';
import { JoinLoop } from '../shared/transport/discovery/join-loop.js';
import type { Logger } from '../shared/base/log/logger.js';
import type { Pack } from '../packs/format/open-pack.js';
import type { NodeIdentity } from '../shared/wire/messages.js';
import { openTokenizer } from '../shared/language/tokenizer/load-tokenizer.js';
import { retainedLimitsFor, NOTHING_RETAINED } from './predictor/retained-sequences.js';
import { MAX_SHADOW_SEQUENCES, Predictor } from './predictor/predictor.js';
import { loadShadowModel, SHADOW_PASS_ROWS } from './predictor/shadow-model.js';
import { ShadowService } from './rpc/shadow-service.js';
import { shadowStatus } from './rpc/shadow-status.js';
import { WorkerLinks } from './rpc/worker-links.js';
import { rosterTaker } from '../engine/trust/take-roster.js';
import { openWorkerStream } from '../shared/transport/node-clients.js';

const EMULATED_PRECISION: ShadowPrecision = 'int8';
/** Faults of slices that lie beside lossless experts. */
const SLICES_FAULTS: ReadonlySet<ErrorCode> = new Set(['PACK_CORRUPT', 'PACK_INCOMPLETE']);

/** The precision of a shadow. */
interface PrecisionChoice {
  precision: ShadowPrecision;
  /** Null: the settings named it. */
  reason: string | null;
}

interface LoadedShadow {
  source: Pack;
  /** Gives the directory of the pack back. */
  leavePack: Closer;
  device: Device;
  deviceReason: string;
  choice: PrecisionChoice;
  weightBytes: number;
  model: Model;
  pass: Pass;
  formats: OutputFormats;
  /** Compiler of the formats; null: they are compiled in this process, when a request names them. */
  compiler: FormatCompiler | null;
  environment: NodeEnvironment;
  dispose(): void;
}

/**
 * Starts a shadow in this process: fetches main's pack if the settings name none, loads the quantized model, serves one main, advertises itself. Throws if something cannot be opened, loaded or
 * listened on. `giveUp`: called when its device is lost. `abandoned`: aborts when the shadow is not to start any more.
 */
export async function startShadow(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  giveUp: GiveUp = () => undefined,
  abandoned: AbortSignal = new AbortController().signal,
): Promise<RunningNode> {
  const loaded = await loadShadow(settings, environment, log, abandoned);
  try {
    return await serveShadow(settings, loaded, log, giveUp);
  } catch (error) {
    await closeAll([[() => loaded.compiler?.close()], [() => loaded.dispose()], [loaded.leavePack]]).catch(
      (fault: unknown) => {
        log.warn('the shadow did not stop cleanly after a failed start', { error: toOdmoeError(fault) });
      },
    );
    throw error;
  }
}

const requireDevice = (settings: NodeSettings): void => requireNamedGpu(NATIVE_DEVICES, settings);

/** The daemon `odmoe shadow`. */
export async function runShadow(): Promise<never> {
  return runDaemon(
    'shadow',
    afterEntering(
      ({ settings, opened }, log, giveUp, abandoned) =>
        startShadow(settings, realEnvironment(settings, null, opened), log, giveUp, abandoned),
      describeMachine,
    ),
    { requireAddon, requireDevice, exitWithParent, leaveNoCore, sendServiceNotice },
  );
}

async function loadShadow(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedShadow> {
  const directory = settings.modelPath ?? (await fetchWholePack(settings, environment, log, abandoned));
  const source = await environment.openPack(directory, packQuality(usedPrecision(settings)));
  const opened: Closer[] = [];
  try {
    const leavePack = await environment.usePack(source.directory);
    opened.push(leavePack);
    const tokenizer = await environment.runtime.outside(() => openTokenizer(source.directory));
    const compiler = environment.openFormats(MAX_SHADOW_SEQUENCES);
    opened.push(() => compiler?.close());
    const formats = new OutputFormats(tokenizer, source.shape.vocabSize, source.eosTokenIds, compiler);
    formats.prepare();
    return await loadDevice(settings, { source, leavePack, formats, compiler, environment }, log, abandoned);
  } catch (thrown) {
    await closeAll([opened]);
    throw thrown;
  }
}

async function loadDevice(
  settings: NodeSettings,
  opened: Pick<LoadedShadow, 'source' | 'leavePack' | 'formats' | 'compiler' | 'environment'>,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedShadow> {
  const { source, environment } = opened;
  const { runtime } = environment;
  const { quantize } = settings.shadow;
  return fillNodeDevice(environment, settings, log, async (opening) => {
    const { device, reason: deviceReason } = opening;
    const choice = await choosePrecision(settings, opened, opening, log);
    const { precision, reason } = choice;
    if (reason !== null) log.info('shadow precision chosen', { precision, reason });
    const form = shadowForm(precision);
    const faults: OdmoeError[] = [];
    const loading: ShadowLoading = {
      onProgress: () => requireWanted(abandoned),
      outside: (work) => runtime.outside(work),
      onSlicesFault: (error) => faults.push(error),
    };
    const shape = servedShape(source.shape, settings.main.maxContextPositions);
    const load = (loaded: ShadowForm): Promise<Model> =>
      loadShadowModel(device, source, loaded, quantize, loading, shape);
    const model = await load(form).catch((thrown: unknown) => {
      const [error] = faults;
      const { sliced } = form;
      const isMended = error !== undefined && SLICES_FAULTS.has(error.code) && !isSlicesOnly(source.manifest);
      if (sliced === null || !isMended) throw thrown;
      log.warn('the slices of the pack cannot be used; the shadow makes slices of its lossless experts', { error });
      return load({ ...form, sliced: { ...sliced, isMade: true } });
    });
    const { usedBytes, contextBytes } = device.info();
    log.info('model loaded', { model: source.name, precision, deviceMemoryBytes: usedBytes });
    const pass = createPass(model);
    const dispose = () => {
      pass.dispose();
      model.dispose();
      device.dispose();
    };
    return { ...opened, device, deviceReason, choice, weightBytes: usedBytes - contextBytes, model, pass, dispose };
  });
}

/** An emulated box has the memory of its profile, so under `auto` it keeps the default. */
function usedPrecision({ shadow: { precision }, emulation }: NodeSettings): ShadowPrecision | 'auto' {
  return precision === 'auto' && emulation !== null ? EMULATED_PRECISION : precision;
}

/** The form of the settings; for `auto`, one that fits this box. */
async function choosePrecision(
  { shadow: { precision, quantize }, emulation }: NodeSettings,
  { source, environment: { devices, runtime } }: Pick<LoadedShadow, 'source' | 'environment'>,
  { device, options }: NodeDevice,
  log: Logger,
): Promise<PrecisionChoice> {
  if (precision !== 'auto') return { precision, reason: null };
  if (emulation !== null)
    return { precision: EMULATED_PRECISION, reason: 'an emulated box computes as its profile says' };
  const memoryBytes = deviceMemoryLeft({
    info: device.info(),
    options,
    cudaStatus: () => devices.cudaStatus(),
    freeHostMemoryBytes: () => runtime.freeHostMemoryBytes(),
  });
  const recall = await runtime
    .outside(() => readShadowRecall(source))
    .catch((thrown: unknown) => {
      // Recall changes nothing but speed, so a shadow starts without it.
      log.warn('the measured recall of shadows is not used', { error: toOdmoeError(thrown) });
      return null;
    });
  const onlySlices = isSlicesOnly(source.manifest) ? await runtime.outside(() => heldSlices(source)) : null;
  return chooseShadowForm(source, quantize, { onlySlices, recall }, memoryBytes);
}

function createPass(model: Model): Pass {
  try {
    return model.createPass(SHADOW_PASS_ROWS);
  } catch (thrown) {
    model.dispose();
    throw thrown;
  }
}

async function serveShadow(
  settings: NodeSettings,
  loaded: LoadedShadow,
  log: Logger,
  giveUp: GiveUp,
): Promise<RunningNode> {
  const { runtime, transport, discovery, openSlices } = loaded.environment;
  const slices = openSlices && (await slicesToServe(openSlices, loaded.source, log));
  const identity = createNodeIdentity(settings, loaded.source, loaded.device.info(), loaded.environment);
  const service = createService(settings, loaded, identity, log, giveUp);
  const holders = (): object[] => [service, loaded.formats, joining ?? {}];
  const counts = new ProcessCounts(runtime, holders, () => ({ ...openHandles() }));
  let joining: JoinLoop | null = null;
  const server = await transport.serve({
    host: settings.listenHost,
    port: settings.listenPort,
    network: settings.network,
    log,
    node: { identify: () => identity, counts: () => counts.reply() },
    shadow: { serve: (stream, peer) => service.accept(stream, peer) },
    pack: new PackServer(loaded.source, runtime, { slices }),
  });
  identity.address = advertisedAddress(settings, server.port);
  const advertisement = await discovery.advertise(settings, identity, log).catch(async (error: unknown) => {
    await service.stop();
    await server.stop();
    throw error;
  });
  joining = startJoining(settings, loaded.environment, { identity, service, giveUp }, log);
  const { environment } = loaded;
  const [hasMain, mainAddress] = [() => service.hasMain, () => service.mainAddress];
  const endTrust = followTrust({ settings, environment, hasMain, mainAddress, giveUp }, log);
  const stopFollowing = followAddresses(loaded.environment.interfaces, settings, log, () => joining?.askAnew());
  let stopping: Promise<void> | null = null;
  const stop = async (): Promise<void> => {
    stopFollowing();
    await closeAll([
      [
        () => joining?.stop(),
        endTrust,
        () => advertisement.stop(),
        () => service.stop(),
        () => loaded.compiler?.close(),
      ],
      [() => server.stop()],
      [() => loaded.dispose()],
      [loaded.leavePack],
    ]);
  };
  return {
    address: server.address,
    openCounts: () => service.openCounts,
    components: holders,
    retainedSequences: () => service.predictor.retainedCount,
    hasMain,
    stop: () => (stopping ??= stop()),
  };
}

function createService(
  settings: NodeSettings,
  loaded: LoadedShadow,
  identity: NodeIdentity,
  log: Logger,
  giveUp: GiveUp,
): ShadowService {
  const { model, device, pass, formats } = loaded;
  const { runtime, transport, trust } = loaded.environment;
  const startedMs = runtime.nowMs();
  const workers = new WorkerLinks({
    open: (address) => openWorkerStream(transport, address, settings.network),
    identity: () => identity,
    reconnectDelayMs: settings.network.reconnectDelayMs,
    runtime,
    log,
  });
  const retainedLimits = settings.main.reusePrefixes ? retainedLimitsFor(device.info()) : NOTHING_RETAINED;
  const service: ShadowService = new ShadowService({
    identity: () => identity,
    status: (epoch) =>
      shadowStatus({
        identity,
        epoch,
        figures: { uptimeMs: runtime.nowMs() - startedMs, memoryBytes: runtime.memoryBytes() },
        device: device.info(),
        deviceReason: loaded.deviceReason,
        weightBytes: loaded.weightBytes,
        weightFormat: weightFormatOf(loaded.choice),
        keyValueBytes: model.sequenceBytes,
        predictor: service.predictor.counts(),
        workers: workers.counts,
      }),
    shape: model.shape,
    createPredictor: (events) => new Predictor(model, pass, SHADOW_PASS_ROWS, events, runtime, formats, retainedLimits),
    workers,
    takeRoster: rosterTaker(trust, log),
    runtime,
    log,
    onDeviceLost: giveUp,
  });
  return service;
}

/** Empty for a form that the settings name. */
function weightFormatOf({ precision, reason }: PrecisionChoice): string {
  return reason === null ? '' : `${precision} (auto: ${reason})`;
}

function startJoining(
  settings: NodeSettings,
  { runtime, transport, trust }: NodeEnvironment,
  { identity, service, giveUp }: { identity: NodeIdentity; service: ShadowService; giveUp: GiveUp },
  log: Logger,
): JoinLoop | null {
  const { mainAddress } = settings;
  if (mainAddress === null) return null;
  return new JoinLoop({
    runtime,
    transport,
    mainAddress,
    identity: () => identity,
    isServed: () => service.hasMain,
    retryDelayMs: settings.network.reconnectDelayMs,
    endRefused: trust === null ? null : giveUp,
    log,
  });
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runShadow();
