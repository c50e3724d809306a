import assert from 'node:assert/strict';
import { z } from 'zod';
import ajvFormats from 'ajv-formats';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { answerAtRandom, constraintOf, smallVocabulary, textOfAnswer } from './format-answers.js';

const ROOM_TOKENS = 200;
const ANSWERS = 6;

/** Schemas that zod reads answers by; zod writes their JSON schemas itself. */
const WITH_ZOD: [string, z.ZodType][] = [
  [
    'strings of all formats',
    z.object({
      email: z.email(),
      uuid: z.uuid(),
      date: z.iso.date(),
      time: z.iso.datetime(),
      ipv4: z.ipv4(),
      ipv6: z.ipv6(),
      url: z.url(),
    }),
  ],
  ['a date and time with an offset', z.iso.datetime({ offset: true })],
  ['a duration', z.iso.duration()],
  ['texts by a pattern with lookaheads', z.string().regex(/^(?=.*\d)(?=.*[a-z])[a-z\d]{4,12}$/)],
  ['texts that start and end with something', z.string().startsWith('ab').endsWith('yz')],
  ['base64, a nanoid and a cuid', z.tuple([z.base64(), z.nanoid(), z.cuid2()])],
  ['emoji', z.emoji()],
  ['a template literal', z.templateLiteral(['v', z.number().int().min(1).max(99), z.enum(['a', 'b'])])],
  [
    'a discriminated union',
    z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('circle'), radius: z.number().positive() }),
      z.object({ kind: z.literal('square'), side: z.int().multipleOf(5) }),
    ]),
  ],
  [
    'a union and null',
    z.object({ a: z.union([z.string().max(4), z.int()]), b: z.boolean().nullable(), c: z.null().optional() }),
  ],
  ['an intersection', z.intersection(z.object({ a: z.int() }), z.object({ b: z.boolean() }))],
  ['a record', z.record(z.string().regex(/^[a-z]{1,8}$/), z.number().min(0).max(9))],
  ['a record with listed keys', z.record(z.enum(['left', 'right']), z.boolean())],
  ['a record with some of the listed keys', z.partialRecord(z.enum(['left', 'right']), z.boolean())],
  ['a tuple', z.tuple([z.int(), z.string().max(3)])],
  ['a tuple and a rest', z.tuple([z.int()], z.boolean())],
  [
    'a set as a list',
    z
      .array(z.enum(['a', 'b']))
      .min(1)
      .max(3),
  ],
  [
    'a strict object',
    z.strictObject({ name: z.string().min(1).max(20).describe('who'), age: z.int().gte(0).lt(150).default(1) }),
  ],
  ['a loose object', z.looseObject({ a: z.int() })],
  ['an object with a rest', z.object({ a: z.int() }).catchall(z.int())],
  [
    'a schema that refers to itself',
    z.object({
      name: z.string().max(5),
      get children() {
        return z.array(z.unknown()).max(0);
      },
    }),
  ],
  ['multiples', z.object({ five: z.int().multipleOf(5), half: z.number().multipleOf(0.5).min(-3).max(3) })],
];

const pet = (kind: string, more: object): object => ({
  type: 'object',
  title: kind,
  properties: { pet_type: { const: kind, enum: [kind], title: 'Pet Type', type: 'string' }, ...more },
  required: ['pet_type', ...Object.keys(more)],
});

