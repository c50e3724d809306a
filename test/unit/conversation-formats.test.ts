import assert from 'node:assert/strict';
import { createAnswerParser } from '../../http-api/conversation/answer-parser.js';
import * as syntaxes from '../../http-api/conversation/call-syntax.js';
import type { ChatTool } from '../../http-api/conversation/chat-request.js';
import { parseBody } from '../../http-api/requests/read-body.js';
import { TOOLS_LIMIT } from '../../http-api/conversation/check-chat.js';
import { detectStyle, type ChatStyle } from '../../http-api/conversation/detect-style.js';
import { afterThinking, callForms, jsonForms } from '../../http-api/conversation/forced-format.js';
import { writeCall } from '../../http-api/conversation/plain-messages.js';
import { createOutputConstraint } from '../../engine/output-format/create-output-constraint.js';
import { compileFormat } from '../../engine/output-format/format-grammar.js';
import { formatVocabulary } from '../../engine/output-format/format-vocabulary.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { OutputFormat, OutputPart, OutputSequence } from '../../shared/wire/messages.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';

const TOOLS: ChatTool[] = [
  {
    name: 'weather',
    description: '',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer' }, place: { type: 'object' } },
      required: ['days'],
    },
  },
  { name: 'now', description: '', parameters: {} },
];
const [weather] = TOOLS;
/** A tool whose argument may be a text or another value. */
const EITHER: ChatTool = {
  name: 'either',
  description: '',
  parameters: {
    properties: {
      maybe: { type: ['string', 'null'] },
      mixed: { anyOf: [{ type: 'number' }, { type: 'string' }] },
      text: { type: ['string', 'integer'] },
      named: { $ref: '#/$defs/name' },
      any: {},
      none: { enum: ['a', null] },
    },
    required: ['maybe', 'mixed', 'text', 'named', 'any', 'none'],
    $defs: { name: { type: 'string' } },
  },
};
const ARGUMENTS = { city: 'Å "b" \'c\' <d> \\', days: 2, place: { deep: ['x', true, null] } };

const PLAIN = detectStyle('', new Set());
const HARMONY = detectStyle('<|channel|><|message|>', new Set());

interface Forced {
  name: string;
  style: ChatStyle;
  syntax: syntaxes.CallSyntax;
}
const ALL: Forced[] = [
  ...Object.values(syntaxes)
    .filter((value) => typeof value !== 'function')
    .map((syntax) => ({ name: syntax.name, style: { ...PLAIN, calls: syntax }, syntax })),
  { name: 'harmony', style: HARMONY, syntax: syntaxes.HERMES },
];

/** A text that follows the parts: arguments have the values of ARGUMENTS. */
function textOf({ parts }: OutputSequence): string {
  let key = '';
  return parts
    .map((part: OutputPart) => {
      if (part.kind === 'literal') {
        key = /(city|days|place)(?:\W|arg_key|arg_value)*$/.exec(part.literal)?.[1] ?? '';
        return part.literal;
      }
      if (part.kind === 'until') return `Let me think.${part.until}`;
      if (part.kind === 'schemaText') return ARGUMENTS.city;
      assert.equal(part.kind, 'jsonSchema');
      if (key === '') return JSON.stringify((JSON.parse(part.jsonSchema) as object) && ARGUMENTS);
      return JSON.stringify(new Map<string, unknown>(Object.entries(ARGUMENTS)).get(key));
    })
    .join('');
}

function callsOf(style: ChatStyle, text: string, tools = TOOLS): { name: string; arguments: unknown; left: string }[] {
  const idOf = (index: number): string => String(index);
  const options = { style, tools, singleCall: false, forced: false, promptEnd: '', continued: null, idOf };
  const parser = createAnswerParser(options);
  const calls: { name: string; text: string }[] = [];
  let left = '';
  for (const delta of [...parser.push(text), ...parser.finish()]) {
    if (delta.kind === 'toolCall') calls.push({ name: delta.name, text: '' });
    else if (delta.kind === 'content') left += delta.text;
    else if (delta.kind === 'toolArguments') {
      const last = calls.at(-1);
      if (last !== undefined) last.text += delta.text;
    }
  }
  return calls.map((call) => ({ name: call.name, arguments: JSON.parse(call.text) as unknown, left }));
}

