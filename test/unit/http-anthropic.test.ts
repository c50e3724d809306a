import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ANTHROPIC } from '../../http-api/anthropic/messages-routes.js';
import {
  answerBlocks,
  BlockEvents,
  type AnswerBlock,
  type MessageEvent,
} from '../../http-api/anthropic/message-events.js';
import { MessageBody, MessageStream } from '../../http-api/anthropic/message-answer.js';
import { anthropicChat, readCountTokensBody, readMessagesBody } from '../../http-api/anthropic/messages-request.js';
import type { AnswerParser, AnswerDelta } from '../../http-api/conversation/chat-request.js';
import { jsonWithTexts } from '../../http-api/delivery/json-text.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ERROR_KINDS, type ErrorCode } from '../../shared/base/errors/registry.js';
import type { GenerateReply } from '../../shared/wire/messages.js';

const ASKED = { model: 'm', max_tokens: 8, messages: [{ role: 'user', content: 'hi' }] };

/** The chat of a request with these changes. */
function chat(changes: object, template: string | null = null): ReturnType<typeof anthropicChat> {
  return anthropicChat(readMessagesBody({ ...ASKED, ...changes }), template);
}

function refused(changes: object, field: string, says = /./): void {
  assert.throws(
    () => chat(changes),
    (error) => {
      assert.ok(error instanceof OdmoeError, String(error));
      assert.equal(error.code, 'REQUEST_INVALID');
      assert.equal(error.field, field);
      assert.match(error.message, says);
      return true;
    },
  );
}

const CALL = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Rome' } };

describe("Anthropic's messages become a conversation", () => {
  it('with the system text before them, given as text or as blocks', () => {
    const system = [
      { type: 'text', text: 'Be short.', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'Be kind.' },
    ];
    assert.deepEqual(chat({ system }).messages, [
      { role: 'system', content: 'Be short.\nBe kind.' },
      { role: 'user', content: 'hi' },
    ]);
    assert.equal(chat({ system: 'One.' }).messages[0]?.content, 'One.');
    const header = (id: string): string => `x-anthropic-billing-header: cc_version=2.1; cch=${id};`;
    const asked = (id: string): unknown =>
      chat({
        system: [
          { type: 'text', text: header(id) },
          { type: 'text', text: 'One.' },
        ],
      }).messages[0]?.content;
    assert.deepEqual([asked('1a'), asked('2b')], ['One.', 'One.'], 'without the header that changes each time');
    assert.equal(chat({ system: `${header('1a')}\nOne.\nTwo.` }).messages[0]?.content, 'One.\nTwo.');
    assert.equal(chat({ system: 'The x-anthropic-billing-header: a' }).messages[0]?.content.length, 33);
  });

  it('with calls of tools, their results and reasoning', () => {
    const messages = [
      { role: 'user', content: [{ type: 'text', text: 'Weather?' }] },
      {
        role: 'assistant',
        content: [{ type: 'thinking', thinking: 'Hm.', signature: 's' }, { type: 'text', text: 'I look.' }, CALL],
      },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [{ type: 'text', text: 'no such city' }],
            is_error: true,
          },
          { type: 'text', text: 'Well?' },
        ],
      },
    ];
    assert.deepEqual(chat({ messages }).messages, [
      { role: 'user', content: 'Weather?' },
      {
        role: 'assistant',
        content: 'I look.',
        reasoningContent: 'Hm.',
        toolCalls: [{ id: 'toolu_1', name: 'weather', arguments: '{"city":"Rome"}' }],
      },
      { role: 'tool', content: 'Error: no such city', toolCallId: 'toolu_1', name: 'weather' },
      { role: 'user', content: 'Well?' },
    ]);
  });

  it('with successive messages of one role merged into one turn', () => {
    const messages = [
      { role: 'user', content: 'One.' },
      { role: 'user', content: 'Two.' },
      { role: 'assistant', content: 'Th' },
      { role: 'assistant', content: 'ree' },
    ];
    const { messages: made, continueLast } = chat({ messages });
    assert.deepEqual(made, [
      { role: 'user', content: 'One.\nTwo.' },
      { role: 'assistant', content: 'Three' },
    ]);
    assert.equal(continueLast, true);
  });

  it('with the choice of tools, thinking and the format of the answer', () => {
    const tools = [
      { name: 'weather', description: 'd', input_schema: { type: 'object' }, cache_control: { type: 'ephemeral' } },
    ];
    const made = chat({
      tools,
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
      thinking: { type: 'disabled' },
    });
    assert.deepEqual(made.tools, [{ name: 'weather', description: 'd', parameters: { type: 'object' } }]);
    assert.equal(made.toolChoice, 'required');
    assert.equal(made.parallelToolCalls, false);
    assert.equal(made.thinking, false);
    assert.deepEqual(chat({ tools, tool_choice: { type: 'tool', name: 'weather' } }).toolChoice, { name: 'weather' });
    assert.equal(chat({ tools, tool_choice: { type: 'none' } }).toolChoice, 'none');
    assert.equal(chat({}).parallelToolCalls, true);
    assert.equal(chat({ thinking: { type: 'enabled', budget_tokens: 2000 } }).thinking, true);
    assert.equal(chat({ thinking: { type: 'adaptive' } }).thinking, null);
    const output_config = { format: { type: 'json_schema', schema: { type: 'string' } } };
    assert.deepEqual(chat({ output_config }).responseFormat, { kind: 'json_schema', schema: '{"type":"string"}' });
    const effort = { output_config: { effort: 'high' } };
    assert.deepEqual(chat(effort).templateArguments, [], 'a hint that the template has no use for');
    assert.deepEqual(chat({ output_config: { effort: 'low' } }).templateArguments, []);
    const value = { name: 'reasoning_effort', value: '"high"' };
    assert.deepEqual(chat(effort, '{{ reasoning_effort }}').templateArguments, [value]);
  });
});

