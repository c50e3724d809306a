/** Models whose routers' scores are replayed: made up for the shapes of SliceMoE's models, or recorded from any model. */
import { loadModelProfile } from '../../engine/emulation/load-model-profile.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { recordedScores } from '../../simulator/slices/recorded-scores.js';
import {
  SCORED_SHAPES,
  syntheticScores,
  type PromptScores,
  type ScoresSetting,
} from '../../simulator/slices/synthetic-scores.js';
import { readTrace } from '../../simulator/trace/trace-file.js';
import { sliceSizesOf } from './modelled-cost.js';
import type { SlicePair } from './quantize-group.js';

export interface ScoredModel {
  readonly model: string;
  readonly shape: ModelShape;
  readonly pair: SlicePair;
  readonly prompts: readonly PromptScores[];
  /** Decode steps of a prompt. */
  readonly iterations: number;
  /** False: the routers choose by other numbers than their scores, so that cached experts cannot be preferred. */
  readonly prefersCached: boolean;
  /** Sizes of the cache, and the one with which misses are constrained. */
  readonly cachesGb: readonly number[];
  readonly constrainedGb: number;
}

/** The numbers that a synthetic trace is made from. */
export type TraceSetting = Omit<ScoresSetting, 'shape'> & { readonly prompts: number };

export const TRACE_SETTING: TraceSetting = {
  prompts: 2,
  promptTokens: 200,
  iterations: 100,
  popularity: 0.5,
  topic: 1,
  token: 1,
  persistence: 0.6,
  seed: 1,
};

/** Models with the pairs that are used; SliceMoE says that Qwen1.5-MoE stands lower bits. */
const PAIRS: Readonly<Record<keyof typeof SCORED_SHAPES, SlicePair>> = {
  'qwen1.5-moe-a2.7b': { high: 6, low: 3 },
  'deepseek-v2-lite': { high: 8, low: 4 },
};
/** SliceMoE, section 6.1. */
const CACHES_GB: readonly number[] = [1.8, 2.4, 3.6];
const CONSTRAINED_CACHE_GB = 2.4;

export function syntheticModels(setting: TraceSetting, cachesGb: readonly number[] = CACHES_GB): ScoredModel[] {
  return (Object.keys(PAIRS) as (keyof typeof PAIRS)[]).map((model) => ({
    model,
    shape: loadModelProfile(model).shape,
    pair: PAIRS[model],
    prompts: Array.from({ length: setting.prompts }, (_, prompt) =>
      syntheticScores({ ...setting, shape: SCORED_SHAPES[model] }, prompt),
    ),
    iterations: setting.iterations,
    prefersCached: true,
    cachesGb,
    constrainedGb: CONSTRAINED_CACHE_GB,
  }));
}

const RECORDED_PAIR: SlicePair = { high: 8, low: 4 };
/** Caches of a recorded model, as shares of all its experts: a fourth for constrained misses, as on the demo model. */
const CACHE_SHARES: readonly number[] = [0.125, 0.25, 0.5];
const CONSTRAINED_SHARE = 0.25;
const BYTES_OF_GB = 1e9;

/**
 * The recorded scores of a trace. `checkpoint`: the model that it was recorded from, or a pack of it.
 * @throws USAGE for a trace without scores, or of another shape; the errors of opening the model
 */
export async function recordedModel(tracePath: string, checkpoint: string): Promise<ScoredModel> {
  const document = readTrace(tracePath);
  const { shape, name } = await openModelSource(checkpoint);
  const ofTrace = [document.layers, document.experts, document.experts_per_token];
  const ofModel = [shape.expertLayers, shape.experts, shape.expertsPerToken];
  if (ofTrace.join() !== ofModel.join()) {
    throw new OdmoeError(
      'USAGE',
      `${tracePath} is of a model with ${ofTrace.join(', ')} layers, experts and experts a token, ${name} has ${ofModel.join(', ')}: ` +
        'name the model that the trace was recorded from',
    );
  }
  const prompts = document.prompts.map((_, prompt) => recordedScores(document, prompt));
  const { upperBytes, lowerBytes } = sliceSizesOf(shape, RECORDED_PAIR);
  const gigabytes = (shape.expertLayers * shape.experts * (upperBytes + lowerBytes)) / BYTES_OF_GB;
  return {
    model: document.model,
    shape,
    pair: RECORDED_PAIR,
    prompts,
    iterations: Math.max(...prompts.map(({ promptTokens, positions }) => positions.length - promptTokens)),
    prefersCached: document.router_choice === undefined,
    cachesGb: CACHE_SHARES.map((share) => share * gigabytes),
    constrainedGb: CONSTRAINED_SHARE * gigabytes,
  };
}
