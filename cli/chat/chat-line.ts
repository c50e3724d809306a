import { nearestKey } from '../../shared/base/text/nearest-key.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** The meaning of a line that the user typed. */
export type ChatLine =
  | { kind: 'message'; text: string }
  /** `key` null: show all settings. */
  | { kind: 'set'; key: string | null; value: string }
  /** null: show the system text. "-": remove it. */
  | { kind: 'system'; text: string | null }
  /** null: the file that was used last. */
  | { kind: 'save'; path: string | null }
  | { kind: 'load'; path: string }
  | { kind: 'clear' }
  | { kind: 'undo' }
  | { kind: 'retry' }
  | { kind: 'help' }
  | { kind: 'exit' };

const COMMANDS = ['set', 'system', 'save', 'load', 'clear', 'undo', 'retry', 'help', 'exit'] as const;
type CommandName = (typeof COMMANDS)[number];

/** The text that /help prints. */
export const CHAT_HELP = `/set KEY VALUE   change how answers are made; VALUE "off" takes the setting back;
                 /set alone shows all
/system TEXT     what the model is told before all else; "-" for nothing;
                 /system alone shows it
/retry           ask the last message again
/undo            drop the last message and its answer
/clear           begin a new conversation
/save FILE       write the conversation to a file; without FILE: the one before
/load FILE       go on with a saved conversation
/help            this list
/exit            end (or Ctrl-D)

A message of several lines: Alt-Enter makes a line; or end a line with a
backslash, or put """ before and after. What is pasted is one message.
A message that begins with a slash: put a space before it.
Ctrl-C stops an answer; what came of it stays.`;

/** Throws USAGE for a command that is unknown or incomplete. */
export function parseChatLine(line: string): ChatLine {
  if (!line.startsWith('/')) return { kind: 'message', text: line.trim() };
  const [, name = '', rest = ''] = /^\/(\S*)\s*([^]*)$/.exec(line) ?? [];
  return parseCommand(requireCommand(name), rest.trim());
}

function parseCommand(name: CommandName, rest: string): ChatLine {
  switch (name) {
    case 'set': {
      const [, key = '', value = ''] = /^(\S*)\s*([^]*)$/.exec(rest) ?? [];
      if (key !== '' && value === '') throw usage(`/set ${key} has no value: write /set ${key} VALUE`);
      return { kind: 'set', key: key === '' ? null : key, value };
    }
    case 'system':
      return { kind: 'system', text: rest === '' ? null : rest };
    case 'save':
      return { kind: 'save', path: rest === '' ? null : rest };
    case 'load':
      if (rest === '') throw usage('/load has no file: write /load FILE');
      return { kind: 'load', path: rest };
    case 'clear':
    case 'undo':
    case 'retry':
    case 'help':
    case 'exit':
      if (rest !== '') throw usage(`/${name} takes nothing behind it`);
      return { kind: name };
  }
}

function requireCommand(name: string): CommandName {
  const found = COMMANDS.find((command) => command === name);
  if (found !== undefined) return found;
  const near = nearestKey(name, COMMANDS);
  const advice = near === null ? '/help lists all.' : `did you mean /${near}?`;
  throw usage(`there is no command /${name}; ${advice} For a message that begins with a slash, put a space before it`);
}

function usage(message: string): OdmoeError {
  return new OdmoeError('USAGE', message);
}
