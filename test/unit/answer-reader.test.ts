import assert from 'node:assert/strict';
import { AnswerReader } from '../../http-api/answer/answer-reader.js';
import { createAnswerParser } from '../../http-api/conversation/answer-parser.js';
import { detectStyle } from '../../http-api/conversation/detect-style.js';
import type { GenerateReply } from '../../shared/wire/messages.js';

const style = detectStyle('<tool_call>', new Set());
const tools = [{ name: 'weather', description: '', parameters: {} }];

/** The finish reason that clients get for an answer with this text. */
function reasonOf(text: string, finishReason: string): string | undefined {
  const createParser = (promptEnd: string): ReturnType<typeof createAnswerParser> =>
    createAnswerParser({
      style,
      tools,
      singleCall: false,
      forced: false,
      promptEnd,
      continued: null,
      idOf: (index) => `call_${index}`,
    });
  const reader = new AnswerReader({ tokenizer: null, createParser, logprobs: false, showSpecialTokens: false });
  const finished = {
    finishReason,
    text,
    timing: null,
    sep: null,
    reloads: 0,
    nodes: [],
    drafts: null,
    stopString: '',
    cachedTokens: 0,
  };
  const replies: GenerateReply[] = [
    { kind: 'started', started: { promptTokenIds: [1], seed: 0 } },
    { kind: 'token', token: { tokenId: 5, text, logprob: 0, top: [] } },
    { kind: 'finished', finished },
  ];
  return replies.map((reply) => reader.take(reply)).at(-1)?.end?.finishReason;
}

describe('the reason why an answer ended', () => {
  const cut = '<tool_call>{"name": "weather", "arguments": {"city": "Os';
  const whole = `${cut}lo"}}</tool_call>`;

  it('is a tool call where the model ended with whole calls', () => {
    assert.equal(reasonOf(whole, 'stop'), 'tool_calls');
    assert.equal(reasonOf(`${whole}So.`, 'stop'), 'tool_calls');
    assert.equal(reasonOf('So.', 'stop'), 'stop');
  });

  it('is no tool call where a stop string or the length has cut the last call', () => {
    assert.equal(reasonOf(cut, 'stop'), 'stop');
    assert.equal(reasonOf(whole + cut, 'stop'), 'stop');
    assert.equal(reasonOf(cut, 'length'), 'length');
    assert.equal(reasonOf(whole, 'length'), 'length');
  });
});
