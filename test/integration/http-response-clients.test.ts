import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { HttpCluster } from './harness/http-cluster.js';
import { recordedRequests } from './harness/recorded-requests.js';
import { longPackOf } from './harness/test-models.js';

type Answer = OpenAI.Responses.Response & { warnings?: string[] };

interface Body {
  input: Record<string, unknown>[];
}

describe('clients of the responses API', function () {
  this.timeout(180_000);
  let api: HttpCluster;
  let client: OpenAI;

  before(async () => {
    api = await HttpCluster.start({ workers: 1, packDirectory: await longPackOf('demo', 16_384) });
    client = new OpenAI({ baseURL: `${api.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });

  after(() => api.stop());

  /** The streamed answer, which OpenAI's client has put together from the events and compared with the last of them. */
  async function answered(body: object, most = 8): Promise<{ answer: Answer; types: string[]; input: string }> {
    const stream = client.responses.stream({ ...body, model: 'demo', max_output_tokens: most });
    const types: string[] = [];
    let input = '';
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === 'response.custom_tool_call_input.delta') input += event.delta;
    }
    return { answer: await stream.finalResponse(), types, input };
  }

  const codex = recordedRequests<Body>('codex-0.169.0.jsonl');

  const last = (conversation: string): Body => {
    const found = codex.filter((one) => one.conversation === conversation).at(-1);
    assert.ok(found !== undefined);
    return found.body;
  };

  it("gives Codex the call of a custom tool in the tool's own form, and takes its result", async () => {
    const body = last('a model that edits by patches');
    const forced = { ...body, tool_choice: { type: 'custom', name: 'apply_patch' } };
    const { answer, types, input } = await answered(forced, 120);
    const [call] = answer.output;
    assert.ok(call?.type === 'custom_tool_call', call?.type);
    assert.equal(call.name, 'apply_patch');
    assert.equal(call.input, input);
    assert.notEqual(input, '');
    assert.ok(types.includes('response.custom_tool_call_input.done'));
    const result = { type: 'custom_tool_call_output', call_id: call.call_id, output: 'Success.' };
    const next = await answered({ ...body, input: [...body.input, call, result] });
    assert.ok((next.answer.usage?.input_tokens ?? 0) > (answer.usage?.input_tokens ?? 0));
  });

  it('gives Codex the namespace of a call, and takes its result', async () => {
    const body = last('a model that Codex does not know');
    const forced = { ...body, tool_choice: { type: 'function', name: 'close_agent' } };
    const { answer } = await answered(forced, 120);
    const [call] = answer.output;
    assert.ok(call?.type === 'function_call', call?.type);
    assert.deepEqual([call.namespace, call.name], ['multi_agent_v1', 'close_agent']);
    assert.equal(typeof (JSON.parse(call.arguments) as { target: unknown }).target, 'string');
    const result = { type: 'function_call_output', call_id: call.call_id, output: 'closed' };
    await answered({ ...body, input: [...body.input, call, result] });
  });

  it('gives Codex a search for tools, and offers what it finds', async () => {
    const body = last('a model that edits by patches');
    const search = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'tool_search' }] };
    const { answer } = await answered({ ...body, tool_choice: search }, 120);
    const [call] = answer.output;
    assert.ok(call?.type === 'tool_search_call', call?.type);
    assert.equal(call.execution, 'client');
    assert.equal(typeof (call.arguments as { query: unknown }).query, 'string');
    const found = await answered({ ...body, tool_choice: { type: 'function', name: 'close_agent' } }, 120);
    assert.equal(
      found.answer.output[0]?.type === 'function_call' && found.answer.output[0].namespace,
      'multi_agent_v1',
    );
  });

  it("answers the AI SDK's provider of OpenAI's models, and says what to do about items that are not stored", async () => {
    for (const { conversation, body } of recordedRequests<Body>('ai-sdk-openai-3.0.141.jsonl')) {
      const reply = await api.fetch('/v1/responses', body);
      const text = await reply.text();
      const isStored = body.input.some(({ type }) => type === 'item_reference');
      assert.equal(reply.status, isStored ? 400 : 200, `${conversation}: ${text}`);
      if (isStored) assert.match(text, /store: false/);
    }
  });
});
