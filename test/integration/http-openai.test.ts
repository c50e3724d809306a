import assert from 'node:assert/strict';
import OpenAI from 'openai';
import type { LocalEngine } from '../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from './harness/answers.js';
import { HttpCluster } from './harness/http-cluster.js';
import { openReference } from './harness/test-models.js';
import { waitUntil } from './harness/wait-until.js';

const PROMPT = 'Tell me a story about a fox.';
const MESSAGES = [{ role: 'user' as const, content: PROMPT }];
const GREEDY = { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 };

describe("OpenAI's client", function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let engine: LocalEngine;
  let client: OpenAI;

  before(async () => {
    [api, engine] = await Promise.all([HttpCluster.start({ workers: 2 }), openReference('demo')]);
    client = new OpenAI({ baseURL: `${api.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });

  after(async () => {
    engine.dispose();
    await api.stop();
  });

  /** The same answer by the single-process engine. */
  function reference(changes: Partial<GenerateRequest>): Promise<CollectedAnswer> {
    const request: GenerateRequest = {
      text: '',
      messages: [],
      promptTokenIds: [],
      raw: false,
      maxTokens: 12,
      sampling: GREEDY,
      stop: [],
      ignoreEos: false,
      logprobs: 0,
      ...changes,
    };
    return collect(engine.generate(request, new AbortController().signal));
  }

  function textOf(bytes: readonly (readonly number[] | null)[]): string {
    return Buffer.from(bytes.flatMap((one) => [...(one ?? [])])).toString('utf8');
  }

  it('finds the one model', async () => {
    const listed = await client.models.list();
    assert.deepEqual(
      listed.data.map(({ id, object, ...rest }) => [id, object, (rest as { max_model_len?: number }).max_model_len]),
      [['demo', 'model', 2048]],
    );
    assert.equal((await client.models.retrieve('demo')).id, 'demo');
    await assert.rejects(client.models.retrieve('gpt-4o'), { status: 404, code: 'model_not_found', param: 'model' });
    const asked = client.chat.completions.create({ model: 'gpt-4o', messages: MESSAGES });
    await assert.rejects(asked, { status: 404, code: 'model_not_found' });
  });

  it("gets the engine's answer and log-probabilities, to the bit", async () => {
    const expected = await reference({ messages: MESSAGES, maxTokens: 400, logprobs: 3 });
    const answer = await client.chat.completions.create({
      model: 'demo',
      messages: MESSAGES,
      max_completion_tokens: 400,
      logprobs: true,
      top_logprobs: 3,
    });
    const [choice] = answer.choices;
    assert.equal(choice?.message.content, expected.finished.text);
    assert.equal(choice.message.role, 'assistant');
    assert.equal(choice.finish_reason, expected.finished.finishReason);
    assert.equal(expected.finished.finishReason, 'stop');
    const entries = choice.logprobs?.content ?? [];
    assert.deepEqual(
      entries.map(({ logprob, top_logprobs: top }) => [logprob, ...top.map((one) => one.logprob)]),
      expected.tokens.map(({ logprob, top }) => [logprob, ...top.map((one) => one.logprob)]),
    );
    assert.equal(entries.map(({ token }) => token).join(''), choice.message.content);
    assert.equal(textOf(entries.map(({ bytes }) => bytes)), choice.message.content);
    const cached = answer.usage?.prompt_tokens_details?.cached_tokens ?? -1;
    assert.ok(cached >= 0 && cached < expected.started.promptTokenIds.length);
    assert.deepEqual(answer.usage, {
      prompt_tokens: expected.started.promptTokenIds.length,
      completion_tokens: expected.tokens.length,
      total_tokens: expected.started.promptTokenIds.length + expected.tokens.length,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    assert.match((answer as { system_fingerprint?: string }).system_fingerprint ?? '', /^odmoe-.+-[0-9a-f]{12}-exact$/);
  });

  it('gets the same answer streamed, with usage on request', async () => {
    const sampling = { temperature: 1.3, top_p: 0.95, seed: 11, presence_penalty: 0.5, frequency_penalty: 0.2 };
    const question = { model: 'demo', messages: MESSAGES, max_tokens: 40, logprobs: true, ...sampling };
    const whole = await client.chat.completions.create(question);
    const stream = await client.chat.completions.create({
      ...question,
      stream: true,
      stream_options: { include_usage: true },
    });
    let content = '';
    const logprobs: number[] = [];
    const heads = new Set<string>();
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of stream) {
      chunks.push(chunk);
      heads.add(`${chunk.id} ${chunk.created} ${chunk.model} ${chunk.object}`);
      content += chunk.choices[0]?.delta.content ?? '';
      logprobs.push(...(chunk.choices[0]?.logprobs?.content ?? []).map(({ logprob }) => logprob));
    }
    assert.equal(heads.size, 1);
    assert.equal(content, whole.choices[0]?.message.content);
    assert.deepEqual(
      logprobs,
      whole.choices[0]?.logprobs?.content?.map(({ logprob }) => logprob),
    );
    assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
    assert.deepEqual(chunks.at(-2)?.choices[0]?.delta, {});
    assert.equal(chunks.at(-2)?.choices[0]?.finish_reason, whole.choices[0]?.finish_reason);
    assert.deepEqual(chunks.at(-1)?.choices, []);
    assert.deepEqual(chunks.at(-1)?.usage, whole.usage);
    assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === undefined));
  });

  it('collects a stream into an answer by its own helper', async () => {
    const question = { model: 'demo', messages: MESSAGES, max_tokens: 20 };
    const gathered = await client.chat.completions.stream(question).finalChatCompletion();
    const whole = await client.chat.completions.create(question);
    assert.equal(gathered.choices[0]?.message.content, whole.choices[0]?.message.content);
    assert.equal(gathered.choices[0]?.finish_reason, 'length');
  });

  it('gets n answers, each equal to the one of its seed alone', async () => {
    const question = { model: 'demo', messages: MESSAGES, max_tokens: 15, temperature: 2 };
    const together = await client.chat.completions.create({ ...question, n: 3, seed: 5 });
    assert.deepEqual(
      together.choices.map(({ index }) => index),
      [0, 1, 2],
    );
    const texts = together.choices.map(({ message }) => message.content);
    for (const [index, text] of texts.entries()) {
      const alone = await client.chat.completions.create({ ...question, seed: 5 + index });
      assert.equal(alone.choices[0]?.message.content, text);
    }
    assert.equal(new Set(texts).size, 3);
    const stream = await client.chat.completions.create({ ...question, n: 3, seed: 5, stream: true });
    const streamed = ['', '', ''];
    for await (const { choices } of stream) {
      for (const { index, delta } of choices) streamed[index] += delta.content ?? '';
    }
    assert.deepEqual(streamed, texts);
  });

  it('stops before a stop text, and excludes tokens by their bias', async () => {
    const free = await reference({ messages: MESSAGES, maxTokens: 30 });
    const stop = free.finished.text.slice(8, 11);
    const stopped = await client.chat.completions.create({
      model: 'demo',
      messages: MESSAGES,
      stop: [stop, 'never'],
      max_tokens: 30,
      logprobs: true,
    });
    const [choice] = stopped.choices;
    assert.equal(choice?.message.content, free.finished.text.slice(0, free.finished.text.indexOf(stop)));
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(textOf((choice.logprobs?.content ?? []).map(({ bytes }) => bytes)), choice.message.content);
    const first = free.tokens[0]?.tokenId ?? -1;
    const biased = { ...GREEDY, logitBias: [{ tokenId: first, bias: -100 }] };
    const expected = await reference({ messages: MESSAGES, maxTokens: 5, sampling: biased });
    const without = await client.chat.completions.create({
      model: 'demo',
      messages: MESSAGES,
      max_tokens: 5,
      logit_bias: { [first]: -100 },
    });
    assert.notEqual(without.choices[0]?.message.content, free.finished.text.slice(0, 5));
    assert.equal(without.choices[0]?.message.content, expected.finished.text);
  });

  it('fills the room that the prompt leaves, and no more', async () => {
    const long = await client.chat.completions.create({
      model: 'demo',
      messages: MESSAGES,
      max_tokens: 4_000_000,
      ignore_eos: true,
      stop: ['fox'],
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    assert.equal(long.choices[0]?.finish_reason, 'stop');
    const tooLong = client.completions.create({ model: 'demo', prompt: Array.from({ length: 2048 }, () => 40) });
    await assert.rejects(tooLong, { status: 400, code: 'context_length_exceeded' });
    const nothing = await client.chat.completions.create({ model: 'demo', messages: MESSAGES, max_tokens: 0 });
    assert.equal(nothing.choices[0]?.message.content, '');
    assert.equal(nothing.usage?.completion_tokens, 0);
  });

  it('continues the last message', async () => {
    const begun = [...MESSAGES, { role: 'assistant' as const, content: 'Once upon a time there was' }];
    const answer = await client.chat.completions.create({
      model: 'demo',
      messages: begun,
      max_tokens: 6,
      continue_final_message: true,
      add_generation_prompt: false,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    const expected = await reference({ messages: begun, maxTokens: 6, continueLast: true });
    assert.equal(answer.choices[0]?.message.content, expected.finished.text);
  });

  it("gets completions of texts and token ids, with the prompt's log-probabilities", async () => {
    const texts = ['The fox', 'A dog ate'];
    const expected = await Promise.all(
      texts.map((text) => reference({ text, raw: true, maxTokens: 1, logprobs: 2, promptLogprobs: true })),
    );
    const ids = expected.map(({ started }) => [...started.promptTokenIds]);
    for (const prompt of [texts, ids]) {
      const { choices } = await client.completions.create({
        model: 'demo',
        prompt,
        max_tokens: 1,
        logprobs: 2,
        echo: true,
      });
      for (const [index, choice] of choices.entries()) {
        const answer = expected[index] ?? assert.fail();
        assert.equal(choice.index, index);
        assert.equal(choice.text, `${texts[index]}${answer.finished.text}`);
        assert.equal(choice.logprobs?.tokens?.join(''), choice.text);
        const [, ...ofPrompt] = answer.promptLogprobs.map(({ logprob }) => logprob);
        assert.deepEqual(choice.logprobs.token_logprobs, [null, ...ofPrompt, answer.tokens[0]?.logprob]);
      }
    }
    const stream = await client.completions.create({
      model: 'demo',
      prompt: texts,
      max_tokens: 4,
      stream: true,
      stream_options: { include_usage: true },
    });
    const streamed = ['', ''];
    let usage: OpenAI.CompletionUsage | undefined;
    for await (const chunk of stream) {
      for (const { index, text } of chunk.choices) streamed[index] += text;
      usage = chunk.usage ?? usage;
    }
    const whole = await client.completions.create({ model: 'demo', prompt: texts, max_tokens: 4 });
    assert.deepEqual(
      streamed,
      whole.choices.map(({ text }) => text),
    );
    assert.deepEqual(usage, whole.usage);
  });

  it('leaves no resources behind when it leaves in mid-stream', async () => {
    const before = await api.cluster.status();
    const stream = await client.chat.completions.create({
      model: 'demo',
      messages: MESSAGES,
      n: 2,
      stream: true,
      ignore_eos: true,
    } as OpenAI.ChatCompletionCreateParamsStreaming);
    let chunks = 0;
    for await (const chunk of stream) {
      assert.equal(chunk.choices.length, 1);
      if (++chunks === 8) break;
    }
    await waitUntil('the answers have ended', async () => (await api.cluster.status()).activeSequences === 0);
    const { tokens } = await api.cluster.status();
    assert.ok(tokens - before.tokens < 1000, 'an answer that nobody waits for went on');
  });

  it('uses the responses API, which stores nothing here', async () => {
    const expected = await reference({ messages: MESSAGES, maxTokens: 10, logprobs: 2 });
    const answer = await client.responses.create({
      model: 'demo',
      input: PROMPT,
      max_output_tokens: 10,
      store: false,
      top_logprobs: 2,
      include: ['message.output_text.logprobs'],
      metadata: { purpose: 'a test' },
    });
    assert.equal(answer.output_text, expected.finished.text);
    assert.deepEqual(answer.metadata, { purpose: 'a test' });
    assert.equal(answer.status, 'incomplete');
    const [item] = answer.output;
    const part = item?.type === 'message' ? item.content[0] : undefined;
    const logprobs = part?.type === 'output_text' ? (part.logprobs ?? []) : [];
    assert.deepEqual(
      logprobs.map(({ logprob }) => logprob),
      expected.tokens.map(({ logprob }) => logprob),
    );
    const stream = client.responses.stream({
      model: 'demo',
      max_output_tokens: 10,
      input: [{ role: 'user', content: [{ type: 'input_text', text: PROMPT }] }],
    });
    const types: string[] = [];
    for await (const event of stream) types.push(event.type);
    assert.equal(types[0], 'response.created');
    assert.equal(types.at(-1), 'response.incomplete');
    const last = await stream.finalResponse();
    assert.equal(last.output_text, expected.finished.text);
    assert.deepEqual(last.metadata, {});
    const kept = client.responses.create({ model: 'demo', input: PROMPT, store: true });
    await assert.rejects(kept, { status: 400, param: 'store' });
  });

  it('gets the name of the wrong field', async () => {
    const create = (properties: object): Promise<unknown> =>
      client.chat.completions.create({
        model: 'demo',
        messages: MESSAGES,
        max_tokens: 1,
        ...properties,
      } as OpenAI.ChatCompletionCreateParamsNonStreaming);
    for (const [properties, param] of [
      [{ temprature: 1 }, 'temprature'],
      [{ top_p: 7 }, 'top_p'],
      [{ messages: [] }, 'messages'],
      [{ logit_bias: { 99999: 1 } }, 'logit_bias'],
    ] as const) {
      await assert.rejects(create(properties), { status: 400, type: 'invalid_request_error', param });
    }
  });
});
