import assert from 'node:assert/strict';
import { join } from 'node:path';
import fc from 'fast-check';
import { DETOKENIZE_LIMIT } from '../../http-api/requests/body-limits.js';
import { readDetokenizeBody, readTokenizeBody, tokenTextOf, tokensText } from '../../http-api/tokens/token-routes.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

describe('the endpoints for tokens and entries', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
  });

  it('are the reverse of each other, special tokens included', () => {
    const part = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('<|user|>', '<|end|>', '<|bos|>', ' a', 'fox ', '\n'),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 6 }), (parts) => {
        const text = parts.join('');
        assert.equal(tokensText(tokenizer.encodeRendered(text), tokenizer), text);
      }),
    );
  });

  it('return token entries that make the text; a part of a character is given as bytes', () => {
    const text = 'A fox 🦊<|end|>';
    const entries = tokenizer.encodeRendered(text).map((id) => tokenTextOf(id, tokenizer));
    const bytes = entries.map((entry) => (typeof entry === 'string' ? Buffer.from(entry) : Buffer.from(entry)));
    assert.equal(Buffer.concat(bytes).toString('utf8'), text);
    assert.ok(
      entries.some((entry) => typeof entry !== 'string'),
      'the demo model has no token for a fox',
    );
  });

  it('check their fields', () => {
    const refused = (act: () => unknown, field: string): void =>
      assert.throws(act, (error) => error instanceof OdmoeError && error.field === field);
    refused(() => readTokenizeBody({}), 'content');
    refused(() => readTokenizeBody({ content: 'a', parse_special: false }), 'parse_special');
    refused(() => readTokenizeBody({ content: 'a', wat: true }), 'wat');
    refused(() => readDetokenizeBody({ tokens: [1, -1] }), 'tokens[1]');
    refused(() => readDetokenizeBody({ tokens: [1.5] }), 'tokens[0]');
    refused(() => readDetokenizeBody({ tokens: new Array<number>(DETOKENIZE_LIMIT + 1).fill(1) }), 'tokens');
    assert.deepEqual(readTokenizeBody({ content: 'a', with_pieces: true, add_special: null }), {
      content: 'a',
      with_pieces: true,
    });
  });
});
