/**
 * What a terminal obeys or is deceived by: C0 but for tab and newline, DEL, C1, and what turns the direction of the text around it. The marks
 * of direction that right-to-left scripts need between letters (U+200E, U+200F, U+061C) turn nothing around and stay.
 */
const HARMFUL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const HARMFUL_CHARACTERS_OF_JSON = /[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const ENDS_OF_LINES = /\r\n/g;
const LINE_BREAKS = /[\n\t]/g;

/**
 * A text as a terminal may be given it: what could begin an escape sequence, which moves the cursor, changes the window's title or answers for
 * the user, is shown ("\x1b"), one character for itself, so that it does not matter in which pieces a text comes. Cleaned twice it is the
 * same text.
 */
export function printableText(text: string): string {
  return text.replace(ENDS_OF_LINES, '\n').replace(HARMFUL_CHARACTERS, shown);
}

/** The same on one line, as a cell of a table or a line of a log has it: a line break would look like a line of ours. */
export function printableLine(text: string): string {
  return printableText(text).replace(LINE_BREAKS, (character) => (character === '\n' ? '\\n' : '\\t'));
}

/** JSON of the value without the characters that JSON.stringify leaves as they are: printableText changes nothing of it. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(
    HARMFUL_CHARACTERS_OF_JSON,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function shown(character: string): string {
  const code = character.charCodeAt(0).toString(16);
  return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u${code}`;
}
