import assert from 'node:assert/strict';
import fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { templateValues } from '../../shared/wire/template-arguments.js';
import { plainJson } from './plain-json.js';
import { chatTemplateFrom } from '../../shared/language/tokenizer/chat-template.js';
import { dateText } from '../../shared/language/jinja/dates.js';

/** Templates of this test's own, each with what the templates of a family take of Jinja. */

/** Tags around turns, tools as JSON, thinking that is cut out of earlier answers and can be switched off (Qwen). */
const TURNS = `
{%- if tools %}
{{- '<sys>' + (messages[0].content + '\\n' if messages[0].role == 'system' else '') + 'Functions:' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '</sys>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
{{- '<sys>' + messages[0].content + '</sys>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1, asked=false) %}
{%- for message in messages[::-1] %}
  {%- set index = (messages | length - 1) - loop.index0 %}
  {%- if not ns.asked and message.role == 'user' and message.content is string %}
    {%- set ns.asked = true %}{%- set ns.last = index %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- set content = message.content if message.content is string else '' %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<' + message.role + '>' + content + '</' + message.role + '>\\n' }}
  {%- elif message.role == 'assistant' %}
    {%- set thought = '' %}
    {%- if '</think>' in content %}
      {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last and thought %}{{- '<assistant><think>' + thought + '</think>' + content }}
    {%- else %}{{- '<assistant>' + content }}{%- endif %}
    {{- '</assistant>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<assistant>' }}
  {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}
{%- endif %}`;

/** Macros, the date, effort with a default, a developer's message (gpt-oss). */
const CHANNELS = `
{%- macro head(effort) -%}
{{- 'Today: ' + strftime_now('%Y-%m-%d') + '\\n' }}
{{- 'Effort: ' + effort }}
{%- endmacro -%}
{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}{%- endif %}
{{- '[system]' + head(reasoning_effort) + '[end]' }}
{%- if messages[0].role == 'developer' or messages[0].role == 'system' %}
  {%- set instructions = messages[0].content %}{%- set loop_messages = messages[1:] %}
{%- else %}
  {%- set instructions = none %}{%- set loop_messages = messages %}
{%- endif %}
{%- if instructions is not none %}{{- '[developer]' ~ instructions ~ '[end]' }}{%- endif %}
{%- for message in loop_messages -%}
  {{- '[' ~ message.role ~ ']' ~ (message.content | trim) ~ '[end]' }}
{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}`;

/** Roles that must take turns, names of its own for them, a token first (Gemma, DeepSeek). */
const ALTERNATING = `{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
  {%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set loop_messages = messages[1:] -%}
{%- else -%}
  {%- set first = '' -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('Roles must take turns: user, assistant, user, ...') }}
  {%- endif -%}
  {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
  {{ '<' ~ role ~ '>' ~ (first if loop.first else '') }}{{ message['content'] | trim }}{{ '</>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<model>' }}{%- endif -%}`;

const NOON = new Date(2031, 4, 9, 12, 5, 7).getTime();

type Turn = [role: string, content: string];

function render(template: string, turns: readonly Turn[], values: Record<string, unknown> = {}): string {
  const messages = turns.map(([role, content]) => ({ role, content }));
  const config = { bos_token: { content: '<bos>' } };
  return chatTemplateFrom(config, template, '/model')?.render(messages, { values, wallMs: NOON }) ?? '';
}

