import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { z } from 'zod';
import { errorForClient } from '../../http-api/answer/client-fields.js';
import type { ChatRequest } from '../../http-api/conversation/chat-request.js';
import { checkChat } from '../../http-api/conversation/check-chat.js';
import { CHAT_FIELDS, expectedText, openaiChat, readChatFields } from '../../http-api/openai/chat-fields.js';
import { COMPLETION_FIELDS, promptsFrom, readCompletionFields } from '../../http-api/openai/completion-fields.js';
import type { FieldTable } from '../../http-api/fields/field-table.js';
import { answerSeeds } from '../../http-api/openai/answer-requests.js';
import { readResponseFields, RESPONSE_FIELDS, responseChatFrom } from '../../http-api/openai/response-fields.js';
import { ALL_ROOM, samplingOfFields, stopFrom } from '../../http-api/fields/sampling-fields.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MAX_SEED } from '../../shared/wire/sampling-options.js';

function refusedField(read: () => unknown): string | null {
  try {
    read();
  } catch (thrown) {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, 'REQUEST_INVALID');
    assert.ok(thrown.field !== null && thrown.message.includes(thrown.field), thrown.message);
    return thrown.field;
  }
  return null;
}

const USER = { role: 'user', content: 'Hello' };
const chat = (members: object): (() => unknown) => {
  return () => openaiChat(readChatFields({ messages: [USER], ...members }), '{{ messages }}');
};
const completion = (members: object): (() => unknown) => {
  return () => readCompletionFields({ prompt: 'Hello', ...members });
};
const response = (members: object): (() => unknown) => {
  return () => responseChatFrom(readResponseFields({ input: 'Hello', ...members }), null);
};

