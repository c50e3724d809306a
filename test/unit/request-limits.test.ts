import assert from 'node:assert/strict';
import { validateGenerateRequest } from '../../shared/wire/generate-validation.js';
import type { ChatMessage, GenerateRequest, LogitBias, SamplingMessage, ToolCall } from '../../shared/wire/messages.js';

const REQUEST: GenerateRequest = {
  text: '',
  messages: [],
  promptTokenIds: [5],
  raw: false,
  maxTokens: 10,
  sampling: null,
  stop: [],
  ignoreEos: false,
  logprobs: 0,
};
const SAMPLING: SamplingMessage = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
const CALL: ToolCall = { id: 'c', name: 'f', arguments: '{}' };
/** Longest message of an error. It goes to clients and logs, so it must be short whatever the request has. */
const ERROR_TEXT_LIMIT = 400;

type Change = Partial<GenerateRequest>;

const sampling = (change: Partial<SamplingMessage>): Change => ({ sampling: { ...SAMPLING, ...change } });
const chat = (...messages: ChatMessage[]): Change => ({ promptTokenIds: [], messages });
const asked = (message: Partial<ChatMessage>): Change => chat({ role: 'assistant', content: '', ...message });
const called = (change: Partial<ToolCall>): Change => asked({ toolCalls: [{ ...CALL, ...change }] });
const biases = (count: number): LogitBias[] => Array.from({ length: count }, (_, tokenId) => ({ tokenId, bias: 1 }));
const letters = (count: number): string => 'x'.repeat(count);

function refused(change: Change, field: string): void {
  assert.throws(
    () => validateGenerateRequest({ ...REQUEST, ...change }),
    (thrown: Error & { code?: unknown; field?: unknown }) => {
      assert.deepEqual([thrown.code, thrown.field], ['REQUEST_INVALID', field]);
      assert.ok(thrown.message.length <= ERROR_TEXT_LIMIT, `${thrown.message.length} characters of an error`);
      return true;
    },
  );
}

/** Fields with their greatest count, length or number. One more is refused. */
const LIMITS: [field: string, limit: number, change: (count: number) => Change][] = [
  ['stop', 64, (count) => ({ stop: new Array<string>(count).fill('x') })],
  ['stop[0]', 1024, (count) => ({ stop: [letters(count)] })],
  ['logprobs', 1024, (logprobs) => ({ logprobs })],
  ['max_tokens', 2 ** 32 - 1, (maxTokens) => ({ maxTokens })],
  ['messages', 8192, (count) => chat(...new Array<ChatMessage>(count).fill({ role: 'user', content: '' }))],
  ['messages[0].tool_calls', 128, (count) => asked({ toolCalls: new Array<ToolCall>(count).fill(CALL) })],
  ['messages[0].tool_calls[0].id', 256, (count) => called({ id: letters(count) })],
  ['messages[0].tool_calls[0].name', 256, (count) => called({ name: letters(count) })],
  ['messages[0].tool_calls[0].arguments', 1024 * 1024, (count) => called({ arguments: letters(count) })],
  ['messages[0].tool_call_id', 256, (count) => chat({ role: 'tool', content: '', toolCallId: letters(count) })],
  ['sampling.logit_bias', 1024, (count) => sampling({ logitBias: biases(count) })],
  ['template_arguments', 32, (count) => namedArguments(count)],
  ['template_arguments', 1024 * 1024, (bytes) => argumentOf(`"${letters(bytes - 2)}"`)],
];

function namedArguments(count: number): Change {
  const templateArguments = Array.from({ length: count }, (_, index) => ({ name: `a${index}`, value: '1' }));
  return { text: 'a', promptTokenIds: [], templateArguments };
}

function argumentOf(value: string): Change {
  return { text: 'a', promptTokenIds: [], templateArguments: [{ name: 'a', value }] };
}

/** Fields that take numbers from `least` to `most`. The next numbers below and above are refused. */
const RANGES: [field: string, least: number, most: number, change: (value: number) => Change][] = [
  ['sampling.temperature', 0, 1000, (temperature) => sampling({ temperature })],
  ['sampling.top_k', 0, 2 ** 31 - 1, (topK) => sampling({ topK })],
  ['sampling.top_p', 0, 1, (topP) => sampling({ topP })],
  ['sampling.min_p', 0, 1, (minP) => sampling({ minP })],
  ['sampling.repetition_penalty', 0.001, 1000, (repetitionPenalty) => sampling({ repetitionPenalty })],
  ['sampling.presence_penalty', -100, 100, (presencePenalty) => sampling({ presencePenalty })],
  ['sampling.frequency_penalty', -100, 100, (frequencyPenalty) => sampling({ frequencyPenalty })],
  ['sampling.seed', 0, 2 ** 53 - 1, (seed) => sampling({ seed })],
  ['sampling.logit_bias[0].bias', -100, 100, (bias) => sampling({ logitBias: [{ tokenId: 1, bias }] })],
  ['max_tokens', 0, 2 ** 32 - 1, (maxTokens) => ({ maxTokens })],
  ['logprobs', 0, 1024, (logprobs) => ({ logprobs })],
];
const WHOLE = ['sampling.top_k', 'sampling.seed', 'max_tokens', 'logprobs'];

