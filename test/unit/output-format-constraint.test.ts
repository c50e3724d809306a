import assert from 'node:assert/strict';
import { Ajv } from 'ajv';
import { createOutputConstraint } from '../../engine/output-format/create-output-constraint.js';
import { PROPERTIES_LIMIT } from '../../engine/output-format/format-limits.js';
import {
  formatVocabulary,
  type TokenTexts,
  type TokenVocabulary,
} from '../../engine/output-format/format-vocabulary.js';
import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import type { OutputFormat, OutputPart } from '../../shared/wire/messages.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';
import { drawSchema } from './drawn-schemas.js';
import {
  answerAtRandom,
  type AnsweringVocabulary,
  constraintOf,
  idsOf,
  SMALL_SPECIAL,
  smallVocabulary,
  textOfAnswer,
} from './format-answers.js';

const ROOM = 1000;
const small = smallVocabulary();
const [END = 0] = small.endTokenIds;
const TOOL = END + 1;
const SAY = END + 2;

function sequence(...parts: OutputPart[]): OutputFormat {
  return { alternatives: [{ parts }] };
}

/** Most beginnings of one step, which are some milliseconds of work. */
const MOST_BEGINNINGS_A_STEP = 20_000;

/** Every byte, and all texts of up to four of twelve letters. */
function largeVocabulary(): AnsweringVocabulary & { vocabulary: TokenVocabulary } {
  let texts = [''];
  const all = [...Array(256).keys()].map((byte) => Buffer.of(byte));
  for (let length = 1; length <= 4; length++) {
    texts = texts.flatMap((text) => [...'abcdefghijkl'].map((letter) => text + letter));
    if (length > 1) all.push(...texts.map((text) => Buffer.from(text)));
  }
  const tokens: TokenTexts = { tokenBytes: (id) => all[id] ?? new Uint8Array(0), isSpecial: () => false };
  return { texts: tokens, vocabulary: formatVocabulary(tokens, all.length + 1), endTokenIds: [all.length] };
}

/** Any text that does not contain `without`. */
const textWithout = (without: string): OutputPart => ({
  kind: 'schemaText',
  schemaText: { jsonSchema: '{"type":"string"}', without },
});

const literal = (text: string): OutputPart => ({ kind: 'literal', literal: text });

/** Ids of the text's bytes. */
function bytesOf(text: string): number[] {
  return [...new TextEncoder().encode(text)];
}

function allowedAfter(constraint: OutputConstraint, answer: readonly number[], room = ROOM): number[] {
  const mask = runAtOnce(constraint.allowed(answer, room));
  assert.ok(mask !== null, 'the answer is not followed');
  return idsOf(mask);
}

