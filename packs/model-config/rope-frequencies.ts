import { exponential, logarithm, power } from '../../shared/base/arithmetic/elementary.js';
import type { RopeShape } from '../../shared/model/model-shape.js';

/** YaRN (Peng et al.): slow pairs are interpolated, fast ones stay unchanged, with a ramp between. */
export interface YarnScaling {
  type: 'yarn';
  factor: number;
  /**
   * Pairs that turn more often than betaFast within the original length stay unchanged; pairs that turn less often than betaSlow are
   * interpolated.
   */
  betaFast: number;
  betaSlow: number;
  originalPositions: number;
  /** The ramp's bounds are whole dimensions. */
  truncate: boolean;
  /** Factor of cosine and sine. */
  scale: number;
}

/** Llama 3: as YaRN, but the ramp depends on the wavelength. */
export interface Llama3Scaling {
  type: 'llama3';
  factor: number;
  lowFrequencyFactor: number;
  highFrequencyFactor: number;
  originalPositions: number;
}

/** Changes of the frequencies theta^(-2 i / dimensions). */
export type RopeScaling =
  | { type: 'default' }
  | { type: 'linear'; factor: number }
  /** NTK-aware, with a fixed alpha in place of the length: theta * alpha^(d / (d - 2)). */
  | { type: 'alpha'; alpha: number }
  | YarnScaling
  | Llama3Scaling
  /** A divisor for each pair. */
  | { type: 'longrope'; factors: readonly number[]; scale: number }
  /** Only `pairs` pairs are rotated. */
  | { type: 'proportional'; pairs: number; factor: number };

/**
 * Frequencies of a rope of `dimensions` dimensions, in FP32. An odd number has a frequency more than it has whole pairs, as transformers' has. They are the same on every machine: computed in doubles with our
 * own exponential and logarithm, and rounded once at the end.
 */
export function ropeShape(theta: number, dimensions: number, scaling: RopeScaling): RopeShape {
  const frequencies = scaledFrequencies(theta, dimensions, scaling).map(Math.fround);
  const scale = scaling.type === 'yarn' || scaling.type === 'longrope' ? scaling.scale : 1;
  return { frequencies, scale: Math.fround(scale) };
}

/** Factor by which YaRN scales attention for a context that is `factor` times as long. */
export function yarnMscale(factor: number, mscale: number): number {
  return factor <= 1 ? 1 : 0.1 * mscale * logarithm(factor) + 1;
}

function scaledFrequencies(theta: number, dimensions: number, scaling: RopeScaling): number[] {
  const plain = plainFrequencies(theta, dimensions);
  switch (scaling.type) {
    case 'default':
      return plain;
    case 'linear':
      return plain.map((frequency) => frequency / scaling.factor);
    case 'alpha':
      return plainFrequencies(theta * power(scaling.alpha, dimensions / (dimensions - 2)), dimensions);
    case 'yarn':
      return yarnFrequencies(plain, theta, dimensions, scaling);
    case 'llama3':
      return plain.map((frequency) => llama3Frequency(frequency, scaling));
    case 'longrope':
      return plain.map((frequency, pair) => frequency / (scaling.factors[pair] ?? 1));
    case 'proportional':
      return plain.map((frequency, pair) => (pair < scaling.pairs ? frequency / scaling.factor : 0));
  }
}

function plainFrequencies(theta: number, dimensions: number): number[] {
  const logTheta = logarithm(theta);
  return Array.from({ length: Math.ceil(dimensions / 2) }, (_, pair) =>
    exponential(-((2 * pair) / dimensions) * logTheta),
  );
}

function yarnFrequencies(plain: readonly number[], theta: number, dimensions: number, yarn: YarnScaling): number[] {
  /** The dimension whose pair turns `turns` times within the original length. */
  const dimensionOf = (turns: number): number =>
    (dimensions * logarithm(yarn.originalPositions / (turns * 2 * Math.PI))) / (2 * logarithm(theta));
  const [fast, slow] = [dimensionOf(yarn.betaFast), dimensionOf(yarn.betaSlow)];
  const low = Math.max(yarn.truncate ? Math.floor(fast) : fast, 0);
  const bound = Math.min(yarn.truncate ? Math.ceil(slow) : slow, dimensions - 1);
  const high = bound === low ? low + 0.001 : bound;
  return plain.map((frequency, pair) => {
    const interpolated = Math.min(Math.max((pair - low) / (high - low), 0), 1);
    return (frequency / yarn.factor) * interpolated + frequency * (1 - interpolated);
  });
}

function llama3Frequency(frequency: number, scaling: Llama3Scaling): number {
  const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalPositions } = scaling;
  const turns = (originalPositions * frequency) / (2 * Math.PI);
  if (turns > high) return frequency;
  if (turns < low) return frequency / factor;
  const smooth = (turns - low) / (high - low);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}