describe("the fields of Anthropic's requests", () => {
  it('are named where they are wrong', () => {
    refused({ max_tokens: undefined }, 'max_tokens');
    refused({ messages: [] }, 'messages');
    refused(
      { messages: [{ role: 'user', content: [{ type: 'image', source: {} }] }] },
      'messages[0].content[0].type',
      /"image"/,
    );
    refused(
      { messages: [{ role: 'user', content: [{ type: 'document', source: {} }] }] },
      'messages[0].content[0].type',
      /"document"/,
    );
    refused(
      { messages: [{ role: 'assistant', content: [{ type: 'redacted_thinking', data: '' }] }] },
      'messages[0].content[0].type',
      /"redacted/,
    );
    refused({ messages: [{ role: 'user', content: [CALL] }] }, 'messages[0].content[0]', /user cannot hold a tool_use/);
    refused(
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] },
      'messages[0].content[0].tool_use_id',
    );
    refused({ messages: [...ASKED.messages, { role: 'assistant', content: [CALL] }] }, 'messages', /must follow/);
    refused(
      { tools: [{ type: 'web_search_20250305', name: 'web_search', input_schema: {} }] },
      'tools[0].type',
      /custom/,
    );
    refused({ thinking: { type: 'between_tools' } }, 'thinking.type');
    refused({ container: 'x' }, 'container');
    refused({ whatever: 1 }, 'whatever', /not known/);
    refused({ stop_sequences: [''] }, 'stop_sequences[0]');
  });

  it('are accepted where they change no answer, as are neutral values', () => {
    const body = {
      ...ASKED,
      metadata: { user_id: 'u' },
      service_tier: 'auto',
      cache_control: { type: 'ephemeral' },
      speed: 'standard',
      container: null,
      mcp_servers: [],
      context_management: { edits: [] },
      stream: false,
    };
    assert.equal(readMessagesBody(body).max_tokens, 8);
    assert.throws(() => readCountTokensBody(body), /max_tokens/, 'count_tokens makes no answer');
    assert.equal(readCountTokensBody({ model: 'm', messages: ASKED.messages }).model, 'm');
  });
});

/** Joins events to blocks as Anthropic's SDK does. */
function blocksFrom(events: readonly MessageEvent[]): unknown[] {
  const blocks: Record<string, string>[] = [];
  let open: number | null = null;
  for (const event of events) {
    const { type, index } = event as { type: string; index: number };
    if (type === 'content_block_start') {
      assert.equal(open, null, 'a block begins when the one before has ended');
      assert.equal(index, blocks.length);
      open = index;
      blocks.push({ ...(event['content_block'] as Record<string, string>), json: '' });
    } else if (type === 'content_block_stop') {
      assert.equal(open, index);
      open = null;
    } else {
      assert.equal(open, index, 'a delta belongs to the open block');
      const block = blocks[index];
      assert.ok(block !== undefined);
      const delta = event['delta'] as Record<string, string>;
      if (delta['type'] === 'text_delta') block['text'] = `${block['text']}${delta['text']}`;
      else if (delta['type'] === 'thinking_delta') block['thinking'] = `${block['thinking']}${delta['thinking']}`;
      else if (delta['type'] === 'signature_delta') block['signature'] = delta['signature'] ?? '';
      else block['json'] = `${block['json']}${delta['partial_json']}`;
    }
  }
  assert.equal(open, null, 'every block ends');
  return blocks.map(({ json, ...block }) =>
    block['type'] === 'tool_use' ? { ...block, input: JSON.parse(json || '{}') as unknown } : block,
  );
}

const text = fc.string({ minLength: 1, maxLength: 4 });
const said = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constantFrom('content' as const, 'reasoning' as const), text }),
    fc.record({ kind: fc.constant('call' as const), key: text, value: text }),
  ),
  { maxLength: 8 },
);

function deltasOf(parts: typeof said extends fc.Arbitrary<infer Parts> ? Parts : never): AnswerDelta[] {
  let index = 0;
  return parts.flatMap((part): AnswerDelta[] => {
    if (part.kind !== 'call') return [part];
    const call = index++;
    const json = JSON.stringify(Object.fromEntries([[`k${part.key}`, part.value]]));
    const cut = Math.floor(json.length / 2);
    return [
      { kind: 'toolCall', index: call, id: `c${call}`, name: 'f' },
      { kind: 'toolArguments', index: call, text: json.slice(0, cut) },
      { kind: 'toolArguments', index: call, text: json.slice(cut) },
    ];
  });
}

