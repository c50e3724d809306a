/** The tokens that a predictor is trained with, in sequences, and those that are held back to measure it. Pure. */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { LEAST_RECORDED_TOKENS, RECORDED_TOKENS_LIMIT } from '../../shared/settings/setting-limits.js';

/** Most tokens of a sequence. */
const SEQUENCE_TOKENS = 512;
/** One sequence of this many is held back: the last. Of recorded answers, at most this part of the tokens. */
const HELD_BACK_ONE_IN = 8;
/** Fewest and most tokens that are recorded. With the fewest, a sequence is held back however long the sequences are. */
export const LEAST_TOKENS = LEAST_RECORDED_TOKENS;
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
 * Divides the rows of recorded answers, which it names by their numbers. Whole answers are held back: a piece of an answer is much like the piece before
 * it, which would be trained with. Where that holds too little back, because the answers are few and long, pieces are.
 * @param answers the answer of each row
 * @param origin as for divideTokens
 * @throws USAGE for too few tokens
 */
export function divideRecorded(answers: readonly number[], origin: string): FittingTokens {
  const sequences = recordedSequences(answers);
  const heldBack = heldBackAnswers(answers);
  const divided = divide(sequences, origin, (sequence) => heldBack.has(answers[sequence[0] ?? 0] ?? 0));
  const isMeasured = (divided.tokens - divided.trainedTokens) * 2 * HELD_BACK_ONE_IN >= divided.tokens;
  return isMeasured ? divided : divideTokens(sequences, origin);
}

/** The answers, in the order in which they begin, that together have the part of the tokens to hold back, or a little less. */
function heldBackAnswers(answers: readonly number[]): Set<number> {
  const tokensOf = new Map<number, number>();
  for (const answer of answers) tokensOf.set(answer, (tokensOf.get(answer) ?? 0) + 1);
  const heldBack = new Set<number>();
  let all = 0;
  let held = 0;
  for (const [answer, tokens] of tokensOf) {
    all += tokens;
    if ((held + tokens) * HELD_BACK_ONE_IN > all) continue;
    heldBack.add(answer);
    held += tokens;
  }
  return heldBack;
}

/** The rows of one answer together, a long one cut into several sequences. */
function recordedSequences(answers: readonly number[]): number[][] {
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
  const divided = divide(sequences, origin, (_, index) => index % HELD_BACK_ONE_IN === HELD_BACK_ONE_IN - 1);
  assertInvariant(
    divided.tokens > divided.trainedTokens,
    () => `${sequences.length} sequences of ${divided.tokens} tokens: one is too long.`,
  );
  return divided;
}

function divide(
  sequences: readonly (readonly number[])[],
  origin: string,
  isHeldBack: (sequence: readonly number[], index: number) => boolean,
): FittingTokens {
  const trained: (readonly number[])[] = [];
  const heldBack: (readonly number[])[] = [];
  for (const [index, sequence] of sequences.entries())
    (isHeldBack(sequence, index) ? heldBack : trained).push(sequence);
  const sumOf = (some: readonly (readonly number[])[]): number => some.reduce((sum, { length }) => sum + length, 0);
  const trainedTokens = sumOf(trained);
  const tokens = trainedTokens + sumOf(heldBack);
  requireTokens(tokens, origin);
  return { sequences: [...trained, ...heldBack], tokens, trainedTokens };
}

/** @throws USAGE for too few tokens */
export function requireTokens(tokens: number, origin: string): void {
  if (tokens >= LEAST_TOKENS) return;
  throw new OdmoeError(
    'USAGE',
    `${origin}: ${tokens} tokens are too few to train with and to measure by: at least ${LEAST_TOKENS} are needed`,
  );
}
