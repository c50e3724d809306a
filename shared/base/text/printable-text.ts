/**
 * Characters that control or deceive a terminal: C0 except tab and newline, DEL, C1, and characters that turn the direction of the text around
 * them. The marks of direction that right-to-left scripts need between letters (U+200E, U+200F, U+061C) turn nothing around and stay.
 */
const HARMFUL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const HARMFUL_CHARACTERS_OF_JSON = /[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const ENDS_OF_LINES = /\r\n/g;
const LINE_BREAKS = /[\n\t]/g;

/**
 * A text that is safe for a terminal. An escape sequence could move the cursor, change the window's title or answer for the user. So each
 * character that could begin one is shown as text ("\x1b"). Each character is replaced by itself, so a text may arrive divided anywhere. A second
 * cleaning changes nothing.
 */
export function printableText(text: string): string {
  return text.replace(ENDS_OF_LINES, '\n').replace(HARMFUL_CHARACTERS, shown);
}

/** The same on one line, for a cell of a table or a line of a log. A line break in it could imitate a line of ours. */
export function printableLine(text: string): string {
  return printableText(text).replace(LINE_BREAKS, (character) => (character === '\n' ? '\\n' : '\\t'));
}

/** JSON of the value, with escapes for the harmful characters that JSON.stringify leaves: printableText changes nothing in it. */
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
