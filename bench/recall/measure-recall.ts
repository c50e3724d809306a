import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import { promptTokenIds } from '../../engine/generation/prompt-encoder.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { openDevice, type Device, type Model, type Pass } from '../../native/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { SepMetrics } from '../../shared/wire/messages.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { loadShadowModel, SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { recordTrace } from './main-trace.js';
import { replayTraces } from './replay-trace.js';
import type { RecallSetUp } from './set-ups.js';

export interface RecallOptions {
  modelPath: string;
  prompts: readonly string[];
  /** Most decode iterations of a prompt. */
  iterations: number;
  /** True: an answer ends at the model's end-of-sequence token. False: it continues. */
  stopAtEnd: boolean;
  /** The sampling of the first prompt; each later prompt has the next seed. A shadow samples its own tokens in the same way. */
  sampling: SamplingOptions;
  setUps: readonly RecallSetUp[];
  /** 0: as many threads as the process may use. */
  threads: number;
}

export interface RecallResult extends RecallSetUp {
  /** Counts over all prompts. */
  metrics: SepMetrics;
}

export interface RecallReport {
  modelName: string;
  prompts: number;
  /** Decode iterations of all prompts. */
  iterations: number;
  /** Ordered like the set-ups, with those of one precision together. */
  results: RecallResult[];
}

/** Finished runs of a prompt, and all runs: for each precision one run of main, and one of the shadow for every set-up. */
export type RecallProgress = (done: number, total: number) => void;

/** Both models, with the parts that their runs need. */
interface Models {
  main: Model;
  shadow: Model;
  pass: Pass;
}

/**
 * Recall of a quantized shadow for every set-up, with main and shadow in this process. At any time, memory holds main, one shadow, and the keys
 * and values of one prompt. So main answers each prompt again for each precision; its answers are the same to the bit. Throws the errors of
 * loading the model.
 */
export async function measureRecall(options: RecallOptions, onProgress: RecallProgress): Promise<RecallReport> {
  const source = await openModelSource(options.modelPath);
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: options.threads, budgetBytes: 0 });
  const precisions = [...new Set(options.setUps.map(({ precision }) => precision))];
  const total = options.prompts.length * (options.setUps.length + precisions.length);
  let done = 0;
  const step = () => onProgress(++done, total);
  const main = device.createModel(source.shape);
  try {
    await loadDenseWeights(main, source, 'shipped');
    await loadResidentExperts(main, source, 'shipped');
    const prompts = await tokenizePrompts(source, options.prompts);
    const report: RecallReport = { modelName: source.name, prompts: prompts.length, iterations: 0, results: [] };
    for (const precision of precisions) {
      const setUps = options.setUps.filter((setUp) => setUp.precision === precision);
      const follow = followPrompts(source, prompts, { ...options, setUps }, step);
      const { iterations, results } = await withShadow(device, source, precision, main, follow);
      report.iterations = iterations;
      report.results.push(...results);
    }
    return report;
  } finally {
    main.dispose();
    device.dispose();
  }
}

type Followed = Pick<RecallReport, 'iterations' | 'results'>;

async function withShadow(
  device: Device,
  source: ModelSource,
  precision: ShadowPrecision,
  main: Model,
  work: (models: Models) => Promise<Followed>,
): Promise<Followed> {
  const shadow = await loadShadowModel(device, source, shadowForm(precision), 'projections');
  const pass = shadow.createPass(SHADOW_PASS_ROWS);
  try {
    return await work({ main, shadow, pass });
  } finally {
    pass.dispose();
    shadow.dispose();
  }
}

/** Follows all prompts, one after another, in all set-ups of one precision. */
function followPrompts(
  source: ModelSource,
  prompts: readonly (readonly number[])[],
  { iterations, stopAtEnd, sampling, setUps }: RecallOptions,
  step: () => void,
): (models: Models) => Promise<Followed> {
  const endTokenIds = stopAtEnd ? source.eosTokenIds : [];
  return async ({ main, shadow, pass }) => {
    const recalls = setUps.map(() => new ExpertRecall());
    let iterationsDone = 0;
    for (const [index, promptIds] of prompts.entries()) {
      const own = { ...sampling, seed: sampling.seed + index };
      const trace = await recordTrace(main, promptIds, { iterations, sampling: own, endTokenIds });
      step();
      try {
        for (const [place, { alignment: periods }] of setUps.entries()) {
          const recall = recalls[place] as ExpertRecall;
          const ownTokens = own.temperature === 0 ? null : own;
          await replayTraces([trace], { model: shadow, pass }, { periods, sampling: ownTokens }, recall);
          step();
        }
      } finally {
        await trace.sequence.end();
      }
      iterationsDone += trace.tokenIds.length;
    }
    const results = setUps.map((setUp, place) => ({ ...setUp, metrics: (recalls[place] as ExpertRecall).result() }));
    return { iterations: iterationsDone, results };
  };
}

export async function tokenizePrompts(source: ModelSource, prompts: readonly string[]): Promise<number[][]> {
  const tokenizer = await openTokenizer(source.directory);
  return prompts.map((text) => promptTokenIds({ text, messages: [], promptTokenIds: [], raw: false }, tokenizer, 0));
}
