import type { GenerateReply, GenerateRequest } from '../../../shared/rpc/messages.js';
import { MAX_SEED } from '../../../shared/sampling/sampling-options.js';
import { type GenerationWatch, NOBODY_WATCHES } from '../../rpc/generation-watch.js';
import type { ChatRequest, PrepareChat, PreparedChat } from '../conversation/chat-request.js';
import type { DoorContext } from '../door-context.js';
import type { AnswerHead } from './chat-chunks.js';
import { type ClientFields, errorForClient } from '../answer/client-fields.js';
import { mergeAnswers } from '../answer/merge-answers.js';

/** Seeds that main chooses; the largest number that a runtime draws from. */
const CHOSEN_SEED_LIMIT = 2 ** 47;

export function answerHead(prefix: string, { model, runtime }: Pick<DoorContext, 'model' | 'runtime'>): AnswerHead {
  return {
    id: `${prefix}${runtime.randomId()}`,
    created: Math.floor(runtime.wallMs() / 1000),
    model: model.name,
    system_fingerprint: model.fingerprint,
  };
}

/**
 * Seeds of the answers to one prompt: seed + i, so that each is the answer that its seed has alone. Where the request names none, one
 * answer is left to main, and several get seeds that follow one another.
 */
export function answerSeeds(
  seed: number | undefined,
  count: number,
  runtime: Pick<DoorContext['runtime'], 'randomInt'>,
): (number | undefined)[] {
  if (seed === undefined && count === 1) return [undefined];
  const first = seed ?? runtime.randomInt(CHOSEN_SEED_LIMIT);
  return Array.from({ length: count }, (_, index) =>
    first <= MAX_SEED - index ? first + index : index - 1 - (MAX_SEED - first),
  );
}

/** As PrepareChat; errors name the client's fields. */
export function prepareFor(prepareChat: PrepareChat, chat: ChatRequest, fields: ClientFields): PreparedChat {
  try {
    return prepareChat(chat);
  } catch (thrown) {
    throw errorForClient(thrown, fields);
  }
}

/** The replies of several requests as they come. The first request's progress is the answer's. `fields`: as the client names them. */
export async function* generateAll(
  context: Pick<DoorContext, 'generate'>,
  requests: readonly GenerateRequest[],
  fields: ClientFields,
  signal: AbortSignal,
  watch: GenerationWatch,
): AsyncGenerator<{ index: number; reply: GenerateReply }, void, undefined> {
  const counted: GenerationWatch = { ...NOBODY_WATCHES, token: () => watch.token() };
  const sources = requests.map(
    (request, index) => (ended: AbortSignal) => context.generate(request, ended, index === 0 ? watch : counted),
  );
  try {
    yield* mergeAnswers(sources, signal);
  } catch (thrown) {
    throw errorForClient(thrown, fields);
  }
}
