import assert from 'node:assert/strict';
import fc from 'fast-check';
import { createPrepareChat } from '../../http-api/conversation/prepare-chat.js';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { BoundedTemplate } from '../../shared/language/jinja/bounded-template.js';
import { TemplateBudget } from '../../shared/language/jinja/template-budget.js';
import { chatTemplateFrom, type ChatTemplate } from '../../shared/language/tokenizer/chat-template.js';
import { ConversationShaper } from '../../shared/language/tokenizer/conversation-shape.js';
import { templateTokenizer } from './template-tokenizer.js';

/** Short templates that treat conversations as those of families do. */

const CALLS =
  '{%- for c in m.tool_calls or [] -%}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}{%- endfor -%}';
const END = '{%- if add_generation_prompt -%}<assistant>{%- endif -%}';

/** Only a first system or developer message is shown, the first call of a message, and no result without a call (gpt-oss). */
const CHANNELS = `
{%- set first = messages[0].role == 'developer' or messages[0].role == 'system' -%}
<start>{%- if first -%}<developer>{{ messages[0].content }}{%- endif -%}
{%- set ns = namespace(called=none) -%}
{%- for m in (messages[1:] if first else messages) -%}
  {%- if m.role == 'assistant' and m.tool_calls -%}
    {%- set ns.called = m.tool_calls[0].function.name -%}
    <assistant>{{ m.content }}<call>{{ m.tool_calls[0].function.arguments | tojson }}
  {%- elif m.role == 'assistant' -%}{%- set ns.called = none -%}<assistant>{{ m.content }}
  {%- elif m.role == 'tool' -%}
    {%- if ns.called is none -%}{{ raise_exception('a result without a call') }}{%- endif -%}<tool>{{ m.content }}
  {%- elif m.role == 'user' -%}<user>{{ m.content }}{%- endif -%}
{%- endfor -%}${END}`;

const DEEPSEEK_TURNS = `
{%- for m in messages -%}
  {%- if m.role == 'user' -%}<user>{{ m.content }}{%- elif m.role == 'assistant' -%}<assistant>{{ m.content }}${CALLS}
  {%- elif m.role == 'tool' -%}<tool>{{ m.content }}{%- endif -%}
{%- endfor -%}${END}`;

/** The last system message is written at the top (DeepSeek-V2.5 and R1). */
const LAST_SYSTEM = `
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}{%- if m.role == 'system' -%}{%- set ns.system = m.content -%}{%- endif -%}{%- endfor -%}
{{ ns.system }}${DEEPSEEK_TURNS}`;

/** All system messages are written at the top (DeepSeek-V3). */
const ALL_SYSTEMS = LAST_SYSTEM.replace('ns.system = m.content', "ns.system = ns.system ~ m.content ~ ' '");

/** A system message must be the first, and a user must have asked (Qwen3.5). */
const SYSTEM_FIRST = `
{%- set ns = namespace(asked=false) -%}
{%- for m in messages -%}{%- if m.role == 'user' and not m.content.startswith('<tool_response>') -%}{%- set ns.asked = true -%}{%- endif -%}{%- endfor -%}
{%- if not ns.asked -%}{{ raise_exception('No user has asked.') }}{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'system' and not loop.first -%}{{ raise_exception('The system message must be the first.') }}{%- endif -%}
  {%- if m.role not in ['system', 'user', 'assistant', 'tool'] -%}{{ raise_exception('Unexpected role.') }}{%- endif -%}
  <{{ m.role }}>{{ m.content | trim }}${CALLS}
{%- endfor -%}${END}`;

/** Users and assistants take turns, after one system message at most (Mixtral). */
const TURNS = `
{%- set first = messages[0].role == 'system' -%}
{%- for m in (messages[1:] if first else messages) -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
  {%- if m.role == 'user' -%}[INST]{{ messages[0].content ~ ' ' if first and loop.first }}{{ m.content }}[/INST]
  {%- elif m.role == 'assistant' -%}{{ m.content }}</s>
  {%- else -%}{{ raise_exception('only user and assistant roles are supported') }}{%- endif -%}
{%- endfor -%}`;

/** As above, but without a system message (Gemma). */
const NO_SYSTEM = `
{%- if messages[0].role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for m in messages -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
  <turn>{{ 'model' if m.role == 'assistant' else m.role }}: {{ m.content | trim }}</turn>
{%- endfor -%}${END}`;

