import assert from 'node:assert/strict';
import { Ollama } from 'ollama';
import type { LocalEngine } from '../../../engine/generation/local-engine.js';
import type { GenerateRequest } from '../../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from '../../integration/harness/answers.js';
import { HttpCluster } from '../../integration/harness/http-cluster.js';
import { openReference } from '../../integration/harness/test-models.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

const QUESTION =
  'Once upon a time there was a girl named Cora. She lived near the barn and liked to eat soup. At noon it was rainy, and Cora walked to ' +
  'the tower. There she found a heavy purple scarf under a tree.\nWhere did Cora live?';
const ASKED = [{ role: 'user', content: QUESTION }];

describe("the HTTP server for Ollama's clients", function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let reference: LocalEngine;
  let client: Ollama;
  let model: string;

  before(async () => {
    api = await HttpCluster.start({ workers: 2 });
    reference = await openReference('demo');
    model = reference.source.name;
    client = new Ollama({ host: api.url });
  });

  after(async () => {
    await api.stop();
    reference.dispose();
  });

  function local(changes: Partial<GenerateRequest>): Promise<CollectedAnswer> {
    const rest = { promptTokenIds: [], raw: false, sampling: null, stop: [], ignoreEos: false, logprobs: 0 };
    const request = { text: '', messages: [], maxTokens: 1000, ...rest, ...changes };
    return collect(reference.generate(request, new AbortController().signal));
  }

  it('answers a chat as one process does', async () => {
    const answer = await client.chat({ model, messages: ASKED });
    const { started, tokens, finished } = await local({ messages: ASKED });
    assert.deepEqual(answer.message, { role: 'assistant', content: finished.text });
    assert.deepEqual([answer.done, answer.done_reason], [true, 'stop']);
    assert.deepEqual([answer.prompt_eval_count, answer.eval_count], [started.promptTokenIds.length, tokens.length]);
    assert.ok(answer.eval_duration > 0 && answer.total_duration >= answer.eval_duration);
    assert.equal(answer.model, `${model}:latest`);
    assert.ok(!Number.isNaN(Date.parse(String(answer.created_at))));
  });

  it('streams a chat in lines by default', async () => {
    const { finished } = await local({ messages: ASKED });
    const deltas: string[] = [];
    const ends: boolean[] = [];
    for await (const part of await client.chat({ model: `${model}:latest`, messages: ASKED, stream: true })) {
      deltas.push(part.message.content);
      ends.push(part.done);
    }
    assert.equal(deltas.join(''), finished.text);
    assert.ok(deltas.length > 3, 'the text comes in deltas');
    assert.deepEqual([ends.indexOf(true), deltas.at(-1)], [ends.length - 1, '']);
    const plain = await api.fetch('/api/chat', { model, messages: ASKED });
    assert.equal(plain.headers.get('content-type'), 'application/x-ndjson');
    const lines = (await plain.text()).trimEnd().split('\n');
    assert.equal(lines.length, deltas.length);
    for (const line of lines) assert.equal((JSON.parse(line) as { model: string }).model, `${model}:latest`);
  });

  it('chooses tokens by options as one process does', async () => {
    const options = {
      temperature: 0.8,
      top_k: 50,
      top_p: 0.95,
      min_p: 0.02,
      seed: 5,
      repeat_penalty: 1.1,
      repeat_last_n: -1,
    };
    const answer = await client.chat({ model, messages: ASKED, options: { ...options, num_predict: 20 } });
    const sampling = { temperature: 0.8, topK: 50, topP: 0.95, minP: 0.02, repetitionPenalty: 1.1, seed: 5 };
    const { finished } = await local({ messages: ASKED, maxTokens: 20, sampling });
    assert.equal(answer.message.content, finished.text);
    assert.equal(answer.done_reason, finished.finishReason);
  });

  it('ends an answer before a stop text, and at its limit of positions', async () => {
    const { started, finished } = await local({ messages: ASKED });
    const stop = String(finished.text.split(' ')[2]);
    const stopped = await client.chat({ model, messages: ASKED, options: { stop: ['zzz', stop] } });
    assert.equal(stopped.message.content, finished.text.slice(0, finished.text.indexOf(stop)));
    const prompt = started.promptTokenIds.length;
    const short = await client.chat({ model, messages: ASKED, options: { num_ctx: prompt + 3 } });
    assert.deepEqual([short.done_reason, short.eval_count], ['length', 3]);
    await assert.rejects(client.chat({ model, messages: ASKED, options: { num_ctx: prompt } }), /num_ctx/);
  });

  it('continues prompts, through the chat template and raw', async () => {
    const templated = await client.generate({ model, prompt: QUESTION, system: 'Be short.' });
    const messages = [{ role: 'system', content: 'Be short.' }, ...ASKED];
    assert.equal(templated.response, (await local({ messages })).finished.text);
    const prompt = 'Once upon a time';
    const options = { num_predict: 12 };
    const expected = await local({ text: prompt, raw: true, maxTokens: 12 });
    let raw = '';
    for await (const part of await client.generate({ model, prompt, raw: true, options, stream: true }))
      raw += part.response ?? '';
    assert.equal(raw, expected.finished.text);
  });

  it('continues a last message of the assistant', async () => {
    const { finished } = await local({ messages: ASKED });
    const begun = finished.text.slice(0, finished.text.indexOf(' ', 6));
    const answer = await client.chat({ model, messages: [...ASKED, { role: 'assistant', content: begun }] });
    assert.equal(begun + answer.message.content, finished.text);
  });

  it('answers in the requested format, streamed or not, raw or not', async () => {
    const format = {
      type: 'object',
      properties: { name: { enum: ['Cora', 'Tom'] }, age: { type: 'integer', minimum: 1, maximum: 99 } },
      required: ['name', 'age'],
      additionalProperties: false,
    };
    const options = { num_predict: 60 };
    const chat = await client.chat({ model, messages: ASKED, format, options });
    const { name, age } = JSON.parse(chat.message.content) as { name: string; age: number };
    assert.ok(['Cora', 'Tom'].includes(name) && Number.isInteger(age) && age >= 1 && age <= 99);
    let streamed = '';
    for await (const part of await client.chat({ model, messages: ASKED, format, options, stream: true })) {
      streamed += part.message.content;
    }
    assert.equal(streamed, chat.message.content);
    const raw = await client.generate({ model, prompt: 'Her name and age: ', raw: true, format, options });
    assert.deepEqual(Object.keys(JSON.parse(String(raw.response)) as object).sort(), ['age', 'name']);
    const { response } = await client.generate({ model, prompt: QUESTION, format: 'json', options });
    assert.equal(typeof JSON.parse(String(response)), 'object');
  });

  it('sends log-probabilities, whose tokens make the content', async () => {
    const asked = { model, messages: ASKED, logprobs: true, top_logprobs: 2 };
    const whole = await client.chat(asked);
    const { tokens } = await local({ messages: ASKED, logprobs: 2 });
    assert.equal((whole.logprobs ?? []).map(({ token }) => token).join(''), whole.message.content);
    assert.deepEqual(
      (whole.logprobs ?? []).map(({ logprob }) => logprob),
      tokens.map(({ logprob }) => logprob),
    );
    assert.ok((whole.logprobs ?? []).every(({ top_logprobs: top }) => top?.length === 2));
    const streamed: unknown[] = [];
    for await (const part of await client.chat({ ...asked, stream: true })) streamed.push(...(part.logprobs ?? []));
    assert.deepEqual(streamed, whole.logprobs);
  });

  it('lists and shows the model, and gives the version', async () => {
    const { models } = await client.list();
    assert.deepEqual(
      models.map(({ name }) => name),
      [`${model}:latest`],
    );
    assert.match(models[0]?.digest ?? '', /^[0-9a-f]{64}$/);
    assert.ok((models[0]?.size ?? 0) > 0);
    const shown = (await client.show({ model })) as unknown as {
      model_info: Record<string, unknown>;
      capabilities: string[];
      template: string;
    };
    assert.equal(shown.model_info['general.architecture'], 'mixtral');
    assert.equal(shown.model_info['mixtral.context_length'], 2048);
    assert.deepEqual(shown.capabilities, ['completion', 'tools']);
    assert.match(shown.template, /<\|assistant\|>/);
    const running = await client.ps();
    assert.ok((running.models[0]?.size ?? 0) > 0);
    assert.equal(running.models[0]?.size_vram, 0, 'there is no GPU in this cluster');
    const { version } = await client.version();
    assert.match(version, /^\d+\.\d+\.\d+-odmoe/);
  });

  it('treats an empty question as a request to load the model', async () => {
    const loaded = await client.generate({ model, prompt: '' });
    assert.deepEqual([loaded.done, loaded.done_reason, loaded.response], [true, 'load', '']);
    const chat = await client.chat({ model, messages: [], keep_alive: 0 });
    assert.deepEqual([chat.done_reason, chat.message.content], ['unload', '']);
    let lines = 0;
    for await (const part of await client.generate({ model, prompt: '', stream: true })) lines += part.done ? 1 : 0;
    assert.equal(lines, 1);
  });

  it("refuses invalid requests in Ollama's form", async () => {
    const refusals: [string, object, number, RegExp][] = [
      ['/api/chat', { model: 'llama3', messages: ASKED }, 404, /llama3/],
      ['/api/chat', { model, messages: ASKED, options: { mirostat: 2 } }, 400, /options\.mirostat/],
      ['/api/chat', { model, messages: ASKED, wat: 1 }, 400, /wat/],
      ['/api/generate', { model, prompt: 'a', suffix: 'b' }, 400, /suffix/],
      ['/api/chat', { model, messages: [{ role: 'user', content: 'long '.repeat(4000) }] }, 400, /context/],
      ['/api/pull', { model: 'x' }, 404, /one model/],
      ['/api/embed', { model, input: 'x' }, 404, /embeddings/],
      ['/api/show', { model: 'x' }, 404, /not served/],
    ];
    for (const [path, body, status, says] of refusals) {
      const answer = await api.fetch(path, body);
      assert.equal(answer.status, status, path);
      const { error } = (await answer.json()) as { error: string };
      assert.match(error, says);
    }
    await assert.rejects(client.pull({ model: 'x' }), { name: 'ResponseError', status_code: 404 });
    await assert.rejects(client.delete({ model: 'x' }), { name: 'ResponseError', status_code: 404 });
    assert.equal((await api.fetch('/api/blobs/sha256:ab', undefined, { method: 'HEAD' })).status, 404);
    await assert.rejects(client.chat({ model: 'llama3', messages: ASKED }), {
      name: 'ResponseError',
      status_code: 404,
    });
  });

  it('frees the sequence of a client that leaves', async () => {
    const stream = await client.generate({
      model,
      prompt: 'Once',
      raw: true,
      options: { temperature: 2, seed: 1 },
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const part of stream) if (part.response !== '') stream.abort();
    }, /abort/);
    await waitUntil('no sequence is left', async () => (await api.cluster.status()).activeSequences === 0);
  });

  it('converts a text to tokens, and tokens to text', async () => {
    const text = 'A fox <|end|>\n sings.';
    const { tokens } = (await (await api.fetch('/tokenize', { content: text })).json()) as { tokens: number[] };
    assert.deepEqual(tokens, reference.tokenizer?.encodeRendered(text));
    assert.deepEqual(await (await api.fetch('/detokenize', { tokens })).json(), { content: text });
    const shown = (await (await api.fetch('/tokenize', { content: text, with_pieces: true })).json()) as {
      tokens: { id: number; piece: string }[];
    };
    assert.equal(shown.tokens.map(({ piece }) => piece).join(''), text);
    assert.deepEqual(await (await api.fetch('/tokenize', { content: '' })).json(), { tokens: [] });
    assert.deepEqual(await (await api.fetch('/detokenize', { tokens: [] })).json(), { content: '' });
    const long = await api.fetch('/tokenize', { content: 'long '.repeat(400_000) });
    assert.equal(long.status, 400);
    const beyondContext = await api.fetch('/tokenize', { content: 'long '.repeat(100_000) });
    assert.equal(beyondContext.status, 200);
    const many = await api.fetch('/tokenize', { content: '1 '.repeat(40_000), with_pieces: true });
    assert.equal(many.status, 400);
    assert.equal(((await many.json()) as { error: { param: string } }).error.param, 'with_pieces');
    const wrong = await api.fetch('/detokenize', { tokens: [1, 1024] });
    assert.equal(wrong.status, 400);
    assert.equal(((await wrong.json()) as { error: { param: string } }).error.param, 'tokens[1]');
  });
});
