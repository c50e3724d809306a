import assert from 'node:assert/strict';
import { join } from 'node:path';
import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import { GenerationTiming } from '../../engine/generation/generation-timing.js';
import { InlinePromptEncoder } from '../../engine/generation/prompt-encoder.js';
import { type ResolvedGeneration, resolveGeneration } from '../../engine/generation/resolve-generation.js';
import { NO_FORMATS } from '../../engine/sampling/output-formats.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { validateGenerateRequest } from '../../shared/wire/generate-validation.js';
import type { GenerateRequest, ToolCall } from '../../shared/wire/messages.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

const EMPTY: GenerateRequest = {
  text: '',
  messages: [],
  promptTokenIds: [],
  raw: false,
  maxTokens: 10,
  sampling: null,
  stop: [],
  ignoreEos: false,
  logprobs: 0,
};
const LIMITS = { vocabSize: 1024, maxPositions: 64, eosTokenIds: [1] };

describe('resolving a generation request', () => {
  let tokenizer: Tokenizer;
  before(async () => {
    tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
  });

  async function resolve(change: Partial<GenerateRequest>, withTokenizer = true): Promise<ResolvedGeneration> {
    const valid = validateGenerateRequest({ ...EMPTY, ...change });
    const known = withTokenizer ? tokenizer : null;
    const prompts = new InlinePromptEncoder(known, { wallMs: () => 0 });
    const model = { tokenizer: known, prompts, formats: NO_FORMATS, limits: LIMITS, chooseSeed: () => 77 };
    return resolveGeneration(valid, model, new AbortController().signal);
  }

  async function refused(
    code: ErrorCode,
    words: RegExp,
    change: Partial<GenerateRequest>,
    withTokenizer = true,
  ): Promise<void> {
    await assert.rejects(
      resolve(change, withTokenizer),
      (error) => error instanceof OdmoeError && error.code === code && words.test(error.message),
    );
  }

  it('puts a text through the chat template, unless it is raw', async () => {
    const templated = (await resolve({ text: 'What is 17 plus 25?' })).promptIds;
    assert.deepEqual(templated, [0, 2, 14, 364, 315, 36, 53, 59, 447, 36, 54, 57, 67, 1, 14, 3, 14]);
    assert.deepEqual(
      (await resolve({ messages: [{ role: 'user', content: 'What is 17 plus 25?' }] })).promptIds,
      templated,
    );
    assert.deepEqual((await resolve({ text: 'What is 17 plus 25?', raw: true })).promptIds, templated.slice(3, -4));
  });

  it('takes token ids as they are, without a tokenizer too', async () => {
    assert.deepEqual((await resolve({ promptTokenIds: [3, 0, 1023] }, false)).promptIds, [3, 0, 1023]);
  });

  it('fills in missing options', async () => {
    const { options } = await resolve({ text: 'a', logprobs: 5, stop: ['.'] });
    assert.equal(options.sampling.seed, 77);
    assert.equal(options.sampling.temperature, 0);
    assert.deepEqual(options.eosTokenIds, [1]);
    assert.equal(options.logprobs, 5);
  });

  it('refuses a request with no prompt or with more than one', async () => {
    await refused('REQUEST_INVALID', /none of them/, {});
    await refused('REQUEST_INVALID', /more than one/, { text: 'a', promptTokenIds: [1] });
  });

  it('refuses ids outside the vocabulary', async () => {
    await refused('REQUEST_INVALID', /1024 is not in the vocabulary.*0 to 1023/, { promptTokenIds: [5, 1024] });
    await refused('REQUEST_INVALID', /-1/, { promptTokenIds: [-1] });
  });

  it('refuses a prompt that does not fit, with the numbers', async () => {
    await refused('PROMPT_TOO_LONG', /64 tokens.*context holds 64/, { promptTokenIds: new Array<number>(64).fill(5) });
    await refused('PROMPT_TOO_LONG', /shorten the prompt/, {
      promptTokenIds: new Array<number>(65).fill(5),
      maxTokens: 1,
    });
  });

  it('gives an answer the room that the prompt leaves, however many tokens are asked for', async () => {
    const promptTokenIds = new Array<number>(55).fill(5);
    for (const [asked, given] of [
      [8, 8],
      [9, 9],
      [10, 9],
      [2 ** 32 - 1, 9],
    ] as const) {
      assert.equal((await resolve({ promptTokenIds, maxTokens: asked })).options.maxTokens, given);
    }
    assert.equal(
      (await resolve({ promptTokenIds: new Array<number>(63).fill(5), maxTokens: 10 })).options.maxTokens,
      1,
    );
  });

  it('takes the messages of a chat, each with a known role and a content', async () => {
    for (const role of ['root', '', 'User']) {
      const messages = [
        { role: 'user', content: 'a' },
        { role, content: 'b' },
      ];
      await refused('REQUEST_INVALID', /messages\[1\] has the role .*one of system, developer, user/, { messages });
    }
    assert.ok((await resolve({ messages: [{ role: 'user', content: '' }] })).promptIds.length > 0);
    const long = [{ role: 'x'.repeat(100_000), content: 'a' }];
    await refused('REQUEST_INVALID', /^.{0,200}$/, { messages: long });
  });

  it('takes calls of tools from an assistant, and their results from tools', async () => {
    const called = (call: Partial<ToolCall>): Partial<GenerateRequest> => ({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'assistant', content: '', toolCalls: [{ id: 'c', name: 'f', arguments: '{}', ...call }] },
        { role: 'tool', content: '', toolCallId: 'c' },
      ],
    });
    assert.ok((await resolve(called({}))).promptIds.length > 0);
    assert.ok((await resolve(called({ arguments: '{"cut": ' }))).promptIds.length > 0);
    await refused('REQUEST_INVALID', /messages\[1\]\.tool_calls\[0\] has no name/, called({ name: '' }));
    await refused('REQUEST_INVALID', /tool_calls\[0\]\.id has 257/, called({ id: 'x'.repeat(257) }));
    const [asked, answer] = called({}).messages ?? [];
    const wrong = [
      [{ ...asked, toolCalls: answer?.toolCalls ?? [] }, /only an assistant calls/],
      [{ ...asked, reasoningContent: 'b' }, /only an assistant has it/],
      [{ ...asked, toolCallId: 'c' }, /it must be tool/],
      [{ ...answer, toolCalls: new Array<ToolCall>(129).fill({ id: '', name: 'f', arguments: '' }) }, /at most 128/],
    ] as const;
    for (const [message, reason] of wrong) {
      await refused('REQUEST_INVALID', reason, { messages: [{ role: 'user', content: 'a', ...message }] });
    }
  });

  it('refuses a prompt by its bytes before it is tokenized', async () => {
    const untouched = (): number[] => assert.fail('the text was made into tokens');
    const known = { ...tokenizer, encode: untouched, encodeRendered: untouched };
    const prompts = new InlinePromptEncoder(known, { wallMs: () => 0 });
    const model = { tokenizer: known, prompts, formats: NO_FORMATS, limits: LIMITS, chooseSeed: () => 77 };
    const limitBytes = LIMITS.maxPositions * tokenizer.longestTokenBytes;
    const text = 'é'.repeat(Math.floor(limitBytes / 2) + 1);
    const messages = [
      { role: 'user', content: text.slice(0, text.length / 2) },
      { role: 'assistant', content: text.slice(text.length / 2) },
    ];
    for (const prompt of [{ text }, { text, raw: true }, { messages }]) {
      await assert.rejects(resolveGeneration({ ...EMPTY, ...prompt }, model, new AbortController().signal), {
        code: 'PROMPT_TOO_LONG',
        message: new RegExp(`the prompt has \\d+ bytes.*64 tokens, which stand for ${limitBytes} at most`),
      });
    }
    const many = Array.from({ length: 65 }, () => ({ role: 'user', content: 'a' }));
    await refused('PROMPT_TOO_LONG', /65 messages/, { messages: many });
    // Space around a message, which templates cut off, does not count.
    await refused('PROMPT_TOO_LONG', /tokens, but the context holds 64/, { text: `a${' '.repeat(limitBytes)}` });
  });

  it('refuses text and stop strings when there is no tokenizer', async () => {
    await refused('TOKENIZER_INVALID', /--prompt-token-ids/, { text: 'a' }, false);
    await refused('REQUEST_INVALID', /stop strings/, { promptTokenIds: [5], stop: ['.'] }, false);
  });

  it('names the wrong field as the wire does', async () => {
    const sampling = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
    const messages = [{ role: 'user', content: 'a' }];
    const outputFormat = { alternatives: [{ parts: [{ kind: 'literal' as const, literal: 'a' }] }] };
    const bias = (...tokenIds: number[]) => tokenIds.map((tokenId) => ({ tokenId, bias: 1 }));
    const wrong: [string, Partial<GenerateRequest>][] = [
      ['text', {}],
      ['messages', { text: 'a', messages }],
      ['messages[1].role', { messages: [...messages, { role: 'root', content: '' }] }],
      ['prompt_token_ids[1]', { promptTokenIds: [5, 1024] }],
      ['max_tokens', { text: 'a', maxTokens: 0.5 }],
      ['logprobs', { text: 'a', logprobs: 1025 }],
      ['prompt_logprobs', { text: 'a', promptLogprobs: true }],
      ['stop', { text: 'a', stop: new Array<string>(65).fill('x') }],
      ['stop[1]', { text: 'a', stop: ['x', ''] }],
      ['template_arguments', { text: 'a', templateArguments: [{ name: 'a', value: '{' }] }],
      ['continue_last', { messages, continueLast: true }],
      ['ignore_eos', { text: 'a', ignoreEos: true, sampling: { ...sampling, outputFormat } }],
      ['sampling.top_p', { text: 'a', sampling: { ...sampling, topP: 2 } }],
      ['sampling.presence_penalty', { text: 'a', sampling: { ...sampling, presencePenalty: 100.5 } }],
      ['sampling.frequency_penalty', { text: 'a', sampling: { ...sampling, frequencyPenalty: NaN } }],
      ['sampling.logit_bias', { text: 'a', sampling: { ...sampling, logitBias: bias(...Array(1025).keys()) } }],
      ['sampling.logit_bias[1].token_id', { text: 'a', sampling: { ...sampling, logitBias: bias(7, 7) } }],
      ['sampling.logit_bias[1].token_id', { text: 'a', sampling: { ...sampling, logitBias: bias(7, 1024) } }],
      [
        'sampling.logit_bias[0].bias',
        { text: 'a', sampling: { ...sampling, logitBias: [{ tokenId: 1, bias: -101 }] } },
      ],
      ['sampling.output_format', { text: 'a', sampling: { ...sampling, outputFormat } }],
    ];
    for (const [field, change] of wrong) {
      await assert.rejects(resolve(change), { code: 'REQUEST_INVALID', field }, JSON.stringify(change));
    }
  });

  it('needs no room for an answer without tokens', async () => {
    const promptTokenIds = new Array<number>(64).fill(5);
    assert.equal((await resolve({ promptTokenIds, maxTokens: 0 })).options.maxTokens, 0);
    await refused('PROMPT_TOO_LONG', /64 tokens.*answer needs one/, { promptTokenIds, maxTokens: 1 });
    await refused('PROMPT_TOO_LONG', /65 tokens.*holds 64; shorten/, {
      promptTokenIds: [...promptTokenIds, 5],
      maxTokens: 0,
    });
  });

  it('limits the log-probabilities of a prompt', async () => {
    const limits = { ...LIMITS, vocabSize: 200_000, maxPositions: 200_000 };
    const known = { tokenizer: null, prompts: new InlinePromptEncoder(null, { wallMs: () => 0 }), formats: NO_FORMATS };
    const ask = (promptTokens: number, logprobs: number) =>
      resolveGeneration(
        { ...EMPTY, promptTokenIds: new Array<number>(promptTokens).fill(5), logprobs, promptLogprobs: true },
        { ...known, limits, chooseSeed: () => 0 },
        new AbortController().signal,
      );
    assert.equal((await ask(2 ** 14, 63)).options.promptLogprobs, true);
    await assert.rejects(ask(2 ** 14, 64), { code: 'REQUEST_INVALID', field: 'logprobs', message: /63 at most/ });
  });
});

