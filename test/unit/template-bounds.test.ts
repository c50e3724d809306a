import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { BoundedTemplate } from '../../shared/language/jinja/bounded-template.js';
import { chatTemplateFrom } from '../../shared/language/tokenizer/chat-template.js';
import { TemplateBudget, TemplateLimitError } from '../../shared/language/jinja/template-budget.js';

/** A template that repeats a step on its own result. */
function again(start: string, step: string, times = 60): string {
  return `{% set ns = namespace(${start}) %}{% for i in range(${times}) %}${step}{% endfor %}`;
}
const LONG = again("s='ab'", '{% set ns.s = ns.s ~ ns.s %}', 17);
const PLAIN = { values: {}, wallMs: 0 };
const LIMITS = { steps: 250_000, work: 4_000_000 };
const NESTED = again('l=[1]', '{% set ns.l = [ns.l, ns.l] %}');
const MANY = '{% set many = range(100000) %}';

/** Each would take gigabytes, or minutes. */
const HOSTILE: Readonly<Record<string, string>> = {
  'texts put together': again("s='ab'", '{% set ns.s = ns.s ~ ns.s %}'),
  'texts added': again("s='ab'", '{% set ns.s = ns.s + ns.s %}'),
  'texts joined': again("s='ab'", "{% set ns.s = [ns.s, ns.s] | join('') %}"),
  'a long text between many': `${LONG}{{ range(1000) | join(ns.s) }}`,
  'texts replaced by a filter': again("s='ab'", "{% set ns.s = ns.s | replace('b', 'bbbb') %}", 1000),
  'texts replaced by a method': again("s='ab'", "{% set ns.s = ns.s.replace('', 'xxxx') %}"),
  'texts repeated': "{{ 'x' * 1000000000 }}",
  'texts of blocks': again("s='ab'", '{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}'),
  'texts of filtered blocks': again(
    "s='ab'",
    '{% set x %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}{% set ns.s = x %}',
  ),
  'texts of macros':
    "{% macro m(s, n) %}{% if n %}{{ m(s ~ s, n - 1) }}{{ m(s ~ s, n - 1) }}{% endif %}{{ s }}{% endmacro %}{{ m('x', 40) }}",
  'texts of callers':
    '{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m() %}{% call m() %}{% for i in range(100000) %}xxxxxxxxxxxxxx{% endfor %}{% endcall %}{% endcall %}',
  'texts written out': '{% for i in range(100000) %}' + 'x'.repeat(1000) + '{% endfor %}',
  'wide indentation': "{{ 'a\\nb' | indent(1000000000) }}",
  'indentation of many lines': again("s='a\\nb'", '{% set ns.s = ns.s | indent(1000, true) %}', 1000),
  'JSON with wide indentation': '{{ [1, [2]] | tojson(indent=1000000000) }}',
  'JSON with long separators': `${LONG}{{ range(1000) | list | tojson(separators=(ns.s, ns.s)) }}`,
  'JSON of JSON': again("s='\"'", '{% set ns.s = ns.s | tojson %}'),
  'JSON of lists within lists': `${NESTED}{{ ns.l | tojson }}`,
  'lists within lists, printed': `${NESTED}{{ ns.l }}`,
  'lists within lists, as text': `${NESTED}{{ ns.l | string }}`,
  'lists within lists, with a text': `${NESTED}{{ '' ~ ns.l }}`,
  'lists within lists, joined': `${NESTED}{{ ns.l | join(',') }}`,
  'objects within objects': `${again('d={}', "{% set ns.d = {'a': ns.d, 'b': ns.d} %}")}{{ ns.d }}`,
  'lists added': again('l=[1]', '{% set ns.l = ns.l + ns.l %}'),
  'lists repeated': '{{ ([1] * 1000000000) | length }}',
  'numbers of a range': '{{ range(10000000000) | length }}',
  'many ranges': again('l=[]', '{% set ns.l = [ns.l, range(100000)] %}', 1000),
  'loops within loops': '{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}',
  'slices of lists': `${MANY}${again('l=[]', '{% set ns.l = [ns.l, many[::-1]] %}', 1000)}`,
  'lists turned round': `${MANY}${again('l=[]', '{% set ns.l = [ns.l, many | reverse] %}', 1000)}`,
  'lists searched': `${MANY}{% for i in range(100000) %}{% if -1 in many %}{% endif %}{% endfor %}`,
  'lists sorted': `${LONG}{{ ([ns.s ~ 'b', ns.s ~ 'a'] * 1000) | sort | length }}`,
  'members of lists':
    "{% set r = [{'a': 1}] * 100000 %}{% for i in range(10000) %}{% set x = r | map(attribute='a') | list %}{% endfor %}",
  'lists spread': `{% macro m() %}{{ varargs | length }}{% endmacro %}${MANY}{% for i in range(10000) %}{{ m(*many) }}{% endfor %}`,
  'slices of texts': `${LONG}${again('l=[]', '{% set ns.l = [ns.l, long[1:-1]] %}'.replace('long', "('ab' * 100000)"), 1000)}`,
  'texts taken apart': `${LONG}{% for i in range(10000) %}{% set x = ns.s.split('a') %}{% endfor %}`,
  'texts in capitals': `${LONG}{% for i in range(10000) %}{% set x = ns.s | upper %}{% endfor %}`,
  'texts compared': `${LONG}{% for i in range(10000) %}{% if ns.s ~ i == ns.s ~ i %}{% endif %}{% endfor %}`,
  'texts searched': `${LONG}{% for i in range(10000) %}{% if 'x' in ns.s %}{% endif %}{% endfor %}`,
  'keys of long texts': `${LONG}{% set d = {'a': 1} %}{% for i in range(10000) %}{% set x = d[ns.s ~ i] %}{% endfor %}`,
  'keys that are looked for': `${LONG}{% set d = {'a': 1} %}{% for i in range(10000) %}{% if ns.s ~ i in d %}{% endif %}{% endfor %}`,
  'dictionaries of long texts': `${LONG}{% for i in range(10000) %}{% set x = {ns.s ~ i: 1} %}{% endfor %}`,
  'beginnings of texts': `${LONG}{% for i in range(10000) %}{% set x = (ns.s ~ i).startswith('b') %}{% endfor %}`,
  'lists within lists, compared': `${NESTED}{% set first = ns.l %}${NESTED}{{ ns.l == first }}`,
  'lists within lists, written prettily': `${NESTED}{{ ns.l | pprint }}`,
  'sums of lists': '{{ ([[1] * 1000] * 10000) | sum(start=[]) | length }}',
  'rows that are filled': "{{ [1] | batch(1000000000, 'x') | list | length }}",
  'empty slices': '{{ [1] | slice(1000000000) | list | length }}',
  'lines between characters': `${LONG}{{ ns.s | wordwrap(1, wrapstring=ns.s) | length }}`,
  'wide formats of signs': "{{ '%1000000000d' % 1 }}",
  'wide formats of signs, given': "{{ '%*d' % (1000000000, 1) }}",
  'wide formats of braces': "{{ '{:1000000000}'.format(1) }}",
  'formats of formats': again("s='{0}{0}'", "{% set ns.s = ns.s.format('{0}{0}') %}"),
  'wide columns': "{{ 'x'.ljust(1000000000) ~ 'x'.center(1000000000) }}",
  'wide centres': "{{ 'x' | center(1000000000) }}",
  'many zeros': "{{ 'x'.zfill(1000000000) }}",
  'wide tabs': "{{ '\\t'.expandtabs(1000000000) }}",
  'loops that call themselves': '{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}',
  dates: `${again("s='%B'", '{% set ns.s = ns.s ~ ns.s %}', 20)}{{ strftime_now(ns.s) }}`,
  'calls within calls': '{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}',
};

