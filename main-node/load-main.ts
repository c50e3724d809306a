import type { NodeEnvironment } from '../engine/environment/node-environment.js';
import { deviceMemoryLeft } from '../engine/devices/device-memory-left.js';
import { fillNodeDevice, type NodeDevice } from '../engine/devices/open-node-device.js';
import { computedBy } from '../engine/devices/choose-device.js';
import { SharedDevice } from '../engine/devices/shared-device.js';
import type { FormatCompiler } from '../engine/sampling/format-compiler.js';
import type { PromptEncoder } from '../engine/generation/prompt-encoder.js';
import { DraftHead } from '../engine/generation/draft-head.js';
import { resolveWeightForm, wouldRound } from '../engine/loading/choose-weight-form.js';
import type { RuledSlices } from '../engine/loading/open-for-quality.js';
import { servableHead } from '../engine/loading/head-layer.js';
import { loadDenseWeights } from '../engine/loading/load-weights.js';
import { servedShape } from '../engine/loading/served-shape.js';
import type { Device, Model } from '../native/index.js';
import type { Predictor } from '../packs/predictor/predictor-file.js';
import type { Pack } from '../packs/format/open-pack.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import type { WeightForm } from '../shared/settings/setting-choices.js';
import { draftsOf } from './decode/engine-drafting.js';
import { headExpertsAtWorkers } from './drafting/place-head-experts.js';
import { TokenExperts } from './pass/token-experts.js';
import { TrainedMaps } from './pass/trained-maps.js';
import { qualityText } from '../shared/settings/quality.js';
import { mostActiveSequences } from '../shared/settings/setting-limits.js';
import { closeAll, type Closer } from '../engine/daemon/close-all.js';
import { requireWanted } from '../engine/daemon/run-daemon.js';
import { OdmoeError, toOdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Logger } from '../shared/base/log/logger.js';
import type { ModelShape } from '../shared/model/model-shape.js';
import { allExperts } from '../shared/model/part-sizes.js';
import type { DraftHeadSource, ShippedFormat, WeightFormat } from '../shared/model/tensor-source.js';
import { openTokenizer } from '../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../shared/language/tokenizer/tokenizer.js';

/** All that main loads before it serves requests. */
export interface LoadedMain {
  source: Pack;
  /** Gives the directory of the pack back. */
  leavePack: Closer;
  /** The slices with which workers compute experts; null: they compute them exactly. */
  sliced: RuledSlices | null;
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  /** null: output formats are compiled in this process, when a request names them. */
  formats: FormatCompiler | null;
  device: Device;
  /** The same device, for other users of it. */
  sharedDevice: SharedDevice;
  deviceReason: string;
  weightBytes: number;
  /** The form of those matrices that need not stay as they are shipped. */
  weightFormat: WeightFormat | ShippedFormat;
  model: Model;
  /** The source of predictions that main uses, and its trained maps; null: it has none, or does not use them. */
  prediction: NodeSettings['prediction'];
  maps: TrainedMaps | null;
  /** Tables of experts by token; null: the model has none. */
  tokenExperts: TokenExperts | null;
  /** The model's own head for drafts; null: the settings do not ask for it, or the pack has none. */
  draftHead: DraftHead | null;
  /** The head has no experts here: workers run them. */
  headAtWorkers: boolean;
}

/** Reads all but the experts. Throws if something cannot be opened or loaded. */
export async function loadMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { runtime } = environment;
  const { quality } = settings.main;
  const source = await environment.openPack(settings.modelPath, quality);
  requireExact(source, settings.main.resident);
  const opened: Closer[] = [];
  try {
    const leavePack = await environment.usePack(source.directory);
    opened.push(leavePack);
    const sliced =
      quality.kind === 'exact' ? null : await runtime.outside(() => environment.slicesForQuality(source, quality));
    const tokenizer = await runtime.outside(() => openTokenizer(source.directory));
    const { maxActiveSequences, maxQueuedRequests } = settings.main;
    const queueLimit = mostActiveSequences(maxActiveSequences) + maxQueuedRequests;
    const prompts = environment.openPrompts({ directory: source.directory, tokenizer, queueLimit });
    opened.push(() => prompts.close());
    const formats = environment.openFormats(queueLimit);
    opened.push(() => formats?.close());
    const { prediction, maps } = await openMaps(settings.prediction, environment, source, log);
    opened.push(() => maps?.close());
    const parts = { source, leavePack, sliced, tokenizer, prompts, formats, prediction, maps };
    return await loadDevice(settings, environment, parts, log, abandoned);
  } catch (thrown) {
    await closeAll([opened]).catch((fault: unknown) => {
      log.warn('what was opened for the model did not close cleanly', { error: toOdmoeError(fault) });
    });
    throw thrown;
  }
}

