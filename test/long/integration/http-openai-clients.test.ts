import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
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

    it('leaves the choice of a call to the model, and sends the call back', async () => {
      const call = {
        id: 'call_1',
        type: 'function' as const,
        function: { name: 'add', arguments: '{"a":1,"sign":"plus"}' },
      };
      const without = await client.chat.completions.create({ model: 'demo', messages: MESSAGES, max_tokens: 5 });
      const answer = await client.chat.completions.create({
        model: 'demo',
        tools: [ADD],
        tool_choice: 'auto',
        max_tokens: 5,
        messages: [
          ...MESSAGES,
          { role: 'assistant', content: null, tool_calls: [call] },
          { role: 'tool', tool_call_id: 'call_1', content: '2' },
        ],
      });
      assert.ok((answer.choices[0]?.message.content ?? '').length > 0);
      assert.ok((answer.usage?.prompt_tokens ?? 0) > (without.usage?.prompt_tokens ?? 0) + 20);
    });

    it('gets an answer that follows a schema, by its own helper', async () => {
      const shape = z.object({
        name: z.enum(['fox', 'dog']),
        legs: z.int().min(1).max(8),
        tags: z.array(z.boolean()).max(3),
      });
      const answer = await client.chat.completions.parse({
        model: 'demo',
        messages: MESSAGES,
        max_tokens: 200,
        temperature: 2,
        seed: 1,
        response_format: zodResponseFormat(shape, 'animal'),
      });
      const [choice] = answer.choices;
      assert.equal(choice?.finish_reason, 'stop');
      assert.deepEqual(choice.message.parsed, shape.parse(JSON.parse(choice.message.content ?? '')));
    });

    it('gets a response that follows a schema, and a call of a tool', async () => {
      const { name, parameters } = ADD.function;
      const answer = await client.responses.create({
        model: 'demo',
        input: PROMPT,
        max_output_tokens: 120,
        temperature: 2,
        text: { format: { type: 'json_schema', name: 'sum', schema: parameters } },
      });
      addArguments.parse(JSON.parse(answer.output_text));
      const called = await client.responses.create({
        model: 'demo',
        input: PROMPT,
        max_output_tokens: 120,
        temperature: 2,
        tools: [{ type: 'function', name, parameters, strict: true }],
        tool_choice: { type: 'function', name },
      });
      const [item] = called.output;
      assert.ok(item?.type === 'function_call');
      assert.equal(item.name, 'add');
      addArguments.parse(JSON.parse(item.arguments));
    });

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

  describe('ai, with @ai-sdk/openai-compatible,', () => {
    const model = (): ReturnType<ReturnType<typeof createOpenAICompatible>> => {
      const settings = {
        name: 'odmoe',
        baseURL: `${api.url}/v1`,
        includeUsage: true,
        supportsStructuredOutputs: true,
      };
      return createOpenAICompatible(settings)('demo');
    };
    const setting = { maxRetries: 0, maxOutputTokens: 120, seed: 4 };

    it('generates and streams the same text', async () => {
      const asked = { ...setting, prompt: PROMPT, maxOutputTokens: 12, stopSequences: ['never'] };
      const whole = await generateText({ ...asked, model: model() });
      assert.ok(whole.text.length > 0);
      assert.equal(whole.finishReason, 'length');
      assert.equal(whole.usage.outputTokens, 12);
      const stream = streamText({ ...asked, model: model() });
      let text = '';
      for await (const delta of stream.textStream) text += delta;
      assert.equal(text, whole.text);
      assert.deepEqual((await stream.usage).totalTokens, whole.usage.totalTokens);
    });

    it('generates an object that follows a schema', async () => {
      const schema = z.object({ animal: z.enum(['fox', 'dog']), age: z.int().min(0).max(30) });
      const { object } = await generateObject({ ...setting, model: model(), schema, prompt: PROMPT, temperature: 1.5 });
      assert.deepEqual(object, schema.parse(object));
    });

    it('runs a called tool, and continues with its result', async () => {
      const given: unknown[] = [];
      const add = tool({
        description: 'Adds two numbers.',
        inputSchema: addArguments,
        execute: (input) => {
          given.push(input);
          return 3;
        },
      });
      const asked = {
        ...setting,
        model: model(),
        prompt: PROMPT,
        temperature: 1.5,
        tools: { add },
        toolChoice: { type: 'tool', toolName: 'add' } as const,
      };
      const stream = streamText(asked);
      const calls = await stream.toolCalls;
      assert.equal(calls.length, 1);
      assert.deepEqual(given, [calls[0]?.input]);
      addArguments.parse(given[0]);
      assert.equal((await stream.toolResults)[0]?.output, 3);
      const { steps } = await generateText({ ...asked, stopWhen: stepCountIs(2) });
      assert.deepEqual(
        steps.map(({ toolResults }) => toolResults.map(({ output }) => output)),
        [[3], [3]],
      );
    });
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
