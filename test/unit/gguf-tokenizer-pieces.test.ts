import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { readVocabulary } from '../../packs/gguf/gguf-tokenizer-keys.js';
import { mergesFromScores } from '../../packs/gguf/gguf-tokenizer-merges.js';
import { sentencePieceKeys, tokenizerOf, type MoreTokens } from './gguf-tokenizer-files.js';

const FIRST_PIECE = 259;

/** Pieces with scores that fall from token to token, as SentencePiece writes them. */
function pieces(tokens: readonly string[]): MoreTokens {
  return tokens.map((token, index) => ({ token, type: 1, score: -index }));
}

/** SentencePiece's rule as it is said: join the neighbours with the best joint score, the leftmost of equals, until none have one. */
function plainPieces(text: string, scores: ReadonlyMap<string, number>): readonly string[] {
  const parts = [...text];
  for (;;) {
    let [best, at] = [-Infinity, -1];
    for (const [index, part] of parts.slice(0, -1).entries()) {
      const score = scores.get(part + (parts[index + 1] ?? '')) ?? -Infinity;
      if (score > best) [best, at] = [score, index];
    }
    if (at < 0) return parts;
    parts.splice(at, 2, `${parts[at]}${parts[at + 1]}`);
  }
}

/**
 * True: the token's end is its beginning, at another place than its middle. Two of its cuts may then meet in a text, and their order decides,
 * which transformers and llama.cpp take differently.
 */
function overlapsItself(token: string): boolean {
  const lengths = [...Array(token.length).keys()].slice(1);
  return lengths.some((length) => 2 * length !== token.length && token.endsWith(token.slice(0, length)));
}

describe("a GGUF file's SentencePiece tokenizer", () => {
  const words = ['\u2581', 'a', 'b', 'c', '\u00e9', '\u6771'];

  it('joins the pieces with the best scores', async () => {
    const texts = fc.string({ unit: fc.constantFrom(' ', 'a', 'b', 'c', '\u00e9', '\u6771') });
    const drawn = fc.string({ unit: fc.constantFrom(...words), minLength: 2, maxLength: 5 });
    const longer = fc.uniqueArray(
      drawn.filter((token) => !overlapsItself(token)),
      { maxLength: 30 },
    );
    await fc.assert(
      fc.asyncProperty(longer, fc.array(texts, { minLength: 1, maxLength: 5 }), async (joined, asked) => {
        const more = pieces([...joined, ...words]);
        const tokenizer = await tokenizerOf(sentencePieceKeys({ add_bos_token: false }, more));
        const ids = new Map(more.map(({ token }, index) => [token, FIRST_PIECE + index]));
        const scores = new Map(more.map(({ token, score = 0 }) => [token, score]));
        for (const text of asked.filter((one) => one !== '')) {
          const expected = plainPieces(`\u2581${text.replaceAll(' ', '\u2581')}`, scores);
          assert.deepEqual(
            tokenizer.encode(text),
            expected.map((piece) => ids.get(piece)),
            JSON.stringify([joined, text]),
          );
          assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('makes all cuts of a token merges, in the order of transformers', () => {
    const more = pieces(['abc', 'ab', 'bc', 'a', 'b', 'c']);
    const keys = sentencePieceKeys({}, more);
    const scores = keys.get('tokenizer.ggml.scores') as readonly number[];
    assert.deepEqual(mergesFromScores(readVocabulary(keys, 'model.gguf'), scores, 'model.gguf'), [
      ['ab', 'c'],
      ['a', 'bc'],
      ['a', 'b'],
      ['b', 'c'],
    ]);
  });

  it('begins plain prompts with a beginning and a space, unless the file says otherwise', async () => {
    const more = pieces(['\u2581', 'a']);
    assert.deepEqual((await tokenizerOf(sentencePieceKeys({}, more))).encode('a'), [1, 259, 260]);
    const bare = await tokenizerOf(sentencePieceKeys({ add_bos_token: false, add_space_prefix: false }, more));
    assert.deepEqual(bare.encode('a'), [260]);
    assert.deepEqual(bare.encode(' a'), [259, 260]);
    assert.equal(bare.decode([259, 260]), ' a');
    const ended = await tokenizerOf(sentencePieceKeys({ add_eos_token: true }, more));
    assert.deepEqual(ended.encode('a'), [1, 259, 260, 2]);
  });

  it('writes characters without a token as bytes', async () => {
    const tokenizer = await tokenizerOf(sentencePieceKeys({}, pieces(['\u2581'])));
    const ids = tokenizer.encode('\u00e9');
    assert.deepEqual(ids, [1, 259, 3 + 0xc3, 3 + 0xa9]);
    assert.equal(tokenizer.decode(ids), '\u00e9');
    assert.deepEqual([...tokenizer.tokenBytes(3 + 0xc3)], [0xc3]);
  });

  it('takes no control token for text, even if its parts are pieces', async () => {
    const parts = ['\u2581', '<', 's', '>', '<s', 's>'];
    const tokenizer = await tokenizerOf(sentencePieceKeys({ add_bos_token: false }, pieces(parts)));
    const chat = await tokenizerOf(
      sentencePieceKeys({ 'tokenizer.chat_template': '{{ messages[0].content }}' }, pieces(parts)),
    );
    assert.deepEqual(tokenizer.encode('<s>'), [1]);
    assert.ok(!chat.encodeChat([{ role: 'user', content: 'x<s>' }], { values: {}, wallMs: 0 }).includes(1));
    assert.ok(tokenizer.isSpecial(1));
  });

  it('reads the merges of files that list them', async () => {
    const more = pieces(['ab', 'bc', '\u2581', 'a', 'b', 'c']);
    const merges = ['b c', 'a b'];
    const tokenizer = await tokenizerOf(
      sentencePieceKeys({ merges, scores: undefined, add_space_prefix: false }, more),
    );
    assert.deepEqual(tokenizer.encode('abc'), [1, 262, 260]);
  });

  it('refuses pieces that are too long to cut', async () => {
    await assert.rejects(
      tokenizerOf(sentencePieceKeys({}, pieces(['a'.repeat(513)]))),
      (error) => error instanceof OdmoeError && error.code === 'MODEL_CORRUPT' && /513 characters/.test(error.message),
    );
  });
});

describe("a GGUF file's Gemma tokenizer", () => {
  it('has runs of spaces as pieces, and a beginning whatever the file says', async () => {
    const more: MoreTokens = [
      ...['\u2581', 'a', '\n', '\u2581a'].map((token) => ({ token, type: 1 })),
      { token: '  ', type: 4 },
      { token: '\n\n', type: 4 },
    ];
    const merges = ['\u2581 \u2581', '\u2581 a', '\n \n'];
    const tokenizer = await tokenizerOf(
      sentencePieceKeys({ model: 'gemma4', pre: undefined, scores: undefined, merges, add_bos_token: false }, more),
    );
    assert.deepEqual(tokenizer.encode('a  a a\n\n\n'), [1, 260, 263, 260, 262, 264, 261]);
    assert.equal(tokenizer.decode([260, 263, 260, 262, 264]), 'a  a a\n\n');
    assert.deepEqual(tokenizer.encode('\u00e9'), [1, 3 + 0xc3, 3 + 0xa9]);
  });
});
