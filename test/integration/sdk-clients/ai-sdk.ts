import assert from 'node:assert/strict';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  generateObject,
  generateText,
  stepCountIs,
  streamObject,
  streamText,
  tool,
  type LanguageModel,
  type LanguageModelUsage,
} from 'ai';
import {
  MODEL,
  OBJECT_TOKENS,
  PROMPT,
  RESULT,
  TEXT_TOKENS,
  TOOL,
  VISIT,
  type Answer,
  type OpenSdkClient,
  type SdkClient,
} from './question.js';

/** Vercel's AI SDK with its providers. */

const SETTINGS = { apiKey: 'none' };

export const openVercelResponses: OpenSdkClient = (url) =>
  client(createOpenAI({ ...SETTINGS, baseURL: `${url}/v1` })(MODEL));

export const openVercelChat: OpenSdkClient = (url) =>
  client(createOpenAI({ ...SETTINGS, baseURL: `${url}/v1` }).chat(MODEL));

export const openVercelMessages: OpenSdkClient = (url) =>
  client(createAnthropic({ ...SETTINGS, baseURL: `${url}/v1` })(MODEL));

export const openVercelCompatible: OpenSdkClient = (url) => {
  const settings = { name: 'odmoe', baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true };
  return client(createOpenAICompatible(settings)(MODEL));
};

function answerOf(text: string, { inputTokens, outputTokens }: LanguageModelUsage): Answer {
  return { text, promptTokens: inputTokens ?? 0, answerTokens: outputTokens ?? 0 };
}

function client(model: LanguageModel): SdkClient {
  const asked = { model, prompt: PROMPT, maxRetries: 0 };
  const text = { ...asked, maxOutputTokens: TEXT_TOKENS };
  const object = { ...asked, maxOutputTokens: OBJECT_TOKENS, schema: VISIT };
  return {
    text: async () => {
      const answer = await generateText(text);
      return answerOf(answer.text, answer.usage);
    },
    streamedText: async () => {
      const stream = streamText(text);
      const deltas: string[] = [];
      for await (const delta of stream.textStream) deltas.push(delta);
      return { ...answerOf(deltas.join(''), await stream.usage), deltas: deltas.length };
    },
    object: async (isStreamed) => {
      if (!isStreamed) return (await generateObject(object)).object;
      const stream = streamObject(object);
      // Nobody else takes the answer.
      for await (const part of stream.partialObjectStream) assert.equal(typeof part, 'object');
      return stream.object;
    },
    toolTurn: async (isStreamed) => {
      const given: unknown[] = [];
      const visit = tool({
        ...TOOL,
        inputSchema: VISIT,
        execute: (input) => {
          given.push(input);
          return RESULT;
        },
      });
      const turn = {
        ...object,
        tools: { visit },
        stopWhen: stepCountIs(2),
        prepareStep: ({ stepNumber }: { stepNumber: number }) => ({
          toolChoice: stepNumber === 0 ? ('required' as const) : ('auto' as const),
        }),
      };
      const steps = isStreamed ? await streamText(turn).steps : (await generateText(turn)).steps;
      const [called, after] = steps;
      assert.ok(called !== undefined && after !== undefined && given.length === 1);
      return { given: given[0], promptTokens: called.usage.inputTokens ?? 0, after: answerOf(after.text, after.usage) };
    },
  };
}
