import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { chatTemplateFrom } from '../../shared/language/tokenizer/chat-template.js';
import { ggufEndTokens } from '../../packs/gguf/gguf-tokenizer-ends.js';
import { ggufTokenizerFiles } from '../../packs/gguf/gguf-tokenizer.js';
import type { GgufKeys, GgufValue } from '../../packs/gguf/gguf-types.js';
import { byteLevelKeys, sentencePieceKeys, tokenizerOf } from './gguf-tokenizer-files.js';

const FIRST_ADDED = 259;

function refused(keys: GgufKeys, code: string, words: RegExp): void {
  assert.throws(
    () => ggufTokenizerFiles(keys, '/models/model.gguf'),
    (error) =>
      error instanceof OdmoeError &&
      error.code === code &&
      words.test(error.message) &&
      error.message.startsWith('/models/model.gguf: '),
    String(words),
  );
}

function configOf(keys: GgufKeys): Record<string, unknown> {
  return { ...ggufTokenizerFiles(keys, 'model.gguf')['tokenizer_config.json'] };
}

/** Control tokens with these texts, behind the bytes. */
function endsOf(
  texts: readonly string[],
  change: Readonly<Record<string, GgufValue>> = {},
  type = 3,
): readonly string[] {
  const keys = byteLevelKeys(
    { eos_token_id: undefined, ...change },
    texts.map((token) => ({ token, type })),
  );
  const tokens = keys.get('tokenizer.ggml.tokens') as readonly string[];
  return ggufEndTokens(keys).map((id) => tokens[id] ?? '');
}

