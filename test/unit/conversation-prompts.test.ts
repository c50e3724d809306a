import assert from 'node:assert/strict';
import type { ChatRequest, PreparedChat } from '../../http-api/conversation/chat-request.js';
import { chatAbilities, createPrepareChat } from '../../http-api/conversation/prepare-chat.js';
import { prepareChatFor } from '../../http-api/conversation/served-chat.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { templateTokenizer } from './template-tokenizer.js';

/** Writes turns only. */
const BARE = `{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`;

/** Tools, calls with arguments as an object, reasoning that can be switched off. */
const FULL = `
{%- if tools %}<tools>{{ tools | tojson }}</>{% endif %}
{%- for m in messages %}
{{- '<' + m.role + '>' }}
{%- if m.reasoning_content %}{{- '<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}{{- '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' }}{% endfor %}
{{- '</>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}`;

/** Writes calls with arguments as text, only if there is no content. It does not write tools. */
const TEXTUAL = `
{%- for m in messages %}
{{- '<' + m.role + '>' }}
{%- if m.content is none %}
{%- for call in m.tool_calls or [] %}{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}{% endfor %}
{%- else %}{{- m.content }}{% endif %}
{{- '</>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' + ('<think>' if thinking else '</think>') }}{% endif %}`;

const ALWAYS = BARE.replace('<assistant>{% endif %}', '<assistant><think>\\n{% endif %}').replace('\\n', '\n');