describe('the limits of a request', () => {
  for (const [field, limit, change] of LIMITS) {
    it(`${field} may have ${limit} and not one more`, () => {
      for (const count of [limit - 1, limit]) validateGenerateRequest({ ...REQUEST, ...change(count) });
      refused(change(limit + 1), field);
    });
  }

  for (const [field, least, most, change] of RANGES) {
    it(`${field} is a number from ${least} to ${most}`, () => {
      for (const value of [least, most]) validateGenerateRequest({ ...REQUEST, ...change(value) });
      const step = WHOLE.includes(field) ? 1 : 1e-6;
      for (const value of [least - step, most + step, NaN, Infinity, -Infinity]) refused(change(value), field);
    });
  }

  it('include whole numbers for token counts and seeds', () => {
    for (const [field, least, , change] of RANGES.filter(([name]) => WHOLE.includes(name))) {
      validateGenerateRequest({ ...REQUEST, ...change(least + 1) });
      refused(change(least + 0.5), field);
    }
  });

  it('allow each of two token ids to have a bias, and no id twice', () => {
    const bias = (...ids: number[]): Change => sampling({ logitBias: ids.map((tokenId) => ({ tokenId, bias: 1 })) });
    validateGenerateRequest({ ...REQUEST, ...bias(7, 8) });
    refused(bias(7, 8, 7), 'sampling.logit_bias[2].token_id');
  });

  it('forbid empty texts that would have no meaning', () => {
    refused({ stop: ['x', ''] }, 'stop[1]');
    refused(called({ name: '' }), 'messages[0].tool_calls[0].name');
  });

  it('keep the errors short, however long the wrong value is', () => {
    const long = letters(100_000);
    refused(chat({ role: long, content: '' }), 'messages[0].role');
    refused(
      { text: 'a', promptTokenIds: [], templateArguments: [{ name: `${long}-`, value: '1' }] },
      'template_arguments',
    );
    refused(argumentOf(`{"${long}`), 'template_arguments');
  });
});

describe('a request is refused when it combines', () => {
  const user: ChatMessage = { role: 'user', content: 'a' };
  const assistant: ChatMessage = { role: 'assistant', content: 'b' };
  const templateArguments = [{ name: 'a', value: '1' }];
  const outputFormat = { alternatives: [{ parts: [{ kind: 'literal' as const, literal: 'a' }] }] };

  it('more than one prompt, or has none', () => {
    const prompts: Change[] = [{ text: 'a' }, { messages: [user] }, { promptTokenIds: [5] }];
    const none: Change = { text: '', messages: [], promptTokenIds: [] };
    for (const prompt of prompts) validateGenerateRequest({ ...REQUEST, ...none, ...prompt });
    refused(none, 'text');
    refused({ ...none, ...prompts[0], ...prompts[1] }, 'messages');
    refused({ ...none, ...prompts[0], ...prompts[2] }, 'prompt_token_ids');
    refused({ ...none, ...prompts[1], ...prompts[2] }, 'prompt_token_ids');
  });

  it('template arguments with a prompt that uses no template', () => {
    validateGenerateRequest({ ...REQUEST, promptTokenIds: [], text: 'a', templateArguments });
    refused({ promptTokenIds: [], text: 'a', raw: true, templateArguments }, 'template_arguments');
    refused({ templateArguments }, 'template_arguments');
    refused({ promptTokenIds: [5, 6], templateArguments }, 'template_arguments');
  });

  it("the continuation with a last message that is not the assistant's", () => {
    validateGenerateRequest({ ...REQUEST, ...chat(user, assistant), continueLast: true });
    refused({ ...chat(assistant, user), continueLast: true }, 'continue_last');
    refused({ continueLast: true }, 'continue_last');
  });

  it('log-probabilities of the prompt with a count of none', () => {
    for (const logprobs of [1, 2]) validateGenerateRequest({ ...REQUEST, logprobs, promptLogprobs: true });
    refused({ promptLogprobs: true }, 'prompt_logprobs');
  });

  it('an output format with an answer that continues a message', () => {
    validateGenerateRequest({ ...REQUEST, ignoreEos: true });
    validateGenerateRequest({ ...REQUEST, ignoreEos: true, ...sampling({}) });
    validateGenerateRequest({ ...REQUEST, ...sampling({ outputFormat }) });
    refused({ ignoreEos: true, ...sampling({ outputFormat }) }, 'ignore_eos');
  });
});
