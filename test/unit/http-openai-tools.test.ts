import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import { WARNINGS_LIMIT } from '../../http-api/conversation/bounded-warnings.js';
import { checkChat } from '../../http-api/conversation/check-chat.js';
import { openaiChat, readChatFields } from '../../http-api/openai/chat-fields.js';
import { CustomInput } from '../../http-api/openai/custom-input.js';
import { openCall, type CallEvent, type CallItem } from '../../http-api/openai/response-calls.js';
import { readResponseFields, responseChatFrom, type ResponseChat } from '../../http-api/openai/response-fields.js';
import type { CallForm } from '../../http-api/openai/response-tools.js';

const PATCH = '*** Begin Patch\n*** Add File: a "b" \\ c.txt\n+\tgrüß 🦊\n*** End Patch\n';
/** Half a surrogate pair. */
const LONE = /\p{Surrogate}/u;
const GRAMMAR = { type: 'grammar', syntax: 'lark', definition: 'start: "a"' };
const APPLY_PATCH = { type: 'custom', name: 'apply_patch', description: 'Edits files.', format: GRAMMAR };
const CLOSE = { type: 'function', name: 'close', description: 'Closes one.', parameters: { type: 'object' } };
const AGENTS = { type: 'namespace', name: 'agents', description: 'Other agents.', tools: [CLOSE, APPLY_PATCH] };
const SEARCH = {
  type: 'tool_search',
  execution: 'client',
  description: 'Finds tools.',
  parameters: { type: 'object' },
};
const HOSTED = [
  'web_search',
  'file_search',
  'code_interpreter',
  'image_generation',
  'mcp',
  'computer_use',
  'local_shell',
];

function read(members: object): ResponseChat {
  const read = responseChatFrom(readResponseFields({ input: 'Hello', ...members }), null);
  checkChat(read.chat);
  return read;
}

const namesOf = ({ chat }: ResponseChat): string[] => chat.tools.map(({ name }) => name);

