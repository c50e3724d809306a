import assert from 'node:assert/strict';
import { z } from 'zod';
import { WARNINGS_LIMIT } from '../../http-api/conversation/bounded-warnings.js';
import { HttpCluster } from './harness/http-cluster.js';
import { THINKING_TEMPLATE } from './harness/thinking-template.js';
import {
  ANTHROPIC_MODEL,
  ANTHROPIC_MODELS,
  CHAT,
  CHAT_CHUNK,
  COMPLETION,
  COMPLETION_CHUNK,
  eventsOf,
  MESSAGE,
  MESSAGE_ERROR,
  MESSAGE_EVENT,
  OPENAI_ERROR,
  OPENAI_MODEL,
  OPENAI_MODELS,
  parsed,
  TOKEN_COUNT,
} from './harness/reply-forms.js';

const ASKED = { model: 'demo', max_tokens: 60, messages: [{ role: 'user', content: 'What is 3 plus 4?' }] };
const SCHEMA = {
  type: 'object',
  properties: { sum: { enum: [7, 8] } },
  required: ['sum'],
  additionalProperties: false,
};
const HOSTED = { type: 'web_search_20250305', name: 'web_search' };
const ANTHROPIC_TOOLS = { tools: [{ name: 'tell', input_schema: SCHEMA }, HOSTED], tool_choice: { type: 'any' } };
const OPENAI_TOOLS = {
  tools: [{ type: 'function', function: { name: 'tell', parameters: SCHEMA } }, { type: 'web_search' }],
  tool_choice: 'required',
};
const FORMAT = { format: { type: 'json_schema', schema: SCHEMA } };
const QUIET = { thinking: { type: 'disabled' } };

/** Requests to /v1/messages, each with the types of blocks of its answer. */
const MESSAGES: readonly [object, string[]][] = [
  [{ ...QUIET }, ['text']],
  [{ ...QUIET, stop_sequences: ['7', ' '] }, ['text']],
  [{ output_config: { ...FORMAT, effort: 'high' } }, ['thinking', 'text']],
  [{ ...QUIET, ...ANTHROPIC_TOOLS }, ['tool_use']],
];
/** How many warnings the request gets. */
function warned(changes: object): 1 | undefined {
  return 'tools' in changes || 'output_config' in changes ? 1 : undefined;
}

/** Requests to /v1/chat/completions. */
const CHATS: readonly object[] = [
  { enable_thinking: false, logprobs: true, top_logprobs: 2 },
  { enable_thinking: false, n: 2, max_tokens: 3 },
  { response_format: { type: 'json_schema', json_schema: { name: 's', schema: SCHEMA } } },
  { enable_thinking: false, ...OPENAI_TOOLS },
];

