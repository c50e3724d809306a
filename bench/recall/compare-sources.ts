import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import { loadDenseWeights, loadResidentExperts, type Quantized } from '../../engine/loading/load-weights.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import { highestIds } from '../../engine/sampling/highest.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { layersAskedAt } from '../../main-node/pass/own-predictions.js';
import {
  createExpertMaps,
  type ExpertMaps,
  openDevice,
  type Device,
  type Model,
  FROM_STORAGE,
  PLAIN_LOADER,
  type ExpertSlots,
  type RouterChoice,
} from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { isPackDirectory } from '../../packs/format/open-pack.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { existingDistances, type ExpertMapsShape } from '../../shared/model/expert-maps.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
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
  /** Layers between the state that is asked and the predicted experts; null: the source knows no such distance. */
  layersAhead: number | null;
  /** Over the layers that can be foretold at this distance. */
  metrics: SepMetrics;
  /**
   * Over all expert layers: those nearer to the first layer are foretold from the earliest layer that speaks of them, at a smaller distance. A layer
   * without a word counts as missed.
   */
  allLayers: SepMetrics;
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
 * routers of later layers, the pack's trained maps if it has some, and the experts of the token before. Throws the errors of loading the model
 * and of readPredictor.
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
      results.push(ofAllLayers(`shadow ${shadow.precision.toUpperCase()}${everything}`, metrics));
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

/** Recalls of sources without a shadow: routers of later layers, trained maps, and the token before. */
async function ownRecalls(
  device: Device,
  source: ModelSource,
  prompts: readonly (readonly number[])[],
  options: SourceOptions,
  step: () => void,
): Promise<{ results: SourceRecall[]; iterations: number }> {
  // Only a pack has maps; a checkpoint has none.
  const predictor = (await isPackDirectory(options.modelPath)) ? await readPredictor(options.modelPath) : null;
  const experts = await ResidentExperts.load(device, source);
  const maps = predictor && createExpertMaps(predictor.shape, predictor.layers);
  const routers = LAYERS_AHEAD.map((layersAhead) => new ForetoldRecall('router-ahead', layersAhead));
  const trained = (predictor?.shape.distances ?? []).map((distance) => new ForetoldRecall('trained', distance));
  const before = new ExpertRecall();
  try {
    const iterations = await withTraces(device, source, prompts, options, async (trace, main) => {
      countTokenBefore(trace, before);
      const look = predictor && maps && { shape: predictor.shape, maps };
      await foretellAgain({ main, experts, trained: look }, trace, { routers, trained });
      step();
    });
    const results = [...routers, ...trained].map((recall) => recall.result());
    return { results: [...results, ofAllLayers('experts of the token before', before.result())], iterations };
  } finally {
    maps?.dispose();
    experts.dispose();
  }
}

function ofAllLayers(source: string, metrics: SepMetrics): SourceRecall {
  return { source, layersAhead: null, metrics, allLayers: metrics };
}

/** Counts the words of a source that looks so many layers ahead. */
export class ForetoldRecall {
  private readonly foretold = new ExpertRecall();
  private readonly allLayers = new ExpertRecall();

  constructor(
    private readonly name: 'router-ahead' | 'trained',
    readonly layersAhead: number,
  ) {}

  /** `predicted`: the last word on each layer from at most so many layers before it, by layer; a layer without a word counts as missed. */
  add(iteration: number, activated: readonly (readonly number[])[], predicted: readonly (readonly number[])[]): void {
    for (const [layer, chosen] of activated.entries()) {
      count(this.allLayers, iteration, chosen, predicted[layer] ?? []);
      if (layer >= this.layersAhead) count(this.foretold, iteration, chosen, predicted[layer] ?? []);
    }
  }

  result(): SourceRecall {
    const { name, layersAhead } = this;
    const source = name === 'trained' ? name : `${name}, ${layersAhead} ${layersAhead === 1 ? 'layer' : 'layers'}`;
    return { source, layersAhead, metrics: this.foretold.result(), allLayers: this.allLayers.result() };
  }
}