describe("the events of Anthropic's streams", () => {
  it('have the same blocks as the answer that is not streamed, whatever its content', () => {
    fc.assert(
      fc.property(said, (parts) => {
        const deltas = deltasOf(parts);
        const maker = new BlockEvents();
        const events = [...deltas.flatMap((delta) => maker.of([delta])), ...maker.finish()];
        const blocks: AnswerBlock[] = answerBlocks(deltas);
        assert.deepEqual(blocksFrom(events), JSON.parse(jsonWithTexts(blocks)));
      }),
    );
  });

  it('give no value to arguments that the end has cut off', () => {
    const blocks = answerBlocks([
      { kind: 'toolCall', index: 0, id: 'c', name: 'f' },
      { kind: 'toolArguments', index: 0, text: '{"a": "b' },
    ]);
    assert.deepEqual(blocks, [{ type: 'tool_use', id: 'c', name: 'f', input: {} }]);
  });
});

/** Takes all text as content. */
const PLAIN: AnswerParser = {
  push: (content) => (content === '' ? [] : [{ kind: 'content', text: content }]),
  finish: () => [],
  lastCallWhole: false,
};

function repliesOf(end: { finishReason: string; stopString?: string }): GenerateReply[] {
  const token = { tokenId: 5, logprob: 0, top: [] };
  const rest = {
    text: 'ab',
    stopString: '',
    timing: null,
    sep: null,
    reloads: 0,
    nodes: [],
    drafts: null,
    cachedTokens: 2,
  };
  return [
    { kind: 'started', started: { promptTokenIds: [1, 2, 3], seed: 0 } },
    { kind: 'token', token: { ...token, text: 'a' } },
    { kind: 'token', token: { ...token, text: '' } },
    { kind: 'token', token: { ...token, text: 'b' } },
    { kind: 'finished', finished: { ...rest, ...end } },
  ];
}

const READING = { tokenizer: null, createParser: (): AnswerParser => PLAIN, logprobs: false, showSpecialTokens: false };
const HEAD = { id: 'msg_1', model: 'm' };

describe("Anthropic's answers", () => {
  it('are streamed from message_start to message_stop', () => {
    const stream = new MessageStream(HEAD, READING);
    const lines = repliesOf({ finishReason: 'stop' })
      .map((reply) => stream.take(reply))
      .join('');
    const events = lines
      .trimEnd()
      .split('\n\n')
      .map((frame) => {
        const [name = '', data = ''] = frame.split('\n');
        const event = JSON.parse(data.replace('data: ', '')) as MessageEvent;
        assert.equal(name, `event: ${event.type}`);
        return event;
      });
    assert.deepEqual(
      events.map(({ type }) => type),
      [
        'message_start',
        'content_block_start',
        'content_block_delta',
        'content_block_delta',
        'content_block_stop',
        'message_delta',
        'message_stop',
      ],
    );
    const usage = { output_tokens: 3, input_tokens: 1, cache_creation_input_tokens: 0, cache_read_input_tokens: 2 };
    assert.deepEqual(events.at(-2), {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage,
    });
  });

  it('give the reason why they ended', () => {
    const ends = [
      [{ finishReason: 'stop' }, 'end_turn', null],
      [{ finishReason: 'length' }, 'max_tokens', null],
      [{ finishReason: 'stop', stopString: 'END' }, 'stop_sequence', 'END'],
    ] as const;
    for (const [end, reason, sequence] of ends) {
      const body = new MessageBody(HEAD, READING);
      for (const reply of repliesOf(end)) body.take(reply);
      const made = body.body() as Record<string, unknown>;
      assert.equal(made['stop_reason'], reason);
      assert.equal(made['stop_sequence'], sequence);
      assert.deepEqual(made['content'], [{ type: 'text', text: 'ab' }]);
    }
  });
});

describe("the keep-alive events of Anthropic's streams", () => {
  it("the keep-alive events of Anthropic's streams are pings", () => {
    assert.equal(ANTHROPIC.keepAlive(), 'event: ping\ndata: {"type":"ping"}\n\n');
  });
});

describe("Anthropic's errors", () => {
  it("have one of Anthropic's types, with the id of the request", () => {
    const types = new Set(
      (Object.keys(ERROR_KINDS) as ErrorCode[]).map((code) => {
        const body = ANTHROPIC.errorBody(new OdmoeError(code, 'why'), 'r1');
        assert.deepEqual(body, { type: 'error', error: { type: body.error.type, message: 'why' }, request_id: 'r1' });
        return body.error.type;
      }),
    );
    for (const type of [
      'invalid_request_error',
      'authentication_error',
      'not_found_error',
      'rate_limit_error',
      'api_error',
    ]) {
      assert.ok(types.has(type), type);
    }
    assert.match(
      ANTHROPIC.errorEvent(new OdmoeError('WORKER_LOST', 'gone'), 'r1'),
      /^event: error\ndata: .*overloaded_error.*\n\n$/,
    );
  });
});
