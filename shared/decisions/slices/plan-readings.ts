/**
 * How each execution of a layer reads its expert. It depends on nothing but the quality, the model's measured thresholds and the router's weights
 * for the row, so a process that holds all experts and a cluster come to the same readings.
 */
import type { SliceReading } from '../../model/tensor-source.js';
import { isCritical, renormalizedWeights, thresholdOfShare } from './critical-executions.js';
import type { LogicalRules } from '../../settings/logical-rules.js';
import { PAIR_TEXTS, qualityText, type Quality } from '../../settings/quality.js';

/** A quality that computes with slices. */
export type SlicedQuality = Exclude<Quality, { kind: 'exact' }>;

/** Executions that read both slices: all, none, or the critical ones by this threshold. */
export type WeightsRule = { readonly kind: 'high' | 'low' } | { readonly kind: 'critical'; readonly theta: number };

/** Experts and slices that a sequence's logical cache decides on (sequence-decisions.ts). Executions are critical from `theta` on. */
export interface CachedRule extends LogicalRules {
  readonly kind: 'cached';
  readonly theta: number;
  readonly cacheBytes: number;
  readonly missShare: number;
}

export type PrecisionRule = WeightsRule | CachedRule;

/** A threshold as slices.json lists it: `critical` is the share of executions that are critical by `theta`. */
export interface MeasuredTheta {
  readonly critical: number;
  readonly theta: number;
}

/** The reading of an upper slice alone: half the error of the paper's rule, from the same bytes. */
export const UPPER_READING: SliceReading = 'upperCentred';

/** The wanted share of critical executions under a logical cache. */
export const CACHED_CRITICAL_SHARE = 0.3;

/** Millionths by which the share of a measured threshold may differ from the wanted share. */
const SHARE_TOLERANCE_MILLIONTHS = 50_000;
/** Nor may it be more than so many times the wanted share, or less than such a part of it. */
const SHARE_FACTOR = 2;

/** Hundredths: the shares for which thresholds are measured. */
const MEASURED_PERCENTS = Array.from({ length: 19 }, (_, index) => (index + 1) * 5);
/** A share is asked for with at most so many decimals. */
const SHARE_DECIMALS = 6;

/** The rule of a quality, with the nearest of the measured thresholds; null: the model's were not measured. */
export function precisionRule(
  quality: SlicedQuality,
  measured: readonly MeasuredTheta[] | null,
): { readonly rule: PrecisionRule } | { readonly problem: string } {
  const without = alternatives(quality);
  if (quality.kind !== 'critical' && quality.kind !== 'cached') return { rule: { kind: quality.kind } };
  const share = quality.kind === 'cached' ? CACHED_CRITICAL_SHARE : quality.share;
  const nearest = nearestTheta(share, measured ?? []);
  if (nearest === null) {
    return {
      problem:
        measured === null
          ? `no threshold (theta) of critical executions was measured for this model: measure them with "odmoe pack PACK PACK --slices ${PAIR_TEXTS[quality.split]}", or give ${without}`
          : `no threshold (theta) separates executions of this model, as was measured: give ${without}`,
    };
  }
  const theta = Math.fround(nearest.theta);
  if (quality.kind === 'cached') {
    const { kind, cacheBytes, missShare, lowerFetch, routing } = quality;
    return { rule: { kind, theta, cacheBytes, missShare, lowerFetch, routing } };
  }
  if (!isNear(nearest.critical, share)) {
    const shares = (measured ?? []).map(({ critical }) => critical).sort((left, right) => left - right);
    return {
      problem: `no threshold (theta) near to critical=${share} was measured for this model; slices.json lists ${shares.join(', ')}: give one of these`,
    };
  }
  return { rule: { kind: 'critical', theta } };
}

function isNear(measured: number, wanted: number): boolean {
  const isWithinFactor = measured <= wanted * SHARE_FACTOR && wanted <= measured * SHARE_FACTOR;
  return isWithinFactor && millionths(measured - wanted) <= SHARE_TOLERANCE_MILLIONTHS;
}

/** The rule by which readings are expected before the router has chosen: a logical cache decides only after that. */
export function expectedRule(rule: PrecisionRule): WeightsRule {
  return rule.kind === 'cached' ? { kind: 'critical', theta: rule.theta } : rule;
}

/** True if some execution reads lower slices. */
export function readsLowerSlices({ kind }: PrecisionRule): boolean {
  return kind !== 'low';
}

/** True if some executions read both slices and others one: workers are told by each message. */
export function readsBothWays({ kind }: PrecisionRule): boolean {
  return kind === 'critical' || kind === 'cached';
}

/** The readings of a layer's executions, in the order of `weights`: the router's, rows x expertsPerToken by rank. */
export function planReadings(rule: WeightsRule, weights: Float32Array, expertsPerToken: number): SliceReading[] {
  if (rule.kind !== 'critical') return Array.from(weights, () => (rule.kind === 'high' ? 'both' : UPPER_READING));
  const { theta } = rule;
  return Array.from(renormalizedWeights(weights, expertsPerToken), (weight) =>
    isCritical(weight, theta) ? 'both' : UPPER_READING,
  );
}

/**
 * Thresholds for shares of 0.05, 0.1 and so on to 0.95, by rising share. Each threshold is listed once, with the share that it really has. Where
 * a router gives equal weights there are fewer of them, down to none: a threshold by which all executions are critical is none.
 */
export function measuredThresholds(renormalized: Float32Array): MeasuredTheta[] {
  const byTheta = new Map<number, MeasuredTheta>();
  if (renormalized.every((weight) => Number.isNaN(weight))) return [];
  for (const percent of MEASURED_PERCENTS) {
    const { theta, share } = thresholdOfShare(renormalized, percent / 100);
    const critical = Number(share.toFixed(SHARE_DECIMALS));
    if (critical > 0 && critical < 1) byTheta.set(theta, { critical, theta });
  }
  return [...byTheta.values()];
}

/**
 * The field `critical` of a message that has workers load experts, where it tells them something: under rules by which all executions read alike
 * they know it from the quality.
 */
export function criticalField(
  rule: PrecisionRule | null,
  critical: readonly number[],
): { critical?: readonly number[] } {
  return rule !== null && readsBothWays(rule) && critical.length > 0 ? { critical } : {};
}

/** The experts that some row reads with both slices, each once. `readings`: of the same executions. */
export function expertsReadWhole(experts: ArrayLike<number>, readings: readonly SliceReading[]): number[] {
  return [...new Set(Array.from(experts).filter((_expert, index) => readings[index] === 'both'))];
}

/** The nearest threshold; if two are equally near, the higher one, which reads fewer bytes. */
function nearestTheta(share: number, measured: readonly MeasuredTheta[]): MeasuredTheta | null {
  let nearest: MeasuredTheta | null = null;
  for (const one of measured) {
    const nearer = nearest === null ? -1 : millionths(one.critical - share) - millionths(nearest.critical - share);
    if (nearest === null || nearer < 0 || (nearer === 0 && one.theta > nearest.theta)) nearest = one;
  }
  return nearest;
}

function millionths(difference: number): number {
  return Math.round(Math.abs(difference) * 1e6);
}

/** Qualities of the same slices that every model offers, in words. */
export function alternatives({ split }: SlicedQuality): string {
  return `${qualityText({ kind: 'high', split })} or ${qualityText({ kind: 'low', split })}`;
}
