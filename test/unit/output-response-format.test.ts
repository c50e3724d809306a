import assert from 'node:assert/strict';
import { jsonFormat, outputFormatOf } from '../../shared/output-format/response-format.js';

describe('response_format of the OpenAI API', () => {
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

  it('asks for text, for a JSON object, or for JSON after a schema', () => {
    for (const any of [undefined, null, { type: 'text' }]) assert.equal(outputFormatOf(any), null);
    assert.deepEqual(outputFormatOf({ type: 'json_object' }), jsonFormat('{"type":"object"}'));
    const described = { name: 'place', description: 'of it', strict: true, schema };
    for (const json_schema of [{ schema }, described]) {
      assert.deepEqual(outputFormatOf({ type: 'json_schema', json_schema }), jsonFormat(JSON.stringify(schema)));
    }
  });

  it('is refused, naming the field, where it is something else', () => {
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
      assert.throws(() => outputFormatOf(given), { code: 'REQUEST_INVALID', field }, JSON.stringify(given));
    }
    assert.throws(() => outputFormatOf(1, 'text.format'), { field: 'text.format' });
  });
});
