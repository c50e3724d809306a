import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { readGgufModel } from '../../packs/gguf/gguf-file.js';
import { ggufEndTokens } from '../../packs/gguf/gguf-tokenizer-ends.js';
import { byteLevelKeys, tokenizerOf } from './gguf-tokenizer-files.js';

const PLAIN = { values: {}, wallMs: 0 };

const formats = join(packageRoot(), 'test', 'fixtures', 'formats');
const demoModel = join(packageRoot(), 'models', 'demo');

interface Reference {
  tokenizer: { text: string; token_ids: number[] }[];
}

describe('the tokenizer of a GGUF file', () => {
  for (const [name, file] of [
    ['gguf-qwen3moe-q8_0', 'qwen3moe-q8_0.gguf'],
    ['gguf-mixtral-q4_1', 'mixtral-q4_1.gguf'],
    ['gguf-gptoss-mxfp4', 'gptoss-mxfp4.gguf'],
  ] as const) {
    it(`makes the ids of the reference from ${name}`, async () => {
      const { keys } = await readGgufModel(join(formats, name, file));
      const tokenizer = await tokenizerOf(keys);
      const { tokenizer: texts } = JSON.parse(readFileSync(join(formats, name, 'reference.json'), 'utf8')) as Reference;
      assert.equal(texts.length, 5);
      for (const { text, token_ids: ids } of texts) {
        assert.deepEqual(tokenizer.encode(text), ids, text);
        assert.deepEqual(tokenizer.encodeRendered(text), ids, text);
      }
      // <|end|> is the file's end, and <|endoftext|> is known by its text.
      assert.deepEqual(ggufEndTokens(keys), [1, 318]);
      const chat = [{ role: 'user', content: 'hi' }];
      assert.equal(tokenizer.renderChat(chat, PLAIN), '<|bos|><|user|>\nhi<|end|>\n<|assistant|>\n');
    });
  }

  it('encodes as the tokenizer.json of which the file was made', async () => {
    const published = await loadTokenizer(demoModel);
    const { model, added_tokens: added } = JSON.parse(readFileSync(join(demoModel, 'tokenizer.json'), 'utf8')) as {
      model: { vocab: Record<string, number>; merges: string[] };
      added_tokens: { id: number; special: boolean }[];
    };
    const tokens = Object.entries(model.vocab)
      .sort(([, a], [, b]) => a - b)
      .map(([token]) => token);
    const special = new Set(added.map(({ id }) => id));
    const tokenizer = await tokenizerOf(
      byteLevelKeys({
        pre: 'smollm',
        tokens,
        token_type: tokens.map((_, id) => (special.has(id) ? 3 : 1)),
        merges: model.merges,
        'tokenizer.chat_template': published.chatTemplateSource ?? undefined,
      }),
    );
    assert.equal(tokenizer.vocabularySize, published.vocabularySize);
    assert.equal(tokenizer.longestTokenBytes, published.longestTokenBytes);
    assert.equal(tokenizer.chatTemplateSource, published.chatTemplateSource);
    fc.assert(
      fc.property(
        fc.oneof(fc.string({ unit: 'binary' }), fc.lorem(), fc.constantFrom('<|end|> 12345', "it's\n\n x")),
        (text) => {
          assert.deepEqual(tokenizer.encode(text), published.encode(text));
        },
      ),
    );
  });
});