/**
 * Reads the maps of odmoe fit, where main may use them. Maps that cannot be read are said in the log and not used: main then predicts as without
 * them, by its own routers if nothing else is set.
 * @throws CONFIG_INVALID if the maps are to predict and the pack has none
 */
async function openMaps(
  prediction: NodeSettings['prediction'],
  environment: NodeEnvironment,
  pack: Pack,
  log: Logger,
): Promise<Pick<LoadedMain, 'prediction' | 'maps'>> {
  const isWanted = prediction.source === 'trained';
  if (!isWanted && prediction.source !== 'sep') return { prediction, maps: null };
  try {
    const predictor: Predictor | null = await environment.runtime.outside(() => environment.readPredictor(pack));
    if (predictor !== null) return { prediction, maps: TrainedMaps.create(predictor, environment.runtime, log) };
  } catch (thrown) {
    const used = isWanted ? { ...prediction, source: 'router-ahead' as const } : prediction;
    const error = toOdmoeError(thrown);
    // A simulation that has no states.
    if (error.code === 'USAGE') throw error;
    log.warn('the trained predictor is not used', { error, predictionUsed: used.source });
    return { prediction: used, maps: null };
  }
  if (!isWanted) return { prediction, maps: null };
  throw new OdmoeError(
    'CONFIG_INVALID',
    `prediction.source is trained, and ${pack.directory} has no trained predictor: run "odmoe fit ${pack.directory}", or choose another source ` +
      '(--prediction router-ahead)',
  );
}

/** Throws CONFIG_INVALID if the form would round the model's values. */
function requireExact({ name, shippedFormat }: Pack, resident: WeightForm | null): void {
  if (!wouldRound(shippedFormat, resident)) return;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `${name} is shipped as ${shippedFormat}, which bf16 would round: leave main.resident (--resident) out to keep it as shipped`,
  );
}

function loadDevice(
  settings: NodeSettings,
  environment: NodeEnvironment,
  opened: Pick<
    LoadedMain,
    'source' | 'leavePack' | 'sliced' | 'tokenizer' | 'prompts' | 'formats' | 'prediction' | 'maps'
  >,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { source } = opened;
  return fillNodeDevice(environment, settings, log, async (opening) => {
    const { device: ownDevice, reason: deviceReason } = opening;
    const { resident } = settings.main;
    const { format, choice } = await resolveWeightForm(
      ownDevice,
      source.shippedFormat,
      resident,
      environment.chooseWeightForm,
    );
    const sharedDevice = new SharedDevice(ownDevice);
    const device = sharedDevice.open();
    const model = device.createModel(servedContext(settings, source, log));
    let head: LoadedHead = NO_HEAD;
    let tokenExperts: TokenExperts | null;
    try {
      await loadDenseWeights(model, source, format, () => requireWanted(abandoned));
      tokenExperts = await environment.runtime.outside(() => TokenExperts.read(source));
      const leftBytes = (): number | null => memoryLeft(environment, opening);
      head = await loadHead(settings, opened, { device, leftBytes, format }, log, abandoned);
    } catch (thrown) {
      model.dispose();
      throw thrown;
    }
    const { usedBytes, contextBytes } = device.info();
    const weightFormat = format === 'shipped' ? source.shippedFormat : format;
    const { fellBack } = model.residentWeights();
    log.info('model loaded', {
      model: source.name,
      deviceMemoryBytes: usedBytes,
      weights: weightFormat,
      keptAsShipped: fellBack,
      ...(choice === null ? {} : { fixed4Speedup: choice.fixed4Speedup }),
    });
    const weightBytes = usedBytes - contextBytes;
    return { ...opened, device, sharedDevice, deviceReason, weightBytes, weightFormat, model, tokenExperts, ...head };
  });
}

