import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { z } from 'zod';
import { HttpCluster } from './harness/http-cluster.js';
import {
  CHAT,
  CHAT_CHUNK,
  eventsOf,
  MESSAGE,
  MESSAGE_ERROR,
  MESSAGE_EVENT,
  OPENAI_ERROR,
  TOKEN_COUNT,
} from './harness/reply-forms.js';
import { recordedRequests, type RecordedRequest } from './harness/recorded-requests.js';
import { longPackOf } from './harness/test-models.js';

interface Body {
  system?: object;
  messages?: object[];
  input?: object[];
  tools?: { type?: string }[];
}

/** Tokens of a prompt, and how many of them were there from requests before it; null: it was only counted. */
interface Prompt {
  tokens: number;
  cached: number | null;
}

const CLIENTS = ['claude-code-2.1.197.jsonl', 'codex-0.169.0.jsonl', 'opencode-1.18.33.jsonl'];
const LONGEST_ANSWER_TOKENS = 8;

/** Of an answer at once. */
const FORMS: Readonly<Record<string, z.ZodType>> = {
  '/v1/messages': MESSAGE,
  '/v1/chat/completions': CHAT,
  '/v1/responses': z.looseObject({
    object: z.literal('response'),
    output: z.array(z.looseObject({ id: z.string(), type: z.string() })),
  }),
};

/** An event of /v1/responses: all that the events of all types have in common. */
const RESPONSE_EVENT = z.looseObject({
  type: z.string().regex(/^response\./),
  sequence_number: z.int().min(0),
  output_index: z.int().min(0).optional(),
  item_id: z.string().optional(),
  item: z.looseObject({ id: z.string(), type: z.string(), status: z.string().optional() }).optional(),
  response: z.looseObject({ output: z.array(z.looseObject({ id: z.string() })), status: z.string() }).optional(),
});

/** Numbers follow one another; an item begins, gets its parts and ends, and is then in the answer. */
function assertWholeResponse(text: string): void {
  const events = eventsOf(RESPONSE_EVENT, text);
  assert.deepEqual(
    events.map(({ sequence_number }) => sequence_number),
    events.map((_, index) => index),
  );
  const open = new Set<string>();
  const ended: string[] = [];
  for (const { type, item, item_id: part } of events) {
    if (type === 'response.output_item.added') open.add(item?.id ?? assert.fail(type));
    else if (type === 'response.output_item.done') {
      assert.ok(open.delete(item?.id ?? ''), `${item?.id} ends and has not begun`);
      ended.push(item?.id ?? '');
    } else if (part !== undefined) assert.ok(open.has(part), `${type} of ${part}, which is not open`);
  }
  assert.equal(open.size, 0);
  assert.deepEqual(
    events.at(-1)?.response?.output.map(({ id }) => id),
    ended,
  );
}

/** Blocks come one after the other, each with a beginning and an end. */
function assertWholeMessage(text: string): void {
  let [open, count] = [false, 0];
  for (const event of eventsOf(MESSAGE_EVENT, text)) {
    if (event.type === 'content_block_start') {
      assert.deepEqual([open, event.index], [false, count]);
      open = true;
    } else if (event.type === 'content_block_delta' || event.type === 'content_block_stop') {
      assert.deepEqual([open, event.index], [true, count]);
      open = event.type === 'content_block_delta';
      if (!open) count += 1;
    }
  }
  assert.equal(open, false);
}

/** How a history begins. A client may start an agent in a conversation, whose history grows beside the conversation's own. */
function openingOf({ system, messages = [], input = [] }: Body): string {
  const [first] = [...messages, ...input];
  return JSON.stringify([system, first], (key, value: unknown) => (key === 'cache_control' ? undefined : value));
}