/** A model that runs a trace again, with all that is asked about it. */
interface Foretelling {
  main: Model;
  experts: ResidentExperts;
  /** null: the pack has no trained maps. */
  trained: { shape: ExpertMapsShape; maps: ExpertMaps } | null;
}

/** Runs the trace again, expert layer by expert layer, and counts what routers of later layers and trained maps say on the way. */
async function foretellAgain(
  { main, experts, trained }: Foretelling,
  { promptIds, tokenIds, activated }: MainTrace,
  recalls: { routers: readonly ForetoldRecall[]; trained: readonly ForetoldRecall[] },
): Promise<void> {
  const { expertLayers, hiddenSize, expertsPerToken } = main.shape;
  const sequence = main.createSequence();
  const pass = main.createPass(1);
  const states = new Float32Array(hiddenSize);
  const hidden = new Uint8Array(states.byteLength);
  const outputs = new Uint8Array(expertsPerToken * hidden.length);
  try {
    for (const [position, tokenId] of [...promptIds, ...tokenIds].entries()) {
      const iteration = position - promptIds.length;
      const words = new Map([...recalls.routers, ...recalls.trained].map((recall) => [recall, [] as number[][]]));
      await pass.begin([sequence], new Int32Array(1), Int32Array.of(position), Int32Array.of(tokenId));
      for (let layer = 0; layer < expertLayers; layer += 1) {
        if (trained !== null && iteration >= 0) {
          await pass.residual(states);
          hearMaps(trained, { layer, states, expertsPerToken }, recalls.trained, words);
        }
        const choice = await pass.attend(layer, hidden);
        const chosen = [...choice.experts].join();
        assertInvariant(chosen === activated[position]?.[layer]?.join(), 'a model chooses the same experts twice.');
        for (const recall of iteration < 0 ? [] : recalls.routers)
          for (const asked of layersAskedAt(layer, expertLayers, recall.layersAhead))
            (words.get(recall) ?? [])[asked] = [...(await pass.chooseAhead(asked)).experts];
        await experts.run(layer, choice, hidden, outputs);
        await pass.combine(layer, outputs, choice.weights);
      }
      if (iteration >= 0) for (const [recall, word] of words) recall.add(iteration, activated[position] ?? [], word);
    }
  } finally {
    pass.dispose();
    sequence.dispose();
  }
}

/** Notes the likeliest experts of each layer, for those that look as far, or that have not heard of it yet. */
function hearMaps(
  { shape, maps }: { shape: ExpertMapsShape; maps: ExpertMaps },
  { layer, states, expertsPerToken }: { layer: number; states: Float32Array; expertsPerToken: number },
  recalls: readonly ForetoldRecall[],
  words: ReadonlyMap<ForetoldRecall, number[][]>,
): void {
  const probabilities = maps.predictHere(layer, states, 1);
  for (const [index, distance] of existingDistances(shape, layer).entries()) {
    const likeliest = highestIds(
      probabilities.subarray(index * shape.experts, (index + 1) * shape.experts),
      expertsPerToken,
    );
    const target = layer + distance;
    for (const recall of recalls) {
      const word = words.get(recall);
      // A layer nearer to the first one than this distance is foretold from there on: from the first layer that speaks of it.
      const isHeard = distance === recall.layersAhead || (target < recall.layersAhead && word?.[target] === undefined);
      if (word !== undefined && isHeard) word[target] = likeliest;
    }
  }
}

function countTokenBefore({ promptIds, activated }: MainTrace, recall: ExpertRecall): void {
  activated.slice(promptIds.length).forEach((layers, iteration) => {
    const before = activated[promptIds.length + iteration - 1] ?? [];
    layers.forEach((chosen, layer) => count(recall, iteration, chosen, before[layer] ?? []));
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
