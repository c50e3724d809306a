import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { isJson } from '../../shared/base/json/is-json.js';
import { FORMS, read } from './answer-forms.js';

for (const form of FORMS) {
  describe(`answers in the form of ${form.name}`, () => {
    for (const [text, expected] of form.answers) {
      it(`the parser takes apart the answer ${JSON.stringify(text.slice(0, 60))}`, () => {
        const whole = { reasoning: '', content: '', calls: [], ...expected };
        assert.deepEqual(read(form, [text]), whole);
        for (let cut = 0; cut <= text.length; cut++) {
          assert.deepEqual(read(form, [text.slice(0, cut), text.slice(cut)]), whole, `cut at ${cut}`);
        }
        assert.deepEqual(read(form, [...text]), whole, 'by characters');
      });
    }

    it('report no call marker as content where the length cuts them behind whole arguments', () => {
      const called = form.answers.filter(([, { calls = [] }]) => calls.some((call) => isJson(call.arguments)));
      for (const [text, { calls = [], content = '' }] of called) {
        const end = text.search(/<\/answer>|<\|eom_id\|>|$/);
        for (let cut = 0; cut <= end; cut++) {
          const begun = read(form, [text.slice(0, cut)]);
          const isWhole = isDeepStrictEqual(begun.calls, calls);
          if (isWhole)
            assert.ok(content.startsWith(begun.content.trimEnd()), JSON.stringify([text.slice(0, cut), begun]));
        }
      }
    });

    it('have no content where calls are required, wherever they are cut', () => {
      for (const [text] of form.answers) {
        for (let cut = 0; cut <= text.length; cut++) {
          const part = text.slice(0, cut);
          assert.deepEqual(read(form, [part], true), { ...read(form, [part]), content: '' });
        }
      }
    });

    it('show no name of a special token, whatever they hold', () => {
      const { special = [] } = form;
      const bits = [...special, ...form.answers.flatMap(([text]) => text.split(/(?=[<\[{\n"])/))];
      fc.assert(
        fc.property(fc.array(fc.constantFrom(...bits), { maxLength: 12 }), (parts) => {
          const { content, reasoning } = read(form, [parts.join('~')]);
          for (const name of special) assert.ok(!content.includes(name) && !reasoning.includes(name), name);
        }),
        { numRuns: 300 },
      );
    });

    it('parse to the same result however they are cut, whatever they hold', () => {
      const bits = form.answers.flatMap(([text]) => text.split(/(?=[<\[{\n"])/));
      const texts = fc.array(fc.oneof(fc.constantFrom(...bits), fc.string({ maxLength: 4 })), { maxLength: 12 });
      fc.assert(
        fc.property(texts, fc.array(fc.nat(), { maxLength: 8 }), (parts, places) => {
          const text = parts.join('');
          const cuts = [...new Set(places.map((place) => place % (text.length + 1)))].sort((a, b) => a - b);
          const cut = [0, ...cuts].map((from, index) => text.slice(from, cuts[index] ?? text.length));
          assert.deepEqual(read(form, cut), read(form, [text]));
        }),
        { numRuns: 300 },
      );
    });
  });
}

describe('a tool call that was cut before its arguments', () => {
  it('has no arguments, not even empty ones: the arguments are unknown', () => {
    const hermes = FORMS.find(({ answers }) => answers.some(([text]) => text.startsWith('<tool_call>\n{"name"')));
    assert.ok(hermes !== undefined);
    for (const text of ['<tool_call>\n{"name": "now"', '<tool_call>\n{"name": "now", "arguments": ']) {
      assert.deepEqual(read(hermes, [text]).calls, [{ name: 'now', arguments: '' }]);
    }
    assert.deepEqual(read(hermes, ['<tool_call>\n{"name": "now"}']).calls, [{ name: 'now', arguments: '{}' }]);
    const header = '<|channel|>commentary to=functions.now <|constrain|>json<|message|>';
    const begins: [sign: string, text: string][] = [
      ['gpt-oss', header],
      ['Kimi', '<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>'],
    ];
    for (const [sign, text] of begins) {
      const form = FORMS.find(({ name }) => name.startsWith(sign));
      assert.ok(form !== undefined, sign);
      assert.deepEqual(read(form, [text]), { reasoning: '', content: '', calls: [{ name: 'now', arguments: '' }] });
    }
  });
});