describe("the reader of OpenAI's requests", () => {
  const endpoints: [string, FieldTable<z.ZodRawShape>, (members: object) => () => unknown][] = [
    ['chat completions', CHAT_FIELDS, chat],
    ['completions', COMPLETION_FIELDS, completion],
    ['responses', RESPONSE_FIELDS, response],
  ];
  for (const [name, table, read] of endpoints) {
    describe(`fields of requests for ${name}`, () => {
      it('refuses an unknown name', () => {
        assert.equal(refusedField(read({ temprature: 1 })), 'temprature');
        for (const inherited of ['constructor', 'toString', '__proto__']) {
          assert.equal(refusedField(read(JSON.parse(`{"${inherited}": 1}`) as object)), inherited);
        }
      });

      it('takes every field as null where it may be absent, and what cannot change the answer', () => {
        const nulls = Object.entries(table.done)
          .filter(([, schema]) => z.safeParse(schema, undefined).success)
          .map(([field]) => [field, null] as const);
        const others = [...Object.keys(table.neutral), ...Object.keys(table.refused)].map((field) => [field, null]);
        const ignored = table.ignored.map((field) => [field, { any: 'value' }]);
        assert.equal(refusedField(read(Object.fromEntries([...nulls, ...others, ...ignored]) as object)), null);
      });

      it('takes the neutral values of unsupported fields, and no others', () => {
        for (const [field, values] of Object.entries(table.neutral)) {
          for (const value of values) assert.equal(refusedField(read({ [field]: value })), null, field);
          assert.equal(refusedField(read({ [field]: 'something else' })), field);
        }
        for (const field of Object.keys(table.refused)) assert.equal(refusedField(read({ [field]: 'any' })), field);
      });

      it('refuses any other input by a named field', () => {
        const names = [...Object.keys(table.done), ...Object.keys(table.neutral), ...table.ignored];
        const bodies = fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 });
        fc.assert(
          fc.property(bodies, (members) => {
            refusedField(read(members));
          }),
        );
        const items = fc.dictionary(
          fc.constantFrom('role', 'type', 'content', 'text', 'name', 'tool_calls', 'call_id', 'output', 'arguments'),
          fc.oneof(
            fc.constantFrom('user', 'assistant', 'tool', 'message', 'reasoning', 'function_call'),
            fc.jsonValue(),
          ),
        );
        const place = table === CHAT_FIELDS ? 'messages' : table === RESPONSE_FIELDS ? 'input' : 'prompt';
        fc.assert(
          fc.property(fc.array(items), (given) => {
            refusedField(read({ [place]: given }));
          }),
        );
      });

      it('lists each field once, and documents each supported field', () => {
        const names = [
          ...Object.keys(table.done),
          ...table.ignored,
          ...Object.keys(table.neutral),
          ...Object.keys(table.refused),
        ];
        assert.equal(new Set(names).size, names.length);
        for (const [field, schema] of Object.entries(table.done)) {
          assert.ok((schema as z.ZodType).description !== undefined, field);
        }
      });
    });
  }

  it('names the place of an error', () => {
    const wrong: [object, string][] = [
      [{ messages: [] }, 'messages'],
      [{ messages: 'Hello' }, 'messages'],
      [{ messages: [{ role: 'critic', content: 'x' }] }, 'messages[0].role'],
      [{ messages: [{ role: 'function', name: 'f', content: 'x' }] }, 'messages[0].name'],
      [{ messages: [{ ...USER, function_call: { name: 'f', arguments: '' } }] }, 'messages[0].function_call'],
      [{ messages: [{ ...USER, audio: { id: 'a' } }] }, 'messages[0].audio'],
      [{ messages: [USER, { role: 'user', content: 5 }] }, 'messages[1].content'],
      [
        { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
        'messages[0].content',
      ],
      [{ messages: [{ ...USER, colour: 1 }] }, 'messages[0].colour'],
      [{ messages: [{ role: 'tool', content: '4' }] }, 'messages[0].tool_call_id'],
      [{ temperature: -1 }, 'temperature'],
      [{ temperature: 'hot' }, 'temperature'],
      [{ n: 0 }, 'n'],
      [{ stop: [''] }, 'stop[0]'],
      [{ logit_bias: { fox: 1 } }, 'logit_bias.fox'],
      [{ logit_bias: { 5: 101 } }, 'logit_bias.5'],
      [{ logit_bias: [[5, 1, 2]] }, 'logit_bias[0]'],
      [
        {
          logit_bias: [
            [5, -100],
            [0.5, 1],
          ],
        },
        'logit_bias[1][0]',
      ],
      [{ logit_bias: [[5, 101]] }, 'logit_bias[0][1]'],
      [{ logit_bias: 5 }, 'logit_bias'],
      [{ top_logprobs: 2 }, 'top_logprobs'],
      [{ logprobs: true, top_logprobs: 129 }, 'top_logprobs'],
      [{ logprobs: true, top_logprobs: 128, n: 9 }, 'top_logprobs'],
      [{ tools: [{ custom: {} }] }, 'tools[0].type'],
      [{ tools: [{ type: 'function', function: { name: 'f', colour: 1 } }] }, 'tools[0].function.colour'],
      [{ tool_choice: 'any' }, 'tool_choice'],
      [{ response_format: { type: 'grammar' } }, 'response_format.type'],
      [{ reasoning_effort: 'huge' }, 'reasoning_effort'],
      [{ add_generation_prompt: false }, 'add_generation_prompt'],
      [{ seed: 0.5 }, 'seed'],
      [{ max_tokens: -2 }, 'max_tokens'],
      [{ stream_options: { include_everything: true } }, 'stream_options.include_everything'],
    ];
    for (const [members, field] of wrong) assert.equal(refusedField(chat(members)), field, JSON.stringify(members));
    assert.equal(refusedField(completion({ prompt: '' })), 'prompt');
    assert.equal(refusedField(completion({ prompt: [[1], []] })), 'prompt[1]');
    assert.equal(refusedField(completion({ n: 2, best_of: 3 })), 'best_of');
    assert.equal(refusedField(response({ input: [{ type: 'weather_call' }] })), 'input');
    assert.equal(refusedField(response({ previous_response_id: 'resp_1' })), 'previous_response_id');
  });

  it('refuses a body that is no object', () => {
    for (const body of [undefined, null, 'text', [1]]) {
      assert.throws(() => readChatFields(body), /no JSON object/);
    }
  });

  it('turns messages into a conversation', () => {
    const call = { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a":1}' } };
    const fields = readChatFields({
      messages: [
        { role: 'system', content: 'Be brief.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'One' },
            { type: 'text', text: 'Two', cache_control: {} },
          ],
        },
        { role: 'assistant', content: null, refusal: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c1', content: '2' },
      ],
      chat_template_kwargs: { enable_thinking: false },
      reasoning_effort: 'none',
    });
    const { chat: request } = openaiChat(fields, null);
    assert.deepEqual(request.messages, [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'One\nTwo' },
      { role: 'assistant', content: '', toolCalls: [{ id: 'c1', name: 'add', arguments: '{"a":1}' }] },
      { role: 'tool', content: '2', toolCallId: 'c1', name: 'add' },
    ]);
    assert.deepEqual(request.templateArguments, [{ name: 'enable_thinking', value: 'false' }]);
    assert.equal(request.thinking, false);
  });

  it('puts a note in place of parts that are no text, unless the newest message has nothing else', () => {
    const parts = [
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
      { type: 'input_audio', input_audio: { data: '', format: 'wav' } },
      { type: 'file', file: { file_id: 'f' } },
      { type: 'video_url', video_url: null },
      { type: 'wat' },
    ];
    const notes =
      '[an image was here; this model cannot see images]\n[a sound was here; this model cannot hear sounds]\n' +
      '[a file was here; this model cannot read files]\n[a video was here; this model cannot see videos]\n' +
      '[a part of the type wat was here; this model cannot read it]';
    const refusal = { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] };
    const worded = [{ type: 'text', text: 'Look:' }, ...parts];
    const messages = [{ role: 'user', content: parts }, refusal, { role: 'user', content: worded }];
    const contents = ['No.', `Look:\n${notes}`];
    const { messages: made } = openaiChat(readChatFields({ messages }), null).chat;
    assert.deepEqual(
      made.map(({ content }) => content),
      [notes, ...contents],
    );
    const { chat: responded } = responseChatFrom(readResponseFields({ input: messages }), null);
    assert.deepEqual(
      responded.messages.map(({ content }) => content),
      [notes, ...contents],
    );
    const only = {
      content: [
        { type: 'input_image', image_url: 'x' },
        { type: 'input_text', text: ' ' },
      ],
    };
    const input = [USER, { role: 'user', ...only }];
    assert.equal(refusedField(response({ input })), 'input[1].content');
    assert.equal(refusedField(chat({ messages: input })), 'messages[1].content');
    const call = { id: 'c', function: { name: 'f', arguments: '' } };
    const tool = [USER, { role: 'assistant', tool_calls: [call] }, { role: 'tool', tool_call_id: 'c', ...only }];
    assert.match(openaiChat(readChatFields({ messages: tool }), null).chat.messages[2]?.content ?? '', /^\[an image/);
    assert.equal(
      refusedField(chat({ messages: [{ role: 'user', content: [{ text: 'x' }] }] })),
      'messages[0].content[0].type',
    );
  });

  it("takes other servers' fields at neutral values", () => {
    const other = { dry_multiplier: 0, n_predict: -1, echo: false, best_of: 1, id_slot: -1, xtc_probability: 0 };
    const read = readChatFields({ messages: [USER], ...other, max_tokens: -1, seed: -1 });
    assert.deepEqual([read.max_tokens, read.seed], [ALL_ROOM, undefined]);
    assert.throws(() => readChatFields({ messages: [USER], dry_multiplier: 0.5 }), { field: 'dry_multiplier' });
    readChatFields({ messages: [USER], dry_multiplier: 0, dry_base: 1.75, dry_allowed_length: 2, xtc_threshold: 0.1 });
    assert.throws(() => readChatFields({ messages: [USER], seed: -2 }), { field: 'seed' });
    assert.throws(() => readChatFields({ messages: [USER], max_tokens: -2 }), { field: 'max_tokens' });
  });

  it('takes the text that the client expects, in one piece or in parts', () => {
    const expected = (prediction?: unknown): string =>
      expectedText(readChatFields({ messages: [USER], ...(prediction !== undefined && { prediction }) }));
    assert.equal(expected(), '');
    assert.equal(expected({ type: 'content', content: 'a b' }), 'a b');
    const parts = ['a', ' b'].map((text) => ({ type: 'text', text }));
    assert.equal(expected({ type: 'content', content: parts }), 'a b');
    for (const wrong of ['a', { type: 'text', content: 'a' }, { type: 'content' }, { type: 'content', content: [1] }])
      assert.throws(() => expected(wrong), { code: 'REQUEST_INVALID' });
  });

  it('takes hints and what only counts, routes or shows', () => {
    const hints = {
      store: true,
      title: 'a',
      reasoning_format: 'auto',
      t_max_prompt_ms: 5,
      safe_prompt: false,
      documents: [],
      enable_search: false,
      add_special_tokens: false,
      verbosity: 'low',
      provider: { order: [] },
    };
    const own = {
      'x-title': 'a',
      x_client: 1,
      litellm_call_id: 'b',
      stream_options: { include_obfuscation: true, continuous_usage_stats: true },
    };
    readChatFields({ messages: [USER], ...hints, ...own, reasoning: { effort: 'low', exclude: true } });
    assert.throws(() => readChatFields({ messages: [USER], logit_processor: 1 }), { field: 'logit_processor' });
    const sent = {
      role: 'assistant',
      content: 'a',
      reasoning: null,
      refusal: null,
      thinking_blocks: [],
      extra_content: {},
    };
    const thought = { role: 'assistant', content: 'a', reasoning: 'hm', reasoning_details: [] };
    const { messages } = openaiChat(readChatFields({ messages: [USER, sent, USER, thought, USER] }), null).chat;
    assert.deepEqual(
      messages.map(({ reasoningContent = '' }) => reasoningContent),
      ['', '', '', 'hm', ''],
    );
  });

  it('takes notes at a message, calls in the older form, and arguments that are objects', () => {
    const notes = { timestamp: 1, createdAt: '2026', created_at: 1, weight: 0, is_error: false, audio: null };
    const called = (name: string, given: unknown): object => {
      return { role: 'assistant', content: null, function_call: { name, arguments: given } };
    };
    const output = { role: 'function', name: 'add', content: '2' };
    const call = { id: 'c', type: 'function', function: { name: 'sub', arguments: { a: 1 } } };
    const newer = { role: 'assistant', tool_calls: [call], function_call: null };
    const result = { role: 'tool', tool_call_id: 'c', content: '0', is_error: true };
    const given = [
      { ...USER, ...notes },
      called('add', '{"a":1}'),
      output,
      called('add', { a: 2 }),
      output,
      newer,
      result,
    ];
    const { messages } = openaiChat(readChatFields({ messages: given }), null).chat;
    const older = (id: string, written: string): object[] => [
      { role: 'assistant', content: '', toolCalls: [{ id, name: 'add', arguments: written }] },
      { role: 'tool', content: '2', toolCallId: id, name: 'add' },
    ];
    assert.deepEqual(messages, [
      USER,
      ...older('function_call_1', '{"a":1}'),
      ...older('function_call_3', '{"a":2}'),
      { role: 'assistant', content: '', toolCalls: [{ id: 'c', name: 'sub', arguments: '{"a":1}' }] },
      { role: 'tool', content: '0', toolCallId: 'c', name: 'sub' },
    ]);
  });

  it('takes wishes about reasoning in the words of other servers', () => {
    const wished = (more: object): unknown => {
      const { thinking, templateArguments } = openaiChat(readChatFields({ messages: [USER], ...more }), null).chat;
      return [thinking, templateArguments.map(({ name, value }) => `${name}=${value}`).join()];
    };
    assert.deepEqual(wished({ reasoning_effort: 'high' }), [null, '']);
    assert.deepEqual(wished({ reasoning: { enabled: false } }), [false, '']);
    assert.deepEqual(wished({ enable_thinking: false }), [null, 'enable_thinking=false']);
    assert.deepEqual(wished({ thinking: { type: 'disabled' } }), [null, 'enable_thinking=false']);
    const both = { enable_thinking: true, chat_template_kwargs: { enable_thinking: false } };
    assert.deepEqual(wished(both), [null, 'enable_thinking=false']);
  });

  it('takes a schema beside its type, once', () => {
    const schema = { type: 'integer' };
    const formatOf = (format: object) => {
      const given = readChatFields({ messages: [USER], response_format: { type: 'json_schema', ...format } });
      return openaiChat(given, null).chat.responseFormat;
    };
    const expected = { kind: 'json_schema', schema: '{"type":"integer"}' };
    assert.deepEqual(formatOf({ schema }), expected);
    assert.deepEqual(formatOf({ json_schema: { name: 'n', schema } }), expected);
    assert.throws(() => formatOf({}), { code: 'REQUEST_INVALID' });
    assert.throws(() => formatOf({ schema, json_schema: { schema } }), { code: 'REQUEST_INVALID' });
  });

  it('requires a content where no call can stand in its place', () => {
    for (const given of [{ role: 'user', content: null }, { role: 'user' }, { role: 'system', content: null }]) {
      assert.throws(() => openaiChat(readChatFields({ messages: [USER, given] }), null), {
        code: 'REQUEST_INVALID',
        field: 'messages[1].content',
      });
    }
  });

  it('takes biases by the token or as a list of pairs', () => {
    const biasesOf = (given: unknown) =>
      samplingOfFields(readChatFields({ messages: [USER], logit_bias: given }), undefined).logitBias;
    const expected = [
      { tokenId: 5, bias: -100 },
      { tokenId: 17, bias: 0.5 },
    ];
    assert.deepEqual(biasesOf({ 5: -100, 17: 0.5 }), expected);
    assert.deepEqual(
      biasesOf([
        [5, -100],
        [17, 0.5],
      ]),
      expected,
    );
  });

  it('passes the effort of reasoning to a template that takes it', () => {
    const fields = readChatFields({ messages: [USER], reasoning_effort: 'high' });
    const { templateArguments } = openaiChat(fields, 'Reasoning: {{ reasoning_effort }}').chat;
    assert.deepEqual(templateArguments, [{ name: 'reasoning_effort', value: '"high"' }]);
  });

  it("makes one message of an assistant's reasoning, text and calls", () => {
    const fields = readResponseFields({
      instructions: 'Be brief.',
      input: [
        { role: 'user', content: 'What is 1 + 1?' },
        { type: 'reasoning', id: 'rs_1', summary: [], content: [{ type: 'reasoning_text', text: 'I add.' }] },
        { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'Let me see.' }] },
        { type: 'function_call', call_id: 'c1', name: 'add', arguments: '{}' },
        { type: 'function_call', call_id: 'c2', name: 'sub', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c2', output: [{ type: 'input_text', text: '2' }] },
        { type: 'message', role: 'assistant', content: 'Two.' },
        { type: 'message', role: 'assistant', content: 'Really.' },
      ],
    });
    assert.deepEqual(responseChatFrom(fields, null).chat.messages, [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'What is 1 + 1?' },
      {
        role: 'assistant',
        content: 'Let me see.',
        reasoningContent: 'I add.',
        toolCalls: [
          { id: 'c1', name: 'add', arguments: '{}' },
          { id: 'c2', name: 'sub', arguments: '{}' },
        ],
      },
      { role: 'tool', content: '2', toolCallId: 'c2', name: 'sub' },
      { role: 'assistant', content: 'Two.' },
      { role: 'assistant', content: 'Really.' },
    ]);
  });

  it('distinguishes the four forms of a prompt', () => {
    const forms: [unknown, object[]][] = [
      ['a', [{ text: 'a', tokenIds: null }]],
      [
        ['a', 'b'],
        [
          { text: 'a', tokenIds: null },
          { text: 'b', tokenIds: null },
        ],
      ],
      [[5, 6], [{ text: null, tokenIds: [5, 6] }]],
      [
        [[5], [6]],
        [
          { text: null, tokenIds: [5] },
          { text: null, tokenIds: [6] },
        ],
      ],
    ];
    for (const [prompt, expected] of forms) assert.deepEqual(promptsFrom(readCompletionFields({ prompt })), expected);
  });

  it('samples as odmoe prompt does by default', () => {
    const fields = readChatFields({ messages: [USER] });
    assert.deepEqual(samplingOfFields(fields, undefined), {
      temperature: 0,
      topK: 0,
      topP: 1,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
    });
    assert.deepEqual(stopFrom(fields), []);
  });

  it('takes the likeliest token where top_p is 0, and all where top_k is -1', () => {
    assert.equal(samplingOfFields(readChatFields({ messages: [USER], top_p: 0 }), 1).topK, 1);
    assert.equal(samplingOfFields(readChatFields({ messages: [USER], top_k: -1 }), 1).topK, 0);
  });

  it("reports an error under the client's own field name", () => {
    const names = { text: 'prompt', output_format: 'response_format' };
    const fieldFor = (field: string): unknown => {
      const error = errorForClient(new OdmoeError('REQUEST_INVALID', 'wrong', { field }), names);
      return error instanceof OdmoeError ? error.field : null;
    };
    assert.equal(fieldFor('text'), 'prompt');
    assert.equal(fieldFor('sampling.output_format'), 'response_format');
    assert.equal(fieldFor('sampling.logit_bias[3].token_id'), 'logit_bias');
    assert.equal(fieldFor('messages[2].role'), 'messages[2].role');
    const other = new Error('another');
    assert.equal(errorForClient(other, names), other);
  });

  it('takes formats in the form of other servers, too', () => {
    const schema = { const: 1 };
    for (const format of [
      { type: 'json_schema', json_schema: { schema } },
      { type: 'json_object', schema },
    ]) {
      const { responseFormat } = openaiChat(readChatFields({ messages: [USER], response_format: format }), null).chat;
      assert.deepEqual(responseFormat, { kind: 'json_schema', schema: '{"const":1}' });
    }
  });

  it('counts seeds up from the given or the drawn one', () => {
    const runtime = { randomInt: () => 40 };
    assert.deepEqual(answerSeeds(undefined, 1, runtime), [undefined]);
    assert.deepEqual(answerSeeds(7, 3, runtime), [7, 8, 9]);
    assert.deepEqual(answerSeeds(undefined, 2, runtime), [40, 41]);
    assert.deepEqual(answerSeeds(MAX_SEED - 1, 4, runtime), [MAX_SEED - 1, MAX_SEED, 0, 1]);
  });
});

