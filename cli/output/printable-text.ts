/** C0, DEL and C1, but for tab and newline. */
const CONTROL_CHARACTERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const CONTROL_CHARACTERS_OF_JSON = /[\u007f-\u009f]/g;

/**
 * A model's text as a terminal may be given it. A control character could begin an escape sequence, which moves the cursor, changes the
 * window's title or answers for the user; without it the rest of the sequence is harmless text.
 */
export function printableText(text: string): string {
  return text.replace(CONTROL_CHARACTERS, '');
}

/** The same JSON in one line, without the control characters that JSON.stringify leaves as they are. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(
    CONTROL_CHARACTERS_OF_JSON,
    (character) => `\\u00${character.charCodeAt(0).toString(16)}`,
  );
}