const OSLO: ChatMessage[] = [
  { role: 'user', content: 'Weather?' },
  {
    role: 'assistant',
    content: '',
    reasoningContent: 'Ask.',
    toolCalls: [{ id: 'call_1', name: 'weather', arguments: '{"city":"Oslo"}' }],
  },
  { role: 'tool', content: 'rain', toolCallId: 'call_1', name: 'weather' },
];
const TOOLS = [
  {
    name: 'weather',
    description: 'Tells it.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
];

function chat(members: Partial<ChatRequest>): ChatRequest {
  return {
    messages: [{ role: 'user', content: 'Hello' }],
    tools: [],
    toolChoice: 'auto',
    parallelToolCalls: true,
    responseFormat: null,
    continueLast: false,
    templateArguments: [],
    thinking: null,
    ...members,
  };
}

function prepared(source: string, members: Partial<ChatRequest>): { prompt: string; chat: PreparedChat } {
  const tokenizer = templateTokenizer(source);
  const made = createPrepareChat(tokenizer)(chat(members));
  const { messages, templateArguments = [], continueLast = false } = made.request;
  const context = { values: templateValues(templateArguments), wallMs: 0, continueLast };
  return { prompt: tokenizer.renderChat(messages, context), chat: made };
}

function refused(source: string, members: Partial<ChatRequest>, field: string | null, message: RegExp): void {
  assert.throws(
    () => prepared(source, members),
    (thrown) => {
      assert.ok(thrown instanceof OdmoeError, String(thrown));
      assert.equal(thrown.code, 'REQUEST_INVALID');
      assert.match(thrown.message, message);
      assert.equal(thrown.field, field);
      return true;
    },
  );
}

/** A tokenizer that counts how often its template is applied. */
function counted(source: string): { tokenizer: Tokenizer; rendered: () => number } {
  const tokenizer = templateTokenizer(source);
  let rendered = 0;
  const counting: Tokenizer = {
    ...tokenizer,
    renderChat: (...given) => {
      rendered += 1;
      return tokenizer.renderChat(...given);
    },
  };
  return { tokenizer: counting, rendered: () => rendered };
}

describe('prompts of conversations with tools', () => {
  it('come from the template where it supports tools', () => {
    const { prompt } = prepared(FULL, { messages: OSLO, tools: TOOLS });
    assert.equal(
      prompt,
      '<tools>[{"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]</>' +
        '<user>Weather?</><assistant><think>Ask.</think><tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call></><tool>rain</><assistant>',
    );
  });

  it('contain no tools where no call is allowed', () => {
    const { prompt, chat: made } = prepared(FULL, { tools: TOOLS, toolChoice: 'none' });
    assert.equal(prompt, '<user>Hello</><assistant>');
    const parser = made.createParser(prompt);
    const text = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>';
    assert.deepEqual([...parser.push(text), ...parser.finish()], [{ kind: 'content', text }]);
  });

  it('describe the tools in a message where the template has no support for tools', () => {
    const { prompt } = prepared(BARE, { messages: OSLO, tools: TOOLS });
    assert.match(prompt, /^<system>.*"name":"weather".*<tool_call>\n\{"name": "NAME", "arguments": /s);
    assert.match(
      prompt,
      /<assistant><tool_call>\n\{"name": "weather", "arguments": \{"city":"Oslo"\}\}\n<\/tool_call><\/>/,
    );
    assert.match(prompt, /<user><tool_response>\nrain\n<\/tool_response><\/><assistant>$/);
    assert.match(
      prepared(BARE, { messages: [{ role: 'system', content: 'Be brief.' }, ...OSLO], tools: TOOLS }).prompt,
      /^<system>Be brief\.\n\nThese functions/,
    );
  });

  it('describe the tools to the user where the template takes no system message', () => {
    const noSystem = `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% endfor %}${BARE}`;
    assert.match(prepared(noSystem, { tools: TOOLS }).prompt, /^<user>These functions.*\n\nHello<\/><assistant>$/s);
  });

  it('ask nothing more of a template that does not end', () => {
    const endless = `{% set ns = namespace(s='ab') %}{% for i in range(90) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}${BARE}`;
    const { tokenizer, rendered } = counted(endless);
    const { problem, ...abilities } = chatAbilities(tokenizer);
    assert.deepEqual(abilities, { tools: 'fallback', thinking: false });
    assert.equal(problem?.code, 'TOKENIZER_INVALID');
    assert.equal(rendered(), 1);
  });

  it('give arguments as text, and no content, to a template that needs it, and show the model its own form', () => {
    const { prompt } = prepared(TEXTUAL, { messages: OSLO, tools: TOOLS });
    assert.match(prompt, /<｜tool▁call▁begin｜>weather<｜tool▁sep｜>\{"city":"Oslo"\}<\/>/);
    assert.match(prompt, /^<system>.*<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>\{"KEY": "VALUE"\}/s);
  });

  it('have call ids of nine letters where the template needs them, and each id is stable', () => {
    const nine = `{% for m in messages %}{% if m.tool_call_id is defined and m.tool_call_id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}{{ c.function.arguments | tojson }}({{ c.id }}){% endfor %}{{ m.content }}{{ '=' + m.tool_call_id if m.tool_call_id }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}`;
    const { prompt } = prepared(nine, { messages: OSLO, tools: TOOLS });
    assert.match(prompt, /\(([0-9a-f]{9})\)rain=\1/);
  });

  it("test the template once for the model's abilities and for its prompts", () => {
    const { tokenizer, rendered } = counted(FULL);
    chatAbilities(tokenizer);
    const once = rendered();
    assert.ok(once > 0);
    createPrepareChat(tokenizer);
    chatAbilities(tokenizer);
    assert.equal(rendered(), once);
  });

  it('report the abilities of the model', () => {
    assert.deepEqual(chatAbilities(templateTokenizer(FULL)), { tools: 'native', thinking: true, problem: null });
    assert.deepEqual(chatAbilities(templateTokenizer(BARE)), { tools: 'fallback', thinking: false, problem: null });
  });
});

describe('a template that fails with tools', () => {
  const failing =
    '{% if tools %}{{ tools[0].function.name.nothing.more }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}';

  it('is named in the log once, and in the abilities', () => {
    const tokenizer = templateTokenizer(failing);
    const warned: unknown[] = [];
    prepareChatFor(tokenizer, { warn: (event, fields) => warned.push([event, fields]) });
    const { tools, problem } = chatAbilities(tokenizer);
    assert.equal(tools, 'fallback');
    assert.match(problem?.message ?? '', /does not take these messages: a str has no attribute nothing/);
    assert.equal(warned.length, 1);
    assert.match(JSON.stringify(warned), /fails where it is tried with tools.*REQUEST_INVALID.*no attribute nothing/);
  });

  it('is not named where it takes them', () => {
    const warned: unknown[] = [];
    prepareChatFor(templateTokenizer(FULL), { warn: (event) => warned.push(event) });
    prepareChatFor(null, { warn: (event) => warned.push(event) });
    assert.deepEqual(warned, []);
  });
});

describe('forced tool calls', () => {
  const literals = (members: Partial<ChatRequest>, source = FULL): string[] =>
    (prepared(source, members).chat.outputFormat?.alternatives ?? []).map(({ parts }) =>
      parts.map((part) => (part.kind === 'literal' ? part.literal : `[${part.kind}]`)).join(''),
    );
  const two = [...TOOLS, { name: 'now', description: '', parameters: {} }];
  const call = (name: string): string => `<tool_call>\n{"name": "${name}", "arguments": [jsonSchema]}\n</tool_call>`;

  it('may be of any function, or of the named one, after reasoning', () => {
    const off = { tools: two, thinking: false };
    assert.deepEqual(literals({ ...off, toolChoice: 'required' }), [call('weather'), call('now')]);
    assert.deepEqual(literals({ ...off, toolChoice: { name: 'now' } }), [call('now')]);
    assert.deepEqual(literals({ tools: two, toolChoice: { name: 'now' } }), [
      `<think>[until]\n\n${call('now')}`,
      call('now'),
    ]);
    assert.deepEqual(literals({ tools: two, toolChoice: { name: 'now' } }, ALWAYS), [`[until]\n\n${call('now')}`]);
    assert.deepEqual(literals({ tools: two }), []);
  });

  it('are an alternative to JSON where either may come', () => {
    assert.deepEqual(literals({ tools: TOOLS, thinking: false, responseFormat: { kind: 'json_object' } }), [
      '[jsonSchema]',
      call('weather'),
    ]);
    const schema = '{"type":"integer"}';
    const { outputFormat } = prepared(BARE, { responseFormat: { kind: 'json_schema', schema } }).chat;
    assert.deepEqual(outputFormat, { alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema: schema }] }] });
  });

  it('are limited to one where only one may be made', () => {
    const { chat: made } = prepared(FULL, { tools: TOOLS, parallelToolCalls: false });
    const parser = made.createParser('');
    const one = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>';
    const deltas = [...parser.push(one + one), ...parser.finish()];
    assert.deepEqual(
      deltas.map(({ kind }) => kind),
      ['toolCall', 'toolArguments'],
    );
    assert.equal(parser.lastCallWhole, true);
  });
});

