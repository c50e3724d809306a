/** Data that is written in letters, as base64 has it. */

/** Bytes of encoded data that are kept. They are letters, and show the kind of the data. */
export const ENCODED_KEPT_BYTES = 64;
const LETTERS = '[A-Za-z0-9+/=_-]';
const ENCODED_LETTER = new RegExp(LETTERS);
const ENCODED_BEGIN = new RegExp(`^${LETTERS}{${ENCODED_KEPT_BYTES}}`);

export function isEncodedByte(byte: number): boolean {
  return ENCODED_LETTER.test(String.fromCharCode(byte));
}

/** True: the text begins as encoded data does. Words have a space, a point or another sign sooner. */
export function isEncoded(text: string): boolean {
  return ENCODED_BEGIN.test(text);
}
