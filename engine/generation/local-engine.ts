import { type Device, type Model, type ResidentWeights } from '../../native/index.js';
import type { EmulationSettings } from '../../shared/settings/node-settings.js';
import type { ShadowPrecision, WeightForm } from '../../shared/settings/setting-choices.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { computedBy } from '../devices/choose-device.js';
import { EXACT_QUALITY, qualityText, type Quality } from '../../shared/settings/quality.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { describeDevice } from '../daemon/node-identity.js';
import { validateGenerateRequest } from '../../shared/wire/generate-validation.js';
import type { GenerateReply, GenerateRequest, NodeIdentity, NodeStatus, RoleName } from '../../shared/wire/messages.js';
import { ownNodeStatus, type ProcessFigures } from '../../shared/wire/node-status.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { type DeviceEnvironment, fillRoleDevice } from '../devices/open-node-device.js';
import type { DeviceWish } from '../devices/choose-device.js';
import {
  chooseWeightForm,
  resolveWeightForm,
  type WeightFormChoice,
  wouldRound,
} from '../loading/choose-weight-form.js';
import { loadDenseWeights, loadResidentExperts } from '../loading/load-weights.js';
import { openForQuality, type RuledSlices } from '../loading/open-for-quality.js';
import { loadShadowWeights, shadowForm } from '../loading/shadow-form.js';
import { OutputFormats } from '../sampling/output-formats.js';
import { generateTokens } from './generate-tokens.js';
import { GenerationTiming } from './generation-timing.js';
import { createLocalRunner } from './local-runner.js';
import { InlinePromptEncoder } from './prompt-encoder.js';
import { resolveGeneration } from './resolve-generation.js';
import type { SequenceRunner } from './sequence-runner.js';
import { ShadowedRunner } from './shadowed-runner.js';
import { SlicedExperts } from './sliced-experts.js';

export interface LocalEngineOptions {
  device: DeviceWish;
  /** The profiled machine that holds the whole model ('cached') and the profiled shadow beside it; null: this machine. */
  emulation: EmulationSettings | null;
  /**
   * The weight form of the model: as shipped (null, or 'bf16' for a model shipped in BF16), or 'fixed4', which computes the same bits from
   * three quarters of the bytes. 'auto' measures which of the two is faster; an emulated machine then keeps the shipped form.
   */
  resident: WeightForm | null;
  /** Weight form of a shadow that predicts beside the model; null: no shadow. */
  shadow: ShadowPrecision | null;
  /** How exactly the routed experts are computed; left out: exact. Sliced experts take neither an emulated machine nor a shadow. */
  quality?: Quality;
  /** Rows of one pass of the prompt. */
  prefillRows: number;
  chooseSeed: () => number;
  environment: DeviceEnvironment & { runtime: Pick<Runtime, 'nowMs' | 'wallMs' | 'nextTurn' | 'memoryBytes'> };
  /** Progress of loading: bytes done and bytes in all; the total grows when the next stage begins. */
  onProgress: ((doneBytes: number, totalBytes: number) => void) | null;
}

/** A model with all its experts on one device of this process. */
interface LoadedModel {
  role: RoleName;
  device: Device;
  /** The reason for the choice of this device. */
  deviceReason: string;
  weightBytes: number;
  model: Model;
  /** Null: the experts are in the model. */
  experts: SlicedExperts | null;
  /** The choice of 'auto'; null if the settings named a form. */
  choice: WeightFormChoice | null;
}

/**
 * The single-process engine, all experts resident: the reference that a cluster must equal to the bit, and the fully cached
 * baseline. Answers one request at a time.
 */
export class LocalEngine {
  private readonly openedMs: number;
  private readonly formats: OutputFormats;

  private constructor(
    readonly source: ModelSource,
    readonly tokenizer: Tokenizer | null,
    private readonly options: LocalEngineOptions,
    private readonly main: LoadedModel,
    private readonly shadow: LoadedModel | null,
  ) {
    this.openedMs = options.environment.runtime.nowMs();
    this.formats = new OutputFormats(tokenizer, source.shape.vocabSize, source.eosTokenIds);
  }

