import assert from 'node:assert/strict';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { jsonFormat } from '../../shared/language/response-format.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';

const SCHEMAS: object[] = [
  { type: 'object' },
  {
    type: 'object',
    properties: {
      name: { type: 'string', minLength: 2, maxLength: 12 },
      age: { type: 'integer', minimum: 0, maximum: 120 },
      tags: { type: 'array', items: { type: 'string', pattern: '^[a-z]{1,8}$' }, minItems: 1, maxItems: 3 },
    },
    required: ['name', 'tags'],
    additionalProperties: false,
  },
  { anyOf: [{ type: 'null' }, { type: 'array', items: { $ref: '#' }, maxItems: 2 }] },
  { enum: ['red', 'green', { mixed: ['blue', 1.5] }] },
  { type: 'number', exclusiveMinimum: 0, maximum: 0.5 },
];

describe('the demo model answers by JSON schemas at temperature 2', () => {
  let engine: LocalEngine;
  before(async () => {
    engine = await LocalEngine.open(join(packageRoot(), 'models', 'demo'), {
      device: { backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0 },
      emulation: null,
      resident: null,
      shadow: null,
      prefillRows: 64,
      onProgress: null,
      chooseSeed: () => 5,
      environment: realDevices(),
    });
  });
  after(() => {
    engine.dispose();
  });

  async function answer(schema: object, seed: number): Promise<{ text: string; tokens: number }> {
    const request: GenerateRequest = {
      text: 'Tell me about a fox.',
      messages: [],
      promptTokenIds: [],
      raw: false,
      stop: [],
      maxTokens: 60,
      ignoreEos: false,
      logprobs: 0,
      sampling: {
        temperature: 2,
        topK: 0,
        topP: 0,
        minP: 0,
        repetitionPenalty: 0,
        seed,
        outputFormat: jsonFormat(JSON.stringify(schema)),
      },
    };
    let [text, tokens] = ['', 0];
    for await (const reply of engine.generate(request, new AbortController().signal)) {
      if (reply.kind !== 'token') continue;
      text += reply.token.text;
      tokens += 1;
    }
    return { text, tokens };
  }

  for (const schema of SCHEMAS) {
    it(`the demo model's answers validate against the JSON schema ${JSON.stringify(schema).slice(0, 80)}`, async () => {
      const validate = new Ajv({ strict: false }).compile(schema);
      for (let seed = 1; seed <= 4; seed++) {
        const { text, tokens } = await answer(schema, seed);
        assert.ok(tokens <= 60 && validate(JSON.parse(text)), `seed ${seed}: ${text}`);
      }
    });
  }

  it('that are the same for the same seed', async () => {
    const [schema = {}] = SCHEMAS;
    assert.deepEqual(await answer(schema, 9), await answer(schema, 9));
  });
});
