import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { checkOutputFormat } from '../../engine/output-format/format-grammar.js';
import type { OutputPart } from '../../shared/wire/messages.js';
import { jsonFormat } from '../../shared/language/response-format.js';

function deep(levels: number): unknown {
  let schema: unknown = { type: 'null' };
  for (let level = 0; level < levels; level++) schema = { type: 'array', items: schema };
  return schema;
}

const REFUSED: [string, unknown, RegExp][] = [
  ['an unknown keyword', { contains: true }, /the keyword "contains" at \$ is not supported/],
  ['one in a property', { properties: { a: { items: { if: {} } } } }, /"if" at \$\.properties\.a\.items/],
  [
    'one in a definition that is used',
    { $ref: '#/$defs/a', $defs: { a: { dependentRequired: {} } } },
    /"dependentRequired" at \$\.\$defs\.a/,
  ],
  ['a format that is no text', { type: 'string', format: 1 }, /format at \$ is wrong/],
  ['a negation of some values', { not: { type: 'string' } }, /not at \$ is supported with/],
  [
    'options of a oneOf that overlap',
    { oneOf: [{ type: 'integer' }, { type: 'number' }] },
    /oneOf at \$ has options 0 and 1/,
  ],
  ['oneOf without options', { oneOf: [] }, /oneOf at \$ is wrong/],
  ['allOf of nothing', { allOf: [] }, /allOf at \$ is wrong/],
  [
    'a conjunction that contradicts itself',
    { allOf: [{ type: 'string' }, { type: 'null' }] },
    /no JSON value is taken/,
  ],
  ['a conjunction of itself', { allOf: [{ $ref: '#' }, { type: 'null' }] }, /no JSON value is taken/],
  [
    'an object with fewer keys than it must have',
    { properties: { a: true }, minProperties: 2, additionalProperties: false },
    /no JSON value is taken/,
  ],
  [
    'counts of keys that contradict',
    { minProperties: 3, maxProperties: 2 },
    /minProperties 3 is above maxProperties 2/,
  ],
  ['a multiple of 0', { multipleOf: 0 }, /multipleOf at \$ is wrong/],
  ['a multiple of many digits', { multipleOf: 12345678 }, /multipleOf at \$ has over/],
  ['no multiple within the bounds', { type: 'integer', multipleOf: 10, minimum: 1, maximum: 9 }, /no number lies/],
  ['a pattern of keys that is wrong', { patternProperties: { '(': true } }, /the pattern at \$\.patternProperties/],
  ['a type that is none', { type: 'float' }, /type at \$ is wrong/],
  ['no type of a list', { type: [] }, /type at \$ is wrong/],
  ['an enum that is no list', { enum: 'a' }, /enum at \$ is wrong/],
  ['an empty enum', { enum: [] }, /no value is taken at \$/],
  ['an enum of another type', { type: 'string', enum: [1, 2] }, /no value is taken at \$/],
  ['a const against an enum', { const: 1, enum: [2] }, /no value is taken at \$/],
  ['lengths that contradict', { minLength: 3, maxLength: 2 }, /minLength 3 is above maxLength 2/],
  ['counts that contradict', { minItems: 3, maxItems: 2 }, /minItems 3 is above maxItems 2/],
  ['bounds that contradict', { type: 'integer', minimum: 0.2, maximum: 0.8 }, /no number lies within/],
  ['excluded bounds that contradict', { type: 'number', exclusiveMinimum: 1, maximum: 1 }, /no number lies within/],
  [
    'a required key that is not allowed',
    { required: ['a'], additionalProperties: false },
    /"a" is required and not allowed/,
  ],
  [
    'a required property that is false',
    { properties: { a: false }, required: ['a'] },
    /"a" is required and not allowed/,
  ],
  ['a recursion without an end', { properties: { a: { $ref: '#' } }, required: ['a'] }, /no JSON value is taken/],
  ['a reference to itself', { $ref: '#' }, /no JSON value is taken/],
  [
    'a circle of references',
    { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } },
    /no JSON value/,
  ],
  ['a pattern that matches nothing', { pattern: 'a^b' }, /no JSON value is taken/],
  ['a pattern too short for its lengths', { type: 'string', pattern: '^ab$', minLength: 3 }, /no JSON value is taken/],
  ['a false schema', { anyOf: [false, { enum: [], type: 'null' }] }, /no value is taken at \$\.anyOf\[1\]/],
  ['a reference elsewhere', { $ref: 'https://example.com/a' }, /\$ref at \$ is "https:/],
  ['a reference to nothing', { $ref: '#/$defs/a' }, /\$ref at \$/],
  ['a reference by an anchor', { $ref: '#a' }, /\$ref at \$/],
  ['anyOf without options', { anyOf: [] }, /anyOf at \$ is wrong/],
  ['properties that are none', { properties: [] }, /properties at \$ is wrong/],
  ['required that is no list', { required: 'a' }, /required at \$ is wrong/],
  ['items that are none', { items: 1 }, /\$\.items is no JSON schema/],
  ['a length that is no count', { minLength: -1 }, /minLength at \$ is wrong/],
  ['a length that nobody writes', { minLength: 1e9 }, /minLength at \$ is wrong; it must be at most/],
  ['a bound that is a text', { minimum: '1' }, /minimum at \$ is wrong/],
  ['an excluded bound of draft 4', { minimum: 1, exclusiveMinimum: true }, /exclusiveMinimum at \$ is wrong/],
  ['a pattern with a lookbehind', { pattern: '(?<=a)b' }, /the pattern at \$ has a lookbehind/],
  [
    'patterns that are too much together',
    { anyOf: Array.from({ length: 400 }, (_, n) => ({ pattern: `^(a|b)*a(a|b){10}${n}$` })) },
    /with those before it, takes over/,
  ],
  ['a schema that is a text', 'string', /\$ is no JSON schema/],
  ['null', null, /\$ is no JSON schema/],
  ['a schema too deep', deep(200), /nests deeper than/],
  [
    'too many properties',
    { properties: Object.fromEntries(Array.from({ length: 501 }, (_, n) => [n, true])) },
    /over 500 keys/,
  ],
];

