import type { AskedSettings } from './chat-settings.js';

/** A token of the answer; its text is a part of the content. */
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
  /** Their texts together are `text`, unless a part of `text` has no listed tokens. */
  tokens: readonly AnswerToken[];
  /** Main's progress on the prompt; empty: none. */
  progress: string;
  /** The error; empty: none. */
  error: string;
  finishReason: string;
  fingerprint: string;
  /** The settings of its request. */
  settings: AskedSettings;
  usage: AnswerUsage | null;
  /** Times of the first and the latest delta, on the page's clock, in ms. */
  firstMs: number | null;
  lastMs: number | null;
}

export type Turn = Question | Answer;

/** A conversation that is only in memory: a reload of the page clears it. Questions and answers alternate. */
export interface PageConversation {
  turns: readonly Turn[];
  nextId: number;
}

export const EMPTY_PAGE_CONVERSATION: PageConversation = { turns: [], nextId: 1 };

/** Adds a question and its answer, which is waiting. */
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

/** Replaces the text of the question with this id; all later turns are dropped. */
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
  return last?.kind === 'answer' && isRunning(last) ? last : null;
}

export function isRunning({ state }: Answer): boolean {
  return state === 'waiting' || state === 'streaming';
}
