import assert from 'node:assert/strict';
import { HttpCluster } from './harness/http-cluster.js';

/** Takes arguments by their members alone, and refuses any other value, as the templates of Qwen3-Coder, GLM and MiniMax do. */
const TEMPLATE =
  '<|bos|>{% if tools %}<|user|>\n{{ tools | tojson }} <tool_call></tool_call><|end|>\n{% endif %}' +
  "{% for message in messages %}{% if message['role'] == 'assistant' %}<|assistant|>\n{{ message['content'] }}" +
  '{% for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": { ' +
  '{% for key, value in call.function.arguments|items %}"{{ key }}": {{ value | tojson }}{% endfor %}}}</tool_call>{% endfor %}<|end|>\n' +
  "{% else %}<|user|>\n{{ message['content'] }}<|end|>\n{% endif %}{% endfor %}" +
  '{% if add_generation_prompt %}<|assistant|>\n{% endif %}';

const NAME = 'now';
const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string', minLength: 200 } },
  required: ['city'],
  additionalProperties: false,
};
const ASKED = { role: 'user', content: 'Hi' };
/** Tokens after which an answer ends: before the arguments of its call, and in the middle of them. */
const ROOMS = [30, 70] as const;
const CHAT_TOOL = { type: 'function', function: { name: NAME, parameters: PARAMETERS } };
const RESULT = 'Noon.';

interface ChatReply {
  choices: [{ finish_reason: string; message: { tool_calls: [{ id: string; function: { arguments: string } }] } }];
  usage: { prompt_tokens: number };
}
interface ResponseReply {
  status: string;
  output: [{ call_id: string; arguments: string }];
  usage: { input_tokens: number };
}
interface MessageReply {
  stop_reason: string;
  content: [{ type: string; id: string; input: object }];
}

describe('a call that the length has cut off', function () {
  this.timeout(60_000);
  let api: HttpCluster;

  before(async () => {
    api = await HttpCluster.start({ workers: 1, chatTemplate: TEMPLATE });
  });

  after(() => api.stop());

  async function post<T>(path: string, body: object): Promise<T> {
    const reply = await api.fetch(path, { model: 'demo', ...body });
    const text = await reply.text();
    assert.equal(reply.status, 200, text);
    return JSON.parse(text) as T;
  }

  function assertCut(written: string, isBefore: boolean): void {
    assert.match(written, isBefore ? /^$/ : /^\{\s*"city"/);
    assert.throws(() => JSON.parse(written), SyntaxError);
  }

  for (const room of ROOMS) {
    it(`is taken back as it was sent, after ${room} tokens, in chats`, async () => {
      const asked = { messages: [ASKED], tools: [CHAT_TOOL], tool_choice: 'required', max_tokens: room };
      const [{ finish_reason: reason, message }] = (await post<ChatReply>('/v1/chat/completions', asked)).choices;
      assert.equal(reason, 'length');
      const [call] = message.tool_calls;
      assertCut(call.function.arguments, room === ROOMS[0]);
      const promptOf = async (written: string): Promise<number> => {
        const given = { ...message, tool_calls: [{ ...call, function: { ...call.function, arguments: written } }] };
        const messages = [ASKED, given, { role: 'tool', tool_call_id: call.id, content: RESULT }];
        const reply = await post<ChatReply>('/v1/chat/completions', {
          ...asked,
          messages,
          tool_choice: 'auto',
          max_tokens: 1,
        });
        return reply.usage.prompt_tokens;
      };
      const more = (await promptOf(call.function.arguments)) - (await promptOf('{}'));
      assert.ok(more >= (room === ROOMS[0] ? 0 : 10), `what was written has ${more} tokens of the prompt`);
    });
  }

  for (const room of ROOMS) {
    it(`is taken back as it was sent, after ${room} tokens, in responses`, async () => {
      const tools = [{ type: 'function', name: NAME, parameters: PARAMETERS }];
      const asked = { input: [ASKED], tools, tool_choice: 'required', max_output_tokens: room };
      const { status, output } = await post<ResponseReply>('/v1/responses', asked);
      assert.equal(status, 'incomplete');
      const [call] = output;
      assertCut(call.arguments, room === ROOMS[0]);
      const promptOf = async (written: string): Promise<number> => {
        const input = [
          ASKED,
          { ...call, arguments: written },
          { type: 'function_call_output', call_id: call.call_id, output: RESULT },
        ];
        const body = { ...asked, input, tool_choice: 'auto', max_output_tokens: 1 };
        return (await post<ResponseReply>('/v1/responses', body)).usage.input_tokens;
      };
      const more = (await promptOf(call.arguments)) - (await promptOf('{}'));
      assert.ok(more >= (room === ROOMS[0] ? 0 : 10), `what was written has ${more} tokens of the prompt`);
    });
  }

  for (const room of ROOMS) {
    it(`has no arguments after ${room} tokens in messages, and is taken back so`, async () => {
      const tools = [{ name: NAME, input_schema: PARAMETERS }];
      const asked = { messages: [ASKED], tools, tool_choice: { type: 'any' }, max_tokens: room };
      const { stop_reason: reason, content } = await post<MessageReply>('/v1/messages', asked);
      assert.equal(reason, 'max_tokens');
      assert.deepEqual(
        content.map(({ type, input }) => [type, input]),
        [['tool_use', {}]],
      );
      const result = { type: 'tool_result', tool_use_id: content[0].id, content: RESULT };
      const messages = [ASKED, { role: 'assistant', content }, { role: 'user', content: [result] }];
      await post('/v1/messages', { ...asked, messages, tool_choice: { type: 'auto' }, max_tokens: 1 });
    });
  }
});
