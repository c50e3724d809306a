import { formatBytes } from '../../shared/base/text/units.js';
import {
  readSavedConversation,
  SAVED_CONVERSATION_BYTES_LIMIT,
  SAVED_CONVERSATION_REMEDY,
  type SavedMessage,
  writeSavedConversation,
} from '../../shared/wire/saved-conversation.js';
import type { AskedSettings } from './chat-settings.js';
import { waitingAnswer, withQuestion, withTurn, type PageConversation } from './conversation.js';

/** The shown branch as the file that `/save` of `odmoe chat` writes. Answers without text are left out, because models accept no empty message. */
export function savedFile(conversation: PageConversation): string {
  return writeSavedConversation(savedMessages(conversation));
}

function savedMessages({ turns }: PageConversation): SavedMessage[] {
  const answer = turns.findLast((turn) => turn.kind === 'answer');
  const system = answer?.kind === 'answer' ? answer.settings.system : '';
  return [
    ...(system === '' ? [] : [{ role: 'system', content: system }]),
    ...turns.flatMap(({ kind, text }) => {
      return text === '' ? [] : [{ role: kind === 'question' ? 'user' : 'assistant', content: text }];
    }),
  ];
}

export interface ReadFile {
  conversation: PageConversation;
  /** The system message before the conversation; empty: none. */
  system: string;
  /** Later system messages, which the page cannot hold. */
  leftOut: number;
}

/** Adds the messages of a file to an empty conversation. A string: what is wrong with the file, and what to do. */
export function readFile(
  name: string,
  text: string,
  empty: PageConversation,
  settings: AskedSettings,
): ReadFile | string {
  const messages = readSavedConversation(text);
  if (typeof messages === 'string') return `${name} holds no conversation: ${messages}; ${SAVED_CONVERSATION_REMEDY}.`;
  const [first] = messages;
  const system = first?.role === 'system' ? first.content : '';
  const rest = system === '' ? messages : messages.slice(1);
  const said = rest.filter(({ role }) => role !== 'system');
  if (said.length === 0) return `${name} holds no question and no answer; ${SAVED_CONVERSATION_REMEDY}.`;
  const conversation = said.reduce((sofar, message) => withMessage(sofar, message, { ...settings, system }), empty);
  return { conversation, system, leftOut: rest.length - said.length };
}

function withMessage(
  conversation: PageConversation,
  { role, content }: SavedMessage,
  settings: AskedSettings,
): PageConversation {
  const parentId = conversation.turns.at(-1)?.id ?? null;
  if (role === 'user') return withQuestion(conversation, parentId, content);
  const answer = waitingAnswer(conversation, parentId, settings);
  return withTurn(conversation, { ...answer, state: 'done', text: content, isImported: true });
}

/** Empty: the file may be read. */
export function sizeProblem(name: string, bytes: number): string {
  if (bytes <= SAVED_CONVERSATION_BYTES_LIMIT) return '';
  return `${name} is larger than ${formatBytes(SAVED_CONVERSATION_BYTES_LIMIT)}: no conversation is so long. Choose another file.`;
}

const FILE_NAME_CHARACTERS = 60;

/** The name for the file of a conversation with this title. */
export function savedFileName(title: string): string {
  const words = title.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '');
  const short = [...words].slice(0, FILE_NAME_CHARACTERS).join('');
  return `${short === '' ? 'chat' : short}.jsonl`;
}