/** Schemas as pydantic 2 and OpenAPI generators write them. */
const WRITTEN: [string, object, number?][] = [
  [
    'a discriminated union of models',
    {
      $defs: {
        Cat: pet('cat', { lives: { maximum: 9, minimum: 1, type: 'integer' } }),
        Dog: pet('dog', { name: { type: 'string', maxLength: 4 } }),
      },
      properties: {
        pet: {
          discriminator: { mapping: { cat: '#/$defs/Cat', dog: '#/$defs/Dog' }, propertyName: 'pet_type' },
          oneOf: [{ $ref: '#/$defs/Cat' }, { $ref: '#/$defs/Dog' }],
        },
      },
      required: ['pet'],
      title: 'Model',
      type: 'object',
    },
  ],
  [
    'dates, times, durations and uuids',
    {
      type: 'object',
      required: ['a', 'b', 'c', 'd', 'e'],
      properties: {
        a: { format: 'date', type: 'string' },
        b: { format: 'date-time', type: 'string' },
        c: { format: 'time', type: 'string' },
        d: { format: 'duration', type: 'string' },
        e: { format: 'uuid4', type: 'string' },
      },
    },
  ],
  ['an address of up to 2083 characters', { format: 'uri', maxLength: 2083, minLength: 1, type: 'string' }],
  [
    'a tuple',
    { type: 'array', minItems: 2, maxItems: 2, prefixItems: [{ type: 'integer' }, { type: 'string', maxLength: 3 }] },
  ],
  ['a set', { type: 'array', items: { type: 'string', maxLength: 2 }, uniqueItems: true, maxItems: 1 }],
  ['a mapping', { type: 'object', additionalProperties: { type: 'integer' }, minProperties: 1 }],
  [
    'a mapping by patterns',
    {
      type: 'object',
      patternProperties: { '^[a-z]+$': { type: 'integer' }, '^_': { type: 'boolean' } },
      additionalProperties: false,
    },
  ],
  [
    'an optional model with a default',
    {
      $defs: { A: { type: 'object', properties: { a: { type: 'integer' } } } },
      type: 'object',
      properties: { a: { anyOf: [{ $ref: '#/$defs/A' }, { type: 'null' }], default: null } },
    },
  ],
  [
    'a described reference',
    {
      $defs: { A: { type: 'string', enum: ['x', 'y'] } },
      type: 'object',
      properties: { a: { $ref: '#/$defs/A', description: 'which', default: 'x', minLength: 1 } },
      required: ['a'],
    },
  ],
  [
    'a model that inherits',
    {
      $defs: { Base: { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] } },
      allOf: [
        { $ref: '#/$defs/Base' },
        { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      ],
      unevaluatedProperties: false,
    },
  ],
  [
    'a tree',
    {
      $defs: {
        Node: {
          type: 'object',
          properties: { value: { type: 'integer' }, next: { anyOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }] } },
          required: ['value', 'next'],
        },
      },
      allOf: [{ $ref: '#/$defs/Node' }],
      description: 'root',
    },
  ],
  [
    'a tree that inherits',
    {
      $defs: {
        Node: {
          allOf: [
            { type: 'object', properties: { value: { type: 'integer' } }, required: ['value'] },
            {
              type: 'object',
              properties: { next: { oneOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }] } },
              required: ['next'],
            },
          ],
        },
      },
      $ref: '#/$defs/Node',
    },
  ],
  [
    'a text that may be null',
    {
      type: 'object',
      properties: { a: { type: 'string', nullable: true, example: 'x', 'x-order': 1, maxLength: 3 } },
      required: ['a'],
    },
  ],
  [
    'either of two keys',
    {
      type: 'object',
      properties: { a: { type: 'integer' }, b: { type: 'integer' } },
      oneOf: [{ required: ['a'] }, { required: ['b'] }],
      additionalProperties: false,
    },
  ],
];

describe('JSON schemas that libraries write', () => {
  const small = smallVocabulary();

  function answersTo(schema: object): string[] {
    return Array.from({ length: ANSWERS }, (_, seed) => {
      const constraint = constraintOf(jsonFormat(JSON.stringify(schema)), small);
      return textOfAnswer(answerAtRandom(constraint, small, ROOM_TOKENS, new SeededRandom(seed)).tokenIds, small);
    });
  }

  for (const [what, type] of WITH_ZOD) {
    it(`get answers that zod reads: ${what}`, () => {
      for (const text of answersTo(z.toJSONSchema(type))) {
        const read = type.safeParse(JSON.parse(text));
        assert.ok(read.success, `${text}: ${read.error?.message}`);
      }
    });
  }

  for (const [what, schema] of WRITTEN) {
    it(`get answers that follow ${what}`, () => {
      const ajv = new Ajv2020({ strict: false, logger: false });
      ajvFormats.default(ajv);
      const validate = ajv.compile(schema);
      for (const text of answersTo(schema)) assert.ok(validate(JSON.parse(text)), text);
    });
  }
});
