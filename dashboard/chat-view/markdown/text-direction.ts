/** A part of a text that is looked at for its first letter. */
const LOOKED_AT = 500;
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** The direction of a text's first letter, as `dir="auto"` finds it. That one skips elements with a direction of their own, as lists have. */
export function textDirection(source: string, from: number): 'ltr' | 'rtl' {
  const letter = /\p{L}/u.exec(source.slice(from, from + LOOKED_AT))?.[0] ?? '';
  return RIGHT_TO_LEFT.test(letter) ? 'rtl' : 'ltr';
}