const TAKEN: [string, unknown][] = [
  [
    'a schema of annotations',
    { title: 'a', description: 'b', default: 1, examples: [], $schema: 'x', $id: 'y', $comment: 'z', strict: true },
  ],
  ['readOnly and others', { type: 'string', deprecated: true, readOnly: false, writeOnly: false }],
  ['keywords of other types', { type: 'integer', minLength: 5, maxLength: 1, properties: {} }],
  ['a contradiction in one of two types', { type: ['string', 'null'], minLength: 3, maxLength: 2 }],
  ['definitions that nobody names', { type: 'null', $defs: { a: { if: {} } } }],
  [
    'an optional property without a value',
    { type: 'object', properties: { a: false, b: { $ref: '#/$defs/x' } }, $defs: { x: { $ref: '#/$defs/x' } } },
  ],
  ['a reference with escapes', { $ref: '#/$defs/a~1b%25', $defs: { 'a/b%': { type: 'null' } } }],
  [
    'a type beside anyOf',
    { type: 'string', anyOf: [{ minLength: 1 }, { type: ['integer', 'string'] }, { type: 'null' }] },
  ],
  [
    'keys that objects have by nature',
    { type: 'object', properties: { constructor: true }, required: ['toString', 'constructor'] },
  ],
  ['large counts', { type: 'string', maxLength: 2 ** 53 }],
];

function check(schema: unknown): void {
  checkOutputFormat(jsonFormat(JSON.stringify(schema)));
}

