import { ExpertRecall, promptTokenIds } from '../../engine/generation/index.js';
import { loadDenseWeights, loadResidentExperts, openModelSource } from '../../engine/loading/index.js';
import { createModel, openDevice, type Device, type Model } from '../../native/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { SepMetrics } from '../../shared/rpc/messages.js';
import { openTokenizer } from '../../shared/tokenizer/index.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import { loadShadowModel, SHADOW_PASS_ROWS, type ShadowPrecision } from '../../shadow-node/predictor/shadow-model.js';
import { recordTrace, type MainTrace } from './main-trace.js';
import { replayTrace } from './replay-trace.js';

export interface RecallOptions {
  modelPath: string;
  prompts: readonly string[];
  /** Decode iterations of a prompt at most. */
  iterations: number;
  precisions: readonly ShadowPrecision[];
  alignments: readonly AlignmentPeriods[];
  /** 0: as many as the process may use. */
  threads: number;
}

export interface RecallResult {
  precision: ShadowPrecision;
  alignment: AlignmentPeriods;
  /** Over all prompts. */
  metrics: SepMetrics;
}

export interface RecallReport {
  modelName: string;
  prompts: number;
  /** Decode iterations of all prompts. */
  iterations: number;
  results: RecallResult[];
}

/** Steps done and in all: one for each prompt of main and of every combination. */
export type RecallProgress = (done: number, total: number) => void;

/**
 * Recall of a quantized shadow for every combination of precision and alignment, main and shadow in this process. Throws what
 * loading the model throws.
 */
export async function measureRecall(options: RecallOptions, onProgress: RecallProgress): Promise<RecallReport> {
  const source = await openModelSource(options.modelPath);
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: options.threads, budgetBytes: 0 });
  const combinations = options.precisions.length * options.alignments.length;
  const total = options.prompts.length * (combinations + 1);
  let done = 0;
  const step = () => onProgress(++done, total);
  const main = createModel(device, source.shape);
  const traces: MainTrace[] = [];
  try {
    await loadDenseWeights(main, source, source.shippedFormat);
    await loadResidentExperts(main, source, source.shippedFormat);
    for (const promptIds of await tokenizePrompts(source, options.prompts)) {
      traces.push(await recordTrace(main, promptIds, options.iterations, source.eosTokenIds));
      step();
    }
    const results: RecallResult[] = [];
    for (const precision of options.precisions) {
      results.push(...(await measurePrecision(device, source, precision, traces, options.alignments, step)));
    }
    const iterations = traces.reduce((sum, trace) => sum + trace.tokenIds.length, 0);
    return { modelName: source.name, prompts: traces.length, iterations, results };
  } finally {
    await Promise.all(traces.map((trace) => trace.sequence.end()));
    main.dispose();
    device.dispose();
  }
}

async function measurePrecision(
  device: Device,
  source: ModelSource,
  precision: ShadowPrecision,
  traces: readonly MainTrace[],
  alignments: readonly AlignmentPeriods[],
  step: () => void,
): Promise<RecallResult[]> {
  const model: Model = await loadShadowModel(device, source, precision);
  const pass = model.createPass(SHADOW_PASS_ROWS);
  try {
    const results: RecallResult[] = [];
    for (const alignment of alignments) {
      const recall = new ExpertRecall();
      for (const trace of traces) {
        await replayTrace(trace, { model, pass }, alignment, recall);
        step();
      }
      results.push({ precision, alignment, metrics: recall.result() });
    }
    return results;
  } finally {
    pass.dispose();
    model.dispose();
  }
}

async function tokenizePrompts(source: ModelSource, prompts: readonly string[]): Promise<number[][]> {
  const tokenizer = await openTokenizer(source.directory);
  const empty = { messages: [], promptTokenIds: [], raw: false, maxTokens: 1, sampling: null, stop: [] };
  return prompts.map((text) => promptTokenIds({ ...empty, text, ignoreEos: false, logprobs: 0 }, tokenizer));
}
