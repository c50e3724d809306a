import { failureWords } from './answer-chunks.js';
import { requestMessages, type ChatMessage } from './chat-request.js';
import type { AskedSettings } from './chat-settings.js';
import type { PageConversation, Question, Turn } from './conversation.js';
import { countPromptTokens } from './main-counts.js';
import { MainRefusal, PROMPT_TOO_LONG } from './main-refusal.js';

/** The model, and how many tokens of prompt and answer its context holds. */
export interface ContextOfModel {
  name: string;
  contextPositions: number;
}

/** Turns at the begin of the shown branch that are not sent with the next question. A left-out question that is asked again is sent again. */
export function droppedTurns({ turns, notSent }: Pick<PageConversation, 'turns' | 'notSent'>): number {
  const first = turns.findIndex(({ id }) => !notSent.includes(id));
  if (first < 0) return turns.length;
  return turns[first]?.kind === 'answer' ? first - 1 : first;
}

/** Most room that is left for an answer, in tokens, where the settings name no length. */
const ANSWER_ROOM_TOKENS = 512;

/** Tokens of the context that a prompt leaves for the answer: with fewer it would be cut off at once. */
export function answerRoom(contextPositions: number, maxTokens: number | null): number {
  return Math.max(1, Math.min(maxTokens ?? ANSWER_ROOM_TOKENS, Math.floor(contextPositions / 8)));
}

/**
 * The numbers of turns that can be dropped, in ascending order: the rest begins with a question of the user, or is nothing but what is typed.
 * `mayDropAll`: a question is typed, so that no turn is needed.
 */
export function droppableCounts(turns: readonly Turn[], mayDropAll: boolean): number[] {
  const counts = turns.flatMap((turn, index) =>
    index > 0 && turn.kind === 'question' && turn.toolResults === undefined ? [index] : [],
  );
  return mayDropAll && turns.length > 0 ? [...counts, turns.length] : counts;
}

/** The least of the ascending counts that fits; null: none does. More dropped turns fit whenever fewer do. */
export async function fewestDropped(
  counts: readonly number[],
  fits: (count: number) => Promise<boolean>,
): Promise<number | null> {
  let [low, high] = [0, counts.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (await fits(counts[middle] ?? 0)) high = middle;
    else low = middle + 1;
  }
  return counts[low] ?? null;
}

export interface DropRequest {
  conversation: Pick<PageConversation, 'turns' | 'notSent'>;
  /** The last question, which is to be sent again; null: `typed` is sent after all turns. */
  question: Question | null;
  typed: string;
  settings: AskedSettings;
  model: ContextOfModel;
}

/** Finds out by main's own count how few turns must be dropped: their number, or the reason why none helps. */
export async function planDrop(request: DropRequest): Promise<{ count: number } | { problem: string }> {
  const { conversation, question, model, settings } = request;
  const turns = question === null ? conversation.turns : conversation.turns.slice(0, -1);
  const counts = droppableCounts(turns, question === null).filter((count) => count > droppedTurns(conversation));
  const room = answerRoom(model.contextPositions, settings.maxTokens);
  try {
    const count = await fewestDropped(counts, async (each) => {
      const messages = shortenedMessages(turns.slice(each), question === null ? request.typed : '', settings);
      return (await promptTokens(model, messages, settings)) + room <= model.contextPositions;
    });
    return count === null ? { problem: 'The question alone is too long for the context: make it shorter.' } : { count };
  } catch (thrown) {
    return { problem: `Main did not count the tokens. ${failureWords(thrown)}` };
  }
}

/** The begin of main's words in the dialect in which it counts. */
const TOO_LONG = 'prompt is too long';

/** Main refuses to count far too long prompts: these have more tokens than any context. */
async function promptTokens(
  { name }: ContextOfModel,
  messages: readonly ChatMessage[],
  settings: AskedSettings,
): Promise<number> {
  try {
    return await countPromptTokens(name, messages, settings);
  } catch (thrown) {
    if (thrown instanceof MainRefusal && thrown.message.startsWith(TOO_LONG)) return Infinity;
    throw thrown;
  }
}

/** The messages of a request for these turns, and with what is typed as the last question (empty: the last turn is it). */
function shortenedMessages(turns: readonly Turn[], typed: string, settings: AskedSettings): ChatMessage[] {
  const question: ChatMessage[] = typed.trim() === '' ? [] : [{ role: 'user', content: typed }];
  return [...requestMessages(turns, settings), ...question];
}

/** The last question, if main refused it because the conversation is too long. */
export function tooLongQuestion({ turns }: Pick<PageConversation, 'turns'>): Question | null {
  const [question, answer] = turns.slice(-2);
  const isTooLong = answer?.kind === 'answer' && answer.errorCode === PROMPT_TOO_LONG;
  return isTooLong && question?.kind === 'question' ? question : null;
}