describe('an answer that must be a tool call', () => {
  const deltas = (text: string, members: Partial<ChatRequest>): string[] => {
    const parser = prepared(FULL, { tools: TOOLS, ...members }).chat.createParser('');
    return [...parser.push(text), ...parser.finish()].map(({ kind }) => kind);
  };

  it('has no content where its beginning is cut off', () => {
    assert.deepEqual(deltas('<tool_ca', { toolChoice: 'auto' }), ['content']);
    assert.deepEqual(deltas('<tool_ca', { toolChoice: 'required' }), []);
    assert.deepEqual(deltas('<tool_ca', { toolChoice: { name: 'weather' } }), []);
  });

  it('has calls with distinct ids among the answers to one prompt', () => {
    const { chat: made } = prepared(FULL, { tools: TOOLS });
    const ids = [undefined, 0, 1].map((answer) => {
      const [delta] = made.createParser('', answer).push('<tool_call>{"name": "weather", "arguments": {}}</tool_call>');
      return delta?.kind === 'toolCall' ? delta.id : '';
    });
    assert.match(ids[0] ?? '', /^call_/);
    assert.equal(ids[0], ids[1]);
    assert.notEqual(ids[0], ids[2]);
  });
});

describe('reasoning in a conversation', () => {
  it('is switched by the variable that the template has', () => {
    assert.match(prepared(FULL, { thinking: false }).prompt, /<think>\n\n<\/think>\n\n$/);
    assert.match(prepared(FULL, { thinking: true }).prompt, /<assistant>$/);
    assert.match(prepared(TEXTUAL, { thinking: true }).prompt, /<think>$/);
    const given = { thinking: false, templateArguments: [{ name: 'enable_thinking', value: 'true' }] };
    assert.match(prepared(FULL, given).prompt, /<assistant>$/);
    const effort = prepared(`${BARE}{{ reasoning_effort }}`, { thinking: false });
    assert.deepEqual(effort.chat.request.templateArguments, [{ name: 'reasoning_effort', value: '"low"' }]);
  });

  it('is refused for a model without it, and cannot be switched off for a model that always thinks', () => {
    assert.equal(prepared(BARE, { thinking: false }).prompt, '<user>Hello</><assistant>');
    refused(BARE, { thinking: true }, 'thinking', /has none/);
    refused(ALWAYS, { thinking: false }, 'thinking', /always thinks/);
  });

  it('is left out with a warning where it is a hint, for a model that cannot do so', () => {
    const hinted = (source: string, thinking: boolean): readonly string[] =>
      prepared(source, { thinking, isThinkingHint: true }).chat.warnings;
    assert.match(hinted(BARE, true)[0] ?? '', /has none$/);
    assert.match(hinted(ALWAYS, false)[0] ?? '', /always thinks/);
    for (const kept of [hinted(BARE, false), hinted(ALWAYS, true), hinted(FULL, true), hinted(FULL, false)]) {
      assert.deepEqual(kept, []);
    }
  });

  it('begins where the prompt has opened it, and not where a user wrote about it', () => {
    const deltas = (source: string, members: Partial<ChatRequest>): string[] => {
      const { prompt, chat: made } = prepared(source, members);
      return made
        .createParser(prompt)
        .push('Hm. So')
        .map(({ kind }) => kind);
    };
    const about = [{ role: 'user', content: 'What is <think>?' }];
    assert.deepEqual(deltas(ALWAYS, {}), ['reasoning']);
    assert.deepEqual(deltas(FULL, { messages: about }), ['content']);
    assert.deepEqual(deltas(FULL, { thinking: false }), ['content']);
    const begun = [...about, { role: 'assistant', content: '<think>\nWell' }];
    assert.deepEqual(deltas(FULL, { messages: begun, continueLast: true }), ['reasoning']);
  });
});

