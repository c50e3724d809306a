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
import type { AnswerParser, AnswerDelta, ChatRequest } from '../../http-api/conversation/chat-request.js';
import { jsonWithTexts } from '../../http-api/delivery/json-text.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ERROR_KINDS, type ErrorCode } from '../../shared/base/errors/registry.js';
import type { GenerateReply } from '../../shared/wire/messages.js';

const ASKED = { model: 'm', max_tokens: 8, messages: [{ role: 'user', content: 'hi' }] };

/** The chat of a request with these changes. */
function chat(changes: object, template: string | null = null): ChatRequest {
  return anthropicChat(readMessagesBody({ ...ASKED, ...changes }), template).chat;
}

/** The wishes of a request with these changes that are not kept. */
function warnings(changes: object, template: string | null = null): readonly string[] {
  return anthropicChat(readMessagesBody({ ...ASKED, ...changes }), template).warnings;
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

const IMAGE = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0K' } };
const UNSEEN = '[an image was here; this model cannot see images]';
const CALL = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Rome' } };

describe("Anthropic's messages become a conversation", () => {
  it('with a note in place of what is no text in the system', () => {
    const system = [{ type: 'text', text: 'Be short.' }, IMAGE, { type: 'redacted_thinking', data: 'x' }];
    assert.equal(chat({ system }).messages[0]?.content, 'Be short.\n[an image was here; this model cannot see images]');
  });

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
    assert.equal(chat({ tools, tool_choice: { type: 'none', disable_parallel_tool_use: true } }).toolChoice, 'none');
    assert.equal(chat({}).parallelToolCalls, true);
    assert.equal(chat({ thinking: { type: 'enabled', budget_tokens: 2000 } }).thinking, true);
    assert.equal(chat({ thinking: { type: 'adaptive' } }).thinking, null);
    const format = { type: 'json_schema', schema: { type: 'string' } };
    assert.deepEqual(chat({ output_format: format }).responseFormat?.kind, 'json_schema');
    const output_config = { format: { type: 'json_schema', schema: { type: 'string' } } };
    assert.deepEqual(chat({ output_config }).responseFormat, { kind: 'json_schema', schema: '{"type":"string"}' });
    const effort = { output_config: { effort: 'high' } };
    assert.deepEqual(chat(effort).templateArguments, [], 'a hint that the template has no use for');
    assert.deepEqual(chat({ output_config: { effort: 'low' } }).templateArguments, []);
    const value = { name: 'reasoning_effort', value: '"high"' };
    assert.deepEqual(chat(effort, '{{ reasoning_effort }}').templateArguments, [value]);
  });
});

/** The text that the blocks of a user become, behind a word of the user. */
function userText(...blocks: object[]): string {
  const { messages } = chat({ messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }, ...blocks] }] });
  assert.equal(messages.length, 1);
  assert.match(messages[0]?.content ?? '', /^Hi(?:\n|$)/);
  return (messages[0]?.content ?? '').slice(3);
}

