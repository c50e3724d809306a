import { z } from 'zod';
import { type ReadPart, readText, unreadPart } from '../conversation/unread-part.js';
import { otherType } from '../fields/other-type.js';

const TEXT_TYPES = ['text', 'input_text', 'output_text'] as const;

const textPart = z.strictObject({
  type: z.enum(TEXT_TYPES),
  text: z.string(),
  cache_control: z.unknown().optional(),
  citations: z.unknown().optional(),
  annotations: z.unknown().optional(),
  logprobs: z.unknown().optional(),
  // OpenAI's client adds it to answers that it parses.
  parsed: z.unknown().optional(),
  prompt_cache_breakpoint: z.unknown().optional(),
});
const refusalPart = z.strictObject({ type: z.literal('refusal'), refusal: z.string() });
const otherPart = otherType([...TEXT_TYPES, 'refusal']).transform(({ type }) => ({
  type: 'unread' as const,
  unread: type,
}));

/** A text, or parts; those that are no text are not read. */
export const contentField = z.union(
  [
    z.string(),
    z.array(
      z.union([z.discriminatedUnion('type', [textPart, refusalPart]), otherPart], {
        error: 'it must be an object with a type',
      }),
    ),
  ],
  { error: 'it must be a text or a list of parts' },
);

export type Content = z.infer<typeof contentField>;

export function readParts(content: Content): ReadPart[] {
  if (typeof content === 'string') return [readText(content)];
  return content.map((part) => {
    if (part.type === 'unread') return unreadPart(part.unread);
    return readText(part.type === 'refusal' ? part.refusal : part.text);
  });
}

/** The parts of a content as lines of one text. */
export function contentText(content: Content): string {
  return linesOf(readParts(content));
}

export function linesOf(parts: readonly { text: string }[]): string {
  return parts.map(({ text }) => text).join('\n');
}