const END = 256;
const BYTES = formatVocabulary(
  { tokenBytes: (id) => (id < END ? Uint8Array.of(id) : new Uint8Array()), isSpecial: (id) => id === END },
  END + 1,
);

/** An answer whose tokens, which are bytes, are drawn from those that the format allows. */
function drawnText(format: OutputFormat, seed: number): string {
  const constraint = createOutputConstraint(format, BYTES, [END]);
  const random = new SeededRandom(seed);
  const answer: number[] = [];
  for (let room = 600; room > 0 && !constraint.isClosed(answer); room--) {
    const mask = runAtOnce(constraint.allowed(answer, room));
    const allowed = [...(mask ?? []).entries()].filter(([, may]) => may === 1).map(([id]) => id);
    const next = allowed[random.int(allowed.length)];
    assert.ok(next !== undefined, `nothing may follow ${Buffer.from(answer).toString()}`);
    if (next === END) break;
    answer.push(next);
  }
  return Buffer.from(answer).toString();
}

for (const { name, style, syntax } of ALL) {
  describe(`forced calls in the form of ${name}`, () => {
    it('parse to the intended call, whichever alternative the model takes', () => {
      assert.ok(weather !== undefined);
      const forms = callForms(style, syntax, [weather]);
      assert.ok(forms.length > 0);
      const found = forms.map((form) => {
        const text = textOf(form);
        const [call, ...more] = callsOf(style, text);
        assert.deepEqual(more, [], text);
        assert.ok(call !== undefined, text);
        assert.equal(call.name, 'weather');
        assert.equal(call.left, '', text);
        return Object.entries(call.arguments as object);
      });
      for (const argument of found.flat()) {
        assert.deepEqual(argument[1], new Map<string, unknown>(Object.entries(ARGUMENTS)).get(argument[0]));
      }
      const keys = found.map((entries) => entries.map(([key]) => key).join());
      assert.ok(keys.includes('city,days,place'), String(keys));
      assert.ok(
        keys.every((key) => key.includes('days')),
        'an argument that must be there was left out',
      );
      assert.equal(
        new Set(forms.map((form) => JSON.stringify(form))).size,
        forms.length,
        'an alternative stands twice',
      );
    });

    it('distinguish texts and numbers where an argument may be either', () => {
      const given = { maybe: 'a "b"', mixed: 2, text: '2', named: 'null', any: 'true', none: null };
      const forms = callForms(style, syntax, [EITHER]);
      for (const { parts } of forms) {
        const values = parts.filter(({ kind }) => kind === 'jsonSchema').length === 1 ? [given] : Object.values(given);
        const written = parts.map((part) => {
          if (part.kind === 'literal') return part.literal;
          return part.kind === 'until' ? `I think.${part.until}` : JSON.stringify(values.shift());
        });
        const [call] = callsOf(style, written.join(''), [EITHER]);
        assert.deepEqual(call?.arguments, given, written.join(''));
      }
    });

    it('allow keys of any letters', () => {
      const given = { größe: { '': 1, 'a b': [2] }, 'zwei Wörter': 'x', '🦊': 3 };
      const properties = { größe: {}, 'zwei Wörter': { type: ['string', 'null'] }, '🦊': { type: 'integer' } };
      const tool = { name: 'keys', description: '', parameters: { properties, required: Object.keys(given) } };
      const text = writeCall(syntax, 'keys', JSON.stringify(given));
      const written = style.harmony ? [] : [text];
      for (const { parts } of callForms(style, syntax, [tool])) {
        const values = parts.filter(({ kind }) => kind === 'jsonSchema').length === 1 ? [given] : Object.values(given);
        written.push(
          parts
            .map((part) => {
              if (part.kind === 'literal') return part.literal;
              return part.kind === 'until' ? `I think.${part.until}` : JSON.stringify(values.shift());
            })
            .join(''),
        );
      }
      for (const call of written) assert.deepEqual(callsOf(style, call, [tool])[0]?.arguments, given, call);
    });

    it('are valid calls whatever the model draws', () => {
      for (let seed = 0; seed < 6; seed++) {
        const text = drawnText({ alternatives: callForms(style, syntax, TOOLS.slice(0, 1)) }, seed);
        const [call, ...more] = callsOf(style, text);
        assert.deepEqual([call?.name, more], ['weather', []], text);
        const { days } = call?.arguments as { days: unknown };
        assert.ok(Number.isInteger(days), text);
      }
    });

    it('have the digits that a client wrote into the schema, also integers that no double can hold', () => {
      const large = '12345678901234567891';
      const body = `{"parameters": {"type": "object", "properties": {"id": {"$ref": "#/$defs/id"}},
        "required": ["id"], "$defs": {"id": {"const": ${large}}}}}`;
      const { parameters } = parseBody(Buffer.from(body)) as Pick<ChatTool, 'parameters'>;
      const tool = { name: 'fetch', description: '', parameters };
      const text = drawnText({ alternatives: callForms(style, syntax, [tool]) }, 1);
      assert.ok(text.includes(large), text);
      assert.equal(callsOf(style, text, [tool]).length, 1);
    });

    it('have texts that match their schema, and end only where the parser ends them', () => {
      const types = {
        unit: { type: 'string', enum: ['celsius', 'kelvin'] },
        code: { type: 'string', pattern: '^[A-Z]{2}[0-9]+$', maxLength: 5 },
        note: { type: 'string', minLength: 3, maxLength: 12 },
      };
      const tool = { name: 'typed', description: '', parameters: { properties: types, required: Object.keys(types) } };
      const format = { alternatives: callForms(style, syntax, [tool]) };
      for (let seed = 0; seed < 6; seed++) {
        const text = drawnText(format, seed);
        const { unit, code, note } = callsOf(style, text, [tool])[0]?.arguments as Record<string, string>;
        assert.ok(unit === 'celsius' || unit === 'kelvin', text);
        assert.match(code ?? '', /^[A-Z]{2}[0-9]{1,3}$/, text);
        assert.ok(note !== undefined && [...note].length >= 3 && [...note].length <= 12, text);
      }
      const { body } = syntax;
      const ends = [body.kind === 'keyed' ? body.value.end : '', body.kind === 'literal' ? body.quote : ''];
      const constraint = createOutputConstraint(format, BYTES, [END]);
      for (const end of ends.filter((marker) => marker.length > 1)) {
        const text = drawnText(format, 1);
        const held = text.replace(/celsius|kelvin/, `$&${end}`);
        assert.equal(runAtOnce(constraint.allowed([...Buffer.from(held)], 600)), null, held);
      }
    });

    it('may hold end markers in the strings of JSON', () => {
      const end = syntax.body.kind === 'keyed' ? syntax.body.value.end : '</parameter>';
      const given = { maybe: `a ${end}\n${end}`, mixed: end, text: end, named: end, any: { [end]: [end] }, none: null };
      const [form] = callForms(style, syntax, [EITHER]);
      const values =
        form?.parts.filter(({ kind }) => kind === 'jsonSchema').length === 1 ? [given] : Object.values(given);
      const written = form?.parts.map((part) => {
        if (part.kind === 'literal') return part.literal;
        return part.kind === 'until' ? `I think.${part.until}` : JSON.stringify(values.shift());
      });
      const text = written?.join('') ?? '';
      assert.deepEqual(callsOf(style, text, [EITHER])[0]?.arguments, given, text);
    });

    it('can call each function', () => {
      const texts = callForms(style, syntax, TOOLS).map(textOf);
      const names = texts.flatMap((text) => callsOf(style, text).map((call) => call.name));
      assert.deepEqual(new Set(names), new Set(['weather', 'now']));
    });

    it('are written into prompts in the form in which they are parsed', () => {
      if (style.harmony) return;
      const args = { ...ARGUMENTS, city: 'Oslo "x"' };
      const text = writeCall(syntax, 'weather', JSON.stringify(args));
      assert.deepEqual(callsOf(style, text), [{ name: 'weather', arguments: args, left: '' }]);
      assert.deepEqual(callsOf(style, writeCall(syntax, 'now', '')), [{ name: 'now', arguments: {}, left: '' }]);
    });
  });
}

