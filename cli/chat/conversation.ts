import type { ChatMessage } from '../../shared/wire/messages.js';

/** A conversation so far. Every function here makes a new one. */
export interface TerminalConversation {
  /** What the model is told first; null: nothing. */
  readonly system: string | null;
  /** Messages of user and assistant, in turns; the last one is an answer. Later words of the system may stand between them, as files have them. */
  readonly messages: readonly ChatMessage[];
  /** The user's last message, where no answer came; null: there is none. */
  readonly unanswered: string | null;
}

export const EMPTY_TERMINAL_CONVERSATION: TerminalConversation = { system: null, messages: [], unanswered: null };

/** The user says something. What was unanswered is dropped. */
export function asked(conversation: TerminalConversation, text: string): TerminalConversation {
  return { ...conversation, unanswered: text };
}

/** The answer to what is unanswered. An empty one leaves the question unanswered: no model takes an empty message. */
export function answered(conversation: TerminalConversation, text: string): TerminalConversation {
  const { messages, unanswered } = conversation;
  if (unanswered === null || text === '') return conversation;
  const turn = [
    { role: 'user', content: unanswered },
    { role: 'assistant', content: text },
  ];
  return { ...conversation, messages: [...messages, ...turn], unanswered: null };
}

/** The last answer is dropped, so that its question is unanswered again; null: nothing was asked. */
export function reopened(conversation: TerminalConversation): TerminalConversation | null {
  const { messages, unanswered } = conversation;
  if (unanswered !== null) return conversation;
  const last = lastQuestion(messages);
  const question = messages[last];
  return question === undefined
    ? null
    : { ...conversation, messages: withoutAnswer(messages, last), unanswered: question.content };
}

/** Without the question and the answer to it. What the system said between them stays. */
function withoutAnswer(messages: readonly ChatMessage[], question: number): ChatMessage[] {
  return messages.filter(({ role }, index) => index < question || (index > question && role === 'system'));
}

/** Without the last turn that has an answer; null: there is none. What is unanswered stays, so that it can be asked with more room. */
export function undone(conversation: TerminalConversation): TerminalConversation | null {
  const last = lastQuestion(conversation.messages);
  return last < 0 ? null : { ...conversation, messages: conversation.messages.slice(0, last) };
}

/** Of the same system text. */
export function cleared(conversation: TerminalConversation): TerminalConversation {
  return { ...EMPTY_TERMINAL_CONVERSATION, system: conversation.system };
}

/** All messages with the unanswered one, as a request has them and a file keeps them. */
export function allMessages({ system, messages, unanswered }: TerminalConversation): ChatMessage[] {
  return [
    ...(system === null ? [] : [{ role: 'system', content: system }]),
    ...messages,
    ...(unanswered === null ? [] : [{ role: 'user', content: unanswered }]),
  ];
}

/** The conversation of such messages. */
export function terminalConversation(messages: readonly ChatMessage[]): TerminalConversation {
  const [first] = messages;
  const system = first?.role === 'system' ? first.content : null;
  const rest = system === null ? [...messages] : messages.slice(1);
  const last = rest.findLastIndex(({ role }) => role !== 'system');
  const question = rest[last];
  if (question?.role !== 'user') return { system, messages: rest, unanswered: null };
  return { system, messages: withoutAnswer(rest, last), unanswered: question.content };
}

/** Index of the user's last message; -1: there is none. */
function lastQuestion(messages: readonly ChatMessage[]): number {
  return messages.findLastIndex(({ role }) => role === 'user');
}
