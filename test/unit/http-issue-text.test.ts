import assert from 'node:assert/strict';
import { z } from 'zod';
import { fieldReader } from '../../http-api/fields/field-table.js';
import { SAMPLING_FIELDS } from '../../http-api/fields/sampling-fields.js';

const read = fieldReader({
  done: {
    ...SAMPLING_FIELDS,
    text: z.string().min(1),
    count: z.int().min(0).max(9).optional(),
    flag: z.boolean().optional(),
    list: z.array(z.string()).min(2).max(3).optional(),
    choice: z.enum(['a', 'b']).optional(),
    either: z.union([z.boolean(), z.enum(['low', 'high'])]).optional(),
    object: z.record(z.string(), z.unknown()).optional(),
    nested: z.strictObject({ name: z.string() }).optional(),
  },
  ignored: [],
  neutral: {},
  refused: {},
});

describe('the message for a wrong field:', () => {
  for (const [body, message] of [
    [{}, 'text: it is missing; it must be a text'],
    [{ text: 5 }, 'text: it must be a text'],
    [{ text: '' }, 'text: it must be at least 1 character long'],
    [{ text: 'x', count: 'four' }, 'count: it must be a number'],
    [{ text: 'x', count: 1.5 }, 'count: it must be a whole number'],
    [{ text: 'x', count: -1 }, 'count: it must be at least 0'],
    [{ text: 'x', count: 10 }, 'count: it must be at most 9'],
    [{ text: 'x', flag: 'yes' }, 'flag: it must be true or false'],
    [{ text: 'x', list: {} }, 'list: it must be a list'],
    [{ text: 'x', list: ['x'] }, 'list: it must be a list of at least 2 entries'],
    [{ text: 'x', list: ['x', 'x', 'x', 'x'] }, 'list: it must be a list of at most 3 entries'],
    [{ text: 'x', list: ['x', 1] }, 'list[1]: it must be a text'],
    [{ text: 'x', choice: 'c' }, 'choice: it must be "a" or "b"'],
    [{ text: 'x', either: 'middling' }, 'either: it must be true or false or "low" or "high"'],
    [{ text: 'x', object: [] }, 'object: it must be an object'],
    [{ text: 'x', nested: {} }, 'nested.name: it is missing; it must be a text'],
    [{ text: 'x', stop: 5 }, 'stop: it must be a text or a list'],
    [{ text: 'x', logit_bias: { five: 1 } }, 'logit_bias.five: the names must be token ids'],
    [{ text: 'x', temperature: '1' }, 'temperature: it must be a number'],
  ] as const) {
    it(`the body ${JSON.stringify(body)} is refused with the message: ${message}`, () => {
      assert.throws(() => read(body), { code: 'REQUEST_INVALID', message });
    });
  }
});
