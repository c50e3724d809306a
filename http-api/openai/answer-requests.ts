import { type GenerationWatch, NOBODY_WATCHES } from '../delivery/generation-watch.js';
import type { GenerateReply, GenerateRequest } from '../../shared/wire/messages.js';
import { MAX_SEED } from '../../shared/wire/sampling-options.js';
import type { ChatRequest, PreparedChat } from '../conversation/chat-request.js';
import type { HttpApiContext } from '../http-api-context.js';
import type { OpenaiHead } from './chat-chunks.js';
import { type ClientFields, errorForClient } from '../answer/client-fields.js';
import { answerArithmetic } from '../fields/arithmetic-field.js';
import { mergeAnswers } from '../answer/merge-answers.js';

/** Limit for seeds that main chooses: the largest range that a runtime draws from. */
const CHOSEN_SEED_LIMIT = 2 ** 47;

export function openaiHead(prefix: string, { model, runtime }: Pick<HttpApiContext, 'model' | 'runtime'>): OpenaiHead {
  return {
    id: `${prefix}${runtime.randomId()}`,
    created: Math.floor(runtime.wallMs() / 1000),
    model: model.name,
    system_fingerprint: model.fingerprint,
    ...answerArithmetic(model),
  };
}

/**
 * Seeds of the answers to one prompt: seed + i, so that each answer equals the one that its seed gives alone. Without a seed in the request,
 * main chooses the seed of a single answer; several answers get consecutive seeds.
 */
export function answerSeeds(
  seed: number | undefined,
  count: number,
  runtime: Pick<HttpApiContext['runtime'], 'randomInt'>,
): (number | undefined)[] {
  if (seed === undefined && count === 1) return [undefined];
  const first = seed ?? runtime.randomInt(CHOSEN_SEED_LIMIT);
  return Array.from({ length: count }, (_, index) =>
    first <= MAX_SEED - index ? first + index : index - 1 - (MAX_SEED - first),
  );
}

/** Prepares a conversation for the served model. Errors name the client's fields. */
export function prepareFor(
  context: Pick<HttpApiContext, 'prepareChat'>,
  chat: ChatRequest,
  fields: ClientFields,
): PreparedChat {
  try {
    return context.prepareChat(chat);
  } catch (thrown) {
    throw errorForClient(thrown, fields);
  }
}

/** The requests to the model that follow from one request of a client. */
export interface AskedAnswers {
  /** Ordered by prompt. */
  requests: readonly GenerateRequest[];
  answersPerPrompt: number;
  /** The client's names of the fields. */
  names: ClientFields;
}

/** Yields the replies of several requests as they come. `watch` gets the sum of their prompts' progress. */
export async function* generateAll(
  context: Pick<HttpApiContext, 'generate'>,
  { requests, answersPerPrompt, names }: AskedAnswers,
  signal: AbortSignal,
  watch: GenerationWatch,
): AsyncGenerator<{ index: number; reply: GenerateReply }, void, undefined> {
  const watches = watchesOf(requests.length, answersPerPrompt, watch);
  const sources = requests.map(
    (request, index) => (ended: AbortSignal) => context.generate(request, ended, watches[index]),
  );
  try {
    yield* mergeAnswers(sources, signal);
  } catch (thrown) {
    throw errorForClient(thrown, names);
  }
}

/** Makes one watch for each answer. A prompt counts once for all its answers, from the time when its first answer begins. */
function watchesOf(answers: number, answersPerPrompt: number, watch: GenerationWatch): GenerationWatch[] {
  const all = { doneTokens: 0, promptTokens: 0 };
  return Array.from({ length: answers }, (_, index) => {
    const known = { doneTokens: 0, promptTokens: 0 };
    const prefill = (doneTokens: number, promptTokens: number): void => {
      all.doneTokens += doneTokens - known.doneTokens;
      all.promptTokens += promptTokens - known.promptTokens;
      Object.assign(known, { doneTokens, promptTokens });
      watch.prefill(all.doneTokens, all.promptTokens);
    };
    return {
      ...NOBODY_WATCHES,
      client: watch.client,
      ...(index === 0 && { queued: (before: number) => watch.queued(before) }),
      ...(index % answersPerPrompt === 0 && { prefill }),
      token: () => watch.token(),
    };
  });
}