  /** Opens and loads the pack or checkpoint in `directory`. Throws the errors of opening and loading, and closes everything then. */
  static async open(directory: string, options: LocalEngineOptions): Promise<LocalEngine> {
    requireServed(options);
    const { source, sliced } = await openForQuality(directory, options.quality ?? EXACT_QUALITY);
    const tokenizer = await openTokenizer(source.directory, source.madeFiles);
    requireExact(source, options.resident);
    const main = await loadMain(source, sliced, options);
    if (options.shadow === null) return new LocalEngine(source, tokenizer, options, main, null);
    try {
      const shadow = await loadShadow(source, options.shadow, options);
      return new LocalEngine(source, tokenizer, options, main, shadow);
    } catch (thrown) {
      disposeModel(main);
      throw thrown;
    }
  }

  get device(): Device {
    return this.main.device;
  }

  /** Memory of the model's matrices; the shadow's are not counted. */
  residentWeights(): ResidentWeights {
    const { model, experts } = this.main;
    const weights = model.residentWeights();
    return experts === null ? weights : { ...weights, kinds: [...weights.kinds, experts.weights] };
  }

  /** How answers are computed: "exact", "fast" (tensor cores of a GPU), or the text of a sliced quality. */
  get arithmetic(): string {
    const { quality = EXACT_QUALITY, device } = this.options;
    if (quality.kind !== 'exact') return qualityText(quality);
    return computedBy(this.device, device.arithmetic ?? 'exact');
  }

  /** The choice of `resident: auto`; null if the settings named a form. */
  get weightFormChoice(): WeightFormChoice | null {
    return this.main.choice;
  }

  /** Answers like main of a cluster: started, tokens, finished. Throws CANCELLED when `signal` aborts. */
  async *generate(request: GenerateRequest, signal: AbortSignal): AsyncGenerator<GenerateReply, void> {
    const timing = new GenerationTiming(() => this.options.environment.runtime.nowMs());
    const { shape, eosTokenIds } = this.source;
    const limits = { vocabSize: shape.vocabSize, maxPositions: shape.maxPositions, eosTokenIds };
    const valid = validateGenerateRequest(request);
    const { tokenizer, formats } = this;
    const prompts = new InlinePromptEncoder(tokenizer, this.options.environment.runtime);
    const { chooseSeed } = this.options;
    const model = { tokenizer, prompts, formats, limits, chooseSeed };
    const { promptIds, options } = await resolveGeneration(valid, model, signal);
    const { arithmetic } = this;
    yield { kind: 'started', started: { promptTokenIds: promptIds, seed: options.sampling.seed, arithmetic } };
    const runner = this.createRunner();
    try {
      const steps = generateTokens(runner, promptIds, options, tokenizer, signal, this.options.environment.runtime);
      let step = await steps.next();
      for (; step.done !== true; step = await steps.next()) {
        if (step.value.kind === 'token') timing.token();
        yield step.value;
      }
      const { finishReason, stopString, text } = step.value;
      const sep = runner instanceof ShadowedRunner ? runner.sep : null;
      const finished = {
        finishReason,
        stopString,
        text,
        timing: timing.result(),
        sep,
        reloads: 0,
        nodes: this.nodes(),
        drafts: null,
        logicalCache: runner.logicalCache?.() ?? null,
        cachedTokens: 0,
      };
      yield { kind: 'finished', finished };
    } finally {
      // If the caller stops before the last token, the token loop does not end by itself.
      await runner.end();
    }
  }

  /** A sequence of this model that the caller runs (benchmarks). */
  createRunner(): SequenceRunner {
    const { shape } = this.source;
    const { model, experts } = this.main;
    const { prefillRows } = this.options;
    if (this.shadow !== null) return new ShadowedRunner(model, this.shadow.model, shape, prefillRows);
    if (experts === null) return createLocalRunner(model, shape, prefillRows);
    return createLocalRunner(model, shape, prefillRows, null, experts.forSequence());
  }

  /** Idempotent. */
  dispose(): void {
    disposeModel(this.main);
    if (this.shadow !== null) disposeModel(this.shadow);
  }

  private nodes(): NodeStatus[] {
    const { runtime } = this.options.environment;
    const figures = { uptimeMs: runtime.nowMs() - this.openedMs, memoryBytes: runtime.memoryBytes() };
    const models = this.shadow === null ? [this.main] : [this.main, this.shadow];
    return models.map((model) => localNodeStatus(model, this.source, figures));
  }
}