describe('recorded clients', function () {
  this.timeout(180_000);
  let api: HttpCluster;
  let openai: OpenAI;
  let anthropic: Anthropic;
  /** The text of the latest reply, as it came. */
  let replied: Promise<string>;

  async function keepingReply(url: string | URL | Request, init?: RequestInit): Promise<Response> {
    const response = await fetch(url, init);
    replied = response.clone().text();
    replied.catch(() => undefined);
    return response;
  }

  before(async () => {
    api = await HttpCluster.start({ workers: 1, packDirectory: await longPackOf('demo', 24_576) });
    openai = new OpenAI({ baseURL: `${api.url}/v1`, apiKey: 'none', maxRetries: 0, fetch: keepingReply });
    anthropic = new Anthropic({ baseURL: api.url, apiKey: 'none', maxRetries: 0, fetch: keepingReply });
  });

  after(() => api.stop());

  /** Reads the stream to its end; the client of the dialect has put it together. */
  async function responded({ body }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = body as OpenAI.Responses.ResponseCreateParamsStreaming;
    const stream = openai.responses.stream({ ...asked, model: 'demo', max_output_tokens: LONGEST_ANSWER_TOKENS });
    const types: string[] = [];
    for await (const { type } of stream) types.push(type);
    assertWholeResponse(await replied);
    assert.equal(types[0], 'response.created');
    assert.match(types.at(-1) ?? '', /^response\.(completed|incomplete)$/);
    const answer = (await stream.finalResponse()) as OpenAI.Responses.Response & { warnings?: string[] };
    const { usage, warnings = [] } = answer;
    assert.ok(usage !== undefined);
    assert.equal(
      warnings.some((text) => text.startsWith('tools: web_search is left out')),
      body.tools?.some(({ type }) => type === 'web_search') === true,
    );
    return { tokens: usage.input_tokens, cached: usage.input_tokens_details.cached_tokens };
  }

  async function messaged({ body, headers }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = { ...(body as Anthropic.Beta.MessageCreateParams), model: 'demo', max_tokens: LONGEST_ANSWER_TOKENS };
    const stream = anthropic.beta.messages.stream({ ...asked, stream: true }, { headers });
    const types: string[] = [];
    for await (const { type } of stream) types.push(type);
    assertWholeMessage(await replied);
    assert.equal(types[0], 'message_start');
    assert.equal(types.at(-1), 'message_stop');
    const count = (wanted: string): number => types.filter((type) => type === wanted).length;
    const { content, stop_reason, usage } = await stream.finalMessage();
    assert.equal(count('content_block_start'), content.length);
    assert.equal(count('content_block_stop'), content.length);
    assert.notEqual(stop_reason, null);
    const cached = usage.cache_read_input_tokens ?? 0;
    return { tokens: usage.input_tokens + cached, cached };
  }

  async function chatted({ body }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = body as OpenAI.ChatCompletionCreateParamsStreaming;
    const stream = openai.chat.completions.stream({ ...asked, model: 'demo', max_tokens: LONGEST_ANSWER_TOKENS });
    const { choices, usage } = await stream.finalChatCompletion();
    eventsOf(CHAT_CHUNK, await replied);
    assert.match(await replied, /\n\ndata: \[DONE\]\n\n$/);
    assert.notEqual(choices[0]?.finish_reason ?? null, null);
    assert.ok(usage !== undefined);
    return { tokens: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
  }

  async function counted({ body, headers }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = { ...(body as Anthropic.Beta.MessageCountTokensParams), model: 'demo' };
    const { input_tokens } = await anthropic.beta.messages.countTokens(asked, { headers });
    TOKEN_COUNT.parse(JSON.parse(await replied));
    return { tokens: input_tokens, cached: null };
  }

  const answers = new Map([
    ['/v1/responses', responded],
    ['/v1/messages', messaged],
    ['/v1/messages/count_tokens', counted],
    ['/v1/chat/completions', chatted],
  ]);

  function answered(request: RecordedRequest<Body>): Promise<Prompt> {
    const answer = answers.get(request.path.replace(/\?.*/, ''));
    assert.ok(answer !== undefined, request.path);
    return answer(request);
  }

  for (const file of CLIENTS) {
    const requests = recordedRequests<Body>(file);
    for (const conversation of new Set(requests.map((one) => one.conversation))) {
      it(`answers ${file.replace('.jsonl', '')} to the end of its conversation: ${conversation}`, async () => {
        const before = new Map<string, number>();
        for (const request of requests.filter((one) => one.conversation === conversation)) {
          const { tokens, cached } = await answered(request);
          const opening = openingOf(request.body);
          const earlier = before.get(opening);
          if (earlier !== undefined && cached !== null) {
            assert.ok(tokens > earlier, `a prompt of ${tokens} tokens after one of ${earlier}`);
            assert.ok(cached > earlier / 2, `${cached} of ${earlier} tokens were there`);
          }
          assert.ok(tokens > 0);
          before.set(opening, tokens);
        }
      });
    }
  }

  /** The first request of each client with an instruction that the context does not hold. */
  const LONG = 'a '.repeat(40_000);
  const firsts = CLIENTS.flatMap((file) => {
    const requests = recordedRequests<Body>(file).filter(({ path }) => !path.includes('count_tokens'));
    const paths = new Map(requests.map((one) => [one.path.replace(/\?.*/, ''), one]));
    return [...paths].map(([path, one]) => ({ file, path, body: one.body, headers: one.headers }));
  });

  for (const { file, path, body, headers } of firsts) {
    it(`refuses ${file.replace('.jsonl', '')} on ${path} a prompt that is too long by what it understands, and answers it whole without a stream`, async () => {
      const asked = (changes: object): Promise<Response> =>
        api.fetch(path, { ...body, model: 'demo', ...changes }, { headers });
      const turn = { role: 'user', content: LONG };
      const history =
        body.input === undefined ? { messages: [...(body.messages ?? []), turn] } : { input: [...body.input, turn] };
      for (const stream of [true, false]) {
        const refused = await asked({ ...history, stream });
        assert.equal(refused.status, 400);
        const given = await refused.json();
        if (path === '/v1/messages')
          assert.match(MESSAGE_ERROR.parse(given).error.message, /^prompt is too long: .*--max-context/);
        else assert.equal(OPENAI_ERROR.parse(given).error.code, 'context_length_exceeded');
      }
      const limit =
        path === '/v1/responses' ? { max_output_tokens: LONGEST_ANSWER_TOKENS } : { max_tokens: LONGEST_ANSWER_TOKENS };
      const whole = await asked({ stream: false, stream_options: undefined, ...limit });
      const text = await whole.text();
      assert.equal(whole.status, 200, text);
      FORMS[path]?.parse(JSON.parse(text));
    });
  }
});
