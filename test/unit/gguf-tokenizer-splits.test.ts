import assert from 'node:assert/strict';
import * as tokenizersPackage from '@huggingface/tokenizers';
import * as fc from 'fast-check';
import { ggufTokenizerFiles } from '../../packs/gguf/gguf-tokenizer.js';
import { GGUF_SPLITS } from '../../packs/gguf/gguf-tokenizer-splits.js';
import { byteCharacters, byteLevelKeys, tokenizerOf } from './gguf-tokenizer-files.js';

/** The part of the engine that cuts a text; its own declarations name modules that TypeScript does not find. */
const { Tokenizer: Engine } = tokenizersPackage as unknown as {
  Tokenizer: new (
    definition: object,
    config: object,
  ) => {
    pre_tokenizer: (text: string, options: object) => string[];
    normalizer: ((text: string) => string) | null;
  };
};

const TEXT = "I'LL pay $1234.5\n\n  na\u00efve \u6771ABc's e\u0301e x=y;/\n\tend  ";

/** Words of TEXT, with signs for its spaces, one between two words. */
const CUTS: Readonly<Record<string, string>> = {
  default: "I|'|LL|_pay|_|$|123|4|.|5|\n\n_|_na\u00efve|_\u6771ABc|'|s|_e|\u0301|e|_x|=|y|;/|\n|\t|end|__",
  'gpt-2': "I|'|LL|_pay|_$|1234|.|5|\n\n_|_na\u00efve|_\u6771ABc|'s|_e|\u0301|e|_x|=|y|;/|\n|\t|end|__",
  smollm: "I|'|LL|_pay|_$|1|2|3|4|.|5|\n\n_|_na\u00efve|_\u6771ABc|'s|_e|\u0301|e|_x|=|y|;/|\n|\t|end|__",
  'llama-bpe': "I|'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/\n|\tend|__",
  glm4: "I|'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/\n|\tend|__",
  hunyuan: "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/\n|\tend|__",
  qwen35: "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e\u0301e|_x|=y|;/\n|\tend|__",
  'deepseek-llm': "I|'|LL|_pay|_$|1|2|3|4|.|5|\n|\n|_|_na|\u00ef|ve|_|\u6771|ABc|'|s|_e|\u0301|e|_x|=|y|;/|\n|\tend|__",
  'deepseek-coder': "I|'|LL|_pay|_$|1|2|3|4|.|5|\n|\n|_|_na\u00efve|_|\u6771|ABc|'|s|_e|\u0301|e|_x|=|y|;/|\n|\tend|__",
  'deepseek-v3': "I|'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_|\u6771|ABc|'s|_e\u0301e|_x|=y|;/\n|\tend|__",
  tekken: "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e\u0301e|_x|=y|;/\n|\tend|__",
  'gpt-4o': "I'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc's|_e\u0301e|_x|=y|;/\n|\tend|__",
  tiny_aya: "I'LL|_pay|_$|1|234|.|5|\n\n|_|_na\u00efve|_\u6771ABc's|_e\u0301e|_x|=y|;/\n|\tend|__",
  'kimi-k2': "I'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_|\u6771|ABc's|_e\u0301e|_x|=y|;/\n|\tend|__",
  bailingmoe: "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/\n|\tend|__",
  'seed-coder': "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/|\n|\tend|__",
  'exaone-moe': "I|'LL|_pay|_$|1|2|3|4|.|5|\n\n|_|_na\u00efve_\u6771ABc|'s|_e\u0301e_x|=y|;/\n|\tend|__",
  minicpm5: "I|'LL|_pay|_$|123|4|.|5|\n\n|_|_na\u00efve|_\u6771ABc|'s|_e|\u0301e|_x|=y|;/\n|\tend|__",
};

function engineOf(name: string): InstanceType<typeof Engine> {
  const files = ggufTokenizerFiles(byteLevelKeys({ pre: name }), 'model.gguf');
  return new Engine(files['tokenizer.json'], files['tokenizer_config.json']);
}

const BYTES = new Map(byteCharacters().map((character, byte) => [character, byte]));
function textOf(word: string): string {
  return Buffer.from([...word].map((character) => BYTES.get(character) ?? -1)).toString('utf8');
}

describe('the cuts that GGUF files name', () => {
  for (const [name, cut] of Object.entries(CUTS)) {
    it(`cuts a text as ${name}`, () => {
      const words = engineOf(name).pre_tokenizer(TEXT, {}).map(textOf);
      assert.deepEqual(words.join('|').replaceAll(' ', '_'), cut);
    });
  }

  it('has a text for every list of patterns', () => {
    const shown = new Set(Object.keys(CUTS).map((name) => GGUF_SPLITS.get(name)?.patterns.join('\n')));
    for (const [name, { patterns }] of GGUF_SPLITS) assert.ok(shown.has(patterns.join('\n')), name);
  });

  for (const [name, { composes }] of GGUF_SPLITS) {
    it(`loses nothing of a text as ${name}`, async () => {
      const tokenizer = await tokenizerOf(byteLevelKeys({ pre: name }));
      const texts = fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.string({
          unit: fc.constantFrom(
            ' ',
            '\n',
            '\t',
            "'",
            's',
            'LL',
            'e\u0301',
            '\u6771',
            '12',
            '\u00bd',
            '/',
            '\ud55c',
            '~',
          ),
        }),
      );
      fc.assert(
        fc.property(texts, (text) => {
          const expected = composes ? text.normalize('NFC') : text;
          assert.equal(tokenizer.decode(tokenizer.encode(text)), expected);
        }),
        { numRuns: 50 },
      );
    });
  }

  it('composes characters for the models whose makers do', () => {
    assert.equal(engineOf('qwen2').normalizer?.('e\u0301'), '\u00e9');
    assert.equal(engineOf('llama-bpe').normalizer, null);
  });

  it('keeps a word that is a token where the cut says so', async () => {
    const more = [{ token: 'abc', type: 1 }];
    const [whole, cut] = [
      await tokenizerOf(byteLevelKeys({ pre: 'llama-bpe', add_bos_token: false }, more)),
      await tokenizerOf(byteLevelKeys({ pre: 'dbrx' }, more)),
    ];
    assert.deepEqual(whole.encode('abc'), [259]);
    assert.equal(cut.encode('abc').length, 3);
  });
});
