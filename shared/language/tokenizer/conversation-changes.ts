import type { ChatMessage } from '../../wire/messages.js';

/**
 * A change of a conversation that keeps all its words, for chat templates that drop or refuse some messages. A change depends on a message and
 * its neighbours only, so that a conversation that grows keeps its beginning.
 */
export interface ConversationChange {
  readonly name: string;
  apply(messages: readonly ChatMessage[]): ChatMessage[];
}

/** Separator of texts that are joined. */
const BETWEEN = '\n\n';

/** All changes, in the order in which they are applied. */
export const CHANGES: readonly ConversationChange[] = [
  { name: 'developers as systems', apply: (messages) => messages.map(developerAsSystem) },
  { name: 'results without a call as users', apply: (messages) => resultsAsUsers(messages, false) },
  { name: 'results as users', apply: (messages) => resultsAsUsers(messages, true) },
  { name: 'one call in a message', apply: oneCallEach },
  { name: 'calls apart from words', apply: callsApart },
  { name: 'first systems as one', apply: firstSystemsAsOne },
  { name: 'later systems as users', apply: laterSystemsAsUsers },
  { name: 'first systems to the user', apply: firstSystemsToUser },
  { name: 'a user first', apply: userFirst },
  { name: 'calls and what follows as one', apply: (messages) => turnsAsOne(messages, true) },
  { name: 'an answer between call and user', apply: answerAfterCalls },
  { name: 'turns of one role as one', apply: (messages) => turnsAsOne(messages, false) },
];

/** The changes to leave out first if possible, because they alter the most. */
export const MOST_CHANGING: readonly string[] = [
  'results as users',
  'one call in a message',
  'calls apart from words',
  'results without a call as users',
  'calls and what follows as one',
  'an answer between call and user',
  'first systems to the user',
  'a user first',
  'turns of one role as one',
  'later systems as users',
  'first systems as one',
  'developers as systems',
];

/** Changes that help only with templates that write calls and results themselves, and changes that help only with templates that write none. */
export const WHERE_CALLS_ARE: readonly string[] = [
  'results without a call as users',
  'an answer between call and user',
];
export const WHERE_NO_CALLS_ARE: readonly string[] = ['results as users', 'calls and what follows as one'];

export function isSystem({ role }: ChatMessage): boolean {
  return role === 'system' || role === 'developer';
}

/** A tool's result, as text of a user. */
export function resultText(content: string): string {
  return `<tool_response>\n${content}\n</tool_response>`;
}

function calls({ toolCalls = [] }: ChatMessage): NonNullable<ChatMessage['toolCalls']> {
  return toolCalls;
}

/** True for a message with a call, and for the result of one. */
function isOfCall(message: ChatMessage): boolean {
  return message.role === 'tool' || calls(message).length > 0;
}

function joinedText(...texts: readonly string[]): string {
  return texts.filter((text) => text !== '').join(BETWEEN);
}

function developerAsSystem(message: ChatMessage): ChatMessage {
  return message.role === 'developer' ? { ...message, role: 'system' } : message;
}

/** `all`: all results; else only those that follow neither a call nor another result of one. */
function resultsAsUsers(messages: readonly ChatMessage[], all: boolean): ChatMessage[] {
  let isAnswer = false;
  return messages.map((message) => {
    if (message.role !== 'tool') isAnswer = calls(message).length > 0;
    else if (all || !isAnswer) return { role: 'user', content: resultText(message.content) };
    return message;
  });
}

/** Puts each call into a separate message, followed by its result. */
function oneCallEach(messages: readonly ChatMessage[]): ChatMessage[] {
  const made: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at += 1) {
    const message = messages[at];
    if (message === undefined) break;
    if (calls(message).length < 2) {
      made.push(message);
      continue;
    }
    const results: ChatMessage[] = [];
    while (messages[at + 1]?.role === 'tool') results.push(messages[(at += 1)] ?? message);
    for (const [index, call] of calls(message).entries()) {
      const place = results.findIndex(({ toolCallId = '' }) => toolCallId === call.id || toolCallId === '');
      const [result] = place < 0 ? [] : results.splice(place, 1);
      made.push(
        index === 0 ? { ...message, toolCalls: [call] } : { role: 'assistant', content: '', toolCalls: [call] },
      );
      if (result !== undefined) made.push(result);
    }
    made.push(...results);
  }
  return made;
}

