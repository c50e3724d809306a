import assert from 'node:assert/strict';
import fc from 'fast-check';
import { createAnswerParser } from '../../main-node/http/conversation/answer-parser.js';
import type { AnswerPiece, ChatTool } from '../../main-node/http/conversation/chat-request.js';
import { detectStyle, type ChatStyle } from '../../main-node/http/conversation/detect-style.js';

/** An answer, put together from its pieces. */
interface Whole {
  reasoning: string;
  content: string;
  calls: { name: string; arguments: string }[];
}

const TOOLS: ChatTool[] = [
  {
    name: 'weather',
    description: 'Tells the weather.',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string' },
        days: { type: 'integer' },
        units: { type: ['string', 'null'] },
        tags: { type: 'array', items: { type: 'string' } },
      },
      required: ['city'],
    },
  },
  { name: 'now', description: 'Tells the time.', parameters: { type: 'object', properties: {} } },
];

interface Form {
  name: string;
  /** What of its template it is known by. */
  sign: string;
  special?: string[];
  promptEnd?: string;
  /** Answers with what is in them. */
  answers: [text: string, whole: Partial<Whole>][];
}

const FORMS: Form[] = [
  {
    name: 'Hermes',
    sign: '<tool_call> <think> </think>',
    answers: [
      ['Hello <b>there</b> ', { content: 'Hello <b>there</b> ' }],
      [
        '<think>\nLet me see.\n</think>\n\nFine.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        {
          reasoning: 'Let me see.',
          content: 'Fine.',
          calls: [
            { name: 'weather', arguments: '{"city": "Oslo"}' },
            { name: 'now', arguments: '{}' },
          ],
        },
      ],
      ['a <tool_call> is no call', { content: 'a <tool_call> is no call' }],
      ['x\n<tool_call>\n{"name": 5}', { content: 'x\n<tool_call>\n{"name": 5}' }],
      [
        '<tool_call>\n{"arguments": {"city": "</tool_call>"}, "name": "weather"}\n</tool_call>',
        { calls: [{ name: 'weather', arguments: '{"city": "</tool_call>"}' }] },
      ],
      ['<tool_call>\n{"name": "weather", "arg', { calls: [{ name: 'weather', arguments: '' }] }],
      [
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Os',
        { calls: [{ name: 'weather', arguments: '{"city": "Os' }] },
      ],
      ['<tool_call>\n{"name": "now"}\n</tool_call>', { calls: [{ name: 'now', arguments: '{}' }] }],
      ['<tool_ca', { content: '<tool_ca' }],
    ],
  },
];

function styleOf({ sign, special = [] }: Form): ChatStyle {
  return detectStyle(sign, new Set(special));
}

function read(form: Form, parts: readonly string[]): Whole {
  const parser = createAnswerParser({
    style: styleOf(form),
    tools: TOOLS,
    singleCall: false,
    promptEnd: form.promptEnd ?? '',
    continued: null,
    idOf: (index) => `call_${index}`,
  });
  const pieces: AnswerPiece[] = [...parts.flatMap((part) => parser.push(part)), ...parser.finish()];
  const whole: Whole = { reasoning: '', content: '', calls: [] };
  for (const piece of pieces) {
    if (piece.kind === 'content') whole.content += piece.text;
    else if (piece.kind === 'reasoning') whole.reasoning += piece.text;
    else if (piece.kind === 'toolCall') {
      assert.equal(piece.index, whole.calls.length);
      assert.equal(piece.id, `call_${piece.index}`);
      whole.calls.push({ name: piece.name, arguments: '' });
    } else {
      assert.equal(piece.index, whole.calls.length - 1, 'arguments of another call than the last one');
      const last = whole.calls.at(-1);
      if (last !== undefined) last.arguments += piece.text;
    }
  }
  assert.equal(parser.toolCalls, whole.calls.length);
  return whole;
}

for (const form of FORMS) {
  describe(`answers in the form of ${form.name}`, () => {
    for (const [text, expected] of form.answers) {
      it(`are taken apart: ${JSON.stringify(text.slice(0, 60))}`, () => {
        const whole = { reasoning: '', content: '', calls: [], ...expected };
        assert.deepEqual(read(form, [text]), whole);
        for (let cut = 0; cut <= text.length; cut++) {
          assert.deepEqual(read(form, [text.slice(0, cut), text.slice(cut)]), whole, `cut at ${cut}`);
        }
        assert.deepEqual(read(form, [...text]), whole, 'by characters');
      });
    }

    it('are the same however they are cut, whatever they hold', () => {
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
