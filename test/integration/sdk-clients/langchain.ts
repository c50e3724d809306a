import assert from 'node:assert/strict';
import { ChatAnthropic } from '@langchain/anthropic';
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { HumanMessage, type AIMessageChunk, type UsageMetadata } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { concat } from '@langchain/core/utils/stream';
import { ChatOllama } from '@langchain/ollama';
import { ChatOpenAI } from '@langchain/openai';
import {
  CALL_OR_SHORT,
  firstCalling,
  MODEL,
  OBJECT_TOKENS,
  PLAIN_VISIT,
  PROMPT,
  RESULT,
  TEXT_TOKENS,
  TOOL,
  VISIT,
  type Answer,
  type OpenSdkClient,
  type SdkClient,
} from './question.js';

/** LangChain with its integrations. */

const VISITING = tool(() => RESULT, { ...TOOL, schema: VISIT });
const ASKED = new HumanMessage(PROMPT);

type Ask = (isStreamed: boolean) => Promise<AIMessageChunk>;

interface Integration {
  model: (maxTokens: number) => BaseChatModel;
  /** An answer with a call. */
  call: Ask;
  object: SdkClient['object'];
}

function chatOpenAi(url: string, useResponsesApi: boolean): Integration {
  const model = (maxTokens: number): ChatOpenAI =>
    new ChatOpenAI({
      model: MODEL,
      apiKey: 'none',
      maxRetries: 0,
      maxTokens,
      useResponsesApi,
      configuration: { baseURL: `${url}/v1` },
    });
  const calling = model(OBJECT_TOKENS).bindTools([VISITING], { tool_choice: TOOL.name });
  const object = model(OBJECT_TOKENS).withStructuredOutput(VISIT, { name: 'visit' });
  return {
    model,
    call: async (isStreamed) => (isStreamed ? joined(await calling.stream([ASKED])) : calling.invoke([ASKED])),
    object: async (isStreamed) => (isStreamed ? last(await object.stream(PROMPT)) : object.invoke(PROMPT)),
  };
}

export const openLangChainChat: OpenSdkClient = (url) => client(chatOpenAi(url, false));
export const openLangChainResponses: OpenSdkClient = (url) => client(chatOpenAi(url, true));

export const openLangChainMessages: OpenSdkClient = (url) => {
  const model = (maxTokens: number): ChatAnthropic =>
    new ChatAnthropic({ model: MODEL, apiKey: 'none', maxRetries: 0, maxTokens, anthropicApiUrl: url });
  const calling = model(OBJECT_TOKENS).bindTools([VISITING], { tool_choice: 'any' });
  const object = model(OBJECT_TOKENS).withStructuredOutput(VISIT, { name: 'visit' });
  // By a tool, which is the default, it reads no stream: it takes the arguments from where it has put none.
  const streamed = model(OBJECT_TOKENS).withStructuredOutput(PLAIN_VISIT, { name: 'visit', method: 'jsonSchema' });
  return client({
    model,
    call: async (isStreamed) => (isStreamed ? joined(await calling.stream([ASKED])) : calling.invoke([ASKED])),
    object: async (isStreamed) => (isStreamed ? last(await streamed.stream(PROMPT)) : object.invoke(PROMPT)),
  });
};

export const openLangChainOllama: OpenSdkClient = (url) => {
  const settings = { model: MODEL, baseUrl: url, maxRetries: 0 };
  const model = (numPredict: number): ChatOllama => new ChatOllama({ ...settings, numPredict });
  const object = model(OBJECT_TOKENS).withStructuredOutput(VISIT, { name: 'visit' });
  const calling = (seed: number): ReturnType<ChatOllama['bindTools']> =>
    new ChatOllama({ ...settings, ...CALL_OR_SHORT, seed, numPredict: OBJECT_TOKENS }).bindTools([VISITING]);
  return client({
    model,
    call: (isStreamed) =>
      firstCalling(
        async (seed) => (isStreamed ? joined(await calling(seed).stream([ASKED])) : calling(seed).invoke([ASKED])),
        ({ tool_calls: calls = [] }) => calls.length > 0,
      ),
    object: async (isStreamed) => (isStreamed ? last(await object.stream(PROMPT)) : object.invoke(PROMPT)),
  });
};

function answerOf({
  text,
  usage_metadata: usage,
}: {
  text: string;
  usage_metadata?: UsageMetadata | undefined;
}): Answer {
  return { text, promptTokens: usage?.input_tokens ?? 0, answerTokens: usage?.output_tokens ?? 0 };
}

async function joined(chunks: AsyncIterable<AIMessageChunk>): Promise<AIMessageChunk> {
  let whole: AIMessageChunk | undefined;
  for await (const chunk of chunks) whole = whole === undefined ? chunk : concat(whole, chunk);
  return whole ?? assert.fail('an empty stream');
}

async function last<T>(parts: AsyncIterable<T>): Promise<T | undefined> {
  let latest: T | undefined;
  for await (const part of parts) latest = part;
  return latest;
}

function client({ model, call, object }: Integration): SdkClient {
  return {
    text: async () => answerOf(await model(TEXT_TOKENS).invoke(PROMPT)),
    streamedText: async () => {
      const chunks: AIMessageChunk[] = [];
      for await (const chunk of await model(TEXT_TOKENS).stream(PROMPT)) chunks.push(chunk);
      const deltas = chunks.filter(({ text }) => text !== '').length;
      return { ...answerOf(chunks.reduce((whole, chunk) => concat(whole, chunk))), deltas };
    },
    object,
    toolTurn: async (isStreamed) => {
      const answer = await call(isStreamed);
      const [called, ...more] = answer.tool_calls ?? [];
      assert.ok(called !== undefined && more.length === 0);
      const result = await VISITING.invoke(called);
      const bound = model(TEXT_TOKENS).bindTools?.([VISITING]) ?? assert.fail('no tools');
      const after = await bound.invoke([ASKED, answer, result]);
      return { given: called.args, promptTokens: answerOf(answer).promptTokens, after: answerOf(after) };
    },
  };
}
