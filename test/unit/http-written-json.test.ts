import assert from 'node:assert/strict';
import fc from 'fast-check';
import { answerBlocks } from '../../http-api/anthropic/message-events.js';
import { anthropicChat as anthropicChat, readMessagesBody } from '../../http-api/anthropic/messages-request.js';
import type { AnswerDelta } from '../../http-api/conversation/chat-request.js';
import { createPrepareChat } from '../../http-api/conversation/prepare-chat.js';
import { joinedParts, PartMaker } from '../../http-api/ollama/answer-lines.js';
import { ollamaChat as ollamaChat } from '../../http-api/ollama/conversation.js';
import { readChatBody as readOllamaBody } from '../../http-api/ollama/request-fields.js';
import { openaiChat, readChatFields } from '../../http-api/openai/chat-fields.js';
import { readResponseFields, responseChatFrom } from '../../http-api/openai/response-fields.js';
import { parseBody } from '../../http-api/requests/read-body.js';
import { writtenJson } from '../../http-api/requests/written-json.js';
import { jsonWithTexts } from '../../http-api/delivery/json-text.js';
import { templateTokenizer } from './template-tokenizer.js';

/** A text that JSON.parse and JSON.stringify would change: digits, points, exponents, order, keys that occur twice. */
const WRITTEN = '{"id":12345678901234567890,"10":1,"2":[1.0,1e3,-0],"a":{"enum":[0.10]},"10":2}';

function parsed(text: string): unknown {
  return parseBody(Buffer.from(text));
}

describe('objects of requests that go into prompts', () => {
  it('keep the text that their client wrote, without its spaces', () => {
    const value = fc.jsonValue({ maxDepth: 3 }).map((given) => JSON.stringify(given, null, 1));
    const key = fc.constantFrom('input', 'arguments', 'x', 'input_schema', '"', '\\', '');
    fc.assert(
      fc.property(fc.array(fc.tuple(key, value), { maxLength: 6 }), value, (members, other) => {
        const object = `{ ${members.map(([name, text]) => `${JSON.stringify(name)} :\n${text}`).join(' , ')} }`;
        const body = parsed(
          `{"list": [${other}, {"input": ${object}, "y": ${other}}], "parameters": {"input": ${object}}}`,
        );
        const { list, parameters } = body as { list: [unknown, { input: object }]; parameters: object };
        const compact = members.map(([name, text]) => `${JSON.stringify(name)}:${JSON.stringify(JSON.parse(text))}`);
        const expected = `{${compact.join(',')}}`;
        if (members.length > 0) assert.equal(writtenJson(list[1].input), expected);
        assert.equal(writtenJson(parameters), `{"input":${expected}}`);
      }),
    );
  });

  it('include the schemas of answers, in every dialect', () => {
    const message = '"model": "m", "messages": [{"role": "user", "content": "Hi"}]';
    const schemas = [
      openaiChat(
        readChatFields(
          parsed(
            `{${message}, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": ${WRITTEN}}}}`,
          ),
        ),
        null,
      ).chat,
      anthropicChat(
        readMessagesBody(
          parsed(
            `{${message}, "max_tokens": 1, "output_config": {"format": {"type": "json_schema", "schema": ${WRITTEN}}}}`,
          ),
        ),
        null,
      ).chat,
      ollamaChat(readOllamaBody(parsed(`{${message}, "format": ${WRITTEN}}`)), null),
      responseChatFrom(
        readResponseFields(
          parsed(
            `{"model": "m", "input": "Hi", "text": {"format": {"type": "json_schema", "name": "s", "schema": ${WRITTEN}}}}`,
          ),
        ),
        null,
      ).chat,
    ].map(({ responseFormat }) => responseFormat);
    for (const format of schemas) assert.deepEqual(format, { kind: 'json_schema', schema: WRITTEN });
  });

  it('are written by JSON.stringify where no client wrote them', () => {
    assert.equal(writtenJson({ a: [1, ' b '] }), '{"a":[1," b "]}');
  });

  it("include Anthropic's inputs and schemas", () => {
    const body = parsed(`{"model": "m", "max_tokens": 1,
      "tools": [{"name": "f", "input_schema": ${WRITTEN}}],
      "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": ${WRITTEN}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "R"}]}]}`);
    const { messages, tools } = anthropicChat(readMessagesBody(body), null).chat;
    assert.equal(messages[1]?.toolCalls?.[0]?.arguments, WRITTEN);
    assert.equal(writtenJson(tools[0]?.parameters ?? {}), WRITTEN);
  });

  it("include Ollama's arguments and parameters", () => {
    const body =
      parsed(`{"model": "m", "tools": [{"type": "function", "function": {"name": "f", "parameters": ${WRITTEN}}}],
      "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ${WRITTEN}}}]}]}`);
    const { messages, tools } = ollamaChat(readOllamaBody(body), null);
    assert.equal(messages[0]?.toolCalls?.[0]?.arguments, WRITTEN);
    assert.equal(writtenJson(tools[0]?.parameters ?? {}), WRITTEN);
  });

  it("include OpenAI's arguments that are objects", () => {
    const body = parsed(`{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls":
      [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ${WRITTEN}}}]}]}`);
    const { messages } = openaiChat(readChatFields(body), null).chat;
    assert.equal(messages[1]?.toolCalls?.[0]?.arguments, WRITTEN);
  });

  it("include OpenAI's parameters and template variables, in the prompt with all digits and in order", () => {
    const body =
      parsed(`{"model": "m", "messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"v": ${WRITTEN}, "n": 1.0},
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": ${WRITTEN}}}}]}`);
    const source =
      '{% for t in tools or [] %}<tool_call>{{ t | tojson }}{% endfor %}{{ v }} {{ n }}{% for m in messages %}{{ m.content }}{% endfor %}';
    const { chat } = openaiChat(readChatFields(body), source);
    const { templateArguments = [] } = createPrepareChat(templateTokenizer(source))(chat).request;
    const byName = new Map(templateArguments.map(({ name, value }) => [name, value]));
    assert.equal(byName.get('v'), WRITTEN);
    assert.equal(byName.get('n'), '1.0');
    assert.ok(
      byName.get('tools')?.includes(`"parameters":{"type":"object","properties":${WRITTEN}}`),
      byName.get('tools'),
    );
  });
});

describe('the arguments of calls that a model wrote', () => {
  const deltas: AnswerDelta[] = [
    { kind: 'toolCall', index: 0, id: 'c', name: 'f' },
    { kind: 'toolArguments', index: 0, text: WRITTEN.slice(0, 20) },
    { kind: 'toolArguments', index: 0, text: WRITTEN.slice(20) },
  ];

  it("reach Anthropic's clients unchanged", () => {
    assert.equal(jsonWithTexts(answerBlocks(deltas)), `[{"type":"tool_use","id":"c","name":"f","input":${WRITTEN}}]`);
  });

  it("reach Ollama's clients unchanged", () => {
    const maker = new PartMaker();
    const { toolCalls } = joinedParts([...maker.of(deltas), ...maker.finish()]);
    assert.equal(jsonWithTexts(toolCalls), `[{"id":"c","function":{"index":0,"name":"f","arguments":${WRITTEN}}}]`);
  });
});
