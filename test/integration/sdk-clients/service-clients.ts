import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { Ollama, type ChatRequest, type ChatResponse, type Tool } from 'ollama';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
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
} from './question.js';

/** The clients that the services themselves offer. */

const ASKED = [{ role: 'user' as const, content: PROMPT }];

export const openChat: OpenSdkClient = (url) => {
  const { completions } = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 }).chat;
  const text = { model: MODEL, messages: ASKED, max_tokens: TEXT_TOKENS };
  const object = { ...text, max_tokens: OBJECT_TOKENS, response_format: zodResponseFormat(VISIT, 'visit') };
  const tools = [zodFunction({ ...TOOL, parameters: VISIT })];
  const call = { ...text, max_tokens: OBJECT_TOKENS, tools, tool_choice: 'required' as const };
  const usage = { stream_options: { include_usage: true } };
  const answerOf = ({ choices, usage }: OpenAI.ChatCompletion): Answer => ({
    text: choices[0]?.message.content ?? '',
    promptTokens: usage?.prompt_tokens ?? 0,
    answerTokens: usage?.completion_tokens ?? 0,
  });
  return {
    text: async () => answerOf(await completions.create(text)),
    streamedText: async () => {
      let deltas = 0;
      const stream = completions.stream({ ...text, ...usage }).on('content', () => (deltas += 1));
      return { ...answerOf(await stream.finalChatCompletion()), deltas };
    },
    object: async (isStreamed) => {
      const answer = isStreamed
        ? await completions.stream(object).finalChatCompletion()
        : await completions.parse(object);
      return answer.choices[0]?.message.parsed;
    },
    toolTurn: async (isStreamed) => {
      const answer = isStreamed
        ? await completions.stream({ ...call, ...usage }).finalChatCompletion()
        : await completions.parse(call);
      const message = answer.choices[0]?.message;
      const [called, ...more] = message?.tool_calls ?? [];
      assert.ok(message !== undefined && called !== undefined && more.length === 0);
      const result = { role: 'tool' as const, tool_call_id: called.id, content: RESULT };
      const after = await completions.create({ ...text, tools, messages: [...ASKED, message, result] });
      return {
        given: called.function.parsed_arguments,
        promptTokens: answer.usage?.prompt_tokens ?? 0,
        after: answerOf(after),
      };
    },
  };
};

export const openResponses: OpenSdkClient = (url) => {
  const { responses } = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
  const text = { model: MODEL, input: ASKED, max_output_tokens: TEXT_TOKENS };
  const object = { ...text, max_output_tokens: OBJECT_TOKENS, text: { format: zodTextFormat(VISIT, 'visit') } };
  const tools = [zodResponsesFunction({ ...TOOL, parameters: VISIT })];
  const call = { ...text, max_output_tokens: OBJECT_TOKENS, tools, tool_choice: 'required' as const };
  const answerOf = ({ output_text: said, usage }: OpenAI.Responses.Response): Answer => ({
    text: said,
    promptTokens: usage?.input_tokens ?? 0,
    answerTokens: usage?.output_tokens ?? 0,
  });
  return {
    text: async () => answerOf(await responses.create(text)),
    streamedText: async () => {
      let deltas = 0;
      const stream = responses.stream(text).on('response.output_text.delta', () => (deltas += 1));
      return { ...answerOf(await stream.finalResponse()), deltas };
    },
    object: async (isStreamed) => {
      const answer = isStreamed ? await responses.stream(object).finalResponse() : await responses.parse(object);
      return answer.output_parsed;
    },
    toolTurn: async (isStreamed) => {
      const answer = isStreamed ? await responses.stream(call).finalResponse() : await responses.parse(call);
      const [called, ...more] = answer.output;
      assert.ok(called?.type === 'function_call' && more.length === 0);
      const result = { type: 'function_call_output' as const, call_id: called.call_id, output: RESULT };
      const after = await responses.create({ ...text, tools, input: [...ASKED, called, result] });
      return {
        given: called.parsed_arguments,
        promptTokens: answer.usage?.input_tokens ?? 0,
        after: answerOf(after),
      };
    },
  };
};

