/** The tokens that a predictor is trained with, in sequences, and those that are held back to measure it. Pure. */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { RECORDED_TOKENS_LIMIT } from '../../shared/settings/setting-limits.js';

/** Most tokens of a sequence. */
const SEQUENCE_TOKENS = 512;
/** One sequence of this many is held back: the last. */
const HELD_BACK_ONE_IN = 8;
/** Fewest and most tokens that are recorded. With the fewest, a sequence is held back however long the sequences are. */
export const LEAST_TOKENS = HELD_BACK_ONE_IN * SEQUENCE_TOKENS;
export const MOST_TOKENS = RECORDED_TOKENS_LIMIT;

/** Sequences in the order in which they are recorded: those that are trained with come first. */
export interface FittingTokens {
  readonly sequences: readonly (readonly number[])[];
  /** Tokens of all sequences, and of those that are trained with. */
  readonly tokens: number;
  readonly trainedTokens: number;
}

/** Cuts the tokens of a text into sequences, `tokens` in all at most. */
export function cutText(ids: readonly number[], tokens: number, maxPositions: number): number[][] {
  const length = Math.min(SEQUENCE_TOKENS, maxPositions);
  const end = Math.min(ids.length, tokens);
  const sequences: number[][] = [];
  for (let start = 0; start < end; start += length) sequences.push(ids.slice(start, Math.min(end, start + length)));
  return sequences;
}

/**
 * The rows of recorded answers in sequences, by their numbers: the rows of one answer together, a long one cut into several.
 * @param answers the answer of each row
 */
export function recordedSequences(answers: readonly number[]): number[][] {
  const sequences: number[][] = [];
  const open = new Map<number, number[]>();
  for (const [row, answer] of answers.entries()) {
    let sequence = open.get(answer);
    if (sequence === undefined || sequence.length === SEQUENCE_TOKENS) {
      sequence = [];
      open.set(answer, sequence);
      sequences.push(sequence);
    }
    sequence.push(row);
  }
  return sequences;
}

/** As many whole sequences as have `tokens` tokens or a few more. */
export function firstSequences(sequences: readonly (readonly number[])[], tokens: number): (readonly number[])[] {
  let count = 0;
  let sum = 0;
  while (count < sequences.length && sum < tokens) {
    sum += sequences[count]?.length ?? 0;
    count += 1;
  }
  return sequences.slice(0, count);
}

/**
 * Holds sequences back, none of which is longer than SEQUENCE_TOKENS.
 * @param origin says in a message where the tokens come from
 * @throws USAGE for too few tokens
 */
export function divideTokens(sequences: readonly (readonly number[])[], origin: string): FittingTokens {
  const isHeldBack = (index: number): boolean => index % HELD_BACK_ONE_IN === HELD_BACK_ONE_IN - 1;
  const trained = sequences.filter((_, index) => !isHeldBack(index));
  const heldBack = sequences.filter((_, index) => isHeldBack(index));
  const sumOf = (some: readonly (readonly number[])[]): number => some.reduce((sum, { length }) => sum + length, 0);
  const tokens = sumOf(sequences);
  if (tokens < LEAST_TOKENS) {
    throw new OdmoeError(
      'USAGE',
      `${origin}: ${tokens} tokens are too few to train with and to measure by: at least ${LEAST_TOKENS} are needed`,
    );
  }
  assertInvariant(heldBack.length > 0, () => `${sequences.length} sequences of ${tokens} tokens: one is too long.`);
  return { sequences: [...trained, ...heldBack], tokens, trainedTokens: sumOf(trained) };
}