/** The template writes every role other than user as the assistant. */
const USERS_AND_OTHERS = `
{%- for m in messages -%}
  {%- if m.role == 'user' -%}[INST]{{ m.content }}[/INST]{%- else -%}{{ m.content }}</s>{%- endif -%}
{%- endfor -%}`;

/** Users and answers take turns, calls and results stand between them, with ids of nine letters (Mistral). */
const TURNS_AND_CALLS = `
{%- set first = messages[0].role == 'system' -%}
{%- set ns = namespace(index=0, last=none) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = m -%}{%- endif -%}{%- endfor -%}
{%- for m in (messages[1:] if first else messages) -%}
  {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
    {%- if (m.role == 'user') != (ns.index % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
    {%- set ns.index = ns.index + 1 -%}
  {%- endif -%}
  {%- if m.role == 'user' -%}[INST]{{ messages[0].content ~ ' ' if first and m == ns.last }}{{ m.content }}[/INST]
  {%- elif m.tool_calls -%}
    {%- for c in m.tool_calls -%}{%- if c.id | length != 9 -%}{{ raise_exception('ids have 9 letters') }}{%- endif -%}{%- endfor -%}
    {{ m.content }}${CALLS}
  {%- elif m.role == 'assistant' -%}{{ m.content }}</s>
  {%- elif m.role == 'tool' -%}[RESULT]{{ m.content }}
  {%- else -%}{{ raise_exception('only user and assistant roles are supported') }}{%- endif -%}
{%- endfor -%}`;

/** Any message is written with its role (ChatML, Granite). */
const ANY_ROLE = `{%- for m in messages -%}<{{ m.role }}>{{ m.content }}${CALLS}{%- endfor -%}${END}`;

/** A message has at most one call, and its content is left out if it has a call (Llama 3.1). */
const ONE_CALL = `
{%- for m in messages -%}
  {%- if m.tool_calls -%}
    {%- if m.tool_calls | length != 1 -%}{{ raise_exception('only one call at once') }}{%- endif -%}
    <assistant><call>{{ m.tool_calls[0].function.arguments | tojson }}
  {%- else -%}<{{ m.role }}>{{ m.content | trim }}{%- endif -%}
{%- endfor -%}${END}`;

const TEMPLATES: Readonly<Record<string, string>> = {
  'gpt-oss': CHANNELS,
  'DeepSeek-R1': LAST_SYSTEM,
  'DeepSeek-V3': ALL_SYSTEMS,
  'Qwen3.5': SYSTEM_FIRST,
  Mixtral: TURNS,
  Gemma: NO_SYSTEM,
  Vicuna: USERS_AND_OTHERS,
  Mistral: TURNS_AND_CALLS,
  Granite: ANY_ROLE,
  'Llama 3.1': ONE_CALL,
};
/** Families whose templates have no calls and results. */
const WITHOUT_CALLS: ReadonlySet<string> = new Set(['Mixtral', 'Gemma', 'Vicuna']);
/** Roles whose content a template would write under another role. */
const UNKNOWN_ROLES: Readonly<Record<string, readonly string[]>> = {
  Gemma: ['system', 'developer'],
  Vicuna: ['system', 'developer', 'tool'],
};

function templateOf(source: string): ChatTemplate {
  const template = chatTemplateFrom({}, source, '/model');
  assert.ok(template !== null);
  return template;
}

/** A conversation in letters: system, developer, user, assistant, tool, a call (with words), two calls; its words are w0, w1 and so on. */
function conversation(letters: string): ChatMessage[] {
  const open: string[] = [];
  return [...letters].map((letter, index) => {
    const content = `w${index}.`;
    const call = (number: number): NonNullable<ChatMessage['toolCalls']>[number] => {
      const id = `c${String(index * 10 + number).padStart(8, '0')}`;
      open.push(id);
      return { id, name: 'look', arguments: `{"a": "c${index}n${number}."}` };
    };
    switch (letter) {
      case 's':
        return { role: 'system', content };
      case 'd':
        return { role: 'developer', content };
      case 'u':
        return { role: 'user', content };
      case 't':
        return { role: 'tool', content, toolCallId: open.shift() ?? 'c99999999', name: 'look' };
      case 'c':
        return { role: 'assistant', content, toolCalls: [call(0)] };
      case 'C':
        return { role: 'assistant', content, toolCalls: [call(0), call(1)] };
      default:
        return { role: 'assistant', content };
    }
  });
}

function render(source: string, messages: readonly ChatMessage[], continueLast = false): string {
  return templateOf(source).render(messages, { values: {}, wallMs: 0, continueLast });
}