export const openMessages: OpenSdkClient = (url) => {
  const { messages } = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
  const text = { model: MODEL, messages: ASKED, max_tokens: TEXT_TOKENS };
  const object = { ...text, max_tokens: OBJECT_TOKENS, output_config: { format: zodOutputFormat(PLAIN_VISIT) } };
  const schema = z.toJSONSchema(VISIT) as Anthropic.Tool.InputSchema;
  const tools = [{ ...TOOL, input_schema: schema }];
  const call = { ...text, max_tokens: OBJECT_TOKENS, tools, tool_choice: { type: 'any' as const } };
  const answerOf = ({ content, usage }: Anthropic.Message): Answer => ({
    text: content.map((block) => (block.type === 'text' ? block.text : '')).join(''),
    promptTokens: usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
    answerTokens: usage.output_tokens,
  });
  return {
    text: async () => answerOf(await messages.create(text)),
    streamedText: async () => {
      let deltas = 0;
      const stream = messages.stream(text).on('text', () => (deltas += 1));
      return { ...answerOf(await stream.finalMessage()), deltas };
    },
    object: async (isStreamed) => {
      const answer = isStreamed ? await messages.stream(object).finalMessage() : await messages.parse(object);
      return answer.parsed_output;
    },
    toolTurn: async (isStreamed) => {
      const answer = isStreamed ? await messages.stream(call).finalMessage() : await messages.create(call);
      const [called, ...more] = answer.content;
      assert.ok(called?.type === 'tool_use' && more.length === 0);
      const result = { type: 'tool_result' as const, tool_use_id: called.id, content: RESULT };
      const after = await messages.create({
        ...text,
        tools,
        messages: [...ASKED, { role: 'assistant', content: answer.content }, { role: 'user', content: [result] }],
      });
      return { given: called.input, promptTokens: answerOf(answer).promptTokens, after: answerOf(after) };
    },
  };
};

export const openOllama: OpenSdkClient = (url) => {
  const client = new Ollama({ host: url });
  const text = { model: MODEL, messages: ASKED, options: { num_predict: TEXT_TOKENS } };
  const object = { ...text, format: z.toJSONSchema(VISIT), options: { num_predict: OBJECT_TOKENS } };
  const parameters = z.toJSONSchema(VISIT) as NonNullable<Tool['function']['parameters']>;
  const tools = [{ type: 'function', function: { ...TOOL, parameters } }];
  const { format, temperature } = CALL_OR_SHORT;
  const answerOf = ({ message, ...figures }: ChatResponse): Answer => ({
    text: message.content,
    promptTokens: figures.prompt_eval_count,
    answerTokens: figures.eval_count,
  });
  const ask = async (request: ChatRequest, isStreamed: boolean): Promise<ChatResponse & { deltas: number }> => {
    if (!isStreamed) return { ...(await client.chat({ ...request, stream: false })), deltas: 0 };
    const parts: ChatResponse[] = [];
    for await (const part of await client.chat({ ...request, stream: true })) parts.push(part);
    const contents = parts.map(({ message }) => message.content).filter((content) => content !== '');
    const calls = parts.flatMap(({ message }) => message.tool_calls ?? []);
    const message = {
      role: 'assistant',
      content: contents.join(''),
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    };
    return { ...(parts.at(-1) ?? assert.fail('an empty stream')), message, deltas: contents.length };
  };
  return {
    text: async () => answerOf(await ask(text, false)),
    streamedText: async () => {
      const answer = await ask(text, true);
      return { ...answerOf(answer), deltas: answer.deltas };
    },
    object: async (isStreamed) => VISIT.parse(JSON.parse((await ask(object, isStreamed)).message.content)),
    toolTurn: async (isStreamed) => {
      const answer = await firstCalling(
        (seed) =>
          ask({ ...text, tools, format, options: { temperature, seed, num_predict: OBJECT_TOKENS } }, isStreamed),
        ({ message }) => message.tool_calls !== undefined,
      );
      const [called, ...more] = answer.message.tool_calls ?? [];
      assert.ok(called !== undefined && more.length === 0);
      const result = { role: 'tool', tool_name: called.function.name, content: RESULT };
      const after = await ask({ ...text, tools, messages: [...ASKED, answer.message, result] }, false);
      return { given: called.function.arguments, promptTokens: answer.prompt_eval_count, after: answerOf(after) };
    },
  };
};
