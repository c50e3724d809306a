import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  type ExactJson,
  JsonFloat,
  jsonProperties,
  readExactJson,
  tryExactJson,
} from '../../shared/base/json/exact-json.js';
import { isJson } from '../../shared/base/json/is-json.js';
import { JsonText, jsonWithTexts } from '../../http-api/delivery/json-text.js';
import { plainJson } from './plain-json.js';

describe('the lossless JSON reader', () => {
  it('gives the result of JSON.parse, except for numbers and order', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), fc.constantFrom(0, 1, '\t'), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        assert.deepEqual(plainJson(readExactJson(text)), JSON.parse(text));
      }),
    );
  });

  it('refuses the texts that JSON.parse refuses', () => {
    const pieces = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '\\',
      '"a"',
      '1',
      '01',
      '-',
      '.5',
      '1e',
      '1.',
      ' ',
      '\n',
      'null',
      'nul',
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...pieces, '\u0001', '\\u00e', '+1', 'NaN', "'a'", '\ufeff')), (parts) => {
        const text = parts.join('');
        assert.equal(tryExactJson(text) !== null, isJson(text), JSON.stringify(text));
        assert.equal(jsonProperties(text) !== null, isJson(text) && /^\s*\{/.test(text), JSON.stringify(text));
      }),
    );
  });

  it('gives numbers as Python has them', () => {
    const numbers: [string, ExactJson][] = [
      ['12345678901234567890', 12345678901234567890n],
      ['-9007199254740993', -9007199254740993n],
      ['9007199254740991', 9007199254740991],
      ['-0', 0],
      ['1.0', new JsonFloat(1)],
      ['1E5', new JsonFloat(100_000)],
      ['-0.0', new JsonFloat(-0)],
      ['1e400', new JsonFloat(Infinity)],
    ];
    for (const [text, value] of numbers) assert.deepEqual(readExactJson(text), value, text);
    assert.throws(() => readExactJson('1'.repeat(5000)), /5000 digits/);
  });

  it('gives properties in written order, and the last of equal names at the place of the first', () => {
    const value = readExactJson('{"10": 1, "2": 2, "a": 3, "10": 4, "__proto__": 5}');
    assert.ok(value instanceof Map);
    assert.deepEqual(
      [...value],
      [
        ['10', 4],
        ['2', 2],
        ['a', 3],
        ['__proto__', 5],
      ],
    );
  });

  it('gives the texts of properties as they were written', () => {
    const properties = jsonProperties(' {"b": 1.0 , "1": {"x" : [1e3]}, "b": "\\u0041"} ');
    assert.deepEqual(
      properties?.map(({ key, text }) => [key, text]),
      [
        ['b', '"\\u0041"'],
        ['1', '{"x" : [1e3]}'],
      ],
    );
  });

  it('refuses lists that are nested without end', () => {
    assert.throws(() => readExactJson('['.repeat(100_000) + ']'.repeat(100_000)), /more than 512 lists/);
  });
});

describe('JSON with embedded texts', () => {
  it('equals the output of JSON.stringify where there are no texts', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
        const given = { value, list: [undefined, value], left: undefined };
        assert.equal(jsonWithTexts(given), JSON.stringify(given));
      }),
    );
  });

  it('writes a list of numbers at once, not one number after another', () => {
    const ids = Object.assign([1, 2.5, -0], { map: () => assert.fail('each number was written by itself') });
    assert.equal(jsonWithTexts({ tokens: ids }), '{"tokens":[1,2.5,0]}');
  });

  it('contains the texts unchanged, in one line', () => {
    const text = new JsonText('{"10": 1.0,\r\n "2": 12345678901234567890}');
    assert.equal(jsonWithTexts([{ input: text }]), '[{"input":{"10": 1.0,  "2": 12345678901234567890}}]');
  });
});