describe('tools of the responses API', () => {
  it('are functions, whatever their form', () => {
    const { chat, forms, warnings } = read({ tools: [CLOSE, APPLY_PATCH, AGENTS, SEARCH] });
    assert.deepEqual(
      chat.tools.map(({ name }) => name),
      ['close', 'apply_patch', 'agents__close', 'agents__apply_patch', 'tool_search'],
    );
    const [close, patch, inside] = chat.tools;
    assert.deepEqual(close, { name: 'close', description: 'Closes one.', parameters: { type: 'object' } });
    assert.match(patch?.description ?? '', /^Edits files\.\n\n.*lark.*\nstart: "a"$/s);
    assert.deepEqual(patch?.parameters['required'], ['input']);
    assert.equal(inside?.description, 'agents: Other agents.\n\nCloses one.');
    assert.deepEqual(forms.get('agents__apply_patch'), { kind: 'custom', name: 'apply_patch', namespace: 'agents' });
    assert.deepEqual(warnings, []);
  });

  it('that OpenAI runs are left out with a warning', () => {
    const { chat, warnings } = read({ tools: [CLOSE, ...HOSTED.map((type) => ({ type, any: ['property'] }))] });
    assert.deepEqual(
      chat.tools.map(({ name }) => name),
      ['close'],
    );
    assert.equal(warnings.length, HOSTED.length);
    for (const [index, type] of HOSTED.entries()) assert.ok(warnings[index]?.startsWith(`tools: ${type} is left out`));
    assert.deepEqual(namesOf(read({ tools: [{ ...SEARCH, execution: 'server' }] })), []);
  });

  it('of very many types cause few warnings, of which the last counts the others', () => {
    const tools = Array.from({ length: 500 }, (_, index) => ({ type: `kind_${index}` }));
    const inChat = openaiChat(readChatFields({ messages: [{ role: 'user', content: 'Hi' }], tools }), null);
    for (const { warnings } of [read({ tools }), inChat]) {
      assert.equal(warnings.length, WARNINGS_LIMIT);
      assert.ok(warnings[0]?.startsWith('tools: kind_0 is left out'));
      assert.equal(warnings.at(-1), `${501 - WARNINGS_LIMIT} other wishes of this request are not kept, too`);
    }
    assert.equal(read({ tools: tools.slice(0, WARNINGS_LIMIT) }).warnings.length, WARNINGS_LIMIT);
    assert.match(read({ tools: tools.slice(0, WARNINGS_LIMIT) }).warnings.at(-1) ?? '', /^tools: kind_/);
  });

  it('that OpenAI runs are left out of a namespace, too', () => {
    const { chat, warnings } = read({
      tools: [{ ...AGENTS, tools: [{ type: 'mcp', any: 1 }, CLOSE, { type: 'mcp' }] }],
    });
    assert.deepEqual(
      chat.tools.map(({ name, description }) => [name, description]),
      [['agents__close', 'agents: Other agents.\n\nCloses one.']],
    );
    assert.deepEqual(warnings, ['tools: mcp is left out, because such tools are not run here']);
    assert.deepEqual(namesOf(read({ tools: [{ ...AGENTS, tools: [{ type: 'mcp' }] }] })), []);
  });

  it('have names of at most 64 characters', () => {
    const name = 'x'.repeat(60);
    const { chat, forms } = read({ tools: [{ ...AGENTS, tools: [{ ...CLOSE, name }] }] });
    assert.equal(chat.tools[0]?.name, `ts__${name}`);
    assert.deepEqual(forms.get(`ts__${name}`), { kind: 'function', name, namespace: 'agents' });
  });

  it('are refused by the place of the error', () => {
    const wrong: [unknown, string][] = [
      ['close', 'tools[0]'],
      [{ name: 'close' }, 'tools[0].type'],
      [{ type: 'function' }, 'tools[0].name'],
      [{ ...CLOSE, colour: 'red' }, 'tools[0].colour'],
      [{ ...APPLY_PATCH, format: { type: 'regex' } }, 'tools[0].format.type'],
      [{ ...AGENTS, tools: [{ name: 'mcp' }] }, 'tools[0].tools[0].type'],
      [{ ...AGENTS, tools: [CLOSE, { type: 'function' }] }, 'tools[0].tools[1].name'],
    ];
    for (const [tool, field] of wrong)
      assert.throws(() => read({ tools: [tool] }), { code: 'REQUEST_INVALID', field }, field);
  });

  it('are chosen by type and name', () => {
    const tools = [CLOSE, APPLY_PATCH, { ...AGENTS, tools: [{ ...CLOSE, name: 'wait' }] }, { type: 'web_search' }];
    const choose = (tool_choice: unknown, of: unknown[] = tools): unknown[] => {
      const { chat, warnings } = read({ tools: of, tool_choice });
      return [chat.toolChoice, chat.tools.length, warnings.filter((text) => text.startsWith('tool_choice')).length];
    };
    assert.deepEqual(choose('required'), ['required', 3, 0]);
    assert.deepEqual(choose({ type: 'function', name: 'close' }), [{ name: 'close' }, 3, 0]);
    assert.deepEqual(choose({ type: 'custom', name: 'apply_patch' }), [{ name: 'apply_patch' }, 3, 0]);
    assert.deepEqual(choose({ type: 'function', name: 'wait' }), [{ name: 'agents__wait' }, 3, 0]);
    assert.deepEqual(choose({ type: 'web_search' }), ['auto', 3, 1]);
    assert.deepEqual(choose('required', [{ type: 'web_search' }]), ['auto', 0, 1]);
    const allowed = (mode: string, ...named: object[]): unknown => ({ type: 'allowed_tools', mode, tools: named });
    assert.deepEqual(choose(allowed('auto', { type: 'custom', name: 'apply_patch' })), ['auto', 1, 0]);
    assert.deepEqual(choose(allowed('required', { type: 'namespace', name: 'agents' })), ['required', 1, 0]);
    assert.deepEqual(choose(allowed('required', { type: 'web_search' })), ['auto', 0, 1]);
    assert.throws(() => choose({ type: 'function', name: 'nobody' }), { field: 'tool_choice' });
    assert.throws(() => choose(allowed('required', { type: 'function', name: 'nobody' })), { field: 'tool_choice' });
    assert.throws(() => choose('always'), { field: 'tool_choice' });
  });

  it('that a search has found are offered once', () => {
    const found = { type: 'tool_search_output', call_id: 's', execution: 'client', tools: [AGENTS] };
    const input = [
      { type: 'additional_tools', role: 'developer', tools: [CLOSE] },
      { role: 'user', content: 'Hi' },
      { type: 'tool_search_call', call_id: 's', execution: 'client', arguments: { query: 'agents' } },
      found,
      found,
    ];
    const answer = read({ input, tools: [SEARCH] });
    assert.deepEqual(namesOf(answer), ['tool_search', 'close', 'agents__close', 'agents__apply_patch']);
    const [, turn, result] = answer.chat.messages;
    assert.deepEqual(turn?.toolCalls, [{ id: 's', name: 'tool_search', arguments: '{"query":"agents"}' }]);
    assert.deepEqual(JSON.parse(result?.content ?? ''), { tools: ['agents__close', 'agents__apply_patch'] });
  });
});

