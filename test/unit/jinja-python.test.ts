import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ExactJson, readExactJson } from '../../shared/base/json/exact-json.js';
import { BoundedTemplate } from '../../shared/language/jinja/bounded-template.js';
import { TemplateBudget, TemplateLimitError } from '../../shared/language/jinja/template-budget.js';

/** The expected texts were made by Python's Jinja: test/fixtures/jinja/make.py. */
const FIXTURES = join(resolve(dirname(fileURLToPath(import.meta.url)), '..', '..', '..'), 'test', 'fixtures', 'jinja');
const NOON = new Date(2031, 4, 9, 12).getTime();
/** Most differences that a failure lists. */
const LISTED = 20;

function fixture(name: string): Map<string, ExactJson> {
  const read = readExactJson(readFileSync(join(FIXTURES, name), 'utf8'));
  assert.ok(read instanceof Map);
  return read;
}

function member(object: Map<string, ExactJson>, name: string): Map<string, ExactJson> {
  const value = object.get(name);
  assert.ok(value instanceof Map);
  return value;
}

/** Null: the template is refused. */
function rendered(source: string, variables: Map<string, ExactJson>): string | null {
  const budget = new TemplateBudget({ steps: 300_000, work: 16_000_000 });
  try {
    return new BoundedTemplate(source).render(Object.fromEntries(variables), budget, NOON);
  } catch (thrown) {
    if (thrown instanceof TypeError || thrown instanceof RangeError) throw thrown;
    return null;
  }
}

function requireSame(
  cases: Iterable<readonly [what: string, expected: ExactJson | undefined, text: string | null]>,
): number {
  const different: string[] = [];
  let count = 0;
  for (const [what, expected, text] of cases) {
    count += 1;
    if (text !== expected)
      different.push(`${what}\n  Python: ${JSON.stringify(expected)}\n  here:   ${JSON.stringify(text)}`);
  }
  assert.equal(
    different.length,
    0,
    `${different.length} of ${count} differ:\n${different.slice(0, LISTED).join('\n')}`,
  );
  return count;
}

describe("a chat template's expressions", () => {
  for (const [name, least] of [
    ['expressions.json', 2500],
    ['random-expressions.json', 500],
  ] as const) {
    it(`have Python's results and are refused where Python refuses them: ${name}`, () => {
      const read = fixture(name);
      const variables = member(read, 'variables');
      const cases = read.get('cases');
      assert.ok(Array.isArray(cases));
      const count = requireSame(
        cases.map((pair) => {
          assert.ok(Array.isArray(pair) && typeof pair[0] === 'string');
          return [pair[0], pair[1], rendered(pair[0], variables)] as const;
        }),
      );
      assert.ok(count >= least);
    });
  }
});

describe('whole chat templates', () => {
  it("write conversations as Python's Jinja does", () => {
    const read = fixture('conversations.json');
    const conversations = [...member(read, 'conversations')];
    const templates = member(read, 'templates');
    const cases = [...member(read, 'texts')].flatMap(([name, texts]) => {
      const source = templates.get(name);
      assert.ok(typeof source === 'string' && Array.isArray(texts));
      return conversations.map(([conversation, variables], index) => {
        assert.ok(variables instanceof Map);
        return [`${name}: ${conversation}`, texts[index], rendered(source, variables)] as const;
      });
    });
    assert.ok(requireSame(cases) >= 500);
  });
});

describe('a template that is nested without end', () => {
  const deep = 100_000;
  const sources: Readonly<Record<string, string>> = {
    brackets: `{{ ${'('.repeat(deep)}`,
    lists: `{{ ${'['.repeat(deep)}1${']'.repeat(deep)} }}`,
    signs: `{{ ${'-'.repeat(deep)}1 }}`,
    negations: `{{ ${'not '.repeat(deep)}1 }}`,
    choices: `{{ ${'1 if 1 else '.repeat(deep)}1 }}`,
    blocks: '{% if 1 %}'.repeat(deep),
    targets: `{% set ${'('.repeat(deep)}`,
    places: `{{ x${'[x'.repeat(deep)} }}`,
    tests: `{{ 1${' is in [1'.repeat(deep)} }}`,
  };
  for (const [what, source] of Object.entries(sources)) {
    it(`is refused before the stack ends: ${what}`, () => {
      assert.throws(() => new BoundedTemplate(source), SyntaxError);
    });
  }

  for (const [what, source] of Object.entries({
    sums: `{{ 1${' + 1'.repeat(deep)} }}`,
    filters: `{{ 1${' | abs'.repeat(deep)} }}`,
    members: `{{ x${'.x'.repeat(deep)} }}`,
    calls: `{{ x${'()'.repeat(deep)} }}`,
    'sums in a macro': `{% macro m() %}{{ 1${' + 1'.repeat(deep)} }}{% endmacro %}{{ m() }}`,
    'filtered blocks': `{% filter upper${' | upper'.repeat(deep)} %}x{% endfilter %}`,
  })) {
    it(`is stopped by its count: ${what}`, () => {
      const template = new BoundedTemplate(source);
      const budget = new TemplateBudget({ steps: 250_000, work: 4_000_000 });
      assert.throws(() => template.render({}, budget, NOON), TemplateLimitError);
    });
  }

  it('is refused where its values are nested without end', () => {
    const nested =
      '{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% endfor %}';
    for (const use of ['ns.l == ns.m', 'ns.l < ns.m', 'ns.l', 'ns.l | tojson', 'ns.l | pprint', 'ns.l in [ns.m]']) {
      assert.equal(rendered(`${nested}{{ ${use} }}`, new Map()), null);
    }
    const keys = nested.replaceAll('[ns.l]', '(ns.l,)').replaceAll('l=[]', 'l=()');
    assert.equal(rendered(`${keys}{{ {ns.l: 1} }}`, new Map()), null);
  });
});

describe('a template of megabytes', () => {
  it('is read in one pass', () => {
    const part = 'some text {{ 1 }} {# a comment #} {% if 1 %}x{% endif %}\n';
    const template = new BoundedTemplate(part.repeat(40_000));
    const budget = new TemplateBudget({ steps: 1_000_000, work: 16_000_000 });
    assert.equal(template.render({}, budget, NOON).length, 'some text 1  x'.length * 40_000);
  });
});
