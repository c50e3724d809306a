import type { AskedSettings } from './chat-settings.js';

/** A token of the answer, its text a part of the content. */
export interface AnswerToken {
  text: string;
  /** Natural logarithm of its probability. */
  logprob: number;
  alternatives: { text: string; logprob: number }[];
}

export interface AnswerUsage {
  promptTokens: number;
  cachedTokens: number;
  answerTokens: number;
}

export interface Question {
  kind: 'question';
  id: number;
  text: string;
}

export interface Answer {
  kind: 'answer';
  id: number;
  state: 'waiting' | 'streaming' | 'done' | 'stopped' | 'failed';
  text: string;
  reasoning: string;
  /** Their texts together are `text`, unless it holds what has no tokens listed. */
  tokens: readonly AnswerToken[];
  /** What main says of a prompt that is worked on; empty: nothing. */
  progress: string;
  /** Empty: none. */
  error: string;
  finishReason: string;
  fingerprint: string;
  /** What it was asked with. */
  settings: AskedSettings;
  usage: AnswerUsage | null;
  /** When the first and the latest piece came, on the page's clock, in ms. */
  firstMs: number | null;
  lastMs: number | null;
}

export type Turn = Question | Answer;

/** In memory alone: a page that is loaded again has none. Questions and answers take turns. */
export interface PageConversation {
  turns: readonly Turn[];
  nextId: number;
}

export const EMPTY_PAGE_CONVERSATION: PageConversation = { turns: [], nextId: 1 };

/** A question more, and its answer that waits. */
export function ask(conversation: PageConversation, text: string, settings: AskedSettings): PageConversation {
  const { turns, nextId } = conversation;
  const question: Question = { kind: 'question', id: nextId, text };
  const answer: Answer = {
    kind: 'answer',
    id: nextId + 1,
    state: 'waiting',
    text: '',
    reasoning: '',
    tokens: [],
    progress: '',
    error: '',
    finishReason: '',
    fingerprint: '',
    settings,
    usage: null,
    firstMs: null,
    lastMs: null,
  };
  return { turns: [...turns, question, answer], nextId: nextId + 2 };
}

/** The question with this id is asked in other words; whatever came after it is gone. */
export function askAgain(
  conversation: PageConversation,
  questionId: number,
  text: string,
  settings: AskedSettings,
): PageConversation {
  const index = conversation.turns.findIndex(({ id }) => id === questionId);
  if (index < 0) return conversation;
  return ask({ ...conversation, turns: conversation.turns.slice(0, index) }, text, settings);
}

export function questionOf(conversation: PageConversation, answerId: number): Question | null {
  const index = conversation.turns.findIndex(({ id }) => id === answerId);
  const turn = conversation.turns[index - 1];
  return turn?.kind === 'question' ? turn : null;
}

export function changeAnswer(
  conversation: PageConversation,
  answerId: number,
  change: (answer: Answer) => Answer,
): PageConversation {
  const turns = conversation.turns.map((turn) =>
    turn.kind === 'answer' && turn.id === answerId ? change(turn) : turn,
  );
  return { ...conversation, turns };
}

export function runningAnswer({ turns }: PageConversation): Answer | null {
  const last = turns.at(-1);
  return last?.kind === 'answer' && (last.state === 'waiting' || last.state === 'streaming') ? last : null;
}

interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string;
}

/** Most likely tokens that are asked for beside each token. */
const ALTERNATIVES = 5;

/** Body of the request for an answer: everything that was said before it. Answers that failed with nothing said are left out. */
export function requestBody(conversation: PageConversation, answer: Answer): object {
  const index = conversation.turns.findIndex(({ id }) => id === answer.id);
  const { settings } = answer;
  const said = conversation.turns.slice(0, Math.max(0, index)).flatMap((turn): ChatMessage[] => {
    if (turn.kind === 'question') return [{ role: 'user', content: turn.text }];
    return turn.text === '' ? [] : [{ role: 'assistant', content: turn.text }];
  });
  const system: ChatMessage[] = settings.system === '' ? [] : [{ role: 'system', content: settings.system }];
  return {
    messages: [...system, ...said],
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    ...(settings.maxTokens !== null && { max_tokens: settings.maxTokens }),
    seed: settings.seed,
    logprobs: true,
    top_logprobs: ALTERNATIVES,
  };
}
