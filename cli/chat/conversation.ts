import type { ChatMessage } from '../../shared/wire/messages.js';

/** A conversation so far. Every function here returns a new one and changes none. */
export interface TerminalConversation {
  /** The system text before the conversation; null: none. */
  readonly system: string | null;
  /** Messages of user and assistant in turns; the last one is an answer. System messages from files may stand between them. */
  readonly messages: readonly ChatMessage[];
  /** The user's last message, if it has no answer yet; null: there is none. */
  readonly unanswered: string | null;
}

export const EMPTY_TERMINAL_CONVERSATION: TerminalConversation = { system: null, messages: [], unanswered: null };

/** Adds a message of the user. An earlier unanswered message is dropped. */
export function asked(conversation: TerminalConversation, text: string): TerminalConversation {
  return { ...conversation, unanswered: text };
}

/** Adds the answer to the unanswered message. An empty answer is dropped, because models do not accept empty messages. */
export function answered(conversation: TerminalConversation, text: string): TerminalConversation {
  const { messages, unanswered } = conversation;
  if (unanswered === null || text === '') return conversation;
  const turn = [
    { role: 'user', content: unanswered },
    { role: 'assistant', content: text },
  ];
  return { ...conversation, messages: [...messages, ...turn], unanswered: null };
}

/** Drops the last answer, so that its question is unanswered again; null: there was no question. */
export function reopened(conversation: TerminalConversation): TerminalConversation | null {
  const { messages, unanswered } = conversation;
  if (unanswered !== null) return conversation;
  const last = lastQuestion(messages);
  const question = messages[last];
  return question === undefined
    ? null
    : { ...conversation, messages: withoutAnswer(messages, last), unanswered: question.content };
}

/** Removes the question and its answer. System messages between them stay. */
function withoutAnswer(messages: readonly ChatMessage[], question: number): ChatMessage[] {
  return messages.filter(({ role }, index) => index < question || (index > question && role === 'system'));
}

/** Removes the last turn with an answer; null: there is none. The unanswered message stays, so that it can be asked again with more room. */
export function undone(conversation: TerminalConversation): TerminalConversation | null {
  const last = lastQuestion(conversation.messages);
  return last < 0 ? null : { ...conversation, messages: conversation.messages.slice(0, last) };
}

/** Returns an empty conversation with the same system text. */
export function cleared(conversation: TerminalConversation): TerminalConversation {
  return { ...EMPTY_TERMINAL_CONVERSATION, system: conversation.system };
}

/** All messages with the unanswered one, for a request or a file. */
export function allMessages({ system, messages, unanswered }: TerminalConversation): ChatMessage[] {
  return [
    ...(system === null ? [] : [{ role: 'system', content: system }]),
    ...messages,
    ...(unanswered === null ? [] : [{ role: 'user', content: unanswered }]),
  ];
}

/** Makes a conversation from messages. */
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
