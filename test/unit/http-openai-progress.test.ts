import { type GenerationWatch, NOBODY_WATCHES } from '../../http-api/delivery/generation-watch.js';
import assert from 'node:assert/strict';
import { generateAll } from '../../http-api/openai/answer-requests.js';
import type { HttpApiContext } from '../../http-api/http-api-context.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';

const request = (text: string): GenerateRequest => ({
  text,
  messages: [],
  promptTokenIds: [],
  raw: true,
  maxTokens: 1,
  sampling: { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
  stop: [],
  ignoreEos: false,
  logprobs: 0,
});

/** Calls of the watch for answers to these texts. Each answer waits in the queue, then runs its prompt in two steps. */
async function reportsOf(texts: readonly string[], answersPerPrompt: number): Promise<unknown[]> {
  const reports: unknown[] = [];
  const watch: GenerationWatch = {
    client: '',
    queued: (before) => reports.push(['queued', before]),
    prefill: (...tokens) => reports.push(tokens),
    token: () => reports.push('token'),
  };
  const generate: HttpApiContext['generate'] = async function* ({ text }, _, watched) {
    watched?.queued(3);
    watched?.prefill(1, text.length);
    await Promise.resolve();
    watched?.prefill(text.length, text.length);
    watched?.token();
    yield { kind: 'token', token: { tokenId: 1, text: '', logprob: 0, top: [] } };
  };
  const asked = { requests: texts.map(request), answersPerPrompt, names: { text: 'prompt' } };
  for await (const { reply } of generateAll({ generate }, asked, new AbortController().signal, watch)) {
    assert.equal(reply.kind, 'token');
  }
  return reports;
}

describe('the progress of several answers', () => {
  it('covers all prompts, each counted once', async () => {
    const reports = await reportsOf(['four', 'four', 'eleven char', 'eleven char'], 2);
    const steps = reports.filter((one) => Array.isArray(one));
    assert.deepEqual(steps, [
      ['queued', 3],
      [1, 4],
      [2, 15],
      [5, 15],
      [15, 15],
    ]);
    assert.equal(reports.filter((one) => one === 'token').length, 4);
  });

  it('ends with the first failure, whose field is named as the client named it', async () => {
    const generate: HttpApiContext['generate'] = () => {
      throw new OdmoeError('PROMPT_TOO_LONG', 'text is too long', { field: 'text' });
    };
    const asked = { requests: [request('a')], answersPerPrompt: 1, names: { text: 'prompt' } };
    const replies = generateAll({ generate }, asked, new AbortController().signal, NOBODY_WATCHES);
    await assert.rejects(replies.next(), { code: 'PROMPT_TOO_LONG', field: 'prompt' });
  });
});