describe('output formats', () => {
  it('accept a literal, of plain tokens or with special ones for their names, and then nothing', () => {
    const constraint = constraintOf(sequence(literal('<tool>ab')), small);
    const first = allowedAfter(constraint, []);
    assert.ok(first.includes(TOOL) && first.includes(0x3c) && !first.includes(SAY) && !first.includes(END));
    for (const answer of [[TOOL, ...bytesOf('ab')], bytesOf('<tool>ab')]) {
      assert.equal(constraint.isClosed(answer), true);
      assert.deepEqual(allowedAfter(constraint, answer), [END]);
      assert.equal(constraint.isClosed(answer.slice(0, -1)), false);
    }
    assert.equal(runAtOnce(constraint.allowed([TOOL, TOOL], ROOM)), null);
    assert.equal(runAtOnce(constraint.allowed([...bytesOf('<to'), TOOL], ROOM)), null);
    assert.equal(runAtOnce(constraint.allowed([END], ROOM)), null);
    assert.equal(constraint.isClosed([END]), false);
  });

  it('never accept a special token as text, in JSON or elsewhere, though its letters may come', () => {
    for (const part of [textWithout('#'), jsonFormat('{"type":"string"}')]) {
      const format = 'alternatives' in part ? part : sequence(part);
      const constraint = constraintOf(format, small);
      const answer = 'alternatives' in part ? [0x22] : [];
      const allowed = allowedAfter(constraint, answer);
      assert.ok(!allowed.includes(TOOL) && !allowed.includes(SAY));
      assert.notEqual(runAtOnce(constraint.allowed([...answer, ...bytesOf(SMALL_SPECIAL.join(''))], ROOM)), null);
    }
  });

  it('accept anything up to a text, special tokens too, and end with it', () => {
    const constraint = constraintOf(sequence({ kind: 'until', until: 'aab' }, literal('!')), small);
    for (const before of ['', 'x', 'a', 'aa', 'aaa', 'ab', '🦊aé', '"\n']) {
      const answer = bytesOf(`${before}aab`);
      assert.deepEqual(allowedAfter(constraint, answer), [0x21], before);
      assert.equal(constraint.isClosed([...answer, 0x21]), true);
    }
    assert.ok(allowedAfter(constraint, [TOOL, SAY]).includes(TOOL));
    assert.equal(runAtOnce(constraint.allowed([0xff], ROOM)), null);
    assert.equal(runAtOnce(constraint.allowed([0xf0, 0x61], ROOM)), null);
    assert.ok(!allowedAfter(constraint, [TOOL]).includes(END));
  });

  it('accept text without a character, and one of several alternatives', () => {
    const call = sequence(textWithout('<'), literal('<tool>'), {
      kind: 'jsonSchema',
      jsonSchema: '{"type":"integer","minimum":10,"maximum":12}',
    });
    const constraint = constraintOf(
      { alternatives: [...call.alternatives, { parts: [literal('none')] }, { parts: [] }] },
      small,
    );
    assert.equal(constraint.isClosed([]), false);
    assert.ok(allowedAfter(constraint, []).includes(END));
    // The text may continue, so "none" is complete and not closed.
    assert.ok(allowedAfter(constraint, bytesOf('none')).includes(END) && !constraint.isClosed(bytesOf('none')));
    assert.ok(!allowedAfter(constraint, bytesOf('nine')).includes(END));
    const number = allowedAfter(constraint, [...bytesOf('né'), TOOL]);
    assert.deepEqual(
      number.map((id) => Buffer.from(small.texts.tokenBytes(id)).toString()),
      ['1', '12'],
    );
    assert.equal(constraint.isClosed([...bytesOf('none'), TOOL, ...bytesOf('12')]), true);
    assert.equal(runAtOnce(constraint.allowed([...bytesOf('a'), TOOL, ...bytesOf('13')], ROOM)), null);
  });

  it('accept texts that match a schema and contain no end marker', () => {
    const end = '</a>';
    const cases: [object, string[], string[]][] = [
      [{ type: 'string' }, ['', 'a "b" \\ \n', '<a>', '<</a', 'é🦊'], ['</a>', 'b</a>', '<</a>c']],
      [{ enum: ['one', 'two "2"', 3] }, ['one', 'two "2"'], ['', 'on', 'ones', '3', '"one"']],
      [{ const: 'é' }, ['é'], ['e', '"é"']],
      [{ enum: ['one', 'three'], minLength: 4 }, ['three'], ['one']],
      [{ minLength: 2, maxLength: 4 }, ['éé', '</a', '🦊🦊🦊🦊'], ['', 'é', 'abcde', '</a>']],
      [{ maxLength: 100_000 }, ['', 'a'.repeat(400)], ['</a>']],
      [{ pattern: '^[a-z/<>]+$' }, ['a', '</b>', '<</a'], ['', 'A', 'a</a>']],
      [{ pattern: 'x', minLength: 3, maxLength: 3 }, ['axb', '<x>'], ['x', 'abc', 'axbc']],
      [{ anyOf: [{ const: 'a' }, { $ref: '#/$defs/b' }], $defs: { b: { const: 'b' } } }, ['a', 'b'], ['c']],
      [{ type: ['string', 'integer'], maxLength: 1 }, ['7', 'x'], ['77']],
    ];
    for (const [schema, taken, refused] of cases) {
      const part: OutputPart = {
        kind: 'schemaText',
        schemaText: { jsonSchema: JSON.stringify(schema), without: end },
      };
      const constraint = constraintOf(sequence(part, literal(end)), small);
      const takes = (text: string): boolean => constraint.isClosed(bytesOf(text + end));
      for (const text of taken) assert.ok(takes(text), `${JSON.stringify(schema)} does not take ${text}`);
      for (const text of refused) assert.ok(!takes(text), `${JSON.stringify(schema)} takes ${text}`);
      for (let seed = 0; seed < 20; seed++) {
        const drawn = answerAtRandom(constraint, small, 60, new SeededRandom(seed));
        const text = textOfAnswer(drawn.tokenIds, small);
        assert.equal(text.indexOf(end), text.length - end.length, text);
      }
    }
    const counted: OutputPart = {
      kind: 'schemaText',
      schemaText: { jsonSchema: '{"minLength":9,"maxLength":5000}', without: end },
    };
    for (const room of [13, 14, 17]) {
      const constraint = constraintOf(sequence(counted, literal(end)), small);
      for (let seed = 0; seed < 20; seed++) {
        assert.equal(answerAtRandom(constraint, small, room, new SeededRandom(seed)).end, 'closed');
      }
    }
  });

  it('may be objects with any of the allowed number of properties', () => {
    const keys = Array.from({ length: PROPERTIES_LIMIT }, (_, index) => `key${index}`);
    for (const additionalProperties of [false, true]) {
      const properties = Object.fromEntries(keys.map((key) => [key, { type: 'integer' }]));
      const format = jsonFormat(JSON.stringify({ properties, additionalProperties }));
      const constraint = constraintOf(format, small);
      for (const key of [keys[0], keys[250], keys.at(-2), keys.at(-1)]) {
        for (const text of [`{"${key}":1}`, `{\n  "${key}":1}`, `{"key0":0,"${key}":1}`, `{"key0":0,\n "${key}":1}`]) {
          const isAgain = key === 'key0' && text.includes(':0');
          assert.equal(constraint.isClosed(bytesOf(text)), !isAgain, text);
        }
      }
    }
  });

  it('have no hidden state: the allowed tokens depend on the answer and the room alone', () => {
    for (let seed = 0; seed < 25; seed++) {
      const text = JSON.stringify(drawSchema(new SeededRandom(seed)));
      const random = new SeededRandom(seed);
      let kept: OutputConstraint;
      try {
        kept = constraintOf(jsonFormat(text), small);
      } catch {
        continue;
      }
      const answers = [0, 1, 2].flatMap(() => {
        const { tokenIds } = answerAtRandom(kept, small, 30, random);
        return [tokenIds, tokenIds.slice(0, random.int(30)), [...tokenIds.slice(0, 3), random.int(260)]];
      });
      for (let count = 0; count < 10; count++) {
        const [answer, room] = [random.pick(answers), random.pick([0, 1, 5, 30, ROOM])];
        // A vocabulary of its own remembers nothing of other answers.
        const fresh = createOutputConstraint(
          jsonFormat(text),
          formatVocabulary(small.texts, small.vocabulary.vocabSize),
          [END],
        );
        const [expected, found] = [runAtOnce(fresh.allowed(answer, room)), runAtOnce(kept.allowed(answer, room))];
        assert.deepEqual(found === null ? null : idsOf(found), expected === null ? null : idsOf(expected), text);
        assert.equal(kept.isClosed(answer), fresh.isClosed(answer));
      }
    }
  });

  it('are complete within the least room that a matching text needs, and with any more', () => {
    const cases: [unknown, string][] = [
      [
        {
          type: 'object',
          properties: { a: { type: 'array', minItems: 2 }, b: { type: 'string' } },
          required: ['a', 'b'],
        },
        '{"a":[0,0],"b":""}',
      ],
      [{ type: 'string', minLength: 20, maxLength: 5000 }, `"${'a'.repeat(20)}"`],
      [{ type: 'string', pattern: '^(ab|cde)+x$' }, '"abx"'],
      [{ type: 'string', minLength: 6, maxLength: 9, pattern: 'b' }, `"aaaaab"`],
      [{ type: 'array', items: { enum: ['long one', 'short'] }, minItems: 3 }, '["short","short","short"]'],
      [{ type: 'object', properties: { n: { $ref: '#' } }, additionalProperties: { type: 'boolean' } }, '{}'],
      [
        { type: 'object', properties: { n: { anyOf: [{ $ref: '#' }, { type: 'null' }] } }, required: ['n'] },
        '{"n":null}',
      ],
      [{ type: 'integer', minimum: 12345 }, '12345'],
      [{ const: { 'é"': [1, null] } }, '{"é\\"":[1,null]}'],
    ];
    for (const [schema, shortest] of cases) {
      const validate = new Ajv({ strict: false }).compile(schema as object);
      const least = bytesOf(shortest).length;
      for (const room of [least, least + 1, least + 2, least + 7, least + 40]) {
        for (let seed = 0; seed < 10; seed++) {
          const constraint = constraintOf(jsonFormat(JSON.stringify(schema)), small);
          const { tokenIds } = answerAtRandom(constraint, small, room, new SeededRandom(seed));
          const text = textOfAnswer(tokenIds, small);
          assert.ok(validate(JSON.parse(text)), `${JSON.stringify(schema)} in ${room} tokens: ${text}`);
        }
      }
      // If no valid text fits into the room, the room has no effect.
      const constraint = constraintOf(jsonFormat(JSON.stringify(schema)), small);
      const free = allowedAfter(constraint, []);
      assert.deepEqual(allowedAfter(constraint, [], least - 1), free);
    }
  });

  it('end, however deep an answer nests', () => {
    const schemas = [
      {},
      { type: 'array', items: { $ref: '#' } },
      { type: 'object', properties: { a: { $ref: '#' } }, required: [] },
      {
        anyOf: [
          { type: 'array', items: { $ref: '#' } },
          { type: 'array', items: { $ref: '#' }, maxItems: 3 },
          { type: 'null' },
        ],
      },
    ];
    for (const schema of schemas) {
      const constraint = constraintOf(jsonFormat(JSON.stringify(schema)), small);
      const answer: number[] = [];
      while (!constraint.isClosed(answer)) {
        const allowed = allowedAfter(constraint, answer, 300 - answer.length);
        const next = [0x5b, 0x7b, 0x22, 0x61, 0x3a].find(
          (id) => allowed.includes(id) && (id !== 0x22 || answer.at(-1) !== 0x22),
        );
        answer.push(next ?? allowed[0] ?? assert.fail('no token is allowed'));
      }
      JSON.parse(textOfAnswer(answer, small));
    }
  });

  it('never lead where the vocabulary cannot continue', () => {
    const ascii = smallVocabulary([...Array(127).keys()].filter((byte) => byte !== 0x7d));
    const made = constraintOf(jsonFormat('{"type":"array","items":{"type":"string","maxLength":5}}'), ascii);
    for (let seed = 0; seed < 50; seed++) {
      const { tokenIds } = answerAtRandom(made, ascii, 60, new SeededRandom(seed));
      JSON.parse(textOfAnswer(tokenIds, ascii));
    }
    // Objects cannot be closed by a token of one byte.
    assert.throws(() => constraintOf(jsonFormat('{"type":"object"}'), ascii), {
      code: 'REQUEST_INVALID',
      message: /vocabulary/,
    });
    const either = constraintOf(jsonFormat('{"type":["object","null"]}'), ascii);
    assert.equal(textOfAnswer(answerAtRandom(either, ascii, 9, new SeededRandom(1)).tokenIds, ascii), 'null');
  });

  it('compute the tokens of a large vocabulary in parallel steps, with the same result', () => {
    const [large, other] = [largeVocabulary(), largeVocabulary()];
    const { tree } = large.vocabulary;
    const string = jsonFormat('{"type":"string"}');
    for (const room of [ROOM, 3]) {
      const [first, second] = [constraintOf(string, large), constraintOf(string, large)];
      const asked = [first.allowed([0x22], room), second.allowed([0x22, 0x61], room)] as const;
      let yields = 0;
      const masks: Uint8Array[] = [];
      for (const isDone = [false, false]; isDone.includes(false);) {
        for (const [index, work] of asked.entries()) {
          if (isDone[index] === true) continue;
          const { done, value } = work.next();
          isDone[index] = done === true;
          if (done === true) masks[index] = value ?? assert.fail('the answer is not followed');
          else yields += 1;
        }
      }
      assert.ok(yields >= (2 * tree.lastByte.length) / MOST_BEGINNINGS_A_STEP - 2, `${yields} steps`);
      const alone = constraintOf(string, other);
      for (const [index, answer] of [[0x22], [0x22, 0x61]].entries()) {
        assert.deepEqual(masks[index], runAtOnce(alone.allowed(answer, room)));
      }
    }
  });

  it('count the transitions of new states as work, too', () => {
    const properties = Object.fromEntries(Array.from({ length: PROPERTIES_LIMIT }, (_, index) => [`p${index}`, {}]));
    const constraint = constraintOf(jsonFormat(JSON.stringify({ type: 'object', properties })), small);
    const yields = [...constraint.allowed(bytesOf('{"p1":1,'), ROOM)].length;
    assert.ok(yields >= 1, 'a vocabulary of some hundred tokens needs no steps for its own sake');
  });
});
