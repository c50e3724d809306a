import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import { loadDenseWeights, loadResidentExperts, type Quantized } from '../../engine/loading/load-weights.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { layersAskedAt } from '../../main-node/pass/own-predictions.js';
import {
  openDevice,
  type Device,
  type Model,
  FROM_STORAGE,
  PLAIN_LOADER,
  type ExpertSlots,
  type RouterChoice,
} from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { SepMetrics } from '../../shared/wire/messages.js';
import { loadShadowModel, SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { recordTrace, type MainTrace } from './main-trace.js';
import { tokenizePrompts, type RecallOptions, type RecallProgress } from './measure-recall.js';
import { replayTraces } from './replay-trace.js';
import { slotSizes } from '../../engine/planning/slot-sizes.js';

const ALIGNED = { token: 1, keyValue: 1 };
const SHADOWS: readonly { precision: ShadowPrecision; quantized: Quantized }[] = [
  { precision: 'int8', quantized: 'projections' },
  { precision: 'int8', quantized: 'all' },
  { precision: 'nf4', quantized: 'projections' },
  { precision: 'nf4', quantized: 'all' },
];
const LAYERS_AHEAD: readonly number[] = [1, 2];

/** A source of predictions with its recall. */
export interface SourceRecall {
  source: string;
  metrics: SepMetrics;
}

export interface SourceReport {
  modelName: string;
  prompts: number;
  iterations: number;
  results: SourceRecall[];
}

type SourceOptions = Omit<RecallOptions, 'setUps'>;

/**
 * Recall of every source of predictions on the same answers of the full-precision model: shadows aligned at every iteration, main's own
 * routers of later layers, and the experts of the token before. All expert layers count. If a source predicts nothing for a layer, the layer
 * counts as missed. Throws the errors of loading the model.
 */
export async function compareSources(options: SourceOptions, onProgress: RecallProgress): Promise<SourceReport> {
  const source = await openModelSource(options.modelPath);
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: options.threads, budgetBytes: 0 });
  try {
    const results: SourceRecall[] = [];
    const prompts = await tokenizePrompts(source, options.prompts);
    const total = prompts.length * (SHADOWS.length + 1);
    let done = 0;
    const step = () => onProgress(++done, total);
    for (const shadow of SHADOWS) {
      const metrics = await shadowRecall(device, source, shadow, prompts, options, step);
      const everything = shadow.quantized === 'all' ? ', quantize: all' : '';
      results.push({ source: `shadow ${shadow.precision.toUpperCase()}${everything}`, metrics });
    }
    const own = await ownRecalls(device, source, prompts, options, step);
    results.push(...own.results);
    return { modelName: source.name, prompts: prompts.length, iterations: own.iterations, results };
  } finally {
    device.dispose();
  }
}

/** Runs the full-precision model on each prompt in turn, and calls back with each trace. Returns the sum of their iterations. */
async function withTraces(
  device: Device,
  source: ModelSource,
  prompts: readonly (readonly number[])[],
  { iterations, stopAtEnd, sampling }: SourceOptions,
  look: (trace: MainTrace, main: Model) => Promise<void>,
): Promise<number> {
  const main = device.createModel(source.shape);
  let ran = 0;
  try {
    await loadDenseWeights(main, source, 'shipped');
    await loadResidentExperts(main, source, 'shipped');
    for (const [index, promptIds] of prompts.entries()) {
      const own = { ...sampling, seed: sampling.seed + index };
      const endTokenIds = stopAtEnd ? source.eosTokenIds : [];
      const trace = await recordTrace(main, promptIds, { iterations, sampling: own, endTokenIds });
      try {
        await look(trace, main);
      } finally {
        await trace.sequence.end();
      }
      ran += trace.tokenIds.length;
    }
  } finally {
    main.dispose();
  }
  return ran;
}

async function shadowRecall(
  device: Device,
  source: ModelSource,
  { precision, quantized }: (typeof SHADOWS)[number],
  prompts: readonly (readonly number[])[],
  options: SourceOptions,
  step: () => void,
): Promise<SepMetrics> {
  const model = await loadShadowModel(device, source, shadowForm(precision), quantized);
  const pass = model.createPass(SHADOW_PASS_ROWS);
  const recall = new ExpertRecall();
  try {
    await withTraces(device, source, prompts, options, async (trace) => {
      const sampling = options.sampling.temperature === 0 ? null : options.sampling;
      await replayTraces([trace], { model, pass }, { periods: ALIGNED, sampling }, recall);
      step();
    });
  } finally {
    pass.dispose();
    model.dispose();
  }
  return recall.result();
}

