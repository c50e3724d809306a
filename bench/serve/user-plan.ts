import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';

/** The lengths of one user's request. */
export interface PlannedRequest {
  promptTokens: number;
  answerTokens: number;
}

/** The shortest and the longest length; lengths are drawn evenly between them. */
export const PROMPT_TOKENS = { least: 8, most: 64 };
export const ANSWER_TOKENS = { least: 32, most: 128 };
/** Random numbers reserved for one request. */
const DRAWS_PER_REQUEST = 256;

/** The lengths of a user's n-th request; they depend on the seed alone. Pure. */
export function plannedRequest(seed: number, user: number, turn: number): PlannedRequest {
  const draw = drawer(seed, user, turn);
  return { promptTokens: between(PROMPT_TOKENS, draw()), answerTokens: between(ANSWER_TOKENS, draw()) };
}

/** Token ids of a prompt of that request, all equally likely. Pure. */
export function promptIdsOf(seed: number, user: number, turn: number, vocabSize: number): number[] {
  const { promptTokens } = plannedRequest(seed, user, turn);
  const draw = drawer(seed, user, turn);
  draw();
  draw();
  return Array.from({ length: promptTokens }, () => Math.floor(draw() * vocabSize));
}

function drawer(seed: number, user: number, turn: number): () => number {
  let next = (user * 4096 + turn) * DRAWS_PER_REQUEST;
  return () => counterRandom(seed, next++);
}

function between({ least, most }: { least: number; most: number }, random: number): number {
  return least + Math.floor(random * (most - least + 1));
}
