import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';

/** What one user asks for. */
export interface PlannedRequest {
  promptTokens: number;
  answerTokens: number;
}

/** The shortest and the longest of each; drawn evenly between them. */
export const PROMPT_TOKENS = { least: 8, most: 64 };
export const ANSWER_TOKENS = { least: 32, most: 128 };
/** Numbers that one request takes from its stream. */
const DRAWS_PER_REQUEST = 256;

/** The lengths of a user's n-th request, which follow from the seed alone. Pure. */
export function plannedRequest(seed: number, user: number, turn: number): PlannedRequest {
  const draw = drawer(seed, user, turn);
  return { promptTokens: between(PROMPT_TOKENS, draw()), answerTokens: between(ANSWER_TOKENS, draw()) };
}

/** Token ids of a prompt of that request, each as likely as any other. Pure. */
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
