import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { StreamingDetokenizer } from '../../engine/generation/streaming-detokenizer.js';
import { loadTokenizer, openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const PLAIN = { values: {}, wallMs: Date.UTC(2031, 5, 15, 12) };

const demoModel = join(packageRoot(), 'models', 'demo');

describe('the tokenizer reader', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-tokenizer-'));
    for (const name of ['tokenizer.json', 'tokenizer_config.json'])
      await cp(join(demoModel, name), join(directory, name));
  });
  afterEach(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  async function writeConfig(change: Record<string, unknown>): Promise<void> {
    const config = JSON.parse(await readFile(join(demoModel, 'tokenizer_config.json'), 'utf8')) as object;
    await writeFile(join(directory, 'tokenizer_config.json'), JSON.stringify({ ...config, ...change }));
  }

  async function refusal(
    code: string,
    words: RegExp,
    act: () => unknown = () => loadTokenizer(directory),
  ): Promise<void> {
    await assert.rejects(
      async () => act(),
      (error) => error instanceof OdmoeError && error.code === code && words.test(error.message),
    );
  }

  const hello = [{ role: 'user', content: 'hello' }];

  it('names the missing file and the action', async () => {
    await rm(join(directory, 'tokenizer.json'));
    await refusal('TOKENIZER_INVALID', /tokenizer\.json: no such file.*--prompt-token-ids/);
    assert.equal(await openTokenizer(directory), null);
  });

  it('refuses a truncated tokenizer.json', async () => {
    const whole = await readFile(join(directory, 'tokenizer.json'), 'utf8');
    await writeFile(join(directory, 'tokenizer.json'), whole.slice(0, whole.length / 2));
    await refusal('TOKENIZER_INVALID', /tokenizer\.json: not valid JSON/);
    await refusal('TOKENIZER_INVALID', /not valid JSON/, () => openTokenizer(directory));
  });

  for (const content of [
    '[]',
    '{}',
    '{"model": 3}',
    '{"model": {"type": "BPE"}}',
    '{"model": {"type": "Nonsense", "vocab": {}}}',
  ]) {
    it(`the tokenizer reader refuses a tokenizer.json with the content ${content}`, async () => {
      await writeFile(join(directory, 'tokenizer.json'), content);
      await refusal('TOKENIZER_INVALID', /tokenizer\.json: not a tokenizer/);
    });
  }

  it('refuses a chat template that does not parse, or is no text', async () => {
    await writeConfig({ chat_template: '{% for message in %}' });
    await refusal('TOKENIZER_INVALID', /chat template .* cannot be parsed/);
    await writeConfig({ chat_template: 7 });
    await refusal('TOKENIZER_INVALID', /chat_template/);
  });

  it('takes the template named default from a list', async () => {
    const named = [
      { name: 'tool_use', template: 'tools' },
      { name: 'default', template: '[{{ messages[0].content }}]{{ eos_token }}' },
    ];
    await writeConfig({ chat_template: named });
    assert.equal((await loadTokenizer(directory)).renderChat(hello, PLAIN), '[hello]<|end|>');
  });

  it('prefers chat_template.jinja, and passes tokens that are objects', async () => {
    await writeConfig({ bos_token: { content: '<|bos|>', lstrip: false } });
    await writeFile(join(directory, 'chat_template.jinja'), '{{ bos_token }}jinja {{ messages[0]["content"] }}');
    assert.equal((await loadTokenizer(directory)).renderChat(hello, PLAIN), '<|bos|>jinja hello');
  });

  it('works without tokenizer_config.json, and then has no chat template', async () => {
    await rm(join(directory, 'tokenizer_config.json'));
    const tokenizer = await loadTokenizer(directory);
    assert.equal(tokenizer.hasChatTemplate, false);
    assert.equal(tokenizer.decode(tokenizer.encode('a small fox')), 'a small fox');
    await refusal('REQUEST_INVALID', /no chat template/, () => tokenizer.renderChat(hello, PLAIN));
  });

  it('stops an endless template', async () => {
    const loop = (variable: string, body: string): string =>
      `{% for ${variable} in range(100000) %}${body}{% endfor %}`;
    await writeConfig({ chat_template: loop('a', loop('b', loop('c', '{% set d = c %}'))) });
    const tokenizer = await loadTokenizer(directory);
    await refusal('TOKENIZER_INVALID', /had not ended after making and reading texts and lists of \d+ characters/, () =>
      tokenizer.renderChat(hello, PLAIN),
    );
  });

  it('stops a template whose numbers would fill the memory', async () => {
    await writeConfig({ chat_template: '{% for a in range(10000000000) %}{% endfor %}' });
    const tokenizer = await loadTokenizer(directory);
    await refusal('TOKENIZER_INVALID', /had not ended after/, () => tokenizer.renderChat(hello, PLAIN));
  });

  it('gives a template steps for each message, however long that takes', async () => {
    const loop = '{% for message in messages %}{% for a in range(200) %}{% set b = a %}{% endfor %}.{% endfor %}';
    await writeConfig({ chat_template: loop });
    const tokenizer = await loadTokenizer(directory);
    const messages = Array.from({ length: 4000 }, () => ({ role: 'user', content: 'x' }));
    assert.equal(tokenizer.renderChat(messages, PLAIN).length, 4000);
  });

  it('supports Jinja features that templates use: ranges, constants, the date, exceptions', async () => {
    const parts = [
      "{{ range(3) | join(',') }}",
      "{{ range(1, 4) | join(',') }}",
      "{{ range(6, 0, -2) | join(',') }}",
      '{% if true and True and not false and none is none %}yes{% endif %}',
      "{{ strftime_now('%Y') }}",
    ];
    await writeConfig({ chat_template: parts.join(' ') });
    assert.equal((await loadTokenizer(directory)).renderChat(hello, PLAIN), `0,1,2 1,2,3 6,4,2 yes 2031`);
  });

  it('gives the most bytes of text of a token, where there is a bound', async () => {
    const definition = JSON.parse(await readFile(join(demoModel, 'tokenizer.json'), 'utf8')) as {
      model: Record<string, unknown>;
      added_tokens: Record<string, unknown>[];
    };
    const bytesOf = async (changes: object): Promise<number> => {
      await writeFile(join(directory, 'tokenizer.json'), JSON.stringify({ ...definition, ...changes }));
      return (await loadTokenizer(directory)).longestTokenBytes;
    };
    const longest = await bytesOf({});
    const tokenizer = await loadTokenizer(directory);
    const texts = Array.from({ length: tokenizer.vocabularySize }, (_, id) => tokenizer.decode([id]));
    const longestText = Math.max(...texts.map((text) => Buffer.byteLength(text)));
    assert.ok(longest >= longestText && longest < 3 * longestText + 20, `${longest} for ${longestText}`);
    assert.equal(await bytesOf({ normalizer: { type: 'NFKC' } }), 4 * longest);
    const shorter = { type: 'Replace', pattern: { String: 'abcd' }, content: 'ab' };
    assert.equal(
      await bytesOf({ normalizer: { type: 'Sequence', normalizers: [{ type: 'NFC' }, shorter] } }),
      8 * longest,
    );
    const unbounded = [
      { normalizer: { type: 'Strip', strip_left: true, strip_right: true } },
      { normalizer: { type: 'Replace', pattern: { String: 'a' }, content: '' } },
      { pre_tokenizer: { type: 'Whitespace' } },
      { pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'Removed', invert: false } },
      { model: { ...definition.model, unk_token: '<|end|>', fuse_unk: true } },
      { added_tokens: [{ ...definition.added_tokens[0], rstrip: true }] },
    ];
    for (const changes of unbounded)
      assert.equal(await bytesOf(changes), Infinity, JSON.stringify(changes).slice(0, 80));
  });

  it("reports a template's own error about the messages", async () => {
    await writeConfig({ chat_template: "{{ raise_exception('roles must alternate') }}" });
    const tokenizer = await loadTokenizer(directory);
    await refusal('REQUEST_INVALID', /roles must alternate/, () => tokenizer.renderChat(hello, PLAIN));
  });
});

