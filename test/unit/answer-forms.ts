import { isJson } from '../../shared/base/json/is-json.js';
import assert from 'node:assert/strict';
import { createAnswerParser } from '../../http-api/conversation/answer-parser.js';
import type { AnswerDelta, ChatTool } from '../../http-api/conversation/chat-request.js';
import { detectStyle, type ChatStyle } from '../../http-api/conversation/detect-style.js';

/** An answer, put together from its deltas. */
export interface Whole {
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

export interface Form {
  name: string;
  /** Text of a chat template by which the form is recognized. */
  sign: string;
  special?: string[];
  promptEnd?: string;
  /** Answers, each with the parts that it contains. */
  answers: [text: string, whole: Partial<Whole>][];
}

const oslo = (args: string): Whole['calls'][number] => ({ name: 'weather', arguments: args });
const now = (): Whole['calls'][number] => ({ name: 'now', arguments: '{}' });

/** The forms in which models write answers. */
export const FORMS: Form[] = [
  {
    name: 'Hermes',
    sign: '<tool_call> <think> </think>',
    answers: [
      ['Hello <b>there</b> ', { content: 'Hello <b>there</b> ' }],
      [
        '<think>\nLet me see.\n</think>\n\nFine.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        { reasoning: 'Let me see.', content: 'Fine.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      [`a${' '.repeat(64)}<tool_call>{"name": "now"}</tool_call>`, { content: 'a', calls: [now()] }],
      [`a${' '.repeat(65)}<tool_call>{"name": "now"}</tool_call>`, { content: `a${' '.repeat(65)}`, calls: [now()] }],
      ['<tool_call>[{"name": "now"}, {"name": "now"}]</tool_call>So.', { calls: [now(), now()], content: 'So.' }],
      ['a <tool_call> is no call', { content: 'a <tool_call> is no call' }],
      ['x\n<tool_call>\n{"name": 5}', { content: 'x\n<tool_call>\n{"name": 5}' }],
      [
        '<tool_call>\n{"arguments": {"city": "</tool_call>"}, "name": "weather"}\n</tool_call>',
        { calls: [oslo('{"city": "</tool_call>"}')] },
      ],
      ['<tool_call>\n{"name": "weather", "arg', { calls: [oslo('')] }],
      ['<tool_call>\n{"name": "weather", "arguments": {"city": "Os', { calls: [oslo('{"city": "Os')] }],
      [
        '<tool_call>\n{"name": "weather", "arguments": "{\\"city\\": 1}"}\n</tool_call>\n',
        { calls: [oslo('{"city": 1}')] },
      ],
      [
        '<tool_call>{"type": "function", "function": {"name": "now", "parameters": {}}}</tool_call> done',
        { calls: [now()], content: 'done' },
      ],
      ['<tool_call>\n{"name": "now"}\n</tool_call>', { calls: [now()] }],
      [
        '<tool_call>\n{"name": "other", "arguments": {"a": [1, {"b": "]}"}]}}\n</tool_call>',
        {
          calls: [{ name: 'other', arguments: '{"a": [1, {"b": "]}"}]}' }],
        },
      ],
      ['<think>no end\n', { reasoning: 'no end\n' }],
      ['Say <think> and </think>.', { content: 'Say <think> and </think>.' }],
      ['<tool_ca', { content: '<tool_ca' }],
    ],
  },
  {
    name: 'a model whose prompt has opened the reasoning',
    sign: '<tool_call> </think>',
    promptEnd: '<|assistant|>\n<think>\n',
    answers: [
      ['Hm.\n</think>\n\nYes. ', { reasoning: 'Hm.', content: 'Yes. ' }],
      ['Hm. <tool_call>{"name": "now", "arguments": {}}</tool_call>', { reasoning: 'Hm.', calls: [now()] }],
      [
        'A <tool_call>{"name": "now"}</tool_call>?\n</think>\n\nNo.',
        {
          reasoning: 'A <tool_call>{"name": "now"}</tool_call>?',
          content: 'No.',
        },
      ],
      ['A <tool_call> is', { reasoning: 'A <tool_call> is' }],
    ],
  },
  {
    name: 'a model whose prompt has closed the reasoning',
    sign: '<tool_call> </think>',
    promptEnd: '<|assistant|>\n<think>\n\n</think>\n\n',
    answers: [[' Yes.', { content: ' Yes.' }]],
  },
  {
    name: 'Mistral',
    sign: '[TOOL_CALLS] [/THINK]',
    special: ['[TOOL_CALLS]', '[THINK]', '[/THINK]', '</s>'],
    answers: [
      [
        '[THINK]Hm.[/THINK][TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]',
        { reasoning: 'Hm.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      ['[TOOL_CALLS] {"name": "now", "arguments": {}, "id": "abcdefghi"}', { calls: [now()] }],
      ['[TOOL_CALLS', { content: '[TOOL_CALLS' }],
      ['A list: [1, 2]</s>', { content: 'A list: [1, 2]' }],
    ],
  },
  {
    name: 'Mistral with names',
    sign: '[TOOL_CALLS] [ARGS]',
    answers: [
      [
        'So: [TOOL_CALLS]weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}',
        { content: 'So:', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      ['[TOOL_CALLS]weather[ARGS]{"city": "Os', { calls: [oslo('{"city": "Os')] }],
      ['[TOOL_CALLS][{"name": "now", "arguments": {}}]', { calls: [now()] }],
      ['[TOOL_CALLS]weather', { content: '[TOOL_CALLS]weather' }],
    ],
  },
  {
    name: 'Llama',
    sign: '<|python_tag|>',
    special: ['<|python_tag|>', '<|eom_id|>'],
    answers: [
      ['{"name": "weather", "parameters": {"city": "Oslo"}}', { calls: [oslo('{"city": "Oslo"}')] }],
      [
        '<|python_tag|>{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}<|eom_id|>',
        {
          calls: [now(), now()],
        },
      ],
      ['{"name": "Bob", "age": 3}', { content: '{"name": "Bob", "age": 3}' }],
      ['{"name": "Bob", "ag', { content: '{"name": "Bob", "ag' }],
      ['{"name": "now"', { calls: [{ name: 'now', arguments: '' }] }],
      ['It is {"name": "now", "parameters": {}}', { content: 'It is {"name": "now", "parameters": {}}' }],
    ],
  },
  {
    name: 'DeepSeek V3',
    sign: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜> ```json </think>',
    special: [
      '<｜tool▁calls▁begin｜>',
      '<｜tool▁call▁begin｜>',
      '<｜tool▁call▁end｜>',
      '<｜tool▁calls▁end｜>',
      '<｜tool▁sep｜>',
    ],
    promptEnd: '<｜Assistant｜><think>\n',
    answers: [
      [
        'Hm.\n</think>\n\nSo.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"city": "Oslo"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        { reasoning: 'Hm.', content: 'So.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
    ],
  },
  {
    name: 'DeepSeek V3.1',
    sign: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>',
    answers: [
      [
        'So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        { content: 'So.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      ['<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>wea', { content: '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>wea' }],
    ],
  },
  {
    name: 'Kimi K2',
    sign: '<|tool_call_argument_begin|>',
    answers: [
      [
        'So.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>',
        { content: 'So.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
    ],
  },
  {
    name: 'gpt-oss',
    sign: '<|channel|><|message|><|call|>',
    special: ['<|channel|>', '<|message|>', '<|call|>', '<|start|>', '<|end|>', '<|return|>', '<|constrain|>', '<|x|>'],
    promptEnd: '<|end|><|start|>assistant',
    answers: [
      [
        '<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
        { reasoning: 'Hm. ', calls: [oslo('{"city": "Oslo"}')] },
      ],
      [
        '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}',
        { reasoning: 'Hm.', calls: [now()] },
      ],
      [
        '<|channel|>commentary<|message|>First, <|end|><|start|>assistant<|channel|>final<|message|>yes <b>so<|x|><|return|>',
        { content: 'First, yes <b>so' },
      ],
      ['<|channel|>final<|mess', {}],
      ['<|channel|>final<|message|>a <', { content: 'a <' }],
      ['Plain text.', { content: 'Plain text.' }],
      ['', {}],
    ],
  },
  {
    name: 'gpt-oss that goes on with a message',
    sign: '<|channel|><|message|>',
    promptEnd: '<|start|>assistant<|channel|>final<|message|>The answer ',
    answers: [['is 4.<|return|>', { content: 'is 4.' }]],
  },
  {
    name: 'GLM',
    sign: '<tool_call> <arg_key> </think>',
    answers: [
      [
        '\n<think>Hm.</think>\nSo.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os"lo\n</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["a"]</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>',
        {
          reasoning: 'Hm.',
          content: 'So.',
          calls: [oslo('{"city": "Os\\"lo\\n", "days": 2, "tags": ["a"]}'), now()],
        },
      ],
      [
        '<tool_call>weather<arg_key>city</arg_key><arg_value>12</arg_value><arg_key>units</arg_key><arg_value>null</arg_value></tool_call>',
        { calls: [oslo('{"city": "12", "units": null}')] },
      ],
      ['<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os', { calls: [oslo('{"city": "Os')] }],
      ['<tool_call>weather\n<arg_key>days</arg_key>\n<arg_value>1', { calls: [oslo('{"days": ')] }],
      ['<tool_call>weather\n<arg_key>city</arg_key>\n<arg_va', { calls: [oslo('{')] }],
      ['<tool_call>some text', { content: '<tool_call>some text' }],
    ],
  },
  {
    name: 'Qwen3-Coder',
    sign: '<tool_call> <function= <parameter=',
    answers: [
      [
        'So.\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=units>\nmetric\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>',
        { content: 'So.', calls: [oslo('{"city": "Oslo\\n", "days": 3, "units": "metric"}'), now()] },
      ],
      [
        '<function=weather><parameter=city>Oslo</parameter></function></tool_call>',
        { calls: [oslo('{"city": "Oslo"}')] },
      ],
      [
        '<tool_call>\n<function=weather>\n<parameter=other>\nTrue\n</parameter>\n</function>\n</tool_call>',
        {
          calls: [oslo('{"other": true}')],
        },
      ],
      ['<tool_call>\n<function', { content: '<tool_call>\n<function' }],
      [
        '<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<para',
        { calls: [oslo('{"city": "Oslo"')] },
      ],
    ],
  },
  {
    name: 'MiniMax',
    sign: '<minimax:tool_call> </think> <response> </response>',
    promptEnd: ']~b]ai\n<think>\n',
    answers: [
      [
        'Hm.\n</think>\n\nSo.\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        { reasoning: 'Hm.', content: 'So.', calls: [oslo('{"city": "Oslo", "days": 2}'), now()] },
      ],
    ],
  },
  {
    name: 'LFM2',
    sign: '<|tool_list_start|>',
    special: ['<|tool_call_start|>', '<|tool_call_end|>', '<|tool_list_start|>'],
    answers: [
      [
        "<|tool_call_start|>[weather(city='O\"slo\\n\\u00e5', days=2, tags=[\"a\", 'b'], units=None), now()]<|tool_call_end|>So.",
        {
          calls: [oslo('{"city": "O\\"slo\\nå", "days": 2, "tags": ["a", "b"], "units": null}'), now()],
          content: 'So.',
        },
      ],
      [
        '<|tool_call_start|>[weather(a={"x": True, \'y\': (1, 2)})]<|tool_call_end|>',
        {
          calls: [oslo('{"a": {"x": true, "y": [1, 2]}}')],
        },
      ],
      ['<|tool_call_start|>[{"name": "now"}]', { calls: [now()] }],
      [
        '<|tool_call_start|>[{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]<|tool_call_end|>So.',
        { calls: [oslo('{"city": "Oslo"}'), now()], content: 'So.' },
      ],
      ['<|tool_call_start|>nothing', { content: 'nothing' }],
    ],
  },
  {
    name: 'Gemma 4',
    sign: '<|tool_call>call: <|channel>thought <channel|>',
    special: ['<|tool_call>', '<tool_call|>', '<|"|>', '<|channel>', '<channel|>', '<turn|>'],
    answers: [
      [
        '<|channel>thought\nHm.\n<channel|>So.<|tool_call>call:weather{city:<|"|>O"slo}<|"|>,days:2,tags:[<|"|>a<|"|>],x:{y:true}}<tool_call|><|tool_call>call:now{}<tool_call|>',
        {
          reasoning: 'Hm.',
          content: 'So.',
          calls: [oslo('{"city": "O\\"slo}", "days": 2, "tags": ["a"], "x": {"y": true}}'), now()],
        },
      ],
      ['Hello<turn|>', { content: 'Hello' }],
    ],
  },
  {
    name: 'Granite',
    sign: '<|tool_call|> <think> </think> <response> </response>',
    answers: [
      [
        '<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]',
        {
          calls: [oslo('{"city": "Oslo"}'), now()],
        },
      ],
      [
        '<tool_call>[{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]',
        { calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      ['<think>Hm.</think> <response>Yes.</response>', { reasoning: 'Hm.', content: 'Yes.' }],
    ],
  },
  {
    name: 'Hunyuan',
    sign: '<tool_calls> <tool_call> <think> </think> <answer> </answer>',
    answers: [
      [
        '<think>\nHm.\n</think>\n<answer>\n<tool_calls>\n<tool_call>weather\n```json\n{"city": "Oslo"}\n```</tool_call>\n<tool_call>now\n```json\n{}\n```</tool_call>\n</tool_calls>\n</answer>',
        { reasoning: 'Hm.', calls: [oslo('{"city": "Oslo"}'), now()] },
      ],
      ['<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>', { calls: [now()] }],
      ['<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>', { reasoning: 'Hm.', content: 'Yes.' }],
    ],
  },
];

function styleOf({ sign, special = [] }: Form): ChatStyle {
  return detectStyle(sign, new Set(special));
}

/** Parses an answer that comes in these parts. `forced`: the answer must be calls. */
export function read(form: Form, parts: readonly string[], forced = false): Whole {
  const parser = createAnswerParser({
    style: styleOf(form),
    tools: TOOLS,
    singleCall: false,
    forced,
    promptEnd: form.promptEnd ?? '',
    continued: null,
    idOf: (index) => `call_${index}`,
  });
  const deltas: AnswerDelta[] = [...parts.flatMap((part) => parser.push(part)), ...parser.finish()];
  const whole: Whole = { reasoning: '', content: '', calls: [] };
  for (const delta of deltas) {
    if (delta.kind === 'content') whole.content += delta.text;
    else if (delta.kind === 'reasoning') whole.reasoning += delta.text;
    else if (delta.kind === 'toolCall') {
      assert.equal(delta.index, whole.calls.length);
      assert.equal(delta.id, `call_${delta.index}`);
      whole.calls.push({ name: delta.name, arguments: '' });
    } else {
      assert.equal(delta.index, whole.calls.length - 1, 'arguments of another call than the last one');
      const last = whole.calls.at(-1);
      if (last !== undefined) last.arguments += delta.text;
    }
  }
  const last = whole.calls.at(-1);
  assert.equal(parser.lastCallWhole, last !== undefined && isJson(last.arguments));
  return whole;
}
