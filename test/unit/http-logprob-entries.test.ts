import assert from 'node:assert/strict';
import { join } from 'node:path';
import { chatLogprob, CompletionLogprobList, type ScoredToken } from '../../http-api/answer/logprob-entries.js';
import type { TokenSpan } from '../../http-api/answer/token-spans.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const END = 1;

describe('log-probability entries', () => {
  let tokenizer: Tokenizer;
  let letter: number;
  let name: string;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
    letter = tokenizer.encode('f')[0] ?? assert.fail();
    name = Buffer.from(tokenizer.tokenBytes(END)).toString('utf8');
    assert.ok(tokenizer.isSpecial(END) && name !== '');
  });

  /** A letter and the token that ends the answer, which is not shown; either is the other's alternative. */
  function answer(): TokenSpan<ScoredToken>[] {
    const top = [
      { tokenId: END, logprob: -0.5 },
      { tokenId: letter, logprob: -1 },
    ];
    return [
      { token: { tokenId: letter, logprob: -1, top }, bytes: Buffer.from('f'), text: 'f' },
      { token: { tokenId: END, logprob: -0.5, top }, bytes: Buffer.alloc(0), text: '' },
    ];
  }

  it('of chats name a special token among the likeliest, chosen or not; its own text is empty', () => {
    const entries = answer().map((span) => chatLogprob(span, 2, tokenizer));
    assert.deepEqual(
      entries.map(({ token, bytes }) => [token, bytes]),
      [
        ['f', [...Buffer.from('f')]],
        ['', []],
      ],
    );
    const listed = [
      { token: name, logprob: -0.5, bytes: [...Buffer.from(name)] },
      { token: 'f', logprob: -1, bytes: [...Buffer.from('f')] },
    ];
    for (const { top_logprobs: top } of entries) assert.deepEqual(top, listed);
  });

  it('of text completions name a special token, too', () => {
    assert.deepEqual(new CompletionLogprobList(1, tokenizer).entriesOf(answer()), {
      tokens: ['f', ''],
      token_logprobs: [-1, -0.5],
      text_offset: [0, 1],
      top_logprobs: [{ f: -1, [name]: -0.5 }, { [name]: -0.5 }],
    });
  });
});
