/**
 * Controls but for tab and line ends, marks that turn the direction of the text that follows (embeddings, overrides, isolates), and
 * characters without a form. Marks that join letters or stand for one letter's direction are no part of it: scripts need them.
 */
const SIGN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** The characters of the text that have to be shown by their names; with their places in the text. */
export function signsIn(text: string): { at: number; length: number; name: string }[] {
  return [...text.matchAll(SIGN)].map(({ index, 0: sign }) => ({ at: index, length: sign.length, name: nameOf(sign) }));
}

/** For example "U+202E". */
function nameOf(sign: string): string {
  return `U+${(sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
}
