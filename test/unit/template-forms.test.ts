import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { chatTemplateFrom, type ChatTemplate } from '../../shared/language/tokenizer/chat-template.js';

function templateOf(source: string): ChatTemplate {
  const template = chatTemplateFrom({}, source, '/model');
  assert.ok(template !== null);
  return template;
}

function render(source: string, messages: readonly ChatMessage[], continueLast = false): string {
  return templateOf(source).render(messages, { values: {}, wallMs: 0, continueLast });
}

/** A conversation with a call of these arguments for each of the texts. */
function calling(...given: readonly string[]): ChatMessage[] {
  const toolCalls = given.map((args, index) => ({ id: `abcde123${index}`, name: 'look', arguments: args }));
  const results = toolCalls.map(({ id }) => ({ role: 'tool', content: 'Sunny.', toolCallId: id, name: 'look' }));
  return [{ role: 'user', content: 'Hi' }, { role: 'assistant', content: '', toolCalls }, ...results];
}

/** A template that writes each call as `body` does. */
function withCalls(body: string): string {
  return (
    '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}' +
    `{% set args = c.function.arguments %}<call>{{ c.function.name }}:${body}</call>{% endfor %}{% endfor %}`
  );
}

const EACH = '{{ k }}={{ v }};{% endfor %}';
/** The ways in which templates write arguments. Most accept only an object, and refuse or drop any other value. */
const BODIES: Readonly<Record<string, string>> = {
  'members by a filter (Qwen3-Coder)': `{% for k, v in args|items %}${EACH}`,
  'members by a method (GLM, MiniMax)': `{% for k, v in args.items() %}${EACH}`,
  'keys (Gemma)': '{% for k in args %}{{ k }}={{ args[k] }};{% endfor %}',
  'members, sorted': `{% for k, v in args|dictsort %}${EACH}`,
  'members where it is an object, and nothing elsewhere': `{% if args is mapping %}{% for k, v in args|items %}${EACH}{% endif %}`,
  'members where it is an object, and a text elsewhere': `{% if args is mapping %}{% for k, v in args|items %}${EACH}{% else %}{{ args }}{% endif %}`,
  'nothing but an object':
    "{% if args is not mapping %}{{ raise_exception('no object') }}{% endif %}{{ args | tojson }}",
  JSON: '{{ args | tojson }}',
  'JSON where it is no text': '{{ args if args is string else args | tojson }}',
  text: "{{ args + '' }}",
};

describe('non-object arguments of earlier calls', () => {
  const written: [body: string, args: string, call: string][] = [
    ['members by a filter (Qwen3-Coder)', '{"city":"x', 'arguments={"city":"x;'],
    ['members by a filter (Qwen3-Coder)', '[1.0, 2]', 'arguments=[1.0, 2];'],
    ['members by a method (GLM, MiniMax)', '12345678901234567890', 'arguments=12345678901234567890;'],
    ['keys (Gemma)', 'no JSON', 'arguments=no JSON;'],
    ['members where it is an object, and nothing elsewhere', 'true', 'arguments=true;'],
    ['members where it is an object, and a text elsewhere', '{"city":"x', '{"city":"x'],
    ['nothing but an object', '{"city":"x', '{"arguments": "{\\"city\\":\\"x"}'],
    ['JSON', '{"city":"x', '"{\\"city\\":\\"x"'],
    ['JSON', '[1.0, 2]', '[1.0, 2]'],
    ['JSON', 'null', 'null'],
    ['JSON where it is no text', '{"city":"x', '{"city":"x'],
    ['text', '{"city":"x', '{"city":"x'],
  ];
  for (const [body, args, call] of written) {
    it(`are written whole: ${args}, by a template of ${body}`, () => {
      assert.equal(
        render(withCalls(BODIES[body] ?? ''), calling(args)),
        `<user>Hi<assistant><call>look:${call}</call><tool>Sunny.`,
      );
    });
  }

  it('are refused by no template, and lose no word, beside arguments that are objects', () => {
    const whole = fc.dictionary(fc.string({ unit: 'grapheme-ascii' }), fc.integer({ min: 100, max: 999 }), {
      minKeys: 1,
    });
    const odd = fc.oneof(
      fc.tuple(whole, fc.nat()).map(([value, cut]) => JSON.stringify(value).slice(0, 2 + (cut % 7))),
      fc.array(fc.integer({ min: 100, max: 999 }), { minLength: 1 }).map((value) => JSON.stringify(value)),
      fc.bigInt({ min: 10n ** 3n, max: 10n ** 30n }).map(String),
      fc.constantFrom('true', 'false', '{', '{"a": NaN}', "{'a': 1}", '[', 'look for it'),
    );
    const wordsOf = (text: string): string[] => text.match(/[a-z0-9]+/g) ?? [];
    for (const [name, body] of Object.entries(BODIES)) {
      const template = templateOf(withCalls(body));
      fc.assert(
        fc.property(odd, (args) => {
          const prompt = template.render(calling('{"sky": 1}', args), { values: {}, wallMs: 0 });
          const calls = prompt.split('<call>').slice(1);
          assert.match(calls[0] ?? '', /sky.*1/, name);
          for (const word of wordsOf(args))
            assert.ok(prompt.toLowerCase().includes(word), `${args} in ${name}: ${prompt}`);
        }),
        { numRuns: 20 },
      );
    }
  });
});

