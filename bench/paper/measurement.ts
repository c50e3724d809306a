import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished } from '../../shared/wire/messages.js';
import type { CachedMachine, SetUp } from './set-up.js';
import type { PaperTimes } from './simulate-set-up.js';
import type { CollectedAnswer } from '../../cli/client/measured-request.js';

/** The range over several prompts. */
export interface Range {
  lowest: number;
  highest: number;
}

/** The result of several answers with one set-up; means over the answers. */
export interface Measurement {
  decodeTokensPerS: number;
  decodeRange: Range;
  ttftMs: number;
  ttftRangeMs: Range;
  outputTokensPerS: number;
  /** Recall over all activated experts (OD-MoE equation 3); null: nothing was predicted. */
  recall: number | null;
  /** Share of the drafts main ran that equalled its own token; null: there were none. */
  acceptance: number | null;
  reloads: number;
  /** High-water mark of all devices together, and of the shadow's; null: there is no shadow. */
  memoryBytes: number;
  shadowMemoryBytes: number | null;
  tokenIds: number[][];
  /** The simulator's times; null: nothing was emulated. */
  simulated: PaperTimes | null;
  /** Time of one row of the profiled shadow behind an empty context; null: nothing was emulated, or there is no shadow. */
  shadowTokenMs: number | null;
}

/** Measures prompts of a length with answers of a length. */
export type Measure = (setUp: SetUp | CachedMachine, inputTokens: number, outputTokens: number) => Promise<Measurement>;

/** Throws PROTOCOL_VIOLATION if an answer has no times. */
export function summarizeAnswers(
  answers: readonly CollectedAnswer[],
  { simulated, shadowTokenMs }: Pick<Measurement, 'simulated' | 'shadowTokenMs'>,
): Measurement {
  const timings = answers.map(({ finished }) => timingOf(finished));
  const speeds = timings.map((timing) => timing.decodeTokensPerS);
  const waitsMs = timings.map((timing) => timing.ttftMs);
  const seps = answers.flatMap(({ finished }) => (finished.sep === null ? [] : [finished.sep]));
  const activated = sum(seps.map((sep) => sep.activated));
  const drafts = answers.flatMap(({ finished }) => finished.drafts ?? []);
  const proposed = sum(drafts.map((draft) => draft.proposed));
  const nodes = answers.map(({ finished }) => finished.nodes);
  const highWater = nodes.map((all) => sum(all.map(({ deviceMemoryHighWaterBytes: bytes }) => bytes)));
  const ofShadow = nodes.flat().filter(({ identity }) => identity.role === 'ROLE_SHADOW');
  return {
    decodeTokensPerS: mean(speeds),
    decodeRange: rangeOf(speeds),
    ttftMs: mean(waitsMs),
    ttftRangeMs: rangeOf(waitsMs),
    outputTokensPerS: mean(timings.map((timing) => timing.outputTokensPerS)),
    recall: activated === 0 ? null : sum(seps.map((sep) => sep.predictedCorrectly)) / activated,
    acceptance: proposed === 0 ? null : sum(drafts.map((draft) => draft.accepted)) / proposed,
    reloads: sum(answers.map(({ finished }) => finished.reloads)),
    memoryBytes: Math.max(...highWater),
    shadowMemoryBytes:
      ofShadow.length === 0 ? null : Math.max(...ofShadow.map(({ deviceMemoryHighWaterBytes: bytes }) => bytes)),
    tokenIds: answers.map(({ tokenIds }) => tokenIds),
    simulated,
    shadowTokenMs,
  };
}

function timingOf({ timing }: Finished): NonNullable<Finished['timing']> {
  if (timing === null) throw new OdmoeError('PROTOCOL_VIOLATION', 'an answer came without its times');
  return timing;
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

function rangeOf(values: readonly number[]): Range {
  return { lowest: Math.min(...values), highest: Math.max(...values) };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
