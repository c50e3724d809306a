import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { allMessages, terminalConversation, type TerminalConversation } from './conversation.js';

/** Limit of a file's size, far above any model's context. */
const LARGEST_FILE_BYTES = 16 * 1024 * 1024;

const REMEDY = 'give a file that /save wrote, or JSON messages with "role" and "content"';
const FILE_ERRORS: FileErrors = { missing: 'USAGE', invalid: 'USAGE', remedy: REMEDY };

const messageSchema = z.strictObject({ role: z.enum(['system', 'user', 'assistant']), content: z.string().min(1) });
const messagesSchema = z.array(messageSchema);
const wrappedSchema = z.object({ messages: z.array(z.unknown()) });

/** Writes one JSON object per line, which `parseConversation` reads. */
export function formatConversation(conversation: TerminalConversation): string {
  return allMessages(conversation)
    .map(({ role, content }) => `${JSON.stringify({ role, content })}\n`)
    .join('');
}

/** Reads the conversation from a file's text: JSON lines, a JSON array, or an object with "messages". Throws USAGE, which names `path`. */
export function parseConversation(text: string, path: string): TerminalConversation {
  const parsed = messagesSchema.safeParse(messageValues(text, path));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const where = issue === undefined ? '' : `message ${Number(issue.path[0] ?? 0) + 1}: ${issue.message}; `;
    throw new OdmoeError('USAGE', `${path} holds no conversation: ${where}${REMEDY}`);
  }
  return terminalConversation(parsed.data);
}

/** @throws USAGE, STORAGE_FAILED */
export async function readConversation(path: string): Promise<TerminalConversation> {
  return parseConversation((await readBoundedFile(path, LARGEST_FILE_BYTES, FILE_ERRORS)).toString('utf8'), path);
}

/**
 * Writes the file in one step. An existing file is replaced only with `mayReplace`.
 * @throws USAGE, STORAGE_FULL, STORAGE_FAILED
 */
export async function writeConversation(
  path: string,
  conversation: TerminalConversation,
  mayReplace: boolean,
): Promise<void> {
  if (!mayReplace && (await fileExists(path))) {
    throw new OdmoeError('USAGE', `${path} is there already; choose another name, or remove it first`);
  }
  // Only the user may read the file, because conversations are private.
  await replaceFile(path, formatConversation(conversation), 0o600);
}

/** The absolute path; "~/" means the user's home, as in a shell. */
export function conversationPath(given: string, home: string = homedir()): string {
  return given.startsWith('~/') ? join(home, given.slice(2)) : resolve(given);
}

function messageValues(text: string, path: string): unknown {
  const whole = jsonOrNull(text);
  if (Array.isArray(whole)) return whole;
  const wrapped = wrappedSchema.safeParse(whole);
  if (wrapped.success) return wrapped.data.messages;
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return lines.map((line, index) => {
    const value = jsonOrNull(line);
    if (value !== null) return value;
    throw new OdmoeError('USAGE', `${path} holds no conversation: line ${index + 1} is not JSON; ${REMEDY}`);
  });
}

/** null: the text is no JSON. */
function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return null;
  }
}
