import assert from 'node:assert/strict';
import fc from 'fast-check';
import { readExactJson } from '../../shared/base/json/exact-json.js';
import { chatTemplateFrom } from '../../shared/language/tokenizer/chat-template.js';
import { pythonFloat } from '../../shared/language/jinja/print-float.js';

const ARGUMENTS =
  '{"id": 12345678901234567890, "10": 1, "2": [2, -0, 1.0, 1E5], "f": 1.50, "t": true, "n": null, "s": "a\'é\\n"}';

function render(source: string, given: string = ARGUMENTS): string {
  const template = chatTemplateFrom({}, source, '/model');
  assert.ok(template !== null);
  const values = { args: readExactJson(given) };
  return template.render([{ role: 'user', content: 'Hi' }], { values, wallMs: 0 });
}

/** The text that a template makes of the arguments of a call. */
function called(source: string, args: string): string {
  const toolCalls = [{ id: 'abcde1234', name: 'now', arguments: args }];
  const messages = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: '', toolCalls },
    { role: 'tool', content: 'R', toolCallId: 'abcde1234' },
  ];
  return chatTemplateFrom({}, source, '/model')?.render(messages, { values: {}, wallMs: 0 }) ?? '';
}

const CALLS =
  "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name ~ ':' }}BODY{% endfor %}{% endfor %}";

describe('the values in a chat template', () => {
  // The texts are the results of Python's json and Jinja2.
  const made: [source: string, text: string][] = [
    [
      '{{ args | tojson }}',
      '{"id": 12345678901234567890, "10": 1, "2": [2, 0, 1.0, 100000.0], "f": 1.5, "t": true, "n": null, "s": "a\'é\\n"}',
    ],
    [
      '{{ args }}',
      `{'id': 12345678901234567890, '10': 1, '2': [2, 0, 1.0, 100000.0], 'f': 1.5, 't': True, 'n': None, 's': "a'é\\n"}`,
    ],
    ['{{ args | string == args ~ "" }}', 'True'],
    [
      '{% for k, v in args.items() %}{{ k }}={{ v }};{% endfor %}',
      "id=12345678901234567890;10=1;2=[2, 0, 1.0, 100000.0];f=1.5;t=True;n=None;s=a'é\n;",
    ],
    ['{% for k, v in args | items %}{{ k }},{% endfor %}', 'id,10,2,f,t,n,s,'],
    ['{% for k in args %}{{ k }},{% endfor %}', 'id,10,2,f,t,n,s,'],
    ['{% for k, v in args | dictsort %}{{ k }},{% endfor %}', '10,2,f,id,n,s,t,'],
    ["{{ args['2'] | join('|') }}", '2|0|1.0|100000.0'],
    [
      '{{ args.id | string }} {{ args.id ~ "" }} {{ "" + (args.id | string) }}',
      '12345678901234567890 12345678901234567890 12345678901234567890',
    ],
    [
      '{{ args.id == args["id"] }} {{ args.id > 5 }} {{ args.id is number }} {{ args.id is even }}',
      'True True True True',
    ],
    [
      '{{ args.id + 1 }} {{ args.id * 2 }} {{ -args.id }} {{ args.id // 10 }} {{ args.id % 7 }}',
      '12345678901234567891 24691357802469135780 -12345678901234567890 1234567890123456789 1',
    ],
    [
      '{{ args.id | abs }} {{ args.id | int }} {{ args.id | float }}',
      '12345678901234567890 12345678901234567890 1.2345678901234567e+19',
    ],
    ["{{ '12345678901234567890' | int + 0 }}", '12345678901234567890'],
    [
      '{{ args | tojson(indent=1, separators=(";", "=")) }}'.replace('args', 'args["2"]'),
      '[\n 2;\n 0;\n 1.0;\n 100000.0\n]',
    ],
    [
      '{{ args | tojson(sort_keys=true, ensure_ascii=true) }}',
      '{"10": 1, "2": [2, 0, 1.0, 100000.0], "f": 1.5, "id": 12345678901234567890, "n": null, "s": "a\'\\u00e9\\n", "t": true}',
    ],
  ];
  for (const [source, text] of made) {
    it(`are written as Python writes them: ${source}`, () => assert.equal(render(source), text));
  }

  // The texts are the results of Python 3.13 and Jinja2 3.1.
  const literals: [source: string, text: string][] = [
    ['{{ 12345678901234567890 }} {{ -12345678901234567890 }}', '12345678901234567890 -12345678901234567890'],
    ['{{ 9007199254740992 }} {{ 9007199254740993 }}', '9007199254740992 9007199254740993'],
    ['{{ 9007199254740993 - 1 }} {{ 3 * 9007199254740993 }}', '9007199254740992 27021597764222979'],
    ['{{ args.id == 12345678901234567890 }} {{ args.id == 12345678901234567891 }}', 'True False'],
    ['{{ {"n": [12345678901234567890]} | tojson }}', '{"n": [12345678901234567890]}'],
    [
      '{% set n = 12345678901234567890 %}{{ n }} {{ n is number }} {{ n is defined }}',
      '12345678901234567890 True True',
    ],
    [
      '{% macro m(n=12345678901234567890) %}{{ n }}{% endmacro %}{{ m() }} {{ m(98765432109876543210) }}',
      '12345678901234567890 98765432109876543210',
    ],
    [
      '{{ 12345678901234567890 if true else 1 }}{{ none | default(12345678901234567890, true) }}',
      '1234567890123456789012345678901234567890',
    ],
    ['{{ [1, 2, 3][:9223372036854775807] }} {{ "abc"[-9223372036854775807:] }}', '[1, 2, 3] abc'],
    ['{{ [1, 2][9223372036854775807] is defined }}', 'False'],
    [
      '{{ "a-b-c".replace("-", "", 9223372036854775807) }} {{ "a b".split(" ", 9223372036854775807) }}',
      "abc ['a', 'b']",
    ],
    ['{{ 12345678901234567890.5 }}', '1.2345678901234567e+19'],
  ];
  for (const [source, text] of literals) {
    it(`keep their digits where they stand in the template: ${source}`, () => assert.equal(render(source), text));
  }

  it('have at most the digits that Python reads, in the template, too', () => {
    assert.equal(render(`{{ ${'7'.repeat(4300)} }}`), '7'.repeat(4300));
    assert.throws(() => render(`{{ ${'7'.repeat(4301)} }}`), { code: 'TOKENIZER_INVALID', message: /4301 digits/ });
  });

  it('have their methods where properties have the same names', () => {
    assert.equal(
      render('{% for k, v in args.items() %}{{ k }}={{ v }};{% endfor %}', '{"items": 1, "get": 2}'),
      'items=1;get=2;',
    );
    assert.equal(render("{{ args['items'] }} {{ args.items is callable }}", '{"items": 1}'), '1 True');
  });

  it('come back unchanged through tojson, for any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.bigInt(), (value, large) => {
        const text = `{"9": ${JSON.stringify(value)}, "1": ${large}}`;
        const written = render('{{ args | tojson }}', text);
        assert.deepEqual(readExactJson(written), readExactJson(text));
      }),
    );
  });
});

