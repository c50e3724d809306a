/**
 * Blocks of other types than texts, thoughts, calls and their results. Some bring texts; a note replaces the others, because a session that holds
 * one sends it with each request.
 */
import { z } from 'zod';
import { type ReadPart, readText, unreadPart } from '../conversation/unread-part.js';
import { isEncoded } from '../requests/encoded-data.js';

/** A block as it was sent. */
export interface GivenBlock {
  type: string;
  [property: string]: unknown;
}

const texts = z.union([z.string(), z.array(z.looseObject({ type: z.string(), text: z.unknown().optional() }))]);

/** Blocks that bring texts. A block of one of these types in another form is not read. */
const readable = z.discriminatedUnion('type', [
  z.looseObject({
    type: z.literal('document'),
    title: z.string().nullish(),
    context: z.string().nullish(),
    source: z.discriminatedUnion('type', [
      // Encoded data are kept to no more than their beginning (body-scan).
      z.looseObject({ type: z.literal('text'), data: z.string().refine((data) => !isEncoded(data)) }),
      z.looseObject({ type: z.literal('content'), content: texts }),
    ]),
  }),
  z.looseObject({ type: z.literal('search_result'), title: z.string(), source: z.string(), content: texts }),
  z.looseObject({ type: z.literal('compaction'), content: z.string() }),
  z.looseObject({ type: z.literal('tool_reference'), tool_name: z.string().min(1) }),
]);

/** The text of a block; null: nothing of it is left, as of encrypted thoughts. */
export function readOtherBlock(given: GivenBlock): ReadPart | null {
  if (given.type === 'redacted_thinking') return null;
  const parsed = readable.safeParse(given);
  if (!parsed.success) return unreadPart(given.type);
  const block = parsed.data;
  switch (block.type) {
    case 'document': {
      const { title, context, source } = block;
      return linesOf([title, context], source.type === 'text' ? source.data : source.content);
    }
    case 'search_result':
      return linesOf([block.title, block.source], block.content);
    case 'compaction':
      return readText(block.content);
    case 'tool_reference':
      return readText(`[the tool ${block.tool_name} can be called]`);
  }
}

/** A heading, and the texts below it. Without a text of its own the whole is not read. */
function linesOf(heading: readonly (string | null | undefined)[], content: z.infer<typeof texts>): ReadPart {
  const parts =
    typeof content === 'string'
      ? [readText(content)]
      : content.map(({ type, text }) =>
          type === 'text' && typeof text === 'string' ? readText(text) : unreadPart(type),
        );
  const unread = parts.every((part) => part.unread !== null) ? (parts[0]?.unread ?? null) : null;
  const lines = [...heading, ...parts.map(({ text }) => text)].filter((line) => line);
  return { text: lines.join('\n'), unread };
}