describe('the measured times of an answer', () => {
  it('are those of DESIGN: TTFT from arrival, TPOT over the later tokens', () => {
    let nowMs = 1000;
    const timing = new GenerationTiming(() => nowMs);
    nowMs = 1010;
    timing.start();
    for (const atMs of [1110, 1130, 1170]) {
      nowMs = atMs;
      timing.token();
    }
    timing.stall(7);
    assert.deepEqual(timing.result(), {
      ttftMs: 110,
      tpotMs: 30,
      decodeTokensPerS: 1000 / 30,
      outputTokensPerS: 3000 / 170,
      queuedMs: 10,
      ioStallMs: 7,
    });
  });

  it('have no rate for one token or none', () => {
    const timing = new GenerationTiming(() => 5);
    assert.equal(timing.result().ttftMs, 0);
    timing.token();
    assert.equal(timing.result().decodeTokensPerS, 0);
    assert.equal(timing.result().outputTokensPerS, 0);
  });
});

describe('recall of predictions', () => {
  it('is the correct part of activated experts, per iteration and in total (OD-MoE eq. 2 and 3)', () => {
    const recall = new ExpertRecall();
    recall.add(0, 2, 2);
    recall.add(0, 2, 1);
    recall.add(2, 2, 0);
    recall.addLate();
    assert.deepEqual(recall.result(), {
      recall: 0.5,
      activated: 6,
      predictedCorrectly: 3,
      late: 1,
      correctByIteration: [3, 0, 0],
      activatedByIteration: [4, 0, 2],
    });
  });
});