function callsApart(messages: readonly ChatMessage[]): ChatMessage[] {
  return messages.flatMap((message) => {
    if (calls(message).length === 0 || message.content === '') return [message];
    const { toolCalls, ...said } = message;
    return [said, { role: 'assistant', content: '', toolCalls: toolCalls ?? [] }];
  });
}

function firstSystemsAsOne(messages: readonly ChatMessage[]): ChatMessage[] {
  const [first] = messages;
  const count = countFirstSystems(messages);
  if (first === undefined || count < 2) return [...messages];
  const content = joinedText(...messages.slice(0, count).map((message) => message.content));
  return [{ ...first, content }, ...messages.slice(count)];
}

function countFirstSystems(messages: readonly ChatMessage[]): number {
  const other = messages.findIndex((message) => !isSystem(message));
  return other < 0 ? messages.length : other;
}

/** Joins the first system messages to the user's first message, if that comes next. */
function firstSystemsToUser(messages: readonly ChatMessage[]): ChatMessage[] {
  const count = countFirstSystems(messages);
  if (count === 0) return [...messages];
  const said = messages.slice(0, count).map(({ content }) => content);
  const next = messages[count];
  return next?.role === 'user'
    ? [{ ...next, content: joinedText(...said, next.content) }, ...messages.slice(count + 1)]
    : [{ role: 'user', content: joinedText(...said) }, ...messages.slice(count)];
}

/** A system message between a call and its results is moved behind the results. */
function laterSystemsAsUsers(messages: readonly ChatMessage[]): ChatMessage[] {
  const begin = countFirstSystems(messages);
  const made = messages.slice(0, begin);
  const held: ChatMessage[] = [];
  for (const message of messages.slice(begin)) {
    const last = made.at(-1);
    if (!isSystem(message)) {
      if (message.role !== 'tool') made.push(...held.splice(0));
      made.push(message);
    } else if (last !== undefined && isOfCall(last)) {
      held.push({ role: 'user', content: message.content });
    } else made.push({ role: 'user', content: message.content });
  }
  return [...made, ...held];
}

function userFirst(messages: readonly ChatMessage[]): ChatMessage[] {
  const begin = countFirstSystems(messages);
  if (messages[begin]?.role === 'user') return [...messages];
  return [...messages.slice(0, begin), { role: 'user', content: '' }, ...messages.slice(begin)];
}

function answerAfterCalls(messages: readonly ChatMessage[]): ChatMessage[] {
  return messages.flatMap((message, index) => {
    const before = messages[index - 1];
    const isBetween = message.role === 'user' && before !== undefined && isOfCall(before);
    return isBetween ? [{ role: 'assistant', content: '' }, message] : [message];
  });
}

/** `afterCalls`: joins assistant messages that follow a call; else joins all other messages that follow one of their role. */
function turnsAsOne(messages: readonly ChatMessage[], afterCalls: boolean): ChatMessage[] {
  const made: ChatMessage[] = [];
  for (const message of messages) {
    const last = made.at(-1);
    const isTurn = message.role === 'user' || message.role === 'assistant';
    const isOne = last !== undefined && isTurn && last.role === message.role && isOfCall(last) === afterCalls;
    if (!isOne) made.push(message);
    else made[made.length - 1] = together(last, message);
  }
  return made;
}

function together(first: ChatMessage, second: ChatMessage): ChatMessage {
  const toolCalls = [...calls(first), ...calls(second)];
  const reasoningContent = joinedText(first.reasoningContent ?? '', second.reasoningContent ?? '');
  return {
    ...first,
    content: joinedText(first.content, second.content),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(reasoningContent !== '' && { reasoningContent }),
  };
}