describe('a chat template that would grow without end', () => {
  for (const [what, source] of Object.entries(HOSTILE)) {
    it(`is stopped by its count, not by time or memory: ${what}`, () => {
      const template = new BoundedTemplate(source);
      assert.throws(() => template.render({}, new TemplateBudget(LIMITS), 0), TemplateLimitError);
    });
  }

  it('draws on one budget for all probes of its behaviour', () => {
    // It drops every word, so that all changes of the conversation are tried.
    let renderings = 0;
    const own = Object.getOwnPropertyDescriptor(BoundedTemplate.prototype, 'render');
    assert.ok(own !== undefined);
    const counted = function (this: BoundedTemplate, ...given: Parameters<BoundedTemplate['render']>): string {
      renderings += 1;
      return (own.value as BoundedTemplate['render']).apply(this, given);
    };
    Object.defineProperty(BoundedTemplate.prototype, 'render', { ...own, value: counted });
    try {
      const source = '{% for i in range(40000) %}{% endfor %}';
      const prompt = chatTemplateFrom({}, source, '/model')?.render([{ role: 'user', content: 'Hi' }], PLAIN);
      assert.equal(prompt, '');
      assert.ok(renderings < 20, `${renderings} renderings`);
    } finally {
      Object.defineProperty(BoundedTemplate.prototype, 'render', own);
    }
  });

  it('is reported as a template that has not ended', () => {
    const template = chatTemplateFrom({}, HOSTILE['texts put together'] ?? '', '/model');
    assert.throws(
      () => template?.render([{ role: 'user', content: 'Hi' }], PLAIN),
      (thrown) =>
        thrown instanceof OdmoeError &&
        thrown.code === 'TOKENIZER_INVALID' &&
        /had not ended after making and reading texts/.test(thrown.message),
    );
  });

  it('is refused with a short message, however long a text it raises', () => {
    const template = chatTemplateFrom({}, `${LONG}{{ raise_exception(ns.s) }}`, '/model');
    assert.throws(
      () => template?.render([{ role: 'user', content: 'Hi' }], PLAIN),
      (thrown) => thrown instanceof OdmoeError && thrown.code === 'REQUEST_INVALID' && thrown.message.length < 2000,
    );
  });

  it('is refused where a key has tuples within tuples without end', () => {
    const source = `${again('t=(1,)', '{% set ns.t = (ns.t, ns.t) %}')}{{ {ns.t: 1} | length }}`;
    const template = new BoundedTemplate(source);
    assert.throws(() => template.render({}, new TemplateBudget(LIMITS), 0), /a key has more than 100000 parts/);
  });

  it('is refused where its numbers or its own properties have no end', () => {
    for (const source of [
      `${again('x=3', '{% set ns.x = ns.x * ns.x %}')}{{ ns.x }}`,
      '{% set ns = namespace() %}{% set ns.self = ns %}{{ ns | tojson }}',
      '{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns }}',
    ]) {
      const template = chatTemplateFrom({}, source, '/model');
      assert.throws(() => template?.render([{ role: 'user', content: 'Hi' }], PLAIN), OdmoeError);
    }
  });
});

describe('an ordinary chat template', () => {
  it('may write long messages many times over', () => {
    const source = `{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}
      {{- c.replace('a', 'b') | trim }}{{ c[:5] ~ c[-5:] }}{{ c | tojson }}{% endfor %}`;
    const messages = [{ role: 'user', content: 'a word and more words '.repeat(100_000) }];
    const text = chatTemplateFrom({}, source, '/model')?.render(messages, PLAIN) ?? '';
    assert.ok(text.length > 2 * 2_100_000);
  });

  it('may look through all messages for each of them', () => {
    const source = `{% for m in messages %}{% set later = messages[loop.index:] %}{{ later | selectattr('role', 'equalto', 'user') | list | length }},{% endfor %}`;
    const messages = Array.from({ length: 1000 }, () => ({ role: 'user', content: 'x' }));
    const text = chatTemplateFrom({}, source, '/model')?.render(messages, PLAIN) ?? '';
    assert.ok(text.startsWith('999,998,') && text.endsWith(',1,0,'));
  });
});
