import assert from 'node:assert/strict';
import type { ChatRequest } from '../../http-api/conversation/chat-request.js';
import { ollamaChat, promptChat } from '../../http-api/ollama/conversation.js';
import { figuresOf, joinedParts, PartMaker } from '../../http-api/ollama/answer-lines.js';
import { modelDescription, modelTags, parameterSize } from '../../http-api/ollama/model-listing.js';
import { requireTaggedModel, taggedName } from '../../http-api/ollama/model-name.js';
import { answerOptions } from '../../http-api/ollama/options.js';
import { readChatBody, readGenerateBody } from '../../http-api/ollama/request-fields.js';
import { plainAnswer } from '../../http-api/ollama/answer-request.js';
import { JsonText } from '../../http-api/delivery/json-text.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ServedModel } from '../../http-api/http-api-context.js';
import { ollamaDialect } from '../../http-api/ollama/ollama-dialect.js';

function refused(act: () => unknown, field: string, says = /./): void {
  assert.throws(act, (error) => {
    assert.ok(error instanceof OdmoeError, String(error));
    assert.equal(error.code, 'REQUEST_INVALID');
    assert.equal(error.field, field);
    assert.match(error.message, says);
    return true;
  });
}

describe("Ollama's options", () => {
  it('set how tokens are chosen, and how many', () => {
    const { sampling, stop, maxTokens, positions } = answerOptions({
      temperature: 0.5,
      top_k: 40,
      top_p: 0.9,
      min_p: 0.1,
      seed: 7,
      repeat_penalty: 1.1,
      repeat_last_n: -1,
      presence_penalty: 0.2,
      frequency_penalty: 0.3,
      num_predict: 5,
      stop: ['x'],
      num_ctx: 64,
    });
    assert.deepEqual(sampling, {
      temperature: 0.5,
      topK: 40,
      topP: 0.9,
      minP: 0.1,
      repetitionPenalty: 1.1,
      seed: 7,
      presencePenalty: 0.2,
      frequencyPenalty: 0.3,
      logitBias: [],
    });
    assert.deepEqual([stop, maxTokens, positions], [['x'], 5, 64]);
  });

  it('have the defaults of odmoe prompt where they are left out', () => {
    const { sampling, stop, maxTokens, positions } = answerOptions(undefined);
    assert.equal(sampling.temperature, 0);
    assert.equal(sampling.seed, undefined);
    assert.deepEqual([stop, positions], [[], null]);
    for (const num_predict of [-1, -2]) assert.equal(answerOptions({ num_predict }).maxTokens, maxTokens);
    assert.equal(answerOptions({ seed: -1 }).sampling.seed, undefined, 'main draws a seed');
  });

  it('are accepted where they change no answer, as are neutral values', () => {
    answerOptions({
      num_gpu: 99,
      num_thread: 8,
      num_batch: 512,
      use_mmap: true,
      num_keep: 4,
      f16_kv: true,
      low_vram: false,
      mirostat: 0,
      mirostat_eta: 0.1,
      tfs_z: 1,
      typical_p: 1,
      repeat_last_n: 64,
      repeat_penalty: 1,
      stop: null,
    });
    assert.equal(answerOptions({ repeat_last_n: 64, repeat_penalty: 1.1 }).sampling.repetitionPenalty, 1.1);
  });

  it('are named where they would change an answer, or are unknown', () => {
    refused(() => answerOptions({ mirostat: 2 }), 'options.mirostat');
    refused(() => answerOptions({ typical_p: 0.5 }), 'options.typical_p');
    refused(() => answerOptions({ whatever: 1 }), 'options.whatever', /not known/);
    refused(() => answerOptions({ num_predict: 0 }), 'options.num_predict');
    refused(() => answerOptions({ top_p: 2 }), 'options.top_p');
  });
});

const weather = { type: 'function', function: { name: 'weather', description: 'd', parameters: { type: 'object' } } };