function count(text: string, word: string): number {
  return text.split(word).length - 1;
}

function requireWords(prompt: string, messages: readonly ChatMessage[], what: string): void {
  for (const { content } of messages) assert.equal(count(prompt, content), 1, `${content} in ${what}: ${prompt}`);
}

/** The prompt that the template itself makes of the messages; null: it refuses them. */
function nativePrompt(source: string, messages: readonly ChatMessage[]): string | null {
  const shown = messages.map(({ role, content, toolCalls, toolCallId, name }) => ({
    role: role === 'developer' && !source.includes('developer') ? 'system' : role,
    content,
    ...(toolCalls && {
      tool_calls: toolCalls.map((call) => ({
        id: call.id,
        type: 'function',
        function: { name: call.name, arguments: JSON.parse(call.arguments) as unknown },
      })),
    }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId, name }),
  }));
  try {
    const budget = new TemplateBudget({ steps: 1e6, work: 1e7 });
    return new BoundedTemplate(source).render({ messages: shown, tools: null, add_generation_prompt: true }, budget, 0);
  } catch {
    return null;
  }
}

describe('a conversation of any shape', () => {
  const letters = fc.string({ unit: fc.constantFrom(...'sduatcC'), minLength: 1, maxLength: 9 });
  for (const [family, source] of Object.entries(TEMPLATES)) {
    it(`is refused by no template, and loses no word, in the manner of ${family}`, () => {
      const template = templateOf(source);
      fc.assert(
        fc.property(letters, (shape) => {
          const messages = conversation(shape);
          const prompt = template.render(messages, { values: {}, wallMs: 0 });
          requireWords(prompt, messages, shape);
          if (WITHOUT_CALLS.has(family)) return;
          for (const call of messages.flatMap(({ toolCalls = [] }) => toolCalls)) {
            assert.ok(prompt.includes(call.arguments.slice(7, -2)), `${call.arguments} in ${shape}: ${prompt}`);
          }
        }),
        { numRuns: 40 },
      );
    });

    it(`stays as it is where the template loses nothing, in the manner of ${family}`, () => {
      const template = templateOf(source);
      fc.assert(
        fc.property(letters, (shape) => {
          const messages = conversation(shape);
          const native = nativePrompt(source, messages);
          if (native === null) return;
          if (messages.some(({ role }) => UNKNOWN_ROLES[family]?.includes(role) === true)) return;
          const words = messages.flatMap(({ content, toolCalls = [] }) => [
            content,
            ...toolCalls.map((call) => call.arguments.slice(7, -2)),
          ]);
          if (words.some((word) => count(native, word) !== 1)) return;
          assert.equal(template.render(messages, { values: {}, wallMs: 0 }), native);
        }),
        { numRuns: 40 },
      );
    });

    it(`begins as the shorter one did, in the manner of ${family}`, () => {
      const template = templateOf(source);
      for (const shape of ['suauau', 'uaua', 'suasuau', 'susasu']) {
        if (family === 'DeepSeek-V3' && shape !== 'suauau' && shape !== 'uaua') continue;
        if (family === 'Mistral' && shape.startsWith('s')) continue;
        let before = '';
        for (let length = 1; length <= shape.length; length += 1) {
          const messages = conversation(shape.slice(0, length));
          if (messages.at(-1)?.role !== 'user') continue;
          const prompt = template.render(messages, { values: {}, wallMs: 0 });
          const shared = before.replace(/(<assistant>|\[\/INST\]|<\/turn>)+$/, '').replace(/(<\/turn>)+$/, '');
          assert.ok(prompt.startsWith(shared), `${shape.slice(0, length)}: ${prompt} after ${before}`);
          before = prompt;
        }
      }
    });
  }

  it('is merged with as few changes as the template needs', () => {
    const cases: [string, string, string][] = [
      ['gpt-oss', 'ddu', '<start><developer>w0.\n\nw1.<user>w2.<assistant>'],
      ['gpt-oss', 'sus', '<start><developer>w0.<user>w1.<user>w2.<assistant>'],
      ['DeepSeek-R1', 'ssu', 'w0.\n\nw1.<user>w2.<assistant>'],
      ['DeepSeek-R1', 'sus', 'w0.<user>w1.<user>w2.<assistant>'],
      ['DeepSeek-V3', 'sus', 'w0. w2. <user>w1.<assistant>'],
      ['Qwen3.5', 'sus', '<system>w0.<user>w1.<user>w2.<assistant>'],
      ['Qwen3.5', 's', '<system>w0.<user><assistant>'],
      ['Mixtral', 'sus', '[INST]w0. w1.\n\nw2.[/INST]'],
      ['Mixtral', 'ssuau', '[INST]w0.\n\nw1. w2.[/INST]w3.</s>[INST]w4.[/INST]'],
      ['Gemma', 'suas', '<turn>user: w0.\n\nw1.</turn><turn>model: w2.</turn><turn>user: w3.</turn><assistant>'],
      ['Gemma', 'us', '<turn>user: w0.\n\nw1.</turn><assistant>'],
      ['Vicuna', 'suasu', '[INST]w0.\n\nw1.[/INST]w2.</s>[INST]w3.[/INST][INST]w4.[/INST]'],
      ['Granite', 'susua', '<system>w0.<user>w1.<system>w2.<user>w3.<assistant>w4.<assistant>'],
      ['Mistral', 'uctu', '[INST]w0.[/INST]w1.<call>look{"a": "c1n0."}[RESULT]w2.</s>[INST]w3.[/INST]'],
    ];
    for (const [family, shape, prompt] of cases) {
      assert.equal(render(TEMPLATES[family] ?? '', conversation(shape)), prompt, `${family} ${shape}`);
    }
  });

  it('has the system message after the results of a call, not between the call and its results', () => {
    assert.equal(
      render(SYSTEM_FIRST, conversation('ucst')),
      '<user>w0.<assistant>w1.<call>look{"a": "c1n0."}<tool>w3.<user>w2.<assistant>',
    );
  });

  it('continues its last message, whatever its shape', () => {
    for (const [family, source] of Object.entries(TEMPLATES)) {
      for (const shape of ['ua', 'sua', 'ssusa', 'uaa', 'a']) {
        const messages = conversation(shape);
        const prompt = render(source, messages, true);
        requireWords(prompt, messages, `${family} ${shape}`);
        assert.ok(prompt.endsWith(messages.at(-1)?.content ?? '?'), `${family} ${shape}: ${prompt}`);
      }
    }
  });

  it('may be long and have no order at all', () => {
    const shape = Array.from({ length: 400 }, (_, index) => 'suadtc'[(index * index * 7 + index) % 6]).join('');
    for (const [family, source] of Object.entries(TEMPLATES)) {
      const messages = conversation(shape);
      requireWords(render(source, messages), messages, family);
    }
  });

  it('is tested when its shape is new, and not again while its turns go on', () => {
    const shaper = new ConversationShaper();
    let tried = 0;
    const write = (messages: readonly ChatMessage[]): string => {
      tried += 1;
      return messages
        .map(({ content, toolCalls = [] }) => content + toolCalls.map((call) => call.arguments).join(''))
        .join('');
    };
    for (const turn of ['ua', 'uctcta', 'uCtta']) {
      for (let turns = 0; turns < 4; turns += 1) shaper.shaped(conversation(`s${turn.repeat(turns)}u`), '', write);
      const known = tried;
      for (let turns = 4; turns < 40; turns += 1) shaper.shaped(conversation(`s${turn.repeat(turns)}u`), '', write);
      assert.equal(tried, known, turn);
    }
    shaper.shaped(conversation('suu'), '', write);
    const known = tried;
    shaper.shaped(conversation('suu'), 'with tools', write);
    assert.ok(tried > known, 'another setting is another shape');
  });
});

describe('conversations that clients commonly send', () => {
  /** If the template accepts no tools, our own system message describes them. */
  it('lose no word over HTTP, with tools and without', () => {
    const tools = [{ name: 'look', description: 'Looks.', parameters: { type: 'object', properties: {} } }];
    for (const [family, source] of Object.entries(TEMPLATES)) {
      const tokenizer = templateTokenizer(source);
      const prepare = createPrepareChat(tokenizer);
      for (const shape of ['sus', 'ddu', 'sducts', 'suCttsu', 'ductus', 'suctctau', 'us', 'uctu']) {
        for (const offered of [[], tools]) {
          const messages = conversation(shape);
          const { request } = prepare({
            messages,
            tools: offered,
            toolChoice: 'auto',
            parallelToolCalls: true,
            responseFormat: null,
            continueLast: false,
            templateArguments: [],
            thinking: null,
          });
          const prompt = tokenizer.renderChat(request.messages, { values: {}, wallMs: 0 });
          requireWords(prompt, messages, `${family} ${shape}`);
        }
      }
    }
  });
});