describe('items of the responses API', () => {
  it('hold calls of each form and their outputs', () => {
    const input = [
      { role: 'user', content: 'Hi' },
      { type: 'reasoning', id: 'r', summary: [], content: null, encrypted_content: 'gAAA' },
      { type: 'custom_tool_call', id: 'i', status: 'completed', call_id: 'c', name: 'apply_patch', input: PATCH },
      { type: 'custom_tool_call_output', id: 'o', call_id: 'c', output: 'Done' },
      { type: 'function_call', call_id: 'f', name: 'close', namespace: 'agents', arguments: '{}' },
      {
        type: 'function_call_output',
        call_id: 'f',
        output: [{ type: 'input_image', image_url: 'data:image/png;base64,AA' }],
      },
      {
        type: 'local_shell_call',
        id: 'i',
        call_id: 'l',
        status: 'completed',
        action: { type: 'exec', command: ['ls'] },
      },
      { type: 'local_shell_call_output', id: 'l', output: 'a.txt' },
      { type: 'web_search_call', id: 'w', status: 'completed', action: { type: 'search', query: 'foxes' } },
    ];
    const { chat, warnings } = read({ input });
    const call = (id: string, name: string, given: object): object => {
      return { role: 'assistant', content: '', toolCalls: [{ id, name, arguments: JSON.stringify(given) }] };
    };
    assert.deepEqual(chat.messages, [
      { role: 'user', content: 'Hi' },
      call('c', 'apply_patch', { input: PATCH }),
      { role: 'tool', content: 'Done', toolCallId: 'c', name: 'apply_patch' },
      call('f', 'agents__close', {}),
      {
        role: 'tool',
        content: '[an image was here; this model cannot see images]',
        toolCallId: 'f',
        name: 'agents__close',
      },
      call('l', 'local_shell', { action: { type: 'exec', command: ['ls'] } }),
      { role: 'tool', content: 'a.txt', toolCallId: 'l', name: 'local_shell' },
    ]);
    assert.deepEqual(warnings, ['input: web_search_call is left out, because such items are not read here']);
  });

  it('of types that are not known are left out, so that a session goes on', () => {
    const other = [{ type: 'compaction', encrypted_content: 'x' }, { type: 'ghost_snapshot' }, { type: 'compaction' }];
    const { chat, warnings } = read({ input: [{ role: 'user', content: 'Hi' }, ...other] });
    assert.deepEqual(chat.messages, [{ role: 'user', content: 'Hi' }]);
    assert.deepEqual(
      warnings,
      ['compaction', 'ghost_snapshot'].map(
        (type) => `input: ${type} is left out, because such items are not read here`,
      ),
    );
    assert.throws(() => read({ input: [{ type: 'function_call', call_id: 'f' }] }), { field: 'input[0].name' });
    assert.throws(() => read({ input: [{ type: 5 }] }), { field: 'input[0].type' });
    assert.throws(() => read({ input: [5] }), { field: 'input[0]' });
  });

  it('that are stored nowhere are refused with advice', () => {
    for (const reference of [{ type: 'item_reference', id: 'msg_1' }, { id: 'msg_1' }]) {
      const input = [{ role: 'user', content: 'Hi' }, reference];
      assert.throws(() => read({ input }), { field: 'input[1]', message: /store: false.*send the item itself/s });
    }
    assert.throws(() => read({ input: [{ type: 'web_search_call' }] }), { field: 'input', message: /no message/ });
  });

  it('may come with wishes that change nothing', () => {
    const { chat, warnings } = read({
      client_metadata: { session_id: 's' },
      include: ['reasoning.encrypted_content'],
      max_tool_calls: 3,
      parallel_tool_calls: true,
      prompt_cache_key: 'k',
      reasoning: { effort: 'medium', summary: 'concise', context: 'all_turns' },
      safety_identifier: 'u',
      service_tier: 'flex',
      stream_options: { include_obfuscation: true },
      text: { verbosity: 'low' },
      truncation: 'auto',
    });
    assert.deepEqual([chat.templateArguments, chat.thinking], [[], null]);
    assert.deepEqual(
      warnings.map((text) => text.split(' ')[0]),
      ['reasoning.effort'],
    );
    assert.throws(() => read({ include: ['everything'] }), { field: 'include[0]' });
  });
});