type LoadedHead = Pick<LoadedMain, 'draftHead' | 'headAtWorkers'>;

const NO_HEAD: LoadedHead = { draftHead: null, headAtWorkers: false };

/** The head that drafts, with all its experts or with none, where the settings ask for it (drafting.source mtp). */
async function loadHead(
  settings: NodeSettings,
  { source, sliced }: Pick<LoadedMain, 'source' | 'sliced'>,
  { device, leftBytes, format }: { device: Device; leftBytes: () => number | null; format: WeightFormat },
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedHead> {
  const { drafting, main } = settings;
  const { name, draftHead } = source;
  if (drafting.source !== 'mtp' || draftsOf(settings).ownRows === 1) return NO_HEAD;
  if (!draftHead) {
    const causes = 'a pack of a release before 0.3, a model without a head, or one that could not be read';
    log.warn(`no drafts: the pack has no head that drafts tokens (${causes})`, { model: name });
    return NO_HEAD;
  }
  const shape = servedShape(draftHead.shape, main.maxContextPositions);
  const canServe = sliced === null && servableHead(source) !== null;
  if (drafting.headExperts === 'workers' && !canServe && shape.expertLayers > 0)
    log.warn("workers cannot run the experts of the model's own head: main loads them", { model: name });
  const headAtWorkers = canServe && runsAtWorkers(settings, draftHead, leftBytes());
  const progress = (): void => requireWanted(abandoned);
  const experts = headAtWorkers ? null : 'resident';
  const loaded = await DraftHead.load(device, { ...draftHead, shape }, format, progress, experts);
  log.info("the model's own head is loaded", { experts: headAtWorkers ? 'workers' : 'main' });
  return { draftHead: loaded, headAtWorkers };
}

function runsAtWorkers({ drafting, main }: NodeSettings, head: DraftHeadSource, leftBytes: number | null): boolean {
  let expertBytes = 0;
  for (const { gate, up, down } of allExperts(head)) {
    for (const { chunks } of [gate, up, down]) for (const { plainBytes } of chunks) expertBytes += plainBytes;
  }
  return headExpertsAtWorkers({ setting: drafting.headExperts, experts: main.experts, expertBytes, leftBytes });
}

/** Null: an emulated device without a budget, of which the memory of the machine says nothing. */
function memoryLeft({ devices, runtime }: NodeEnvironment, { device, options }: NodeDevice): number | null {
  const info = device.info();
  if (info.backend === 'emulated' && info.budgetBytes === 0) return null;
  return deviceMemoryLeft({
    info,
    options,
    cudaStatus: () => devices.cudaStatus(),
    freeHostMemoryBytes: () => runtime.freeHostMemoryBytes(),
  });
}

/** The model's shape with the context of the settings. Says so where that is longer than the model's own. @throws CONFIG_INVALID */
function servedContext({ main }: NodeSettings, { shape, name }: Pack, log: Logger): ModelShape {
  const served = servedShape(shape, main.maxContextPositions);
  if (served.maxPositions > shape.maxPositions) {
    log.warn('the context goes past what the model was made for: answers to long prompts may make no sense', {
      model: name,
      contextPositions: served.maxPositions,
      madeForPositions: shape.maxPositions,
    });
  }
  return served;
}

/** Frees all that was loaded. @throws the first failure, after all the rest is freed */
export async function disposeLoaded(loaded: LoadedMain): Promise<void> {
  const { prompts, formats, maps, model, draftHead, device, leavePack } = loaded;
  await closeAll([
    [() => prompts.close(), () => formats?.close(), () => maps?.close()],
    [() => draftHead?.dispose(), () => model.dispose()],
    [() => device.dispose()],
    [leavePack],
  ]);
}

/** How answers are computed: "exact", "fast" (tensor cores of a GPU), or the text of a sliced quality. */
export function arithmeticOf({ device, main }: NodeSettings, loaded: Pick<LoadedMain, 'device'>): string {
  return main.quality.kind === 'exact' ? computedBy(loaded.device, device.arithmetic) : qualityText(main.quality);
}