describe('answers have the forms that the schemas of clients take:', function () {
  this.timeout(120_000);
  let api: HttpCluster;

  before(async () => {
    api = await HttpCluster.start({ workers: 1, chatTemplate: THINKING_TEMPLATE });
  });

  after(() => api.stop());

  const ANTHROPIC = { headers: { 'anthropic-version': '2023-06-01' } };

  async function answer<Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    body?: object,
    { status = 200, ...init }: RequestInit & { status?: number } = {},
  ): Promise<z.infer<Schema>> {
    const response = await api.fetch(path, body, init);
    const given = await response.text();
    assert.equal(response.status, status, given);
    return parsed(schema, given);
  }

  async function streamed<Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    body: object,
  ): Promise<z.infer<Schema>[]> {
    const response = await api.fetch(path, { ...body, stream: true });
    return eventsOf(schema, await response.text());
  }

  it("Anthropic's messages", async () => {
    for (const [changes, types] of MESSAGES) {
      const message = await answer(MESSAGE, '/v1/messages', { ...ASKED, ...changes });
      assert.deepEqual(
        message.content.map(({ type }) => type),
        types,
      );
      assert.equal(message.warnings?.length, warned(changes));
    }
  });

  it("Anthropic's messages with a bounded number of warnings", async () => {
    const tools = Array.from({ length: 100 }, (_, index) => ({ type: `kind_${index}` }));
    const { warnings } = await answer(MESSAGE, '/v1/messages', { ...ASKED, max_tokens: 1, tools });
    assert.equal(warnings?.length, WARNINGS_LIMIT);
  });

  it("Anthropic's events", async () => {
    for (const [changes, types] of MESSAGES) {
      const events = await streamed(MESSAGE_EVENT, '/v1/messages', { ...ASKED, ...changes });
      const blocks = events.flatMap((event) =>
        event.type === 'content_block_start' ? [event.content_block.type] : [],
      );
      assert.deepEqual(blocks, types);
      const [first] = events;
      assert.ok(first?.type === 'message_start' && events.at(-1)?.type === 'message_stop');
      assert.equal(first.message.warnings?.length, warned(changes));
    }
  });

  it("Anthropic's counts, errors and models", async () => {
    const { model, messages } = ASKED;
    const counted = { model, messages };
    await answer(TOKEN_COUNT, '/v1/messages/count_tokens', counted);
    await answer(MESSAGE_ERROR, '/v1/messages', counted, { status: 400 });
    await answer(MESSAGE_ERROR, '/v1/messages', { ...ASKED, model: 'claude' }, { status: 404 });
    const { data } = await answer(ANTHROPIC_MODELS, '/v1/models', undefined, ANTHROPIC);
    assert.deepEqual(await answer(ANTHROPIC_MODEL, '/v1/models/demo', undefined, ANTHROPIC), data[0]);
    await answer(MESSAGE_ERROR, '/v1/models/claude', undefined, { ...ANTHROPIC, status: 404 });
  });

  it("OpenAI's chats", async () => {
    const seen = new Set<string>();
    for (const changes of CHATS) {
      const { choices, warnings } = await answer(CHAT, '/v1/chat/completions', { ...ASKED, ...changes });
      assert.equal(warnings?.length, warned(changes));
      for (const { message, logprobs } of choices) {
        for (const [name, value] of Object.entries({ ...message, logprobs })) if (value !== null) seen.add(name);
      }
    }
    assert.deepEqual([...seen].sort(), ['content', 'logprobs', 'reasoning_content', 'role', 'tool_calls']);
  });

  it("OpenAI's chunks", async () => {
    const seen = new Set<string>();
    for (const changes of CHATS) {
      const asked = { ...ASKED, ...changes, stream_options: { include_usage: true } };
      const chunks = await streamed(CHAT_CHUNK, '/v1/chat/completions', asked);
      assert.ok(chunks.at(-1)?.usage !== undefined);
      const [first, ...later] = chunks;
      assert.equal(first?.warnings?.length, warned(changes));
      assert.ok(later.every((chunk) => chunk.warnings === undefined));
      for (const { choices } of chunks) {
        for (const { delta, logprobs } of choices) {
          for (const [name, value] of Object.entries({ ...delta, logprobs })) if (value !== null) seen.add(name);
        }
      }
    }
    assert.deepEqual([...seen].sort(), ['content', 'logprobs', 'reasoning_content', 'role', 'tool_calls']);
  });

  it("OpenAI's text completions, errors and models", async () => {
    for (const changes of [{}, { logprobs: 2, echo: true }]) {
      const asked = { model: 'demo', prompt: 'Once', max_tokens: 4, ...changes };
      await answer(COMPLETION, '/v1/completions', asked);
      const usage = { stream_options: { include_usage: true } };
      assert.ok((await streamed(COMPLETION_CHUNK, '/v1/completions', { ...asked, ...usage })).length > 2);
    }
    await answer(OPENAI_ERROR, '/v1/chat/completions', { ...ASKED, wat: 1 }, { status: 400 });
    const { data } = await answer(OPENAI_MODELS, '/v1/models');
    assert.deepEqual(await answer(OPENAI_MODEL, '/v1/models/demo'), data[0]);
    await answer(OPENAI_ERROR, '/v1/models/gpt', undefined, { status: 404 });
  });
});
