import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { StreamingDetokenizer } from '../../engine/generation/streaming-detokenizer.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const demoModel = join(packageRoot(), 'models', 'demo');

interface Reference {
  prompt: string;
  prompt_token_ids: number[];
  token_ids: number[];
  text: string;
}

const { references } = JSON.parse(readFileSync(join(demoModel, 'reference.json'), 'utf8')) as {
  references: Reference[];
};

describe("the demo model's tokenizer", () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(demoModel);
  });

  it('has the vocabulary and the chat template that the model ships', () => {
    assert.equal(tokenizer.vocabularySize, 1024);
    assert.equal(tokenizer.hasChatTemplate, true);
    assert.deepEqual(
      [0, 1, 2, 3, 4].map((id) => tokenizer.isSpecial(id)),
      [true, true, true, true, false],
    );
  });

  for (const reference of references) {
    it(`makes the reference's prompt ids of "${reference.prompt}"`, () => {
      const rendered = tokenizer.renderChat([{ role: 'user', content: reference.prompt }], { values: {}, wallMs: 0 });
      assert.deepEqual(tokenizer.encodeRendered(rendered), reference.prompt_token_ids);
    });

    it(`makes the reference's text of the answer to "${reference.prompt}"`, () => {
      assert.equal(tokenizer.decode(reference.token_ids), reference.text);
    });
  }

  it('gives back any text that it has encoded', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (text) => {
        fc.pre(!/[\uD800-\uDFFF]/u.test(text) && !text.includes('<|'));
        assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
      }),
    );
  });

  it('leaves spaces before punctuation unchanged', () => {
    assert.equal(tokenizer.decode(tokenizer.encode("a . b , don 't")), "a . b , don 't");
  });

  it('has no text for special and unknown ids, nor for none', () => {
    assert.equal(tokenizer.decode([0, 1, 2, 3]), '');
    assert.equal(tokenizer.decode([5000]), '');
    assert.equal(tokenizer.decode([]), '');
    assert.deepEqual(tokenizer.encode(''), []);
  });

  it('streams token texts that join to the text of all tokens, for any ids', () => {
    const ids = fc.array(fc.integer({ min: 0, max: 1030 }), { maxLength: 120 });
    fc.assert(
      fc.property(ids, (tokenIds) => {
        const detokenizer = new StreamingDetokenizer(tokenizer);
        const texts = tokenIds.map((id) => detokenizer.push(id));
        assert.equal(texts.join('') + detokenizer.flush(), tokenizer.decode(tokenIds));
      }),
    );
  });

  it('streams special tokens by their names on request, between the texts before and behind', () => {
    const ids = fc.array(fc.oneof(fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: 1030 })), {
      maxLength: 60,
    });
    fc.assert(
      fc.property(ids, (tokenIds) => {
        const detokenizer = new StreamingDetokenizer(tokenizer, true);
        const texts = tokenIds.map((id) => detokenizer.push(id));
        let [expected, segment]: [string, number[]] = ['', []];
        for (const id of tokenIds) {
          if (!tokenizer.isSpecial(id)) segment.push(id);
          else {
            expected += tokenizer.decode(segment) + Buffer.from(tokenizer.tokenBytes(id)).toString();
            segment = [];
          }
        }
        assert.equal(texts.join('') + detokenizer.flush(), expected + tokenizer.decode(segment));
      }),
    );
  });

  it('streams a character of several tokens only when it is complete', () => {
    const text = 'é🦊é🦊';
    const tokenIds = tokenizer.encode(text);
    assert.ok(tokenIds.length > [...text].length, 'the text has characters of several tokens');
    const detokenizer = new StreamingDetokenizer(tokenizer);
    let shown = '';
    for (const id of tokenIds) {
      shown += detokenizer.push(id);
      assert.ok(text.startsWith(shown), `"${shown}" is not the beginning of "${text}"`);
    }
    assert.equal(shown + detokenizer.flush(), text);
  });
});
