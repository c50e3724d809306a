import type { ChatMessage } from './messages.js';

/** Limit of a saved conversation's size, far above any model's context. */
export const SAVED_CONVERSATION_BYTES_LIMIT = 16 * 1024 * 1024;

export const SAVED_CONVERSATION_REMEDY =
  'give a file that /save or the page wrote, or JSON messages with "role" and "content"';

/** A message as the file has it. */
export type SavedMessage = Pick<ChatMessage, 'role' | 'content'>;

const ROLES: readonly unknown[] = ['system', 'user', 'assistant'];

/** Writes one JSON object per line, which `readSavedConversation` reads. */
export function writeSavedConversation(messages: readonly SavedMessage[]): string {
  return messages.map(({ role, content }) => `${JSON.stringify({ role, content })}\n`).join('');
}

/** The messages of a file's text: JSON lines, a JSON array, or an object with "messages". A string: what is wrong with the text. */
export function readSavedConversation(text: string): SavedMessage[] | string {
  const values = messageValues(text);
  if (typeof values === 'string') return values;
  for (const [index, value] of values.entries()) {
    const problem = messageProblem(value);
    if (problem !== '') return `message ${index + 1}: ${problem}`;
  }
  return values as SavedMessage[];
}

/** Empty: the value is a message. */
function messageProblem(value: unknown): string {
  if (!isRecord(value)) return 'it is no object';
  const { role, content, ...others } = value;
  if (!ROLES.includes(role)) return `"role" is one of ${ROLES.join(', ')}`;
  if (typeof content !== 'string' || content === '') return '"content" is a text that is not empty';
  const [other] = Object.keys(others);
  return other === undefined ? '' : `it has the unknown property "${other}"`;
}

function messageValues(text: string): unknown[] | string {
  const whole = jsonOrNull(text);
  if (Array.isArray(whole)) return whole as unknown[];
  if (isRecord(whole) && Array.isArray(whole.messages)) return whole.messages as unknown[];
  const values: unknown[] = [];
  for (const line of text.split('\n').filter((each) => each.trim() !== '')) {
    const value = jsonOrNull(line);
    if (value === null) return `line ${values.length + 1} is not JSON`;
    values.push(value);
  }
  return values;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** null: the text is no JSON. */
function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
