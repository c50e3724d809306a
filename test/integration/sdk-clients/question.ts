import { z } from 'zod';

/** The questions of every client, and the form in which its row gives the answers. */

export const MODEL = 'demo';
export const PROMPT = 'Tell me a story about a fox.';
export const TEXT_TOKENS = 12;
/** Room for an object and a call: near its end, what must follow a schema is closed, where each byte counts as a token. */
export const OBJECT_TOKENS = 120;

/** Bounds, constants, a choice that a property makes, and a property that may be null. */
export const VISIT = z.object({
  hours: z.int().min(1).max(5),
  note: z.string().max(5).nullable(),
  place: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('in') }),
    z.object({ kind: z.literal('out'), dry: z.boolean() }),
  ]),
});
/** Types alone: for clients that keep the rest of a schema to themselves. */
export const PLAIN_VISIT = z.object({ note: z.string().nullable(), dry: z.boolean() });

export const TOOL = { name: 'visit', description: 'Visits.' };
const RESULT_WORDS = 40;
/** The result of the tool. Each of its words has at least one token, so a prompt shows whether it is there. */
export const RESULT = 'fox '.repeat(RESULT_WORDS).trim();
export const RESULT_TOKENS = RESULT_WORDS;

export interface Answer {
  text: string;
  /** All of them, with those whose rows came from an earlier prompt. */
  promptTokens: number;
  answerTokens: number;
}

export interface StreamedAnswer extends Answer {
  /** Pieces of the text that were not empty. */
  deltas: number;
}

export interface ToolTurn {
  /** The arguments of the only call, as the client reads them. */
  given: unknown;
  /** The prompt that led to the call. */
  promptTokens: number;
  /** The answer to the call's result. */
  after: Answer;
}

/** The acts of a client in the table; with `isStreamed` it takes the answer as a stream. */
export interface SdkClient {
  text(): Promise<Answer>;
  streamedText(): Promise<StreamedAnswer>;
  /** An answer of the schema VISIT or PLAIN_VISIT, which the client itself has parsed. */
  object(isStreamed: boolean): Promise<unknown>;
  /** Forces a call of the tool with the arguments of VISIT, sends RESULT back, and leaves the rest to the model. */
  toolTurn(isStreamed: boolean): Promise<ToolTurn>;
}

/** Opens a client of the server at "http://HOST:PORT". */
export type OpenSdkClient = (url: string) => SdkClient;

/**
 * The answer of the first seed that has a call. Ollama's API forces no call, and the demo model makes none by itself. Hot, and with one
 * short answer beside a call, it does so for some seeds.
 */
export async function firstCalling<T>(ask: (seed: number) => Promise<T>, hasCall: (answer: T) => boolean): Promise<T> {
  for (let seed = 0; seed < 20; seed += 1) {
    const answer = await ask(seed);
    if (hasCall(answer)) return answer;
  }
  throw new Error('none of 20 answers was a call');
}
export const CALL_OR_SHORT = { format: { const: 1 }, temperature: 30 };