describe('calls in answers of the responses API', () => {
  const custom: CallForm = { kind: 'custom', name: 'apply_patch', namespace: null };

  function made(form: CallForm | undefined, pieces: readonly string[]): [CallItem, CallEvent[]] {
    const call = openCall('1_0', 'call_1', 'a__b', form);
    const events = pieces.flatMap((piece) => call.take(piece));
    return [call.item, [...events, ...call.end()]];
  }

  it("of a custom tool have the text that the function's arguments hold", () => {
    const [item, events] = made(custom, ['{"inp', 'ut": "a\\', 'n', 'b"', '}']);
    const named = { status: 'in_progress', call_id: 'call_1', name: 'apply_patch' };
    assert.deepEqual(item, { type: 'custom_tool_call', id: 'ctc_1_0', ...named, input: 'a\nb' });
    assert.deepEqual(events, [
      ['response.custom_tool_call_input.delta', { delta: 'a' }],
      ['response.custom_tool_call_input.delta', { delta: '\n' }],
      ['response.custom_tool_call_input.delta', { delta: 'b' }],
      ['response.custom_tool_call_input.done', { input: 'a\nb' }],
    ]);
  });

  it('name the namespace of their tool, and keep the name of a tool that nobody offered', () => {
    const [inside] = made({ kind: 'function', name: 'b', namespace: 'a' }, ['{}']);
    assert.deepEqual(inside, {
      type: 'function_call',
      id: 'fc_1_0',
      status: 'in_progress',
      call_id: 'call_1',
      name: 'b',
      namespace: 'a',
      arguments: '{}',
    });
    const [unknown] = made(undefined, []);
    assert.ok(unknown.type === 'function_call' && unknown.name === 'a__b' && !('namespace' in unknown));
  });

  it('of a search have an object', () => {
    const form: CallForm = { kind: 'search', name: 'tool_search', namespace: null };
    const [item, events] = made(form, ['{"query"', ': "x"}']);
    assert.ok(item.type === 'tool_search_call');
    assert.deepEqual([item.arguments, item.execution, events], [{ query: 'x' }, 'client', []]);
    assert.deepEqual((made(form, ['{"query']) as [{ arguments: object }, unknown])[0].arguments, {});
  });

  function inputOf(pieces: readonly string[]): string[] {
    const input = new CustomInput();
    return [...pieces.map((piece) => input.take(piece)), input.end()];
  }

  it('give the input piece by piece, however it is cut', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.array(fc.nat({ max: 60 })), (text, cuts) => {
        const written = JSON.stringify({ input: text }).replace(/[^\x20-\x7e]/g, (unit) =>
          cuts.length % 2 === 0 ? unit : `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
        );
        const places = [...new Set([0, ...cuts.map((cut) => Math.min(cut, written.length))])].sort((a, b) => a - b);
        const pieces = places.map((place, index) => written.slice(place, places[index + 1]));
        const given = inputOf(pieces);
        assert.equal(given.join(''), text);
        if (cuts.length % 2 !== 0) for (const piece of given) assert.ok(!LONE.test(piece), JSON.stringify(piece));
      }),
    );
    assert.ok(inputOf(['{"input": "long text', ' and more"}'])[0] === 'long text', 'the text waits for its end');
  });

  it('take arguments of another form as the input', () => {
    const forms: [string, string][] = [
      ['{"patch": "x"}', 'x'],
      ['"x"', 'x'],
      ['{"a": 1}', '{"a": 1}'],
      ['*** Begin Patch', '*** Begin Patch'],
      ['', ''],
      ['{"input": "cut of', 'cut of'],
      ['{"input": "a\nb"}', 'a\nb'],
      ['{"input": "a\\x"}', 'a'],
      ['{"input": ""}', ''],
      ['{"more": 1, "input": "x"}', 'x'],
    ];
    for (const [written, text] of forms) assert.equal(inputOf([written]).join(''), text, written);
  });
});
