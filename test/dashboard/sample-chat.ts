import type { ServerResponse } from 'node:http';

/** What the made-up model says: with the likelihood of each token, and markup that a page must not take for its own. */
const TOKENS: readonly { text: string; probability: number }[] = (
  [
    ...[
      ['Once', 0.93],
      [' upon', 0.99],
      [' a', 0.999],
      [' time', 0.995],
      [' a', 0.52],
      [' fox', 0.31],
    ],
    ...[
      [' wrote', 0.04],
      [' <img src=x onerror="document.title=1">', 0.02],
      [' on', 0.44],
      [' a', 0.71],
    ],
    ...[
      [' wall', 0.23],
      [',', 0.68],
      [' and', 0.81],
      [' nobody', 0.09],
      [' ran', 0.28],
      [' it', 0.61],
    ],
    ...[
      ['.', 0.92],
      ['\n\n', 0.37],
      ['The', 0.46],
      [' end', 0.57],
      ['.', 0.97],
    ],
  ] as [string, number][]
).map(([text, probability]) => ({ text, probability }));
const OTHERS = [' the', ' owl', ' said', ' one', ' long'];
export const SAMPLE_ANSWER = TOKENS.map(({ text }) => text).join('');
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

/** Streams the made-up answer as POST /v1/chat/completions does. */
export async function sampleChat(response: ServerResponse): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const tell = (data: object): boolean => response.write(`data: ${JSON.stringify(data)}\n\n`);
  const delta = { reasoning_content: 'A story was asked for: a short one, with an end.' };
  tell({ ...HEAD, choices: [{ index: 0, delta, logprobs: null, finish_reason: null }] });
  for (const token of TOKENS) {
    tell(chunkOf(token));
    await new Promise((resume) => setTimeout(resume, PAUSE_MS));
  }
  tell({ ...HEAD, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] });
  const usage = { prompt_tokens: 214, completion_tokens: TOKENS.length, prompt_tokens_details: { cached_tokens: 180 } };
  tell({ ...HEAD, choices: [], usage });
  response.end('data: [DONE]\n\n');
}
