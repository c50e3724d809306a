/** A model of main with experts of its own (main.experts: both, strict homes): the experts that it should keep, by messages and by time. */
import { assumedInclusionProbabilities } from '../../shared/decisions/caching/selection-model.js';

export interface OwnExpertsSetting {
  layers: number;
  experts: number;
  expertsPerToken: number;
  /** Workers besides main's own one. They are alike, and have equal parts of the experts that main does not keep. */
  workers: number;
  /** Part of all experts that main keeps, 0 to 1. */
  part: number;
  /** The popularity of an expert is its rank to the power of -skew. */
  skew: number;
  /** Time of main's own worker, and of another one, to execute an expert. */
  ownMs: number;
  workerMs: number;
  /** Time of an empty round trip, and time that each message takes of main's thread. */
  roundTripMs: number;
  messageMs: number;
}

/** Expected messages and time for a token's experts, without main's attention. */
export interface TokenCost {
  messages: number;
  ms: number;
}

/**
 * `spread`: main's part of every layer, as homes are until main has counted uses. `popular`: the most used experts of every layer, as main then keeps
 * them. `whole`: whole layers.
 */
export type OwnExpertsCosts = Record<'none' | 'spread' | 'popular' | 'whole', TokenCost>;

/** Choices of experts count as independent of one another. Pure. */
export function ownExpertsCosts(setting: OwnExpertsSetting): OwnExpertsCosts {
  const { layers, experts, expertsPerToken, part, skew } = setting;
  const used = assumedInclusionProbabilities(experts, expertsPerToken, skew);
  const kept = Math.round(part * experts);
  const ofAll = (layer: TokenCost): TokenCost => ({ messages: layers * layer.messages, ms: layers * layer.ms });
  const none = layerCost(setting, used, () => false);
  const spread = layerCost(
    setting,
    used,
    (rank) => Math.floor(((rank + 1) * kept) / experts) > Math.floor((rank * kept) / experts),
  );
  const popular = layerCost(setting, used, (rank) => rank < kept);
  const local = layerCost(setting, used, () => true);
  const whole = { messages: (1 - part) * none.messages, ms: part * local.ms + (1 - part) * none.ms };
  return { none: ofAll(none), spread: ofAll(spread), popular: ofAll(popular), whole: ofAll(whole) };
}

/** A layer of which main keeps the experts of some ranks. Others go to the workers in turn, by rank. */
function layerCost(setting: OwnExpertsSetting, used: Float64Array, isOwn: (rank: number) => boolean): TokenCost {
  const { workers, ownMs, workerMs, roundTripMs, messageMs } = setting;
  const idle = new Float64Array(workers).fill(1);
  const executed = new Float64Array(workers);
  let own = 0;
  let next = 0;
  used.forEach((probability, rank) => {
    if (isOwn(rank)) own += probability;
    else {
      idle[next] = (idle[next] ?? 1) * (1 - probability);
      executed[next] = (executed[next] ?? 0) + probability;
      next = (next + 1) % workers;
    }
  });
  const asked = idle.map((probability) => 1 - probability);
  const messages = asked.reduce((sum, probability) => sum + probability, 0);
  const remote = asked.map((probability, index) => probability * roundTripMs + (executed[index] ?? 0) * workerMs);
  return { messages, ms: messages * messageMs + Math.max(own * ownMs, ...remote) };
}