describe('JSON schemas', () => {
  for (const [what, schema, words] of REFUSED) {
    it(`a JSON schema is refused for ${what}`, () => {
      assert.throws(
        () => check(schema),
        (thrown) => {
          assert.ok(thrown instanceof OdmoeError, String(thrown));
          assert.deepEqual([thrown.code, thrown.field], ['REQUEST_INVALID', 'sampling.output_format']);
          assert.match(thrown.message, words);
          return true;
        },
      );
    });
  }

  for (const [what, schema] of TAKEN) {
    it(`a JSON schema is accepted with ${what}`, () => {
      check(schema);
    });
  }

  it('are refused where they are no JSON, or too long', () => {
    assert.throws(() => checkOutputFormat(jsonFormat('{')), { code: 'REQUEST_INVALID', message: /no JSON/ });
    assert.throws(() => checkOutputFormat(jsonFormat('1e999')), { message: /too large a number/ });
    const long = JSON.stringify({ description: 'a'.repeat(300_000) });
    assert.throws(() => checkOutputFormat(jsonFormat(long)), { message: /262144 bytes/ });
  });

  it('are refused with a proper error, and at once, where they are nonsense', () => {
    const keywords = [
      'type',
      'properties',
      'required',
      'additionalProperties',
      'enum',
      'const',
      'anyOf',
      '$ref',
      '$defs',
      'items',
    ];
    const more = ['minItems', 'maxItems', 'minLength', 'maxLength', 'minimum', 'exclusiveMaximum', 'pattern', 'title'];
    const leaf = fc.oneof(
      fc.constantFrom(
        'string',
        'integer',
        'object',
        'array',
        '#',
        '#/$defs/a',
        '^a+$',
        '(',
        null,
        true,
        0,
        3,
        -1,
        1e300,
        0.5,
      ),
      fc.string({ maxLength: 6 }),
    );
    const { schema } = fc.letrec<{ schema: unknown }>((tie) => ({
      schema: fc.oneof(
        { depthSize: 'small' },
        leaf,
        fc.array(tie('schema'), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom(...keywords, ...more, 'a', '__proto__'), tie('schema'), { maxKeys: 4 }),
      ),
    }));
    let taken = 0;
    fc.assert(
      fc.property(schema, (drawn) => {
        try {
          check(drawn);
          taken += 1;
        } catch (thrown) {
          assert.ok(thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID', String(thrown));
        }
      }),
      { numRuns: 2000 },
    );
    assert.ok(taken > 20, `${taken} schemas were taken`);
  });
});

const schemaText = (schema: object, without: string): OutputPart => ({
  kind: 'schemaText',
  schemaText: { jsonSchema: JSON.stringify(schema), without },
});

describe('the parts of an output format', () => {
  const refused: [string, OutputPart[], RegExp][] = [
    ['an empty until', [{ kind: 'until', until: '' }], /until .* empty/],
    ['an empty text that may not be held', [schemaText({}, '')], /without .* 1 to 64/],
    ['a long text that may not be held', [schemaText({}, 'a'.repeat(65))], /without .* 1 to 64/],
    ['a text that only numbers are', [schemaText({ type: 'number' }, '<')], /no JSON value is taken/],
    ['a text of a list that holds what it may not', [schemaText({ enum: ['a<'] }, '<')], /no JSON value is taken/],
    ['a text of no schema', [schemaText({ oneOf: [] }, '<')], /oneOf/],
    ['half a character', [{ kind: 'literal', literal: '\ud800' }], /half a character/],
    ['a literal without an end', [{ kind: 'literal', literal: 'a'.repeat(20_000) }], /over 16384 characters/],
    [
      'too many parts',
      Array.from({ length: 1100 }, () => ({ kind: 'literal' as const, literal: 'a' })),
      /over 1024 parts/,
    ],
    [
      'patterns that are too much together, each in a schema of its own',
      Array.from({ length: 400 }, (_, n) => ({
        kind: 'jsonSchema' as const,
        jsonSchema: JSON.stringify({ pattern: `^(a|b)*a(a|b){10}${n}$` }),
      })),
      /with those before it, takes over/,
    ],
    [
      'numbers whose digits are too many together',
      [
        {
          kind: 'jsonSchema',
          jsonSchema: JSON.stringify({
            anyOf: Array.from({ length: 2000 }, (_, n) => ({ minimum: 5e-324, maximum: 1e307 * (1 + n / 1000) })),
          }),
        },
      ],
      /over 250000 states/,
    ],
    [
      'a wrong schema',
      [
        { kind: 'literal', literal: 'a' },
        { kind: 'jsonSchema', jsonSchema: '7' },
      ],
      /no JSON schema/,
    ],
  ];
  for (const [what, parts, words] of refused) {
    it(`the parts of an output format are refused for ${what}`, () => {
      assert.throws(() => checkOutputFormat({ alternatives: [{ parts }] }), {
        code: 'REQUEST_INVALID',
        message: words,
      });
    });
  }

  it('are refused without an alternative, or with too many', () => {
    assert.throws(() => checkOutputFormat({ alternatives: [] }), { message: /no alternatives/ });
    const alternatives = Array.from({ length: 1100 }, () => ({ parts: [] }));
    assert.throws(() => checkOutputFormat({ alternatives }), { message: /over 1024 alternatives/ });
  });
});