describe("Ollama's requests become a conversation", () => {
  it('with results that belong to calls by name and order', () => {
    const called = (name: string): object => ({ function: { name, arguments: { city: 'Rome' } } });
    const { messages, tools, continueLast } = ollamaChat(
      readChatBody({
        model: 'm',
        messages: [
          { role: 'user', content: 'Weather?', images: [] },
          {
            role: 'assistant',
            content: '',
            thinking: 'Hm.',
            tool_calls: [called('weather'), called('time'), called('weather')],
          },
          { role: 'tool', tool_name: 'time', content: 'noon' },
          { role: 'tool', content: 'sunny' },
          { role: 'tool', tool_name: 'weather', content: 'rainy' },
        ],
        tools: [weather],
      }),
      null,
    );
    const args = '{"city":"Rome"}';
    assert.deepEqual(messages[1], {
      role: 'assistant',
      content: '',
      reasoningContent: 'Hm.',
      toolCalls: [
        { id: 'call_1', name: 'weather', arguments: args },
        { id: 'call_2', name: 'time', arguments: args },
        { id: 'call_3', name: 'weather', arguments: args },
      ],
    });
    assert.deepEqual(messages.slice(2), [
      { role: 'tool', content: 'noon', toolCallId: 'call_2', name: 'time' },
      { role: 'tool', content: 'sunny', toolCallId: 'call_1', name: 'weather' },
      { role: 'tool', content: 'rainy', toolCallId: 'call_3', name: 'weather' },
    ]);
    assert.deepEqual(tools, [{ name: 'weather', description: 'd', parameters: { type: 'object' } }]);
    assert.equal(continueLast, false);
  });

  it('that continues a last message of the assistant', () => {
    const messages = [
      { role: 'user', content: 'Count.' },
      { role: 'assistant', content: 'One, ' },
    ];
    assert.equal(ollamaChat(readChatBody({ model: 'm', messages }), null).continueLast, true);
  });

  it('with the format of the answer, and with thinking or without', () => {
    const asked = (changes: object, template: string | null = null): ReturnType<typeof promptChat> =>
      promptChat(readGenerateBody({ model: 'm', prompt: 'p', system: 's', ...changes }), template);
    assert.deepEqual(asked({}).messages, [
      { role: 'system', content: 's' },
      { role: 'user', content: 'p' },
    ]);
    assert.equal(asked({ format: '' }).responseFormat, null);
    assert.deepEqual(asked({ format: 'json' }).responseFormat, { kind: 'json_object' });
    assert.deepEqual(asked({ format: { type: 'string' } }).responseFormat, {
      kind: 'json_schema',
      schema: '{"type":"string"}',
    });
    assert.equal(asked({ think: true }).thinking, true);
    assert.equal(asked({ think: null }).thinking, null);
    assert.deepEqual(asked({ think: 'low' }, '{{ reasoning_effort }}').templateArguments, [
      { name: 'reasoning_effort', value: '"low"' },
    ]);
    refused(() => asked({ think: 'low' }, '{{ messages }}'), 'think', /degrees/);
  });

  it('in which a note replaces each image, unless the newest message has nothing else', () => {
    const pictured = { role: 'user', content: '', images: ['x', 'y'] };
    const chat = (...messages: object[]): ChatRequest => ollamaChat(readChatBody({ model: 'm', messages }), null);
    const note = '[an image was here; this model cannot see images]';
    const { messages } = chat(pictured, { role: 'assistant', content: 'A' }, { ...pictured, content: 'B' });
    assert.deepEqual(
      messages.map(({ content }) => content),
      [`${note}\n${note}`, 'A', `B\n${note}\n${note}`],
    );
    refused(() => chat(pictured), 'messages[0].images', /nothing that this model can read/);
    assert.equal(chat({ role: 'tool', content: '', images: ['x'] }).messages[0]?.content, note);
  });

  it('unless they use unsupported fields', () => {
    refused(() => readGenerateBody({ model: 'm', prompt: 'a', images: ['x'] }), 'images');
    refused(() => readChatBody({ model: 'm', messages: [{ role: 'boss', content: '' }] }), 'messages[0].role');
    refused(() => readChatBody({ model: 'm', format: 'xml' }), 'format');
    readChatBody({ model: 'm', truncate: true, shift: true, messages: [{ role: 'tool', content: '', name: 'a' }] });
    refused(() => readGenerateBody({ model: 'm', prompt: 'a', suffix: 'b' }), 'suffix');
    refused(() => readGenerateBody({ model: 'm', prompt: 'a', context: [1] }), 'context');
    refused(() => readGenerateBody({ model: 'm', prompt: 'a', template: '{{ .Prompt }}' }), 'template');
    refused(() => readGenerateBody({ model: 'm', prompt: 'a', wat: 1 }), 'wat', /not known/);
    readGenerateBody({ model: 'm', prompt: 'a', suffix: '', context: [], images: [], template: '', keep_alive: '5m' });
  });
});

