import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { ChatMessage, GenerateRequest } from '../../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from '../../integration/harness/answers.js';
import { HttpCluster } from '../../integration/harness/http-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const QUESTION =
  'Once upon a time there was a girl named Cora. She lived near the barn and liked to eat soup. At noon it was rainy, and Cora walked to ' +
  'the tower. There she found a heavy purple scarf under a tree.\nWhere did Cora live?';
const ASKED = [{ role: 'user' as const, content: QUESTION }];
const WEATHER = {
  name: 'weather',
  description: 'The weather of a city.',
  input_schema: {
    type: 'object' as const,
    properties: { city: { type: 'string', maxLength: 12 }, days: { type: 'integer', minimum: 1, maximum: 9 } },
    required: ['city', 'days'],
    additionalProperties: false,
  },
};

/** All tokens of a prompt: the tokens that were run and those whose rows came from an earlier prompt. */
function promptTokens(usage: { input_tokens: number; cache_read_input_tokens: number | null }): number {
  return usage.input_tokens + (usage.cache_read_input_tokens ?? 0);
}

describe("the HTTP server for Anthropic's clients", function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let reference: LocalEngine;
  let client: Anthropic;
  let model: string;

  before(async () => {
    api = await HttpCluster.start({ workers: 2 });
    reference = await openReference('demo');
    model = reference.source.name;
    client = new Anthropic({ apiKey: 'none', baseURL: api.url, maxRetries: 0 });
  });

  after(async () => {
    await api.stop();
    reference.dispose();
  });

  function local(messages: ChatMessage[], changes: Partial<GenerateRequest>): Promise<CollectedAnswer> {
    const request = { text: '', messages, promptTokenIds: [], raw: false, sampling: null, stop: [], ignoreEos: false };
    return collect(
      reference.generate({ ...request, maxTokens: 40, logprobs: 0, ...changes }, new AbortController().signal),
    );
  }

  function textOf({ content }: Pick<Anthropic.Message, 'content'>): string {
    return content.map((block) => (block.type === 'text' ? block.text : '')).join('');
  }

  it('answers as one process does', async () => {
    const { data: message, response } = await client.messages
      .create({ model, max_tokens: 40, messages: ASKED, system: 'Be short.' })
      .withResponse();
    const messages = [{ role: 'system', content: 'Be short.' }, ...ASKED];
    const { started, tokens, finished } = await local(messages, {});
    assert.equal(textOf(message), finished.text);
    assert.equal(message.stop_reason, 'end_turn');
    assert.deepEqual(
      [promptTokens(message.usage), message.usage.output_tokens],
      [started.promptTokenIds.length, tokens.length],
    );
    assert.equal(message.model, model);
    assert.match(message.id, /^msg_/);
    assert.ok(response.headers.get('request-id'));
  });

  it('samples as one process does with the same seed', async () => {
    const extra: object = { seed: 11, min_p: 0.01 };
    const sampled = { temperature: 0.9, top_k: 30, top_p: 0.95, ...extra };
    const message = await client.messages.create({ model, max_tokens: 30, messages: ASKED, ...sampled });
    const sampling = { temperature: 0.9, topK: 30, topP: 0.95, minP: 0.01, repetitionPenalty: 1, seed: 11 };
    const { finished } = await local(ASKED, { maxTokens: 30, sampling });
    assert.equal(textOf(message), finished.text);
  });

  it('streams the same answer, event by event', async () => {
    const whole = await client.messages.create({ model, max_tokens: 40, messages: ASKED });
    const stream = client.messages.stream({ model, max_tokens: 40, messages: ASKED });
    const deltas: string[] = [];
    const types: string[] = [];
    stream.on('text', (text) => deltas.push(text));
    stream.on('streamEvent', ({ type }) => types.push(type));
    const message = await stream.finalMessage();
    assert.deepEqual(message.content, whole.content);
    assert.equal(deltas.join(''), textOf(whole));
    assert.ok(deltas.length > 3, 'the text comes in deltas');
    assert.equal(message.stop_reason, whole.stop_reason);
    assert.deepEqual(message.usage, whole.usage);
    assert.deepEqual([types[0], types.at(-1)], ['message_start', 'message_stop']);
    assert.ok(stream.request_id);
  });

  it('names the stop sequence that ended an answer, and the token limit', async () => {
    const { finished } = await local(ASKED, {});
    const words = finished.text.split(' ');
    const stop = words[2] ?? '';
    const stopped = await client.messages.create({
      model,
      max_tokens: 40,
      messages: ASKED,
      stop_sequences: ['zzz', stop],
    });
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', stop]);
    assert.equal(textOf(stopped), finished.text.slice(0, finished.text.indexOf(stop)));
    const short = await client.messages.create({ model, max_tokens: 2, messages: ASKED });
    assert.deepEqual([short.stop_reason, short.usage.output_tokens], ['max_tokens', 2]);
  });

  it('continues a last message of the assistant', async () => {
    const { finished } = await local(ASKED, {});
    const begun = finished.text.slice(0, finished.text.indexOf(' ', 6));
    const message = await client.messages.create({
      model,
      max_tokens: 40,
      messages: [...ASKED, { role: 'assistant', content: begun }],
    });
    assert.equal(begun + textOf(message), finished.text);
  });

  it('counts the tokens of a prompt', async () => {
    const asked = { model, messages: ASKED, system: 'Be short.', tools: [WEATHER] };
    const { input_tokens: counted } = await client.messages.countTokens(asked);
    const { usage } = await client.messages.create({ ...asked, max_tokens: 1 });
    assert.equal(counted, promptTokens(usage));
    const bare = await api.fetch('/messages/count_tokens', asked);
    assert.deepEqual(await bare.json(), { input_tokens: counted });
  });

  it('lists the model', async () => {
    const listed: string[] = [];
    for await (const { id, display_name } of client.models.list()) listed.push(id, display_name);
    assert.deepEqual(listed, [model, model]);
    assert.equal((await client.models.retrieve(model)).max_input_tokens, 2048);
    await assert.rejects(client.models.retrieve('claude'), (error) => {
      assert.ok(error instanceof Anthropic.NotFoundError);
      assert.equal(error.type, 'not_found_error');
      return true;
    });
  });

  it('goes on with the session of an agent that holds what the model cannot read', async () => {
    const shot = {
      type: 'image' as const,
      source: { type: 'base64' as const, media_type: 'image/png' as const, data: '' },
    };
    const session = {
      model,
      max_tokens: 8,
      tools: [WEATHER, { type: 'web_search_20250305' as const, name: 'web_search' as const }],
      thinking: { type: 'enabled' as const, budget_tokens: 1024 },
      messages: [
        { role: 'user' as const, content: [shot, { type: 'text' as const, text: 'Look.' }] },
        {
          role: 'assistant' as const,
          content: [
            { type: 'redacted_thinking' as const, data: 'gAAA' },
            { type: 'tool_use' as const, id: 'toolu_1', name: 'weather', input: { city: 'Rome', days: 1 } },
          ],
        },
        { role: 'user' as const, content: [{ type: 'tool_result' as const, tool_use_id: 'toolu_1', content: [shot] }] },
        // Claude Code puts reminders between turns.
        { role: 'system' as const, content: 'Be short.' } as unknown as Anthropic.MessageParam,
      ],
    };
    const whole = (await client.messages.create(session)) as Anthropic.Message & { warnings?: string[] };
    assert.deepEqual(
      whole.warnings?.map((warning) => warning.split(':')[0]),
      ['tools', 'thinking'],
    );
    const streamed: typeof whole = await client.messages.stream(session).finalMessage();
    assert.deepEqual([streamed.content, streamed.warnings], [whole.content, whole.warnings]);
    const blind = { ...session, messages: [{ role: 'user' as const, content: [shot] }] };
    await assert.rejects(client.messages.create(blind), /nothing that this model can read \(image\)/);
  });

  it("refuses invalid requests in Anthropic's form", async () => {
    await assert.rejects(client.messages.create({ model: 'claude', max_tokens: 5, messages: ASKED }), (error) => {
      assert.ok(error instanceof Anthropic.NotFoundError);
      assert.equal(error.type, 'not_found_error');
      assert.ok(error.requestID);
      return true;
    });
    const unknown: object = { wat: 1 };
    await assert.rejects(client.messages.create({ model, max_tokens: 5, messages: ASKED, ...unknown }), (error) => {
      assert.ok(error instanceof Anthropic.BadRequestError);
      assert.match(error.message, /wat/);
      return true;
    });
    await assert.rejects(
      client.messages.create({
        model,
        max_tokens: 5,
        messages: [{ role: 'user', content: 'long '.repeat(4000) }],
        stream: true,
      }),
      (error) => error instanceof Anthropic.BadRequestError && error.type === 'invalid_request_error',
    );
    const broken = await api.fetch('/v1/messages', '{"model": ');
    assert.equal(broken.status, 400);
    const body = (await broken.json()) as { type: string; error: { type: string }; request_id: string };
    assert.deepEqual([body.type, body.error.type], ['error', 'invalid_request_error']);
    assert.equal(body.request_id, broken.headers.get('x-request-id'));
    assert.equal(body.request_id, broken.headers.get('request-id'));
  });

  it('frees the sequence of a client that leaves', async () => {
    const stream = await client.messages.create({
      model,
      max_tokens: 1500,
      messages: ASKED,
      stream: true,
      stop_sequences: ['zzz'],
    });
    for await (const { type } of stream) {
      if (type !== 'content_block_delta') continue;
      break;
    }
    await waitUntil('no sequence is left', async () => (await api.cluster.status()).activeSequences === 0);
  });
});

describe("the HTTP server with keys for Anthropic's clients", function () {
  this.timeout(60_000);
  const key = 'a-key-of-the-test-1';

  it("admits a client with a key, and refuses others in Anthropic's form", async () => {
    const api = await HttpCluster.start({ workers: 0, apiKeys: [key] });
    try {
      const count = (apiKey: string): Promise<Anthropic.MessageTokensCount> =>
        new Anthropic({ apiKey, baseURL: api.url, maxRetries: 0 }).messages.countTokens({
          model: 'demo',
          messages: ASKED,
        });
      assert.ok((await count(key)).input_tokens > 0);
      await assert.rejects(count(`${key.slice(0, -1)}2`), (error) => {
        assert.ok(error instanceof Anthropic.AuthenticationError);
        assert.equal(error.type, 'authentication_error');
        assert.ok(error.requestID);
        return true;
      });
    } finally {
      await api.stop();
    }
  });
});