describe('a SentencePiece-like tokenizer with byte fallback', () => {
  let directory: string;
  let tokenizer: Tokenizer;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-tokenizer-'));
    await writeFile(join(directory, 'tokenizer.json'), JSON.stringify(byteFallbackTokenizer()));
    tokenizer = await loadTokenizer(directory);
  });
  after(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  it('adds the leading special token to a plain text, and none to a rendered one', () => {
    assert.equal(tokenizer.encode('ab')[0], 1);
    assert.notEqual(tokenizer.encodeRendered('ab')[0], 1);
    assert.equal(tokenizer.decode(tokenizer.encode('ab ba€')), 'ab ba€');
  });

  it('streams token texts that join to the text of all tokens, for any ids', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: tokenizer.vocabularySize }), { maxLength: 120 }), (tokenIds) => {
        const detokenizer = new StreamingDetokenizer(tokenizer);
        const texts = tokenIds.map((id) => detokenizer.push(id));
        assert.equal(texts.join('') + detokenizer.flush(), tokenizer.decode(tokenIds));
      }),
    );
  });
});

describe('the bytes of tokens', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-tokenizer-'));
  });
  after(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  async function tokenizerOf(definition: unknown): Promise<Tokenizer> {
    await writeFile(join(directory, 'tokenizer.json'), JSON.stringify(definition));
    return loadTokenizer(directory);
  }

  const lossy = new TextDecoder('utf-8', { ignoreBOM: true });

  /** For any ids, the joined bytes equal the decoded text, except for spaces that a decoder drops before the first word. */
  function requireSameText(tokenizer: Tokenizer, examples: number[][] = []): void {
    const ids = fc.array(fc.integer({ min: 0, max: tokenizer.vocabularySize + 3 }), { maxLength: 60 });
    fc.assert(
      fc.property(ids, (tokenIds) => {
        const shown = tokenIds.filter((id) => !tokenizer.isSpecial(id));
        const text = lossy.decode(Buffer.concat(shown.map((id) => tokenizer.tokenBytes(id))));
        const decoded = tokenizer.decode(shown);
        assert.ok(text === decoded || text === ` ${decoded}`, `${JSON.stringify(text)} for ${JSON.stringify(decoded)}`);
      }),
      { numRuns: 500, examples: examples.map((example) => [example] as [number[]]) },
    );
  }

  it('equal the decoded text, byte-level', async () => {
    const tokenizer = await loadTokenizer(demoModel);
    requireSameText(tokenizer);
    assert.equal(Buffer.from(tokenizer.tokenBytes(1)).toString(), '<|end|>');
    assert.equal(tokenizer.tokenBytes(5000).length, 0);
    const values = new Set<number>();
    for (let id = 0; id < tokenizer.vocabularySize; id++) {
      const bytes = tokenizer.tokenBytes(id);
      if (bytes.length === 1) values.add(bytes[0] ?? 0);
    }
    assert.equal(values.size, 256);
  });

  it('equal the decoded text, with byte fallback', async () => {
    const tokenizer = await tokenizerOf(byteFallbackTokenizer());
    const euro = [0xe2, 0x82, 0xac].map((byte) => byte + 3);
    requireSameText(tokenizer, [euro, [262, 0x0a + 3, 262], [262, 260, 263]]);
    assert.deepEqual([...tokenizer.tokenBytes(0x0a + 3)], [10]);
    assert.equal(Buffer.from(tokenizer.tokenBytes(262)).toString(), ' a');
    assert.equal(Buffer.from(tokenizer.tokenBytes(1)).toString(), '<s>');
  });

  it('equal the decoded text, by Metaspace, WordPiece and without a decoder', async () => {
    const definition = byteFallbackTokenizer() as Record<string, unknown>;
    for (const decoder of [
      { type: 'Metaspace', replacement: '\u2581', add_prefix_space: true, prepend_scheme: 'always' },
      { type: 'WordPiece', prefix: '##', cleanup: false },
      null,
    ]) {
      requireSameText(await tokenizerOf({ ...definition, decoder }));
    }
  });

  it('are the content of an added token that is not special, whatever the byte table says', async () => {
    const definition = JSON.parse(await readFile(join(demoModel, 'tokenizer.json'), 'utf8')) as {
      model: { vocab: Record<string, number> };
      added_tokens: Record<string, unknown>[];
    };
    const id = Object.keys(definition.model.vocab).length;
    const content = '<t\u00e9>';
    const added = { ...definition.added_tokens[0], id, content, special: false };
    const tokenizer = await tokenizerOf({ ...definition, added_tokens: [...definition.added_tokens, added] });
    assert.equal(Buffer.from(tokenizer.tokenBytes(id)).toString(), content);
    requireSameText(tokenizer, [[id, 5, id]]);
  });

  it('join to the text of the chat template', async () => {
    const tokenizer = await loadTokenizer(demoModel);
    const config = JSON.parse(await readFile(join(demoModel, 'tokenizer_config.json'), 'utf8')) as object;
    assert.equal(tokenizer.chatTemplateSource, (config as { chat_template?: string }).chat_template);
    assert.equal((await tokenizerOf(byteFallbackTokenizer())).chatTemplateSource, null);
  });
});

/** Llama's and Mixtral's form: spaces as U+2581, unknown characters as bytes, a leading space cut off the text. */
function byteFallbackTokenizer(): unknown {
  const texts = ['<unk>', '<s>', '</s>'];
  for (let byte = 0; byte < 256; byte++) texts.push(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  texts.push('\u2581', 'a', 'b', '\u2581a', 'ab');
  const vocab = Object.fromEntries(texts.map((text, id) => [text, id]));
  return {
    version: '1.0',
    added_tokens: [0, 1, 2].map((id) => ({ id, content: texts[id], special: true, normalized: false })),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        { type: 'Prepend', prepend: '\u2581' },
        { type: 'Replace', pattern: { String: ' ' }, content: '\u2581' },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      byte_fallback: true,
      fuse_unk: true,
      ignore_merges: false,
      vocab,
      merges: ['\u2581 a', 'a b'],
    },
  };
}
