import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import {
  readSavedConversation,
  SAVED_CONVERSATION_BYTES_LIMIT,
  SAVED_CONVERSATION_REMEDY,
  writeSavedConversation,
} from '../../shared/wire/saved-conversation.js';
import { allMessages, terminalConversation, type TerminalConversation } from './conversation.js';

const FILE_ERRORS: FileErrors = { missing: 'USAGE', invalid: 'USAGE', remedy: SAVED_CONVERSATION_REMEDY };

/** Writes one JSON object per line, which `parseConversation` reads. */
export function formatConversation(conversation: TerminalConversation): string {
  return writeSavedConversation(allMessages(conversation));
}

/** Reads the conversation from a file's text: JSON lines, a JSON array, or an object with "messages". Throws USAGE, which names `path`. */
export function parseConversation(text: string, path: string): TerminalConversation {
  const messages = readSavedConversation(text);
  if (typeof messages !== 'string') return terminalConversation(messages);
  throw new OdmoeError('USAGE', `${path} holds no conversation: ${messages}; ${SAVED_CONVERSATION_REMEDY}`);
}

/** @throws USAGE, STORAGE_FAILED */
export async function readConversation(path: string): Promise<TerminalConversation> {
  return parseConversation(
    (await readBoundedFile(path, SAVED_CONVERSATION_BYTES_LIMIT, FILE_ERRORS)).toString('utf8'),
    path,
  );
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
