import type { IncomingMessage, ServerResponse } from 'node:http';
import { bodyOf } from './sample-machines.js';

/** Answers of an invented model. Each token has a likelihood, and one token is markup that the page must not run. */
const TEXTS =
  'Once| upon| a| time| a| fox| wrote| <img src=x onerror="document.title=1">| on| a| wall|,| and| nobody| ran| it|.|\n\n|The| end|.';
const PROBABILITIES = [
  0.93, 0.99, 0.999, 0.995, 0.52, 0.31, 0.04, 0.02, 0.44, 0.71, 0.23, 0.68, 0.81, 0.09, 0.28, 0.61, 0.92, 0.37, 0.46,
  0.57, 0.97,
];
const TOKENS = TEXTS.split('|').map((text, index) => ({ text, probability: PROBABILITIES[index] ?? 1 }));
const OTHERS = [' the', ' owl', ' said', ' one', ' long'];
export const SAMPLE_ANSWER = TEXTS.replaceAll('|', '');
const HEAD = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'sample' };
const FINGERPRINT = 'odmoe-0.1.0-3f21c07be1a4-exact';
const PAUSE_MS = 12;

function chunkOf({ text, probability }: { text: string; probability: number }): object {
  const entry = (token: string, share: number): object => {
    return { token, logprob: Math.log(share), bytes: [...Buffer.from(token)] };
  };
  const rest = OTHERS.slice(0, 4).map((other, index) => entry(other, (1 - probability) / 2 ** (index + 1)));
  const own = entry(text, probability);
  const top = probability > 0.3 ? [own, ...rest] : [...rest.slice(0, 2), own, ...rest.slice(2)];
  const logprobs = { content: [{ ...own, top_logprobs: top }], refusal: null };
  const choice = { index: 0, delta: { content: text }, logprobs, finish_reason: null };
  return { ...HEAD, system_fingerprint: FINGERPRINT, choices: [choice] };
}

/** Streams the made-up answer as POST /v1/chat/completions does, its second half when `halfway` resolves. */
export async function sampleChat(response: ServerResponse, halfway: () => Promise<void>): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const tell = (data: object): boolean => response.write(`data: ${JSON.stringify(data)}\n\n`);
  const delta = { reasoning_content: 'A story was asked for: a short one, with an end.' };
  tell({ ...HEAD, choices: [{ index: 0, delta, logprobs: null, finish_reason: null }] });
  for (const [index, token] of TOKENS.entries()) {
    if (index === Math.floor(TOKENS.length / 2)) await halfway();
    tell(chunkOf(token));
    await new Promise((resume) => setTimeout(resume, PAUSE_MS));
  }
  tell({ ...HEAD, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] });
  const usage = { prompt_tokens: 214, completion_tokens: TOKENS.length, prompt_tokens_details: { cached_tokens: 180 } };
  tell({ ...HEAD, choices: [], usage });
  response.end('data: [DONE]\n\n');
}

/** Each word is a token of the invented model, and the chat template adds none. */
export function sampleTokens(text: string): number {
  return text.split(/\s+/).filter((word) => word !== '').length;
}

/** The counts of POST /tokenize and POST /v1/messages/count_tokens. */
export async function sampleCount(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { content, messages = [] } = JSON.parse(await bodyOf(request)) as {
    content?: string;
    messages?: { content: unknown }[];
  };
  const count = (given: unknown): number => sampleTokens(typeof given === 'string' ? given : JSON.stringify(given));
  const tokens = Array.from({ length: sampleTokens(content ?? '') }, (_, index) => index);
  const inputTokens = messages.reduce((sum, message) => sum + count(message.content), 0);
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify(path === '/tokenize' ? { tokens } : { input_tokens: inputTokens }));
}
