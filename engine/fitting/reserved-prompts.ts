/** The prompts by which recall is measured: no predictor is trained with them. Pure. */
import { demoPrompts, MOST_PROMPTS } from './demo-prompts.js';

const RESERVED: readonly string[] = demoPrompts(MOST_PROMPTS).map(plainText);

/** Characters of the longest of them. */
export const LONGEST_RESERVED = Math.max(...RESERVED.map(({ length }) => length));

/** True if a text has a prompt in it by which recall is measured. */
export function asksReserved(text: string): boolean {
  const plain = plainText(text);
  return RESERVED.some((prompt) => plain.includes(prompt));
}

/** A text without the differences of letters and spaces that make it no other text. */
export function plainText(text: string): string {
  return text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '')
    .join(' ');
}
