import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ggufTokenizerFiles } from '../../packs/gguf/gguf-tokenizer.js';
import type { GgufKeys, GgufValue } from '../../packs/gguf/gguf-types.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** The tokenizer of a GGUF file's keys, as a pack's reader sees it. */
export async function tokenizerOf(keys: GgufKeys): Promise<Tokenizer> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-gguf-tokenizer-'));
  try {
    for (const [name, content] of Object.entries(ggufTokenizerFiles(keys, 'model.gguf'))) {
      await writeFile(join(directory, name), JSON.stringify(content));
    }
    return await loadTokenizer(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** GPT-2's characters for the bytes 0 to 255. */
export function byteCharacters(): readonly string[] {
  const prints = (byte: number): boolean => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  const hidden = [...Array(256).keys()].filter((byte) => !prints(byte));
  return [...Array(256).keys()].map((byte) => String.fromCodePoint(prints(byte) ? byte : 0x100 + hidden.indexOf(byte)));
}

/** Keys of a tokenizer; undefined: the file has no such key. */
export type TokenizerKeys = Readonly<Record<string, GgufValue | undefined>>;

/** Further tokens of a vocabulary, behind those that all have. */
export type MoreTokens = readonly { token: string; type: number; score?: number }[];

/** A byte-level tokenizer of a GGUF file: three control tokens, the bytes from id 3 on, and the tokens that are given from id 259 on. */
export function byteLevelKeys(change: TokenizerKeys = {}, more: MoreTokens = []): GgufKeys {
  const characters = byteCharacters();
  return keysOf({
    model: 'gpt2',
    pre: 'gpt-2',
    tokens: ['<|bos|>', '<|end|>', '<|user|>', ...characters, ...more.map(({ token }) => token)],
    token_type: [3, 3, 3, ...characters.map(() => 1), ...more.map(({ type }) => type)],
    merges: [],
    bos_token_id: 0,
    eos_token_id: 1,
    ...change,
  });
}

/** A SentencePiece tokenizer of a GGUF file, as Llama has it: three control tokens, byte tokens from id 3 on, and pieces from id 259 on. */
export function sentencePieceKeys(change: TokenizerKeys = {}, more: MoreTokens = []): GgufKeys {
  const bytes = [...Array(256).keys()].map((byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  return keysOf({
    model: 'llama',
    pre: 'default',
    tokens: ['<unk>', '<s>', '</s>', ...bytes, ...more.map(({ token }) => token)],
    token_type: [2, 3, 3, ...bytes.map(() => 6), ...more.map(({ type }) => type)],
    scores: [0, 0, 0, ...bytes.map(() => 0), ...more.map(({ score = 0 }) => score)],
    bos_token_id: 1,
    eos_token_id: 2,
    unknown_token_id: 0,
    ...change,
  });
}

function keysOf(keys: TokenizerKeys): GgufKeys {
  const present = Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined);
  return new Map(present.map(([name, value]) => [name.includes('.') ? name : `tokenizer.ggml.${name}`, value]));
}
