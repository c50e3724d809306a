import assert from 'node:assert/strict';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { AnswerText } from '../../engine/generation/generate-tokens.js';
import { TokenSpans, type TokenSpan } from '../../http-api/answer/token-spans.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

function together(spans: readonly TokenSpan<number>[]): string {
  return Buffer.concat(spans.map(({ bytes }) => bytes)).toString('utf8');
}

function texts(spans: readonly TokenSpan<number>[]): string {
  return spans.map(({ text }) => text).join('');
}

/** The tokens as an answer brings them: text with each, the rest at the end. */
function spansOfAnswer(
  tokenizer: Tokenizer,
  tokenIds: readonly number[],
  stop: readonly string[],
): { content: string; spans: TokenSpan<number>[]; tokens: number } {
  const answer = new AnswerText(tokenizer, { stop, showSpecialTokens: false });
  const spans = new TokenSpans<number>();
  const found: TokenSpan<number>[] = [];
  let tokens = 0;
  for (const [index, id] of tokenIds.entries()) {
    tokens += 1;
    let { text, stop: ending } = answer.push(id);
    if (ending === null && index === tokenIds.length - 1) {
      const last = answer.finish();
      text += last.text;
      ending = last.stop;
    }
    spans.add(id, tokenizer.isSpecial(id) ? new Uint8Array() : tokenizer.tokenBytes(id));
    found.push(...spans.push(text));
    if (ending !== null) break;
  }
  found.push(...spans.finish());
  return { content: answer.text, spans: found, tokens };
}

describe('the match of tokens to parts of a text', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
  });

  it('loses and doubles nothing, whatever the tokens and stop strings are', () => {
    const ids = fc.array(fc.integer({ min: 0, max: 1030 }), { maxLength: 60 });
    const stops = fc.array(fc.string({ minLength: 1, maxLength: 3 }), { maxLength: 2 });
    fc.assert(
      fc.property(ids, stops, (tokenIds, stop) => {
        const { content, spans, tokens } = spansOfAnswer(tokenizer, tokenIds, stop);
        assert.equal(together(spans), content);
        assert.equal(texts(spans), content);
        assert.deepEqual(
          spans.map(({ token }) => token),
          tokenIds.slice(0, tokens),
        );
      }),
      { numRuns: 500 },
    );
  });

  it('gives each token of a text its own bytes, also where a character has several', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 40 }), (text) => {
        fc.pre(!/[\uD800-\uDFFF]/u.test(text) && !text.includes('<|'));
        const { spans } = spansOfAnswer(tokenizer, tokenizer.encode(text), []);
        for (const { token, bytes } of spans) {
          assert.deepEqual(Buffer.from(bytes), Buffer.from(tokenizer.tokenBytes(token)));
        }
      }),
    );
  });

  it('cuts the token in which a stop string begins, and those after it', () => {
    const spans = new TokenSpans<number>();
    spans.add(1, Buffer.from('one tw'));
    assert.deepEqual(spans.push('one '), []);
    spans.add(2, Buffer.from('o three'));
    const found = [...spans.push(''), ...spans.finish()];
    assert.deepEqual(
      found.map(({ token, text }) => [token, text]),
      [
        [1, 'one '],
        [2, ''],
      ],
    );
  });

  it('handles decoders that drop the first space', () => {
    const spans = new TokenSpans<number>();
    spans.add(1, Buffer.from(' Once'));
    const first = spans.push('Once');
    spans.add(2, Buffer.from(' upon'));
    assert.deepEqual(
      [...first, ...spans.push(' upon')].map(({ token, text }) => [token, text]),
      [
        [1, 'Once'],
        [2, ' upon'],
      ],
    );
  });

  it('lists no token whose text went to another field', () => {
    const spans = new TokenSpans<number>();
    for (const [token, bytes] of ['<think>', 'so', '</think>'].entries()) spans.add(token, Buffer.from(bytes));
    assert.deepEqual(spans.skip(), []);
    spans.add(3, Buffer.from('\n\nYes'));
    assert.deepEqual(
      spans.push('Yes').map(({ token, text }) => [token, text]),
      [[3, 'Yes']],
    );
    spans.add(4, Buffer.from('!'));
    assert.deepEqual(
      [...spans.push('!'), ...spans.finish()].map(({ token, text }) => [token, text]),
      [[4, '!']],
    );
  });

  it('lists no token without bytes before text of another field', () => {
    const spans = new TokenSpans<number>();
    spans.add(0, new Uint8Array());
    assert.deepEqual(spans.push(''), []);
    spans.add(1, Buffer.from('so'));
    assert.deepEqual(spans.skip(), []);
    spans.add(2, Buffer.from('</think>'));
    assert.deepEqual(spans.push(''), []);
    spans.add(3, Buffer.from('Yes'));
    const found = spans.push('Yes');
    spans.add(4, new Uint8Array());
    assert.deepEqual(
      [...found, ...spans.push(''), ...spans.finish()].map(({ token, text }) => [token, text]),
      [
        [3, 'Yes'],
        [4, ''],
      ],
    );
  });

  it('gives late text to the last token that may have brought it', () => {
    const spans = new TokenSpans<number>();
    spans.add(1, Buffer.from('thought</think>Yes'));
    assert.deepEqual(spans.skip(), []);
    assert.equal(texts(spans.push('Yes')), 'Yes');
  });
});
