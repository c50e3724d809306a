import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { Ollama } from 'ollama';
import { HttpCluster } from '../../integration/harness/http-cluster.js';
import { THINKING_TEMPLATE } from '../../integration/harness/thinking-template.js';

const ASKED = [{ role: 'user' as const, content: 'What is 3 plus 4?' }];
/** The model never learnt to end its thoughts: the format of the answer makes it, where its tokens run out. */
const SCHEMA = {
  type: 'object',
  properties: { sum: { enum: [7, 8] } },
  required: ['sum'],
  additionalProperties: false,
};
const ROOM = 60;

describe('the HTTP server with a reasoning model', function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let anthropic: Anthropic;
  let ollama: Ollama;

  before(async () => {
    api = await HttpCluster.start({ workers: 1, chatTemplate: THINKING_TEMPLATE });
    anthropic = new Anthropic({ apiKey: 'none', baseURL: api.url, maxRetries: 0 });
    ollama = new Ollama({ host: api.url });
  });

  after(() => api.stop());

  const asked = {
    model: 'demo',
    max_tokens: ROOM,
    messages: ASKED,
    output_config: { format: { type: 'json_schema' as const, schema: SCHEMA } },
  };

  it("sends reasoning in separate blocks to Anthropic's clients, streamed or not, and takes it back", async () => {
    const whole = await anthropic.messages.create({ ...asked, thinking: { type: 'enabled', budget_tokens: 1024 } });
    assert.deepEqual(
      whole.content.map(({ type }) => type),
      ['thinking', 'text'],
    );
    const [thought, said] = whole.content;
    assert.ok(thought?.type === 'thinking' && said?.type === 'text');
    assert.ok(thought.thinking.length > 0 && thought.signature.length > 0);
    assert.ok([7, 8].includes((JSON.parse(said.text) as { sum: number }).sum));
    const streamed = await anthropic.messages.stream({ ...asked, thinking: { type: 'adaptive' } }).finalMessage();
    assert.deepEqual(streamed.content, whole.content, 'adaptive is what the template does by itself');
    const again = await anthropic.messages.create({
      model: 'demo',
      max_tokens: 2,
      messages: [...ASKED, { role: 'assistant', content: whole.content }, ...ASKED],
    });
    assert.equal(again.usage.output_tokens, 2);
  });

  it("omits reasoning where Anthropic's clients want none", async () => {
    const plain = await anthropic.messages.create({ ...asked, thinking: { type: 'disabled' } });
    assert.deepEqual(
      plain.content.map(({ type }) => type),
      ['text'],
    );
  });

  it("sends reasoning separately to Ollama's clients, and omits it where they want none", async () => {
    const request = { model: 'demo', messages: ASKED, format: SCHEMA, options: { num_predict: ROOM } };
    const { message } = await ollama.chat({ ...request, think: true });
    assert.ok((message.thinking ?? '').length > 0);
    assert.ok([7, 8].includes((JSON.parse(message.content) as { sum: number }).sum));
    const streamed = { thinking: '', content: '' };
    for await (const part of await ollama.chat({ ...request, stream: true })) {
      streamed.thinking += part.message.thinking ?? '';
      streamed.content += part.message.content;
    }
    assert.deepEqual(streamed, { thinking: message.thinking, content: message.content });
    const quick = await ollama.chat({ ...request, think: false });
    assert.equal(quick.message.thinking, undefined);
    const generated = await ollama.generate({
      model: 'demo',
      prompt: ASKED[0]?.content ?? '',
      format: SCHEMA,
      think: true,
      options: request.options,
    });
    assert.deepEqual([generated.thinking, generated.response], [message.thinking, message.content]);
    const { capabilities } = await ollama.show({ model: 'demo' });
    assert.ok(capabilities.includes('thinking'));
  });
});

describe('the HTTP server, when main ends in mid-stream,', function () {
  this.timeout(120_000);
  const options = { prompt: 'Once', raw: true, options: { temperature: 2, seed: 1 } };

  it("informs Ollama's and Anthropic's clients, each in its own form", async () => {
    const api = await HttpCluster.start({ workers: 1 });
    try {
      const anthropic = new Anthropic({ apiKey: 'none', baseURL: api.url, maxRetries: 0 });
      const message = anthropic.messages.stream({
        model: 'demo',
        max_tokens: 1900,
        messages: ASKED,
        stop_sequences: ['zz'],
        temperature: 2,
      });
      const lines = await new Ollama({ host: api.url }).generate({ model: 'demo', ...options, stream: true });
      const read = async (): Promise<void> => {
        for await (const part of lines) assert.equal(part.done, false);
      };
      const begun = new Promise<void>((resolve) => message.once('streamEvent', () => resolve()));
      const gone = [
        assert.rejects(read(), /stopped/),
        assert.rejects(message.finalMessage(), /overloaded_error.*stopped/),
      ];
      await begun;
      await api.cluster.stopNode('main');
      await Promise.all(gone);
    } finally {
      await api.stop();
    }
  });
});