/** Throws USAGE for options that sliced experts are not served with. */
function requireServed({ quality = EXACT_QUALITY, device, emulation, shadow }: LocalEngineOptions): void {
  if (quality.kind === 'exact') return;
  const refusals: readonly (readonly [boolean, string])[] = [
    [emulation !== null, 'an emulated machine computes exact experts: leave out --profile'],
    [shadow !== null, 'a shadow predicts exact experts: leave out --shadow'],
    [device.arithmetic === 'fast', 'slices are read by the one arithmetic: leave out --arithmetic fast'],
  ];
  const refused = refusals.find(([given]) => given);
  if (refused !== undefined) throw new OdmoeError('USAGE', `${qualityText(quality)}: ${refused[1]}, or the quality`);
}

/** Throws USAGE when the form would round the model's values. */
function requireExact({ name, shippedFormat }: ModelSource, resident: WeightForm | null): void {
  if (!wouldRound(shippedFormat, resident)) return;
  throw new OdmoeError(
    'USAGE',
    `${name} is shipped as ${shippedFormat}, which bf16 would round; leave --resident out to keep it as shipped`,
  );
}

async function loadMain(
  source: ModelSource,
  sliced: RuledSlices | null,
  options: LocalEngineOptions,
): Promise<LoadedModel> {
  const { emulation, resident, prefillRows } = options;
  return loadWholeModel('ROLE_MAIN', source, options, async (device, model) => {
    const measure = emulation === null ? chooseWeightForm : null;
    const { format, choice } = await resolveWeightForm(device, source.shippedFormat, resident, measure);
    const onProgress = options.onProgress ?? undefined;
    await loadDenseWeights(model, source, format, onProgress);
    if (sliced === null) await loadResidentExperts(model, source, format, onProgress);
    const experts = sliced && (await SlicedExperts.load(device, source.shape, sliced, prefillRows, options.onProgress));
    return { experts, choice };
  });
}

async function loadShadow(
  source: ModelSource,
  precision: ShadowPrecision,
  options: LocalEngineOptions,
): Promise<LoadedModel> {
  return loadWholeModel('ROLE_SHADOW', source, options, async (_device, model) => {
    const { onProgress } = options;
    const loading = onProgress === null ? {} : { onProgress };
    await loadShadowWeights(model, source, shadowForm(precision), 'projections', loading);
    return { experts: null, choice: null };
  });
}

/** Opens a device, and a model on it that `load` fills. */
async function loadWholeModel(
  role: RoleName,
  source: ModelSource,
  { environment, device: wish, emulation }: LocalEngineOptions,
  load: (device: Device, model: Model) => Promise<Pick<LoadedModel, 'experts' | 'choice'>>,
): Promise<LoadedModel> {
  const profiled = role === 'ROLE_MAIN' ? 'cached' : 'shadow';
  return fillRoleDevice(environment, wish, emulation, profiled, async ({ device, reason: deviceReason }) => {
    const model = device.createModel(source.shape);
    try {
      const { experts, choice } = await load(device, model);
      const { usedBytes, contextBytes } = device.info();
      return { role, device, deviceReason, weightBytes: usedBytes - contextBytes, model, experts, choice };
    } catch (thrown) {
      model.dispose();
      throw thrown;
    }
  });
}

function disposeModel({ model, experts, device }: LoadedModel): void {
  experts?.dispose();
  model.dispose();
  device.dispose();
}

/** The entry of this process in an answer's list of nodes. */
function localNodeStatus(
  { role, device, deviceReason, weightBytes }: LoadedModel,
  source: ModelSource,
  figures: ProcessFigures,
): NodeStatus {
  const info = device.info();
  const identity: NodeIdentity = {
    id: role === 'ROLE_MAIN' ? 'local' : 'local-shadow',
    role,
    cluster: '',
    protocolVersion: 0,
    modelName: source.name,
    packDigest: source.packDigest ?? '',
    bootId: '',
    address: '',
    device: describeDevice(info),
    release: odmoeVersion(),
  };
  return { ...ownNodeStatus(identity, figures, info, deviceReason), weightBytes };
}