describe('the format of a forced call', () => {
  const thinker = detectStyle('<think></think>', new Set());
  const forms = jsonForms(thinker, '{}');

  it('lets a model think first', () => {
    const until: OutputPart = { kind: 'until', until: '</think>' };
    const json: OutputPart = { kind: 'jsonSchema', jsonSchema: '{}' };
    const gap: OutputPart = { kind: 'literal', literal: '\n\n' };
    const begin: OutputPart = { kind: 'literal', literal: '<think>' };
    assert.deepEqual(afterThinking(thinker, 'open', forms).alternatives, [{ parts: [until, gap, json] }]);
    assert.deepEqual(afterThinking(thinker, 'none', forms).alternatives, [{ parts: [json] }]);
    assert.deepEqual(afterThinking(thinker, 'free', forms).alternatives, [
      { parts: [begin, until, gap, json] },
      { parts: [json] },
    ]);
    assert.deepEqual(afterThinking(PLAIN, 'free', forms).alternatives, forms);
  });

  it('uses a channel of its own where a model has channels', () => {
    const [thought, direct] = jsonForms(HARMONY, '{}');
    assert.deepEqual(direct?.parts[0], { kind: 'literal', literal: '<|channel|>final<|message|>' });
    assert.deepEqual(thought?.parts[1], { kind: 'until', until: '<|end|>' });
  });

  it('has two alternatives where many arguments may be left out', () => {
    const properties = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`a${index}`, { type: 'integer' }]));
    const tool = { name: 'f', description: '', parameters: { type: 'object', properties, required: ['a3'] } };
    const counts = callForms(PLAIN, syntaxes.GLM, [tool]).map(({ parts }) => parts.length);
    assert.deepEqual(counts, [3, 19]);
  });

  it('has fewer alternatives the more functions there are', () => {
    const properties = { a: { type: 'integer' }, b: { type: 'integer' }, c: { type: 'integer' } };
    const tools = Array.from({ length: 40 }, (_, index) => ({
      ...TOOLS[1],
      parameters: { properties },
      name: `f${index}`,
      description: '',
    }));
    assert.equal(callForms(PLAIN, syntaxes.GLM, tools.slice(0, 4)).length, 32);
    assert.equal(callForms(PLAIN, syntaxes.GLM, tools).length, 80);
    assert.equal(callForms(PLAIN, syntaxes.HERMES, tools).length, 40);
  });

  it('can be built for the most functions allowed, with each schema compiled once', () => {
    const properties = Object.fromEntries(Array.from({ length: 90 }, (_, index) => [`a${index}`, { type: 'string' }]));
    const tools = Array.from({ length: TOOLS_LIMIT }, (_, index) => ({
      name: `f${index}`,
      description: '',
      parameters: { properties: { [`own${index}`]: {}, ...properties } },
    }));
    const forms = callForms(HARMONY, syntaxes.HERMES, tools);
    const once = forms.filter(({ parts }) => parts.length === 2);
    assert.equal(once.length, TOOLS_LIMIT);
    const size = (alternatives: OutputSequence[]): number => compileFormat({ alternatives }).nodes.length;
    assert.ok(size(forms) < 1.1 * size(once), `${size(forms)} nodes, ${size(once)} for half of the forms`);
  });
});
