import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { Finished } from '../../shared/rpc/messages.js';
import type { SetUp } from './set-up.js';
import type { SimulatedTimes } from './simulate-set-up.js';
import type { TestbedAnswer } from './testbed.js';

/** What several answers of one set-up gave; means over the answers. */
export interface Measurement {
  decodeTokensPerS: number;
  ttftMs: number;
  outputTokensPerS: number;
  /** Over all activated experts (OD-MoE equation 3); null: nothing was predicted. */
  recall: number | null;
  /** Drafts that main's own token equalled, of those it ran; null: there were none. */
  acceptance: number | null;
  reloads: number;
  /** High-water mark of all devices together. */
  memoryBytes: number;
  tokenIds: number[][];
  /** What the simulator says of it; null: nothing was emulated. */
  simulated: SimulatedTimes | null;
}

/** Measures prompts of a length with answers of a length; 'cached': the whole model on one device. */
export type Measure = (setUp: SetUp | 'cached', inputTokens: number, outputTokens: number) => Promise<Measurement>;

/** Throws PROTOCOL_VIOLATION where an answer has no times. */
export function summarize(answers: readonly TestbedAnswer[], simulated: SimulatedTimes | null): Measurement {
  const mean = (of: (timing: NonNullable<Finished['timing']>) => number): number =>
    answers.reduce((sum, { finished }) => sum + of(timingOf(finished)), 0) / answers.length;
  const seps = answers.flatMap(({ finished }) => (finished.sep === null ? [] : [finished.sep]));
  const activated = sum(seps.map((sep) => sep.activated));
  const drafts = answers.flatMap(({ finished }) => finished.drafts ?? []);
  const proposed = sum(drafts.map((draft) => draft.proposed));
  const highWater = answers.map(({ finished }) => sum(finished.nodes.map((node) => node.deviceMemoryHighWaterBytes)));
  return {
    decodeTokensPerS: mean((timing) => timing.decodeTokensPerS),
    ttftMs: mean((timing) => timing.ttftMs),
    outputTokensPerS: mean((timing) => timing.outputTokensPerS),
    recall: activated === 0 ? null : sum(seps.map((sep) => sep.predictedCorrectly)) / activated,
    acceptance: proposed === 0 ? null : sum(drafts.map((draft) => draft.accepted)) / proposed,
    reloads: sum(answers.map(({ finished }) => finished.reloads)),
    memoryBytes: Math.max(...highWater),
    tokenIds: answers.map(({ tokenIds }) => tokenIds),
    simulated,
  };
}

function timingOf({ timing }: Finished): NonNullable<Finished['timing']> {
  if (timing === null) throw new OdmoeError('PROTOCOL_VIOLATION', 'an answer came without its times');
  return timing;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