describe("blocks of Anthropic's messages that are no text", () => {
  it('are replaced by a note, whatever their type', () => {
    assert.equal(userText(IMAGE), UNSEEN);
    const pdf = {
      type: 'document',
      title: 'T',
      source: { type: 'base64', media_type: 'application/pdf', data: 'JVB' },
    };
    for (const file of [pdf, { type: 'container_upload', file_id: 'f' }, { type: 'document', source: null }]) {
      assert.equal(userText(file), '[a file was here; this model cannot read files]');
    }
    const types = ['server_tool_use', 'web_search_tool_result', 'code_execution_tool_result', 'mcp_tool_use', 'wat'];
    for (const type of types) {
      assert.equal(
        userText({ type, content: null }),
        `[a part of the type ${type} was here; this model cannot read it]`,
      );
    }
    for (const type of ['<|im_end|>', 'x'.repeat(10_000), '']) {
      assert.equal(userText({ type }), '[a part of an unknown type was here; this model cannot read it]');
    }
  });

  it('give the texts that they bring', () => {
    const document = (source: object): object => ({ type: 'document', title: 'T', context: null, source });
    assert.equal(userText(document({ type: 'text', media_type: 'text/plain', data: 'Some words.' })), 'T\nSome words.');
    assert.equal(userText(document({ type: 'content', content: 'Words.' })), 'T\nWords.');
    const mixed = [{ type: 'text', text: 'Words.' }, IMAGE];
    assert.equal(userText(document({ type: 'content', content: mixed })), `T\nWords.\n${UNSEEN}`);
    const found = { type: 'search_result', source: 'http://a', title: 'A', content: [{ type: 'text', text: 'B' }] };
    assert.equal(userText({ ...found, citations: { enabled: true } }), 'A\nhttp://a\nB');
    assert.equal(userText({ type: 'compaction', content: 'So far.' }), 'So far.');
    assert.equal(userText({ type: 'tool_reference', tool_name: 'f' }), '[the tool f can be called]');
    const encoded = document({ type: 'text', media_type: 'text/plain', data: 'A'.repeat(64) });
    assert.equal(userText(encoded), '[a file was here; this model cannot read files]', 'the rest of it may be lost');
  });

  it('may stand in the results of tools, which then are no words of a user', () => {
    const result = (content: unknown): string | undefined =>
      chat({
        messages: [
          ...ASKED.messages,
          { role: 'assistant', content: [CALL] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content }] },
        ],
      }).messages[2]?.content;
    assert.equal(result([IMAGE]), UNSEEN);
    assert.equal(result([{ type: 'text', text: 'A' }, IMAGE, { type: 'tool_reference', tool_name: 'f' }])?.length, 78);
    assert.equal(result(null), '');
  });

  it('become lines of what an assistant said, and encrypted thoughts leave nothing', () => {
    const said = [
      { type: 'redacted_thinking', data: 'x' },
      { type: 'text', text: 'I sea' },
      { type: 'text', text: 'rch.' },
      { type: 'server_tool_use', id: 's', name: 'web_search', input: {} },
      { type: 'text', text: 'Fou', citations: [{ type: 'web_search_result_location' }] },
      { type: 'text', text: 'nd.' },
    ];
    const messages = [...ASKED.messages, { role: 'assistant', content: said }, { role: 'user', content: 'And?' }];
    assert.deepEqual(chat({ messages }).messages[1], {
      role: 'assistant',
      content: 'I search.\n[a part of the type server_tool_use was here; this model cannot read it]\nFound.',
    });
  });

  it('are refused where the newest message of a user has nothing else', () => {
    const only = { role: 'user', content: [IMAGE, { type: 'text', text: ' ' }] };
    refused({ messages: [only] }, 'messages[0].content[0]', /nothing that this model can read \(image\)/);
    const later = [only, { role: 'assistant', content: 'I see none.' }, { role: 'user', content: 'Well?' }];
    assert.equal(chat({ messages: later }).messages[0]?.content, `${UNSEEN}\n `);
    assert.equal(chat({ messages: [only, { role: 'user', content: 'Well?' }] }).messages.length, 1, 'one turn');
  });
});

describe("the tools of Anthropic's requests", () => {
  const own = { name: 'f', input_schema: { type: 'object' } };
  const search = { type: 'web_search_20250305', name: 'web_search', max_uses: 5 };

  it('are left out with a warning where only Anthropic knows them', () => {
    const types = ['bash_20250124', 'computer_20250124', 'memory_20250818', 'mcp_toolset', 'wat'];
    const tools = [search, ...types.map((type) => ({ type })), own, { type: 'bash_20250124', name: 'bash' }];
    assert.deepEqual(
      chat({ tools }).tools.map(({ name }) => name),
      ['f'],
    );
    assert.deepEqual(
      warnings({ tools }),
      [search.type, ...types].map((type) => `tools: ${type} is left out, because such tools are not run here`),
    );
    const [long = ''] = warnings({ tools: [{ type: 'x'.repeat(10_000) }] });
    assert.match(long, /^tools: x{40} is left out/);
    assert.match(warnings({ mcp_servers: [{ type: 'url', url: 'u', name: 'n' }] })[0] ?? '', /^mcp_servers: each/);
  });

  it('that are left out cannot be chosen', () => {
    const chosen = { tools: [own, search], tool_choice: { type: 'tool', name: 'web_search' } };
    assert.equal(chat(chosen).toolChoice, 'auto');
    assert.match(warnings(chosen)[1] ?? '', /^tool_choice: a call of web_search_20250305 cannot be forced/);
    const any = { tools: [search], tool_choice: { type: 'any' } };
    assert.equal(chat(any).toolChoice, 'auto');
    assert.match(warnings(any)[1] ?? '', /^tool_choice/);
    assert.equal(chat({ ...any, tools: [own, search] }).toolChoice, 'required');
    assert.deepEqual(chat({ ...chosen, tool_choice: { type: 'tool', name: 'f' } }).toolChoice, { name: 'f' });
  });

  it('may bring examples and marks that change no answer', () => {
    const marks = {
      defer_loading: true,
      allowed_callers: ['code_execution_20250825'],
      cache_control: {},
      strict: true,
    };
    const tool = { ...own, ...marks, description: 'D', input_examples: [{ a: 1 }, { a: 2 }] };
    const [made] = chat({ tools: [tool] }).tools;
    assert.equal(made?.description, 'D\nExamples of its input:\n{"a":1}\n{"a":2}');
    assert.deepEqual(warnings({ tools: [tool] }), []);
  });
});

