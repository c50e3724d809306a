/** Routers' scores as a trace of version 2 has them, for a replay in place of synthetic ones. */
import { logarithm, timesPowerOfTwo } from '../../shared/base/arithmetic/elementary.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RouterScores } from '../../shared/decisions/slices/choose-experts.js';
import type { TraceDocument, TracedChoice } from '../trace/trace-file.js';
import type { PromptScores } from './synthetic-scores.js';

const HALF_BYTES = 2;
const FRACTION_BITS = 10;
const FRACTION_MASK = (1 << FRACTION_BITS) - 1;
const BIAS = 15;
/** Scores nearer to 0 or to 1 than this are 0 or 1 as FP16. Their logits count as if the scores were that far away. */
const LEAST_SCORE = timesPowerOfTwo(1, -25);
const LEAST_BELOW_ONE = timesPowerOfTwo(1, -12);

/**
 * The scores of a prompt by position and layer. Logits follow from them, with the accuracy of FP16 and, after softmax, without a number that is
 * common to a layer's logits; no rule of choice depends on that.
 * @throws USAGE for a trace without scores
 */
export function recordedScores(document: TraceDocument, prompt: number): PromptScores {
  const { layers, experts, router_score: rule, router_choice: choice, prompts } = document;
  const recorded = prompts[prompt];
  if (recorded?.scores === undefined || rule === undefined) {
    throw new OdmoeError(
      'USAGE',
      `the trace of ${document.model} has no scores: record it again with "odmoe bench trace"`,
    );
  }
  const logitOf = rule === 'softmax' ? logitOfShare : logitOfSigmoid;
  const positions = recorded.scores.map((text) => {
    const values = halvesOf(Buffer.from(text, 'base64'));
    return Array.from({ length: layers }, (_, layer): RouterScores => {
      const scores = values.subarray(layer * experts, (layer + 1) * experts);
      const router = { scores, logits: scores.map(logitOf) };
      return choice === undefined ? router : { ...router, ranking: rankingOf(scores, choice, layer) };
    });
  });
  return { promptTokens: recorded.prompt_tokens, positions };
}

/** The scores by which the router ranks: with their bias, and -Infinity outside the best groups. */
function rankingOf(
  scores: Float64Array,
  { bias, groups, groups_kept, group_score }: TracedChoice,
  layer: number,
): Float64Array {
  const ranked = scores.map((score, expert) => score + (bias?.[layer]?.[expert] ?? 0));
  if (groups_kept === groups) return ranked;
  const size = ranked.length / groups;
  const values = Array.from({ length: groups }, (_, group) => {
    const [best = -Infinity, second = 0] = ranked
      .slice(group * size, (group + 1) * size)
      .sort()
      .reverse();
    return group_score === 'best-two' ? best + second : best;
  });
  const byValue = [...values.keys()].sort((one, other) => (values[other] ?? 0) - (values[one] ?? 0) || one - other);
  const kept = new Set(byValue.slice(0, groups_kept));
  return ranked.map((value, expert) => (kept.has(Math.floor(expert / size)) ? value : -Infinity));
}

function logitOfShare(score: number): number {
  return logarithm(Math.max(score, LEAST_SCORE));
}

function logitOfSigmoid(score: number): number {
  const within = Math.min(Math.max(score, LEAST_SCORE), 1 - LEAST_BELOW_ONE);
  return logarithm(within / (1 - within));
}

/** FP16 numbers from 0 to 1. */
function halvesOf(bytes: Buffer): Float64Array {
  return Float64Array.from({ length: bytes.length / HALF_BYTES }, (_, index) => {
    const bits = bytes.readUInt16LE(index * HALF_BYTES);
    const [exponent, fraction] = [bits >> FRACTION_BITS, bits & FRACTION_MASK];
    if (exponent === 0) return timesPowerOfTwo(fraction, 1 - BIAS - FRACTION_BITS);
    return timesPowerOfTwo((1 << FRACTION_BITS) + fraction, exponent - BIAS - FRACTION_BITS);
  });
}