describe('an answer that continues the last message', () => {
  const begun = (content: string): Partial<ChatRequest> => ({
    messages: [
      { role: 'user', content: 'Count.' },
      { role: 'assistant', content },
    ],
    continueLast: true,
  });

  it('has a prompt that ends where the message does', () => {
    assert.equal(prepared(FULL, begun('One, two, ')).prompt, '<user>Count.</><assistant>One, two, ');
    assert.equal(prepared(FULL, begun('a')).prompt, '<user>Count.</><assistant>a');
    const trimming = BARE.replace('m.content', 'm.content | trim');
    assert.equal(prepared(trimming, begun(' One,\n')).prompt, '<user>Count.</><assistant>One,\n');
  });

  it('is refused where the template changes the message', () => {
    refused(BARE.replace('m.content', 'm.content[:9]'), begun('One,'), 'messages', /leaves out its end/);
    refused(
      BARE.replace('m.content', "m.content.split('</think>')[-1]"),
      begun('Hm.</think>One,'),
      'messages',
      /changes its text/,
    );
  });

  it('needs a last message, and no other field that forbids it', () => {
    refused(FULL, { continueLast: true }, 'messages[0]', /an assistant's message only/);
    refused(FULL, begun(''), 'messages[1]', /must have a content/);
    refused(FULL, { ...begun('a'), responseFormat: { kind: 'json_object' } }, 'response_format', /whole answer/);
    refused(FULL, { ...begun('a'), tools: TOOLS, toolChoice: 'required' }, 'tool_choice', /cannot be forced/);
  });
});

describe('a conversation in a request', () => {
  it('is refused with the name of the wrong field', () => {
    const tool = (name: string): ChatRequest['tools'][number] => ({ name, description: '', parameters: {} });
    refused(BARE, { tools: [tool('a b')] }, 'tools[0]', /must be 1 to 64/);
    for (const name of ['a:b', '', 'x'.repeat(65)])
      refused(BARE, { tools: [tool(name)] }, 'tools[0]', /must be 1 to 64/);
    refused(BARE, { tools: [tool('a'), tool('a')] }, 'tools[1]', /given twice/);
    refused(BARE, { tools: [{ ...tool('a'), parameters: { type: 'string' } }] }, 'tools[0]', /are no object/);
    refused(BARE, { toolChoice: 'required' }, 'tool_choice', /no tools were given/);
    refused(BARE, { tools: [tool('a')], toolChoice: { name: 'b' } }, 'tool_choice', /not among the tools/);
    const many = Array.from({ length: 129 }, (_, index) => tool(`t${index}`));
    refused(BARE, { tools: many }, 'tools', /at most 128/);
    refused(BARE, { tools: [{ ...tool('a'), description: 'x'.repeat(600_000) }] }, 'tools', /at most 524288/);
  });

  it("has a system message in place of a developer's where the template does not know that role", () => {
    const messages = [
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: 'Hello' },
    ];
    assert.equal(prepared(BARE, { messages }).prompt, '<system>Be brief.</><user>Hello</><assistant>');
    const knows = `{% if messages[0].role == "developer" %}!{% endif %}${BARE}`;
    assert.equal(prepared(knows, { messages }).prompt, '!<developer>Be brief.</><user>Hello</><assistant>');
  });
});