/** Templates that take a list of parts, and refuse or drop a text. */
const PARTS = "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}";
const EVERY_ROLE = `{% for m in messages %}<{{ m.role }}>${PARTS}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`;
const LISTS: Readonly<Record<string, string>> = {
  refuse: EVERY_ROLE,
  'refuse by name': `{% for m in messages %}{% if m.content is string %}{{ raise_exception('a list, please') }}{% endif %}{% endfor %}${EVERY_ROLE}`,
  'look at the first part (SmolVLM)': EVERY_ROLE.replace('<{{', "{{ '' if m.content[0].type == 'image' }}<{{"),
  drop: EVERY_ROLE.replace('m.content %}', '(m.content if m.content is not string else []) %}'),
};

const CONVERSATION: readonly ChatMessage[] = [
  { role: 'system', content: 'Be "brief".' },
  { role: 'user', content: 'one' },
  { role: 'assistant', content: 'two' },
  { role: 'user', content: 'three' },
  { role: 'assistant', content: '', toolCalls: [{ id: 'abcde1234', name: 'look', arguments: '{"a":"four"}' }] },
  { role: 'tool', content: 'five', toolCallId: 'abcde1234', name: 'look' },
  { role: 'user', content: 'six' },
];

describe('the contents of messages', () => {
  for (const [name, source] of Object.entries(LISTS)) {
    it(`are lists of parts for templates that ${name} texts`, () => {
      assert.equal(
        render(source, CONVERSATION),
        '<system>Be "brief".<user>one<assistant>two<user>three<assistant><call>look{"a": "four"}<tool>five<user>six',
      );
      assert.equal(render(source, CONVERSATION.slice(0, 3), true), '<system>Be "brief".<user>one<assistant>two');
    });
  }

  it('are lists only for the roles whose text the template does not take', () => {
    const source = `{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' %}${PARTS}{% else %}{{ m.content + '' }}{% endif %}{% endfor %}`;
    assert.equal(render(source, CONVERSATION.slice(0, 4)), '<system>Be "brief".<user>one<assistant>two<user>three');
  });

  it('are no lists for a template that prints a list unchanged: dropped words go elsewhere', () => {
    const source = `{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% elif m.content is not string %}{{ m.content }}{% endif %}{% endfor %}`;
    assert.equal(render(source, CONVERSATION.slice(0, 2)), '<user>Be "brief".\n\none');
  });

  it('stay texts where the template takes texts', () => {
    const both = `{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}list{% endif %}{% endfor %}`;
    assert.equal(render(both, CONVERSATION.slice(0, 2)), '<system>Be "brief".<user>one');
    const printed =
      "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content | tojson }}{% endif %}{% endfor %}";
    assert.equal(render(printed, CONVERSATION.slice(1, 2)), '<user>"one"');
  });
});

describe('learned forms of messages', () => {
  it('are not learned from a request whose variables the template refuses', () => {
    const source = `{{ raise_exception('no such effort') if effort is defined and effort != 'low' }}${withCalls("{{ args + '' }}")}`;
    const template = templateOf(source);
    const messages = calling('{"b":1,  "a":2}');
    const values = { effort: 'huge' };
    assert.throws(() => template.render(messages, { values, wallMs: 0 }), {
      code: 'REQUEST_INVALID',
      message: /no such effort/,
    });
    assert.equal(
      template.render(messages, { values: {}, wallMs: 0 }),
      '<user>Hi<assistant><call>look:{"b":1,  "a":2}</call><tool>Sunny.',
    );
  });
});