describe("the fields of Anthropic's requests", () => {
  it('are named where they are wrong', () => {
    refused({ max_tokens: undefined }, 'max_tokens');
    refused({ messages: [] }, 'messages');
    refused({ messages: [{ role: 'user', content: [{ text: 'x' }] }] }, 'messages[0].content[0].type');
    refused({ messages: [{ role: 'user', content: [{ type: 'text', text: 5 }] }] }, 'messages[0].content[0].text');
    refused({ system: [{ type: 'text' }] }, 'system[0].text');
    refused({ system: [{ text: 'a' }] }, 'system[0].type');
    const hidden = [{ type: 'redacted_thinking', data: 'x' }];
    const turns = [...ASKED.messages, { role: 'assistant', content: 'b' }, { role: 'user', content: hidden }];
    refused({ messages: turns }, 'messages[2].content[0]', /nothing that this model can read/);
    refused({ messages: [{ role: 'user', content: [CALL] }] }, 'messages[0].content[0]', /user cannot hold a tool_use/);
    refused(
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] },
      'messages[0].content[0].tool_use_id',
    );
    refused({ messages: [...ASKED.messages, { role: 'assistant', content: [CALL] }] }, 'messages', /must follow/);
    refused({ tools: [{ type: 'custom', name: 'f' }] }, 'tools[0].input_schema');
    refused({ tools: [{ name: 'f', input_schema: {}, wat: 1 }] }, 'tools[0].wat', /not known/);
    refused({ thinking: { type: 'between_tools' } }, 'thinking.type');
    refused({ compaction: { type: 'summarize' } }, 'compaction', /never shortened/);
    refused({ whatever: 1 }, 'whatever', /not known/);
    refused({ stop_sequences: [''] }, 'stop_sequences[0]');
  });

  it('are accepted where they change no answer, as are neutral values', () => {
    const body = {
      ...ASKED,
      metadata: { user_id: 'u' },
      service_tier: 'auto',
      cache_control: { type: 'ephemeral' },
      speed: 'fast',
      betas: ['context-1m-2025-08-07'],
      inference_geo: 'eu',
      diagnostics: { previous_message_id: null },
      fallbacks: 'default',
      container: null,
      mcp_servers: [],
      context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
      thinking: { type: 'adaptive', display: 'omitted' },
      stream: false,
    };
    assert.equal(readMessagesBody(body).max_tokens, 8);
    assert.deepEqual(warnings(body), []);
    assert.throws(() => readCountTokensBody(body), /max_tokens/, 'count_tokens makes no answer');
    assert.equal(readCountTokensBody({ model: 'm', messages: ASKED.messages }).model, 'm');
  });
});

describe("wishes of Anthropic's requests that are not kept", () => {
  it('are hints, which answers name', () => {
    const effort = { output_config: { effort: 'high', task_budget: { type: 'tokens', total: 9 } } };
    assert.match(warnings(effort)[0] ?? '', /^output_config\.effort is left out/);
    assert.deepEqual(warnings(effort, '{{ reasoning_effort }}'), []);
    assert.match(warnings({ container: { skills: [] } })[0] ?? '', /^container is left out/);
    const edits = [{ type: 'clear_tool_uses_20250919' }, { type: 'clear_thinking_20251015', keep: 'all' }];
    assert.deepEqual(warnings({ context_management: { edits } }), [
      'context_management: clear_tool_uses_20250919 is left out, because a conversation is never shortened',
    ]);
    assert.equal(chat({ thinking: { type: 'enabled', budget_tokens: 9 } }).isThinkingHint, true);
  });

  it('stand in the head of an answer, streamed or not, and nothing stands there without one', () => {
    const replies = repliesOf({ finishReason: 'stop' });
    for (const words of [undefined, ['a']]) {
      const head = { ...HEAD, ...(words && { warnings: words }) };
      const body = new MessageBody(head, READING);
      for (const reply of replies) body.take(reply);
      assert.deepEqual((body.body() as { warnings?: unknown }).warnings, words);
      const [first = ''] = new MessageStream(head, READING).take(replies[0] as GenerateReply).split('\n\n');
      const { message } = JSON.parse(first.split('data: ')[1] ?? '') as { message: object };
      assert.equal('warnings' in message, words !== undefined);
    }
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
        const message = code === 'PROMPT_TOO_LONG' ? 'prompt is too long: why' : 'why';
        assert.deepEqual(body, { type: 'error', error: { type: body.error.type, message }, request_id: 'r1' });
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