describe("Ollama's answers", () => {
  it('send a call when it is whole, with its arguments as an object', () => {
    const maker = new PartMaker();
    const first = maker.of([
      { kind: 'content', text: 'I ' },
      { kind: 'reasoning', text: 'hm' },
      { kind: 'toolCall', index: 0, id: 'a', name: 'weather' },
      { kind: 'toolArguments', index: 0, text: '{"city": "Ro' },
    ]);
    assert.deepEqual(joinedParts(first), { content: 'I ', thinking: 'hm', toolCalls: [], logprobs: [] });
    const second = maker.of([
      { kind: 'toolArguments', index: 0, text: 'me"}' },
      { kind: 'toolCall', index: 1, id: 'b', name: 'time' },
      { kind: 'toolArguments', index: 1, text: '{"cut' },
    ]);
    assert.deepEqual(joinedParts([...second, ...maker.finish()]).toolCalls, [
      { id: 'a', function: { index: 0, name: 'weather', arguments: new JsonText('{"city": "Rome"}') } },
    ]);
  });

  it('give times in nanoseconds, which are never 0: clients divide by them', () => {
    const times = { askedMs: 10, begunMs: 20, firstTokenMs: 50, endedMs: 50 };
    assert.deepEqual(figuresOf('stop', times, { prompt: 4, answer: 1 }), {
      done_reason: 'stop',
      total_duration: 40e6,
      load_duration: 0,
      prompt_eval_count: 4,
      prompt_eval_duration: 30e6,
      eval_count: 1,
      eval_duration: 1,
    });
  });

  it('to a raw prompt have only content, and a format where one is requested', () => {
    assert.deepEqual(plainAnswer(null).createParser('').push('<think>'), [{ kind: 'content', text: '<think>' }]);
    assert.equal(plainAnswer(null).outputFormat, null);
    const schema = '{"type":"string"}';
    assert.deepEqual(plainAnswer({ kind: 'json_schema', schema }).outputFormat, {
      alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema: schema }] }],
    });
  });
});

const MODEL: ServedModel = {
  name: 'storyteller',
  createdS: 1_700_000_000,
  fingerprint: 'f',
  arithmetic: 'exact',
  packDigest: 'ab',
  tokenizer: null,
  contextPositions: 2048,
  vocabSize: 1024,
  family: 'mixtral',
  parameters: 6_960_000,
  weightFormat: 'BF16',
  packBytes: 9,
};

describe("the keep-alive lines of Ollama's streams", () => {
  it('have no text, and each is a line of its own', () => {
    const runtime = { wallMs: () => 0 };
    const lineOf = (endpoint: 'chat' | 'generate'): string =>
      ollamaDialect(endpoint, { model: MODEL, runtime }).keepAlive();
    const head = { model: 'storyteller:latest', created_at: '1970-01-01T00:00:00.000Z' };
    assert.deepEqual(JSON.parse(lineOf('generate')), { ...head, response: '', done: false });
    const message = { role: 'assistant', content: '' };
    assert.deepEqual(JSON.parse(lineOf('chat')), { ...head, message, done: false });
    assert.match(lineOf('chat'), /^\S.*\S\n$/);
  });
});

describe("the model name for Ollama's clients", () => {
  it('has a tag, and is found with and without it', () => {
    assert.equal(taggedName('a'), 'a:latest');
    assert.equal(taggedName('a:7b'), 'a:7b');
    requireTaggedModel('storyteller', 'storyteller');
    requireTaggedModel('storyteller:latest', 'storyteller');
    for (const other of ['', 'storyteller:7b', 'story']) {
      assert.throws(
        () => requireTaggedModel(other, 'storyteller'),
        (error) => error instanceof OdmoeError && error.code === 'MODEL_UNKNOWN' && error.field === 'model',
      );
    }
  });

  it('has the quality of its experts in place of their format, where they are sliced', () => {
    const levelOf = (arithmetic: string): unknown => {
      const model = { ...MODEL, arithmetic };
      const { models } = modelTags(model) as { models: { details: object }[] };
      const { details } = modelDescription(model, [], null) as { details: { quantization_level: string } };
      assert.deepEqual(models[0]?.details, details);
      return details.quantization_level;
    };
    for (const arithmetic of ['exact', 'fast', '']) assert.equal(levelOf(arithmetic), MODEL.weightFormat);
    for (const arithmetic of ['sliced(8,4)', 'sliced(4,2,critical=0.3)']) assert.equal(levelOf(arithmetic), arithmetic);
  });

  it('is listed and described', () => {
    const details = {
      parent_model: '',
      format: 'safetensors',
      family: 'mixtral',
      families: ['mixtral'],
      parameter_size: '7.0M',
      quantization_level: 'BF16',
    };
    const name = 'storyteller:latest';
    assert.deepEqual(modelTags(MODEL), {
      models: [{ name, model: name, digest: 'ab', details, modified_at: '2023-11-14T22:13:20.000Z', size: 9 }],
    });
    const described = modelDescription(MODEL, ['completion'], null) as { model_info: Record<string, unknown> };
    const architecture = String(described.model_info['general.architecture']);
    assert.equal(described.model_info[`${architecture}.context_length`], 2048);
    assert.ok(!('template_problem' in described));
    assert.equal((modelDescription(MODEL, [], 'no tools') as Record<string, unknown>)['template_problem'], 'no tools');
    assert.deepEqual([46.7e9, 6.96e6, 5000].map(parameterSize), ['46.7B', '7.0M', '5.0K']);
  });
});