/** Recalls of sources without a shadow: routers of later layers, and the token before. */
async function ownRecalls(
  device: Device,
  source: ModelSource,
  prompts: readonly (readonly number[])[],
  options: SourceOptions,
  step: () => void,
): Promise<{ results: SourceRecall[]; iterations: number }> {
  const experts = await ResidentExperts.load(device, source);
  const ahead = LAYERS_AHEAD.map((layersAhead) => ({ layersAhead, recall: new ExpertRecall() }));
  const before = new ExpertRecall();
  try {
    const iterations = await withTraces(device, source, prompts, options, async (trace, main) => {
      countTokenBefore(trace, before);
      const predicted = await routersAhead(main, experts, trace);
      for (const { layersAhead, recall } of ahead) countPredicted(trace, predicted.get(layersAhead) ?? [], recall);
      step();
    });
    const results = ahead.map(({ layersAhead, recall }) => ({
      source: `router-ahead, ${layersAhead} ${layersAhead === 1 ? 'layer' : 'layers'}`,
      metrics: recall.result(),
    }));
    results.push({ source: 'experts of the token before', metrics: before.result() });
    return { results, iterations };
  } finally {
    experts.dispose();
  }
}

/** Choices of earlier routers, by layers ahead, iteration and layer. The trace is run again, expert layer by expert layer. */
async function routersAhead(
  model: Model,
  experts: ResidentExperts,
  { promptIds, tokenIds, activated }: MainTrace,
): Promise<Map<number, number[][][]>> {
  const { expertLayers, hiddenSize, expertsPerToken } = model.shape;
  const predicted = new Map(LAYERS_AHEAD.map((layersAhead) => [layersAhead, tokenIds.map((): number[][] => [])]));
  const sequence = model.createSequence();
  const pass = model.createPass(1);
  const hidden = new Uint8Array(hiddenSize * Float32Array.BYTES_PER_ELEMENT);
  const outputs = new Uint8Array(expertsPerToken * hidden.length);
  try {
    for (const [position, tokenId] of [...promptIds, ...tokenIds].entries()) {
      await pass.begin([sequence], new Int32Array(1), Int32Array.of(position), Int32Array.of(tokenId));
      for (let layer = 0; layer < expertLayers; layer += 1) {
        const choice = await pass.attend(layer, hidden);
        const chosen = [...choice.experts].join();
        assertInvariant(chosen === activated[position]?.[layer]?.join(), 'a model chooses the same experts twice.');
        for (const [layersAhead, iterations] of predicted) {
          const ofIteration = iterations[position - promptIds.length];
          if (ofIteration === undefined) continue;
          for (const asked of layersAskedAt(layer, expertLayers, layersAhead)) {
            ofIteration[asked] = [...(await pass.chooseAhead(asked)).experts];
          }
        }
        await experts.run(layer, choice, hidden, outputs);
        await pass.combine(layer, outputs, choice.weights);
      }
    }
  } finally {
    pass.dispose();
    sequence.dispose();
  }
  return predicted;
}

function countTokenBefore({ promptIds, activated }: MainTrace, recall: ExpertRecall): void {
  activated.slice(promptIds.length).forEach((layers, iteration) => {
    const before = activated[promptIds.length + iteration - 1] ?? [];
    layers.forEach((chosen, layer) => count(recall, iteration, chosen, before[layer] ?? []));
  });
}

function countPredicted({ promptIds, activated }: MainTrace, predicted: number[][][], recall: ExpertRecall): void {
  activated.slice(promptIds.length).forEach((layers, iteration) => {
    layers.forEach((chosen, layer) => count(recall, iteration, chosen, predicted[iteration]?.[layer] ?? []));
  });
}

function count(recall: ExpertRecall, iteration: number, chosen: readonly number[], predicted: readonly number[]): void {
  recall.add(iteration, chosen.length, chosen.filter((expert) => predicted.includes(expert)).length);
}

/** All experts of a model in slots, for passes that go expert layer by expert layer. */
class ResidentExperts {
  private constructor(
    private readonly slots: ExpertSlots,
    private readonly experts: number,
  ) {}

  /** Throws the errors of reading the experts, and DEVICE_OUT_OF_MEMORY. */
  static async load(device: Device, source: ModelSource): Promise<ResidentExperts> {
    const { expertLayers, experts } = source.shape;
    const { decompressionThreads, directIo, storageBytesPerS } = PLAIN_LOADER;
    const { shape, loader } = slotSizes(device, source, { decompressionThreads, directIo, storageBytesPerS });
    const slots = device.createExpertSlots(shape, expertLayers * experts, 1, loader);
    try {
      for (let place = 0; place < expertLayers * experts; place += 1) {
        const expert = source.expert(Math.floor(place / experts), place % experts);
        await slots.load(place, slots.register(expert), FROM_STORAGE);
      }
    } catch (thrown) {
      slots.dispose();
      throw thrown;
    }
    return new ResidentExperts(slots, experts);
  }

  /** Runs the chosen experts on one row, and writes their outputs into `outputs`, ordered by rank. */
  async run(layer: number, { experts }: RouterChoice, hidden: Uint8Array, outputs: Uint8Array): Promise<void> {
    for (const [rank, expert] of experts.entries()) {
      const output = outputs.subarray(rank * hidden.length, (rank + 1) * hidden.length);
      await this.slots.execute(layer * this.experts + expert, 1, hidden, output);
    }
  }

  dispose(): void {
    this.slots.dispose();
  }
}
