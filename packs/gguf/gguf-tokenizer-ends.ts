import { GGUF_TOKEN, TOKENIZER_KEY, readVocabulary, tokenIdOf, type GgufVocabulary } from './gguf-tokenizer-keys.js';
import type { GgufKeys } from './gguf-types.js';

/**
 * Control tokens that end an answer, known by their texts, because files name one end at most and models have several (llama.cpp,
 * src/llama-vocab.cpp, special_eog_ids).
 */
const ENDS: ReadonlySet<string> = new Set([
  '<|eot_id|>',
  '<|eom_id|>',
  '<|im_end|>',
  '<|end|>',
  '<|return|>',
  '<|call|>',
  '<|flush|>',
  '<|calls|>',
  '<end_of_turn>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '</s>',
  '<EOT>',
  '_<EOT>',
  '[EOT]',
  '[EOS]',
  '<end_of_utterance>',
  '<eos>',
  '<turn|>',
  '<|tool_response>',
  '<\uff5cend\u2581of\u2581sentence\uff5c>',
  '[e~[',
]);

/** A token that ends a part of the answer, not the answer, where the vocabulary has all of the other texts. */
const PARTS: readonly { text: string; beside: readonly string[] }[] = [
  // Harmony's and Solar's channels end with <|end|>, and their answers with the others.
  { text: '<|end|>', beside: ['<|return|>', '<|call|>'] },
  { text: '<|end|>', beside: ['<|flush|>', '<|calls|>'] },
  // Gemma 4 has </s> as a word of HTML.
  { text: '</s>', beside: ['<|tool_response>'] },
];

/** Ids of the tokens that end an answer, the file's own end first, each once. @throws MODEL_CORRUPT */
export function ggufEndTokens(keys: GgufKeys, path = 'the GGUF file'): readonly number[] {
  if (!keys.has(`${TOKENIZER_KEY}tokens`)) return [];
  return endTokensOf(keys, readVocabulary(keys, path), path);
}

/** As ggufEndTokens, of a vocabulary that has been read. */
export function endTokensOf(keys: GgufKeys, vocabulary: GgufVocabulary, path: string): readonly number[] {
  const { tokens } = vocabulary;
  const named = ['eos', 'eot', 'eom'].map((kind) => tokenIdOf(keys, kind, tokens.length, path));
  const found = [...tokens.keys()].filter((id) => ENDS.has(tokens[id] ?? '') && mayBeControl(vocabulary, id));
  const ends = new Set([...named, ...found].filter((id) => id !== null));
  const texts = new Set([...ends].map((id) => tokens[id]));
  const parts = PARTS.filter(({ beside }) => beside.every((text) => texts.has(text))).map(({ text }) => text);
  return [...ends].filter((id) => !parts.includes(tokens[id] ?? ''));
}

/** An ordinary token with such a text is a word: code has "</s>", too. Old files have control tokens as user-defined ones. */
function mayBeControl({ types, isTyped }: GgufVocabulary, id: number): boolean {
  const type = types[id];
  return !isTyped || type === GGUF_TOKEN.control || type === GGUF_TOKEN.userDefined;
}
