import assert from 'node:assert/strict';
import { jsonFormat, outputFormatOf } from '../../shared/language/response-format.js';

describe('response_format of the OpenAI API', () => {
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

  it('requests text, a JSON object, or JSON that follows a schema', () => {
    assert.equal(outputFormatOf('{"type":"text"}'), null);
    assert.deepEqual(outputFormatOf('{"type":"json_object"}'), jsonFormat('{"type":"object"}'));
    const described = { name: 'place', description: 'of it', strict: true, schema };
    for (const json_schema of [{ schema }, described]) {
      const given = JSON.stringify({ type: 'json_schema', json_schema });
      assert.deepEqual(outputFormatOf(given), jsonFormat(JSON.stringify(schema)));
    }
  });

  it('keeps the digits and the order of a schema', () => {
    const written = '{"enum": [12345678901234567890, 1.0, {"b": 1, "10": 2, "2": 3}]}';
    const given = `{"type":"json_schema","json_schema":{"schema":${written}}}`;
    assert.deepEqual(outputFormatOf(given), jsonFormat(written));
  });

  it("is refused by the field's name for any other value", () => {
    const wrong: [unknown, string][] = [
      ['json_object', 'response_format'],
      [[], 'response_format'],
      [{}, 'response_format.type'],
      [{ type: 'grammar' }, 'response_format.type'],
      [{ type: 'json_object', schema }, 'response_format.schema'],
      [{ type: 'json_schema' }, 'response_format.json_schema'],
      [{ type: 'json_schema', json_schema: { name: 'a' } }, 'response_format.json_schema.schema'],
      [{ type: 'json_schema', json_schema: { schema: [] } }, 'response_format.json_schema.schema'],
      [{ type: 'json_schema', json_schema: { schema, grammar: 'x' } }, 'response_format.json_schema.grammar'],
    ];
    for (const [given, field] of wrong) {
      const text = JSON.stringify(given);
      assert.throws(() => outputFormatOf(text), { code: 'REQUEST_INVALID', field }, text);
    }
    assert.throws(() => outputFormatOf('{"type":'), { field: 'response_format' });
  });
});