describe('chat templates of model families', () => {
  it('let the model think unless thinking is switched off', () => {
    const hello: Turn[] = [['user', 'Hi']];
    assert.equal(render(TURNS, hello), '<user>Hi</user>\n<assistant>');
    assert.equal(render(TURNS, hello, { enable_thinking: true }), '<user>Hi</user>\n<assistant>');
    assert.equal(render(TURNS, hello, { enable_thinking: false }), '<user>Hi</user>\n<assistant><think></think>');
  });

  it('leave out the reasoning of earlier answers', () => {
    const turns: Turn[] = [
      ['system', 'Be brief.'],
      ['user', '1 + 1?'],
      ['assistant', '<think>\neasy\n</think>\n\n2'],
      ['user', 'Sure?'],
    ];
    assert.equal(
      render(TURNS, turns),
      '<sys>Be brief.</sys>\n<user>1 + 1?</user>\n<assistant>2</assistant>\n<user>Sure?</user>\n<assistant>',
    );
  });

  it('take tools as JSON, in order', () => {
    const tools = [{ type: 'function', function: { name: 'add', parameters: { a: 'number' } } }];
    assert.equal(
      render(TURNS, [['user', 'Hi']], { tools }),
      '<sys>Functions:\n{"type": "function", "function": {"name": "add", "parameters": {"a": "number"}}}</sys>\n<user>Hi</user>\n<assistant>',
    );
  });

  it('name the date of the given clock, and an effort', () => {
    const head = '[system]Today: 2031-05-09\nEffort: ';
    assert.equal(render(CHANNELS, [['user', ' Hi ']]), `${head}medium[end][user]Hi[end][assistant]`);
    assert.equal(
      render(
        CHANNELS,
        [
          ['developer', 'Rhyme.'],
          ['user', 'Hi'],
        ],
        { reasoning_effort: 'high' },
      ),
      `${head}high[end][developer]Rhyme.[end][user]Hi[end][assistant]`,
    );
  });

  it('put a user message before a leading assistant message, where the template needs one', () => {
    const turns: Turn[] = [
      ['assistant', 'b'],
      ['user', 'c'],
    ];
    assert.equal(render(ALTERNATING, turns), '<bos><user></><model>b</><user>c</><model>');
  });

  it('give a refusal for messages that the template refuses in any shape', () => {
    const turns: Turn[] = [
      ['system', 'S'],
      ['user', ' a'],
      ['assistant', 'b '],
      ['user', 'c'],
    ];
    assert.equal(render(ALTERNATING, turns), '<bos><user>S\n\na</><model>b</><user>c</><model>');
    assert.throws(
      () => render("{{ raise_exception('Roles must take turns: never') }}", turns),
      (thrown) =>
        thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID' && /take turns/.test(thrown.message),
    );
  });
});

describe('the variables of a chat template', () => {
  const argument = (name: string, value: string): { name: string; value: string } => ({ name, value });

  it('can hold any JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
        const text = JSON.stringify(value);
        const { given } = templateValues([argument('given', text)]);
        assert.deepEqual(plainJson(given ?? null), JSON.parse(text));
      }),
    );
  });

  it('are refused by name where a value is not allowed', () => {
    const wrong: [{ name: string; value: string }[], RegExp][] = [
      [[argument('enable-thinking', '1')], /"enable-thinking" is not the name of a variable/],
      [[argument('', '1')], /"" is not the name/],
      [[argument('messages', '[]')], /"messages" cannot be given/],
      [[argument('a', '1'), argument('a', '2')], /"a" was given twice/],
      [[argument('a', '{')], /value of the template argument "a" is not JSON/],
      [[argument('a', JSON.stringify('x'.repeat(1_100_000)))], /at most 1048576 are taken/],
      [Array.from({ length: 33 }, (_, index) => argument(`a${index}`, '1')), /at most 32 are taken/],
    ];
    for (const [given, message] of wrong) {
      assert.throws(
        () => templateValues(given),
        (thrown) => thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID' && message.test(thrown.message),
        String(message),
      );
    }
  });

  it('are refused when they are nested too deeply', () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    const turns: Turn[] = [['user', 'Hi']];
    try {
      render(TURNS, turns, templateValues([argument('tools', deep)]));
    } catch (thrown) {
      assert.ok(thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID', String(thrown));
    }
  });
});

describe('strftime for chat templates', () => {
  it('writes the same text as Python, and leaves unknown directives alone', () => {
    const formats: [string, string][] = [
      ['%Y-%m-%d', '2031-05-09'],
      ['%d %b %Y', '09 May 2031'],
      ['%A, %B %-d, %y', 'Friday, May 9, 31'],
      ['%a %H:%M:%S %I %p', 'Fri 12:05:07 12 PM'],
      ['100%% %Q %', '100% %Q %'],
    ];
    for (const [format, expected] of formats) assert.equal(dateText(NOON, format), expected);
    assert.equal(dateText(new Date(2031, 0, 3, 0, 1).getTime(), '%-I %p %-m %-d'), '12 AM 1 3');
  });
});
