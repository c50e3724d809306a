/** Letters of scripts in which a joiner changes how the letters beside it are written. */
const JOINED =
  /[\p{scx=Arab}\p{scx=Syrc}\p{scx=Mong}\p{scx=Deva}\p{scx=Beng}\p{scx=Guru}\p{scx=Gujr}\p{scx=Orya}\p{scx=Taml}\p{scx=Telu}\p{scx=Knda}\p{scx=Mlym}\p{scx=Sinh}\p{scx=Khmr}\p{scx=Mymr}\p{scx=Tibt}]/u
    .source;

/**
 * Characters without a form that a script or an emoji needs: joiners between letters or parts of an emoji, and choices of a form after an
 * emoji, a Chinese or Japanese sign, or a Mongolian letter. The end of a text counts as what may follow: the text may still grow.
 */
const NEEDED = [
  `(?<=(?=[\\p{L}\\p{M}])${JOINED})[\\u200c\\u200d](?=(?=[\\p{L}\\p{M}])${JOINED}|$)`,
  '(?<=\\p{Extended_Pictographic}[\\ufe0f\\p{Emoji_Modifier}]?)\\u200d(?=\\p{Extended_Pictographic}|$)',
  '(?<=\\p{Extended_Pictographic})[\\ufe0e\\ufe0f]',
  '(?<=[0-9#*])\\ufe0f(?=\\u20e3|$)',
  '(?<=\\p{sc=Han})[\\ufe00-\\ufe02\\u{e0100}-\\u{e01ef}]',
  '(?<=\\p{sc=Mong})[\\u180b-\\u180f]',
].join('|');

/** Controls but for tab and line ends, marks that turn the direction of a text, and characters without a form. */
const SIGN = new RegExp(
  `(?=[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\ufff9-\\ufffb\\p{Bidi_Control}\\p{Default_Ignorable_Code_Point}])(?!${NEEDED}).`,
  'gsu',
);

/** The characters of the text that have to be shown by their names; with their places in the text. */
export function signsIn(text: string): { at: number; length: number; name: string }[] {
  return [...text.matchAll(SIGN)].map(({ index, 0: sign }) => ({ at: index, length: sign.length, name: nameOf(sign) }));
}

/** For example "U+202E". */
function nameOf(sign: string): string {
  return `U+${(sign.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
}
