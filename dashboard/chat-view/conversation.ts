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

/** A call of a tool by the model. */
export interface ToolCall {
  id: string;
  name: string;
  /** JSON as the model wrote it; it may be cut off. */
  arguments: string;
}

/** What a tool said to a call. */
export interface ToolResult {
  callId: string;
  name: string;
  content: string;
}

export interface Question {
  kind: 'question';
  id: number;
  text: string;
  /** Results of the calls in the answer before it, which are sent in place of the text. Absent: the text is sent. */
  toolResults?: readonly ToolResult[];
}

export interface Answer {
  kind: 'answer';
  id: number;
  state: 'waiting' | 'streaming' | 'done' | 'stopped' | 'failed';
  text: string;
  reasoning: string;
  /** Their texts together are `text`, unless a part of `text` has no listed tokens. */
  tokens: readonly AnswerToken[];
  toolCalls: readonly ToolCall[];
  /** Main's progress on the prompt; empty: none. */
  progress: string;
  /** The error; empty: none. */
  error: string;
  /** The field of the request that main refuses, and main's code for the error; empty: none. */
  errorField: string;
  errorCode: string;
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
  /** The ids of turns that are shown, but are left out of requests. */
  notSent: readonly number[];
  nextId: number;
}

export const EMPTY_PAGE_CONVERSATION: PageConversation = { turns: [], notSent: [], nextId: 1 };

/** Adds a question and its answer, which is waiting. */
export function ask(
  conversation: PageConversation,
  text: string,
  settings: AskedSettings,
  toolResults?: readonly ToolResult[],
): PageConversation {
  const { turns, notSent, nextId } = conversation;
  const question: Question = { kind: 'question', id: nextId, text, ...(toolResults !== undefined && { toolResults }) };
  const answer: Answer = {
    kind: 'answer',
    id: nextId + 1,
    state: 'waiting',
    text: '',
    reasoning: '',
    tokens: [],
    toolCalls: [],
    progress: '',
    error: '',
    errorField: '',
    errorCode: '',
    finishReason: '',
    fingerprint: '',
    settings,
    usage: null,
    firstMs: null,
    lastMs: null,
  };
  return { turns: [...turns, question, answer], notSent, nextId: nextId + 2 };
}

/** Replaces the text of the question with this id; all later turns are dropped. Results of tools stay. */
export function askAgain(
  conversation: PageConversation,
  questionId: number,
  text: string,
  settings: AskedSettings,
): PageConversation {
  const index = conversation.turns.findIndex(({ id }) => id === questionId);
  const question = conversation.turns[index];
  if (question?.kind !== 'question') return conversation;
  const before = { ...conversation, turns: conversation.turns.slice(0, index) };
  return ask(before, text, settings, question.toolResults);
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

/** Leaves the first `count` turns out of requests, and sends all others. */
export function withNotSent(conversation: PageConversation, count: number): PageConversation {
  return { ...conversation, notSent: conversation.turns.slice(0, count).map(({ id }) => id) };
}
