import assert from 'node:assert/strict';
import { HttpCluster } from './harness/http-cluster.js';
import { openVercelChat, openVercelCompatible, openVercelMessages, openVercelResponses } from './sdk-clients/ai-sdk.js';
import {
  openLangChainChat,
  openLangChainMessages,
  openLangChainOllama,
  openLangChainResponses,
} from './sdk-clients/langchain.js';
import {
  MODEL,
  PLAIN_VISIT,
  PROMPT,
  RESULT_TOKENS,
  TEXT_TOKENS,
  VISIT,
  type Answer,
  type OpenSdkClient,
} from './sdk-clients/question.js';
import { openChat, openMessages, openOllama, openResponses } from './sdk-clients/service-clients.js';

/** Client libraries, by the package and what they speak. */
const CLIENTS: Readonly<Record<string, OpenSdkClient>> = {
  'openai, chats,': openChat,
  'openai, responses,': openResponses,
  '@anthropic-ai/sdk': openMessages,
  ollama: openOllama,
  '@ai-sdk/openai, responses,': openVercelResponses,
  '@ai-sdk/openai, chats,': openVercelChat,
  '@ai-sdk/openai-compatible': openVercelCompatible,
  '@ai-sdk/anthropic': openVercelMessages,
  '@langchain/openai, chats,': openLangChainChat,
  '@langchain/openai, responses,': openLangChainResponses,
  '@langchain/anthropic': openLangChainMessages,
  '@langchain/ollama': openLangChainOllama,
};

describe('a client library', function () {
  this.timeout(120_000);
  let api: HttpCluster;
  let expected: Answer;
  const printed: unknown[] = [];
  const keepWarning = (warning: Error): number => printed.push(warning.message);
  const keep = (...values: unknown[]): number => printed.push(...values);
  const realConsole = globalThis.console;

  before(async () => {
    api = await HttpCluster.start({ workers: 1 });
    const body = { model: MODEL, messages: [{ role: 'user', content: PROMPT }], max_tokens: TEXT_TOKENS };
    const reply = (await (await api.fetch('/v1/chat/completions', body)).json()) as {
      choices: [{ message: { content: string } }];
      usage: { prompt_tokens: number; completion_tokens: number };
    };
    const { prompt_tokens: promptTokens, completion_tokens: answerTokens } = reply.usage;
    expected = { text: reply.choices[0].message.content, promptTokens, answerTokens };
  });

  after(() => api.stop());

  beforeEach(() => {
    globalThis.console = Object.assign(Object.create(realConsole) as Console, { warn: keep, error: keep, info: keep });
    process.on('warning', keepWarning);
  });

  afterEach(() => {
    globalThis.console = realConsole;
    process.off('warning', keepWarning);
    assert.deepEqual(printed.splice(0), [], 'a client has something to say about its answers');
  });

  for (const [name, open] of Object.entries(CLIENTS)) {
    it(`${name} gets the text that others get, whole and streamed`, async () => {
      const client = open(api.url);
      const [whole, { deltas, ...streamed }] = await Promise.all([client.text(), client.streamedText()]);
      assert.deepEqual(whole, expected);
      assert.deepEqual(streamed, expected);
      assert.ok(deltas > 3, `the text came in ${deltas} pieces`);
    });

    it(`${name} gets objects of its schema, whole and streamed`, async () => {
      const client = open(api.url);
      const objects = await Promise.all([client.object(false), client.object(true)]);
      for (const object of objects) {
        const isValid = [VISIT, PLAIN_VISIT].some((shape) => shape.strict().safeParse(object).success);
        assert.ok(isValid, JSON.stringify(object));
      }
    });

    it(`${name} gets a call, whole and streamed, and an answer to its result`, async () => {
      const client = open(api.url);
      const [whole, streamed] = await Promise.all([client.toolTurn(false), client.toolTurn(true)]);
      assert.deepEqual(whole.given, VISIT.strict().parse(whole.given));
      assert.deepEqual(streamed, whole);
      assert.ok(whole.after.promptTokens >= whole.promptTokens + RESULT_TOKENS, 'the result is in the prompt');
      assert.ok(whole.after.answerTokens > 0);
    });
  }
});
