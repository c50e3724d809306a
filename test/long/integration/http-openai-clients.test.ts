import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import OpenAI from 'openai';
import { z } from 'zod';
import { HttpCluster } from '../../integration/harness/http-cluster.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const run = promisify(execFile);
const PROMPT = 'Tell me a story about a fox.';
const MESSAGES = [{ role: 'user' as const, content: PROMPT }];

/** Takes tools and reads calls as many models do. */
const TOOL_TEMPLATE =
  '<|bos|>{% if tools %}<|user|>\n{{ tools | tojson }} <tool_call></tool_call><|end|>\n{% endif %}' +
  "{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>\n{{ message['content'] }}" +
  '{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}<|end|>\n' +
  "{% else %}<|user|>\n{{ message['content'] }}<|end|>\n{% endif %}{% endfor %}" +
  '{% if add_generation_prompt %}<|assistant|>\n{% endif %}';

const ADD = {
  type: 'function' as const,
  function: {
    name: 'add',
    description: 'Adds two numbers.',
    parameters: {
      type: 'object',
      properties: { a: { type: 'integer', minimum: 0, maximum: 99 }, sign: { enum: ['plus', 'minus'] } },
      required: ['a', 'sign'],
      additionalProperties: false,
    },
  },
};
const addArguments = z.strictObject({ a: z.int().min(0).max(99), sign: z.enum(['plus', 'minus']) });

describe('the HTTP client', function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let client: OpenAI;

  before(async () => {
    const main = { main: { maxActiveSequences: 2, maxQueuedRequests: 1 } };
    api = await HttpCluster.start({ workers: 1, chatTemplate: TOOL_TEMPLATE, main });
    client = new OpenAI({ baseURL: `${api.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });

  after(() => api.stop());

  describe('openai, with tools and formats,', () => {
    for (const choice of ['required', { type: 'function', function: { name: 'add' } }] as const) {
      it(`gets a valid call where ${typeof choice === 'string' ? 'one' : 'that one'} is required`, async () => {
        const question = { model: 'demo', messages: MESSAGES, tools: [ADD], tool_choice: choice, max_tokens: 120 };
        const answer = await client.chat.completions.create({ ...question, temperature: 2, seed: 3 });
        const [given] = answer.choices;
        assert.equal(given?.finish_reason, 'tool_calls');
        assert.equal(given.message.content, null);
        const [call] = given.message.tool_calls ?? [];
        assert.ok(call?.type === 'function');
        assert.equal(call.function.name, 'add');
        addArguments.parse(JSON.parse(call.function.arguments));
        const streamed = client.chat.completions.stream({ ...question, temperature: 2, seed: 3 });
        const whole = await streamed.finalChatCompletion();
        const [again] = whole.choices[0]?.message.tool_calls ?? [];
        assert.deepEqual([again?.id, again?.function], [call.id, call.function]);
      });
    }

    it('gets an error for a schema that cannot be followed', async () => {
      const schema = { type: 'object', properties: { a: { type: 'string', format: 'no-such-format' } }, not: {} };
      const asked = client.chat.completions.create({
        model: 'demo',
        messages: MESSAGES,
        response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
      });
      await assert.rejects(asked, { status: 400, param: 'response_format' });
    });
  });

  describe('openai, in its retries,', () => {
    /** Counts requests, and makes the client wait less than the reply says. */
    function counting(statuses: (number | string | null)[][]): typeof fetch {
      return async (input, init) => {
        const answer = await fetch(input, init);
        const { status, headers } = answer;
        statuses.push([status, headers.get('retry-after'), headers.get('x-should-retry')]);
        const quick = new Headers(headers);
        quick.set('retry-after-ms', '1');
        return new Response(answer.body, { status, headers: quick });
      };
    }

    it('does not repeat an invalid request', async () => {
      const statuses: (number | string | null)[][] = [];
      const patient = new OpenAI({
        baseURL: `${api.url}/v1`,
        apiKey: 'none',
        maxRetries: 3,
        fetch: counting(statuses),
      });
      const asked = patient.chat.completions.create({ model: 'demo', messages: MESSAGES, temperature: -1 });
      await assert.rejects(asked, { status: 400, param: 'temperature' });
      assert.deepEqual(statuses, [[400, null, 'false']]);
    });

    it('repeats a request that found the queue full', async () => {
      const statuses: (number | string | null)[][] = [];
      const patient = new OpenAI({
        baseURL: `${api.url}/v1`,
        apiKey: 'none',
        maxRetries: 500,
        fetch: counting(statuses),
      });
      const gone = new AbortController();
      const endless = { model: 'demo', messages: MESSAGES, ignore_eos: true };
      const busy = Array.from({ length: 3 }, () =>
        client.chat.completions.create(endless as OpenAI.ChatCompletionCreateParamsNonStreaming, {
          signal: gone.signal,
        }),
      );
      const ended = Promise.allSettled(busy);
      await waitUntil('main is busy', async () => {
        const { activeSequences, queuedRequests } = await api.cluster.status();
        return activeSequences === 2 && queuedRequests === 1;
      });
      const asked = patient.chat.completions.create({ model: 'demo', messages: MESSAGES, max_tokens: 1 });
      await waitUntil('the client was refused', () => Promise.resolve(statuses.length > 0));
      gone.abort();
      assert.equal((await asked).choices[0]?.finish_reason, 'length');
      await ended;
      assert.deepEqual(statuses[0], [429, '5', null]);
      assert.equal(statuses.at(-1)?.[0], 200);
    });
  });

  it('openai gets an error when an answer fails in mid-stream', async () => {
    const other = await HttpCluster.start({ workers: 1 });
    try {
      const stopped = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: 'none', maxRetries: 0 });
      const stream = await stopped.chat.completions.create({
        model: 'demo',
        messages: MESSAGES,
        stream: true,
        ignore_eos: true,
      } as OpenAI.ChatCompletionCreateParamsStreaming);
      const read = async (): Promise<void> => {
        let chunks = 0;
        for await (const chunk of stream) {
          assert.equal(chunk.choices[0]?.finish_reason, null);
          if (++chunks === 4) void other.cluster.stopNode('main');
        }
      };
      await assert.rejects(read(), { code: 'no_main' });
    } finally {
      await other.stop();
    }
  });

  describe('curl', () => {
    const body = JSON.stringify({ messages: MESSAGES, max_tokens: 4 });

    before(async function () {
      await run('curl', ['--version']).catch(() => this.skip());
    });

    it('gets an answer by -d alone', async () => {
      const { stdout } = await run('curl', ['-sS', `${api.url}/v1/chat/completions`, '-d', body]);
      const answer = JSON.parse(stdout) as OpenAI.ChatCompletion;
      assert.equal(answer.usage?.completion_tokens, 4);
    });

    it('gets a stream, without the API prefix, too', async () => {
      const streamed = JSON.stringify({ ...(JSON.parse(body) as object), stream: true });
      const { stdout } = await run('curl', ['-sSNi', `${api.url}/chat/completions`, '-d', streamed]);
      assert.match(stdout, /content-type: text\/event-stream/i);
      assert.match(stdout, /x-request-id: /i);
      assert.ok(stdout.endsWith('data: [DONE]\n\n'), stdout.slice(-200));
      const events = stdout.split('\n\n').filter((event) => event.startsWith('data: {'));
      const chunks = events.map((event) => JSON.parse(event.slice('data: '.length)) as OpenAI.ChatCompletionChunk);
      assert.ok(chunks.length >= 3 && chunks.every(({ object }) => object === 'chat.completion.chunk'));
    });
  });
});