describe('the arguments of earlier calls', () => {
  it('keep digits and order in a template that takes them as an object', () => {
    const args = '{"id": 12345678901234567890, "10": 1, "2": 2, "f": 1.0, "t": true}';
    const json = CALLS.replace('BODY', '{{ c.function.arguments | tojson }}');
    assert.equal(called(json, args), `now:${args}`);
    const each = CALLS.replace(
      'BODY',
      "{% for k, v in c.function.arguments | items %}{{ k ~ '=' ~ (v | string) ~ ' ' }}{% endfor %}",
    );
    assert.equal(called(each, args), 'now:id=12345678901234567890 10=1 2=2 f=1.0 t=True ');
  });

  it('stay text in a template that takes them as text', () => {
    const source = CALLS.replace('BODY', '{{ c.function.arguments }}');
    for (const args of ['{"id":1e3,  "a": 1.00}', '{"city":"x', '{"k": null}', '{"a":1,"a":2}']) {
      assert.equal(called(source, args), `now:${args}`);
    }
  });

  it('are the same text for any template where they are no JSON', () => {
    const source = CALLS.replace(
      'BODY',
      '{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif %}',
    );
    for (const args of ['{"city":"x', '{"a": NaN}', "{'a': 1}"]) assert.equal(called(source, args), `now:${args}`);
  });
});

describe('a float in a chat template', () => {
  it('has the digits and exponents of Python', () => {
    const floats: [number, string][] = [
      [1, '1.0'],
      [-0, '-0.0'],
      [0.1, '0.1'],
      [123.456, '123.456'],
      [1e15, '1000000000000000.0'],
      [1e16, '1e+16'],
      [1.5e300, '1.5e+300'],
      [0.0001, '0.0001'],
      [0.00001, '1e-05'],
      [-1.25e-7, '-1.25e-07'],
      [5e-324, '5e-324'],
      [Infinity, 'inf'],
    ];
    for (const [value, text] of floats) assert.equal(pythonFloat(value), text);
  });

  it('is the same number when it is read again', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => Number(pythonFloat(value)) === value),
    );
  });
});
