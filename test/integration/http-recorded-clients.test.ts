import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { HttpCluster } from './harness/http-cluster.js';
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

  before(async () => {
    api = await HttpCluster.start({ workers: 1, packDirectory: await longPackOf('demo', 24_576) });
    openai = new OpenAI({ baseURL: `${api.url}/v1`, apiKey: 'none', maxRetries: 0 });
    anthropic = new Anthropic({ baseURL: api.url, apiKey: 'none', maxRetries: 0 });
  });

  after(() => api.stop());

  /** Reads the stream to its end; the client of the dialect has put it together. */
  async function responded({ body }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = body as OpenAI.Responses.ResponseCreateParamsStreaming;
    const stream = openai.responses.stream({ ...asked, model: 'demo', max_output_tokens: LONGEST_ANSWER_TOKENS });
    const types: string[] = [];
    for await (const { type } of stream) types.push(type);
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
    assert.notEqual(choices[0]?.finish_reason ?? null, null);
    assert.ok(usage !== undefined);
    return { tokens: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
  }

  async function counted({ body, headers }: RecordedRequest<Body>): Promise<Prompt> {
    const asked = { ...(body as Anthropic.Beta.MessageCountTokensParams), model: 'demo' };
    const { input_tokens } = await anthropic.beta.messages.countTokens(asked, { headers });
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
});