describe('the keys of a GGUF tokenizer', () => {
  it('refuses kinds of tokenizers and cuts that are not known', () => {
    for (const model of ['bert', 't5', 'rwkv', 'plamo2', 'none']) {
      refused(byteLevelKeys({ model }), 'MODEL_UNSUPPORTED', new RegExp(`"${model}".*another file`));
    }
    refused(byteLevelKeys({ model: undefined }), 'MODEL_UNSUPPORTED', /no tokenizer/);
    refused(byteLevelKeys({ pre: 'new-cut' }), 'MODEL_UNSUPPORTED', /"new-cut" \(tokenizer\.ggml\.pre\)/);
    refused(byteLevelKeys({ pre: 'constructor' }), 'MODEL_UNSUPPORTED', /"constructor"/);
    refused(byteLevelKeys({ pre: undefined }), 'MODEL_UNSUPPORTED', /does not say/);
  });

  const damages: readonly (readonly [Readonly<Record<string, GgufValue | undefined>>, RegExp])[] = [
    [{ model: 7 }, /model is 7, expected a name/],
    [{ tokens: undefined }, /tokens has no tokens/],
    [{ tokens: [], token_type: [] }, /tokens has no tokens/],
    [{ tokens: 'a' }, /tokens is "a", expected a list/],
    [{ tokens: ['a', 2], token_type: [1, 1] }, /tokens has 2 at 1, expected a text/],
    [{ tokens: ['a', 'b', 'a'], token_type: [1, 1, 1] }, /"a" twice, as ids 0 and 2/],
    [{ tokens: ['a'.repeat(900), 'a'.repeat(900)], token_type: [1, 1] }, /tokens has "a{99} twice, as ids 0 and 1/],
    [{ tokens: ['a'.repeat(9000)], token_type: [1] }, /a text of 9000 characters at 0/],
    [{ token_type: [1] }, /token_type has 1 entries for 259 tokens/],
    [{ token_type: [7, ...Array<number>(258).fill(1)] }, /token_type has 7, expected 0 to 6/],
    [{ token_type: [1.5, ...Array<number>(258).fill(1)] }, /token_type has 1.5/],
    [{ token_type: Array<string>(259).fill('1') }, /token_type has "1", expected numbers/],
    [{ merges: undefined }, /merges is missing/],
    [{ merges: ['ab'] }, /merges has "ab", expected two tokens/],
    [{ merges: ['a '] }, /merges has "a ", expected two tokens/],
    [{ merges: ['a b'] }, /merges has "a b", and "ab" is no token/],
    [{ merges: ['a bc'] }, /and "bc" is no token/],
    [{ merges: [3] }, /merges has 3 at 0/],
    [{ bos_token_id: 259 }, /bos_token_id is 259, expected an id below 259/],
    [{ eos_token_id: 1.5 }, /eos_token_id is 1.5/],
    [{ padding_token_id: '3' }, /padding_token_id is "3"/],
    [{ add_bos_token: 1 }, /add_bos_token is 1, expected true or false/],
    [{ add_bos_token: true, bos_token_id: undefined }, /add_bos_token is true, and there is no bos_token_id/],
    [{ 'tokenizer.chat_template': 3 }, /tokenizer\.chat_template is 3, expected a text/],
    [{ 'tokenizer.chat_template.rag': ['x'] }, /chat_template\.rag is a list/],
    [{ 'tokenizer.chat_template': 'x'.repeat(1024 * 1024 + 1) }, /1048577 characters/],
  ];
  for (const [change, words] of damages) {
    it(`refuses a file whose keys are damaged: ${words.source}`, () => {
      refused(byteLevelKeys(change), 'MODEL_CORRUPT', words);
    });
  }

  it('refuses scores that are missing, too few or no numbers', () => {
    refused(sentencePieceKeys({ scores: undefined }), 'MODEL_CORRUPT', /scores is missing/);
    refused(sentencePieceKeys({ scores: [1] }), 'MODEL_CORRUPT', /scores has 1 entries for 259 tokens/);
    refused(sentencePieceKeys({ scores: Array<number>(259).fill(NaN) }), 'MODEL_CORRUPT', /no number/);
  });

  it('answers damaged keys by words of the registry', () => {
    const values = fc.oneof(
      fc.boolean(),
      fc.integer(),
      fc.double(),
      fc.string(),
      fc.array(fc.oneof(fc.integer(), fc.string())),
    );
    const names = [
      'model',
      'pre',
      'tokens',
      'token_type',
      'scores',
      'merges',
      'bos_token_id',
      'add_bos_token',
      'unknown_token_id',
    ];
    fc.assert(
      fc.property(fc.boolean(), fc.constantFrom(...names), values, (isByteLevel, name, value) => {
        const keys = isByteLevel ? byteLevelKeys({ [name]: value }) : sentencePieceKeys({ [name]: value });
        try {
          ggufTokenizerFiles(keys, 'model.gguf');
        } catch (thrown) {
          assert.ok(thrown instanceof OdmoeError && /^MODEL_(CORRUPT|UNSUPPORTED)$/.test(thrown.code), String(thrown));
        }
      }),
    );
  });

  it('takes -1 for no token', () => {
    const config = configOf(byteLevelKeys({ padding_token_id: 0xffffffff, bos_token_id: -1 }));
    assert.ok(!('pad_token' in config) && !('bos_token' in config));
  });

  it('names special tokens and templates as a checkpoint does', () => {
    assert.deepEqual(
      configOf(byteLevelKeys({ padding_token_id: 2, unknown_token_id: 1, 'tokenizer.chat_template': 'one' })),
      {
        tokenizer_class: 'PreTrainedTokenizerFast',
        bos_token: '<|bos|>',
        eos_token: '<|end|>',
        unk_token: '<|end|>',
        pad_token: '<|user|>',
        add_bos_token: false,
        add_eos_token: false,
        clean_up_tokenization_spaces: false,
        chat_template: 'one',
      },
    );
    const several = configOf(
      byteLevelKeys({ 'tokenizer.chat_template.tool_use': 'two', 'tokenizer.chat_template': 'one' }),
    );
    assert.equal(chatTemplateFrom(several, null, 'model')?.source, 'one');
    const named = configOf(byteLevelKeys({ 'tokenizer.chat_template.tool_use': 'two' }));
    assert.deepEqual(named['chat_template'], [{ name: 'tool_use', template: 'two' }]);
    assert.equal(chatTemplateFrom(named, null, 'model'), null);
  });

  it('begins plain prompts as the cut or the file says', async () => {
    assert.deepEqual((await tokenizerOf(byteLevelKeys({ pre: 'llama-bpe' }))).encode('a').length, 2);
    assert.deepEqual(
      (await tokenizerOf(byteLevelKeys({ pre: 'llama-bpe', bos_token_id: undefined }))).encode('a').length,
      1,
    );
    assert.deepEqual((await tokenizerOf(byteLevelKeys({ add_bos_token: true }))).encode('a')[0], 0);
    assert.deepEqual((await tokenizerOf(byteLevelKeys({ add_eos_token: true }))).encode('a')[1], 1);
  });

  it('finds control tokens and user-defined words before it cuts, and hides the former', async () => {
    const more = [
      { token: 'two words', type: 4 },
      { token: '<|tool|>', type: 3 },
      { token: '<|unused|>', type: 5 },
    ];
    const tokenizer = await tokenizerOf(byteLevelKeys({}, more));
    assert.deepEqual(tokenizer.encode('two words<|tool|>'), [FIRST_ADDED, FIRST_ADDED + 1]);
    assert.equal(tokenizer.decode([FIRST_ADDED, FIRST_ADDED + 1]), 'two words');
    assert.equal(tokenizer.encode('<|unused|>').length, 10);
    assert.deepEqual(
      [0, FIRST_ADDED, FIRST_ADDED + 1].map((id) => tokenizer.isSpecial(id)),
      [true, false, true],
    );
  });

  it('leaves out the padding at the end, and no other token', async () => {
    const padding = [0, 1].map((index) => ({ token: `[PAD${index}]`, type: 5 }));
    const ended = await tokenizerOf(byteLevelKeys({}, [{ token: '', type: 1 }, ...padding]));
    assert.equal(ended.vocabularySize, FIRST_ADDED + 1);
    const inside = await tokenizerOf(byteLevelKeys({}, [...padding, { token: '<|x|>', type: 3 }]));
    assert.equal(inside.vocabularySize, FIRST_ADDED + 3);
    assert.equal(inside.encode('[PAD0]').length, 6);
  });

  it('keeps tokens whose texts are names of JavaScript', async () => {
    const more = ['__proto__', 'constructor', '12'].map((token) => ({ token, type: 4 }));
    const tokenizer = await tokenizerOf(byteLevelKeys({}, more));
    assert.deepEqual(tokenizer.encode('__proto__constructor12'), [FIRST_ADDED, FIRST_ADDED + 1, FIRST_ADDED + 2]);
  });

  it('counts the first of two equal merges', async () => {
    const more = ['ab', 'bc'].map((token) => ({ token, type: 1 }));
    const tokenizer = await tokenizerOf(byteLevelKeys({ merges: ['a b', 'b c', 'a b'] }, more));
    assert.equal(tokenizer.encode('abc')[0], FIRST_ADDED);
  });

  it('knows control tokens by their ids where the file has no types', async () => {
    const tokenizer = await tokenizerOf(byteLevelKeys({ token_type: undefined }));
    assert.deepEqual(
      [0, 1, 2, 3].map((id) => tokenizer.isSpecial(id)),
      [true, true, false, false],
    );
  });
});

describe("the ends of a GGUF file's answers", () => {
  it('are the ids that the file names, its own end first', () => {
    assert.deepEqual(ggufEndTokens(byteLevelKeys({ eos_token_id: 2, eot_token_id: 0, eom_token_id: 2 })), [2, 0, 1]);
    assert.deepEqual(ggufEndTokens(new Map()), []);
  });

  it('are control tokens with known texts', () => {
    assert.deepEqual(endsOf(['<|im_end|>', '<|im_start|>', '<|endoftext|>', '[EOS]']), [
      '<|end|>',
      '<|im_end|>',
      '<|endoftext|>',
      '[EOS]',
    ]);
    assert.deepEqual(endsOf(['</s>'], {}, 1), ['<|end|>'], 'an ordinary word');
    assert.deepEqual(endsOf(['<|im_end|>'], {}, 4), ['<|end|>', '<|im_end|>'], 'as old files have it');
  });

  it('are not the ends of parts', () => {
    assert.deepEqual(endsOf(['<|return|>', '<|call|>']), ['<|return|>', '<|call|>']);
    assert.deepEqual(endsOf(['<|flush|>', '<|calls|>'], { eot_token_id: 1 }), ['<|flush|>', '<|calls|>']);
    assert.deepEqual(endsOf(['<|return|>']), ['<|end|>', '<|return|>']);
    assert.deepEqual(endsOf(['</s>', '<|tool_response>']), ['<|end|>', '<|tool_response>']);
  });

  it('refuse ids that the vocabulary does not have', () => {
    assert.throws(
      () => ggufEndTokens(byteLevelKeys({ eot_token_id: 9999 }), 'model.gguf'),
      (error) =>
        error instanceof OdmoeError && error.code === 'MODEL_CORRUPT' && /eot_token_id is 9999/.test(error.message),
    );
  });
});