describe('tools in chats and responses', () => {
  const parameters = { type: 'object' };
  const inChat = (names: string[]): ChatRequest => {
    const tools = names.map((name) => ({ type: 'function', function: { name, parameters } }));
    return openaiChat(readChatFields({ messages: [USER], tools }), null).chat;
  };
  const inResponse = (names: string[]): ChatRequest => {
    const tools = names.map((name) => ({ type: 'function', name, parameters }));
    return responseChatFrom(readResponseFields({ input: 'Hello', tools }), null).chat;
  };

  it('have the same bound and the same names for every client', () => {
    const many = Array.from({ length: 129 }, (_, index) => `f${index}`);
    for (const read of [inChat, inResponse]) {
      checkChat(read(many.slice(1)));
      assert.throws(() => checkChat(read(many)), { code: 'REQUEST_INVALID', field: 'tools', message: /at most 128/ });
      for (const name of ['a:b', 'x'.repeat(65)]) {
        assert.throws(() => checkChat(read(['ok', name])), { field: 'tools[1]', message: /must be 1 to 64/ });
      }
    }
  });

  const CLOSE = { type: 'function', function: { name: 'close', returns: { type: 'string' } } };
  const OTHERS = [
    { type: 'web_search', user_location: {} },
    { type: 'openrouter:web_search', parameters: {} },
    { type: 'builtin_function', function: { name: '$web_search' } },
    { type: 'custom', custom: { name: 'apply_patch', format: { type: 'text' } } },
    { type: 'web_search' },
  ];
  const chosen = (tools: object[], tool_choice?: unknown): unknown => {
    const { chat: made, warnings } = openaiChat(readChatFields({ messages: [USER], tools, tool_choice }), null);
    checkChat(made);
    const words = warnings.map((text) => text.slice(0, text.indexOf(',')));
    return { names: made.tools.map(({ name }) => name), choice: made.toolChoice, words };
  };

  it('that are no functions are left out of chats with a warning', () => {
    const words = ['web_search', 'openrouter:web_search', 'builtin_function', 'custom'].map(
      (type) => `tools: ${type} is left out`,
    );
    const left = { names: ['close'], choice: 'auto', words };
    assert.deepEqual(chosen([CLOSE, ...OTHERS]), left);
    assert.deepEqual(chosen(OTHERS), { ...left, names: [] });
    assert.deepEqual(chosen([CLOSE]), { ...left, words: [] });
  });

  it('that are left out of chats cannot be forced', () => {
    const forced = (tool_choice: unknown, tools: object[] = [CLOSE, ...OTHERS]): unknown => {
      const { choice, names, words } = chosen(tools, tool_choice) as { choice: unknown; names: []; words: string[] };
      return [choice, names.length, words.filter((text) => text.startsWith('tool_choice')).join()];
    };
    const refusal = (type: string): string => `tool_choice: a call of ${type} cannot be forced`;
    assert.deepEqual(forced({ type: 'custom', custom: { name: 'apply_patch' } }), ['auto', 1, refusal('custom')]);
    const builtIn = { type: 'function', function: { name: '$web_search' } };
    assert.deepEqual(forced(builtIn), ['auto', 1, refusal('builtin_function')]);
    assert.deepEqual(forced('required', OTHERS), ['auto', 0, refusal('web_search')]);
    assert.deepEqual(forced('required'), ['required', 1, '']);
    assert.deepEqual(forced({ type: 'function', function: { name: 'close' } }), [{ name: 'close' }, 1, '']);
    const allowed = (mode: string, ...tools: object[]): unknown => {
      return { type: 'allowed_tools', allowed_tools: { mode, tools } };
    };
    const open = { type: 'function', function: { name: 'open' } };
    assert.deepEqual(forced(allowed('required', CLOSE), [CLOSE, open]), ['required', 1, '']);
    assert.deepEqual(forced(allowed('auto', open)), ['auto', 0, '']);
    assert.deepEqual(forced(allowed('required', { type: 'web_search' })), ['auto', 0, refusal('web_search')]);
    for (const wrong of [{ type: 'function', function: { name: 'nobody' } }, allowed('required', open), 'always']) {
      assert.throws(() => forced(wrong), { field: 'tool_choice' });
    }
  });
});
