/**
 * Routers' scores that are made up: experts of a layer are popular or not, a prompt has a topic that favours some of them, and what a token wants
 * resembles what the token before wanted. Logits are FP32 sums of these three parts.
 */
import { exponential } from '../../shared/base/arithmetic/elementary.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { RouterScores } from '../../shared/decisions/slices/choose-experts.js';

export interface ScoredShape {
  readonly layers: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly sharedExperts: number;
}

/** Layers with routers, by the name of the model's profile. */
export const SCORED_SHAPES = {
  'qwen1.5-moe-a2.7b': { layers: 24, experts: 60, expertsPerToken: 4, sharedExperts: 4 },
  'deepseek-v2-lite': { layers: 26, experts: 64, expertsPerToken: 6, sharedExperts: 2 },
} as const satisfies Record<string, ScoredShape>;

export interface ScoresSetting {
  readonly shape: ScoredShape;
  /** Tokens of the prompt, then tokens that are decoded. */
  readonly promptTokens: number;
  readonly iterations: number;
  /** Standard deviations of the logits' three parts. */
  readonly popularity: number;
  readonly topic: number;
  readonly token: number;
  /** The correlation of a token's own part with that of the token before: from 0 to 1. */
  readonly persistence: number;
  readonly seed: number;
}

/** Scores by position and layer. */
export interface PromptScores {
  readonly promptTokens: number;
  readonly positions: readonly (readonly RouterScores[])[];
}

/** Popularity depends on the seed alone, all else on the seed and the prompt's number. */
export function syntheticScores(setting: ScoresSetting, prompt: number): PromptScores {
  const { shape, promptTokens, iterations } = setting;
  const count = shape.layers * shape.experts;
  const seeded = new SeededRandom(setting.seed);
  const popularity = normals(seeded.fork('popularity'), count);
  const topic = normals(seeded.fork(`topic ${prompt}`), count);
  const base = popularity.map((value, index) => setting.popularity * value + setting.topic * (topic[index] ?? 0));
  const random = seeded.fork(`tokens ${prompt}`);
  const renewed = Math.sqrt(1 - setting.persistence ** 2);
  let own = normals(random, count);
  const positions = Array.from({ length: promptTokens + iterations }, (_, position) => {
    if (position > 0) {
      const fresh = normals(random, count);
      own = own.map((value, index) => setting.persistence * value + renewed * (fresh[index] ?? 0));
    }
    const logits = Float32Array.from(base, (value, index) => value + setting.token * (own[index] ?? 0));
    return Array.from({ length: shape.layers }, (__, layer) =>
      softmaxed(logits.subarray(layer * shape.experts, (layer + 1) * shape.experts)),
    );
  });
  return { promptTokens, positions };
}

function softmaxed(logits: Float32Array): RouterScores {
  const most = Math.max(...logits);
  const powers = Float64Array.from(logits, (logit) => exponential(logit - most));
  const sum = powers.reduce((added, power) => added + power, 0);
  return { logits, scores: powers.map((power) => power / sum) };
}

/** Sums of four even numbers: nearly normal, with mean 0 and variance 1, and the same on every machine. */
function normals(random: SeededRandom, count: number): Float64Array {
  const next = (): number => random.fraction();
  return Float64Array.from({ length: count }, () => (next() + next() + next() + next() - 2) * Math.sqrt(3));
}
