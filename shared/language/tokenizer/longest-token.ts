import { z } from 'zod';

const typed = z.looseObject({ type: z.string() });
const definitionSchema = z.looseObject({
  model: z.looseObject({
    type: z.string().optional(),
    unk_token: z.string().nullish(),
    fuse_unk: z.boolean().optional(),
    byte_fallback: z.boolean().optional(),
  }),
  added_tokens: z
    .array(z.looseObject({ content: z.string(), lstrip: z.boolean().optional(), rstrip: z.boolean().optional() }))
    .default([]),
  normalizer: typed.nullish(),
  pre_tokenizer: typed.nullish(),
});
const sequenceSchema = z.looseObject({
  normalizers: z.array(typed).optional(),
  pretokenizers: z.array(typed).optional(),
});
const replaceSchema = z.looseObject({ pattern: z.looseObject({ String: z.string() }), content: z.string() });
const splitSchema = z.looseObject({ behavior: z.string() });

/**
 * Largest factor by which Unicode normalization and lower case shorten a text, in bytes of UTF-8: a mathematical letter of four bytes becomes a
 * Latin one.
 */
const NORMALIZATION_FACTOR = 4;
const NORMALIZATIONS: ReadonlySet<string> = new Set(['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase']);
/** Pre-tokenizers that cut a text without loss. */
const LOSSLESS_PRE_TOKENIZERS: ReadonlySet<string> = new Set(['ByteLevel', 'Metaspace', 'Digits']);

/**
 * Most bytes (UTF-8) of text for which one token stands. Infinity: there is no bound, because the tokenizer drops parts of a text, or has one
 * token for unknown words of any length.
 */
export function longestTokenBytes(definition: object, vocabulary: Iterable<string>): number {
  const parsed = definitionSchema.safeParse(definition);
  if (!parsed.success) return Infinity;
  const { model, added_tokens: added, normalizer, pre_tokenizer: preTokenizer } = parsed.data;
  const unknownRuns = model.fuse_unk === true && model.byte_fallback !== true && (model.unk_token ?? null) !== null;
  if (model.type !== 'BPE' || unknownRuns) return Infinity;
  if (added.some(({ lstrip, rstrip }) => lstrip === true || rstrip === true)) return Infinity;
  if (!isLossless(preTokenizer ?? null)) return Infinity;
  let longest = 1;
  for (const token of vocabulary) longest = Math.max(longest, Buffer.byteLength(token));
  for (const { content } of added) longest = Math.max(longest, Buffer.byteLength(content));
  return longest * shrinkFactor(normalizer ?? null);
}

type Step = z.infer<typeof typed>;

/** Largest factor by which a normalizer shortens a text; Infinity: no bound. */
function shrinkFactor(normalizer: Step | null): number {
  if (normalizer === null || normalizer.type === 'Prepend') return 1;
  if (NORMALIZATIONS.has(normalizer.type)) return NORMALIZATION_FACTOR;
  if (normalizer.type === 'Sequence') {
    const steps = sequenceSchema.safeParse(normalizer).data?.normalizers;
    return steps === undefined ? Infinity : steps.reduce((factor, step) => factor * shrinkFactor(step), 1);
  }
  const replacement = normalizer.type === 'Replace' ? replaceSchema.safeParse(normalizer).data : undefined;
  if (replacement === undefined || replacement.content === '') return Infinity;
  return Math.max(1, Buffer.byteLength(replacement.pattern.String) / Buffer.byteLength(replacement.content));
}

function isLossless(preTokenizer: Step | null): boolean {
  if (preTokenizer === null || LOSSLESS_PRE_TOKENIZERS.has(preTokenizer.type)) return true;
  if (preTokenizer.type === 'Sequence') {
    return sequenceSchema.safeParse(preTokenizer).data?.pretokenizers?.every(isLossless) ?? false;
  }
  if (preTokenizer.type !== 'Split' && preTokenizer.type !== 'Punctuation') return false;
  const split = splitSchema.safeParse(preTokenizer).data;
  return split !== undefined && split.behavior !== 'Removed';
}
