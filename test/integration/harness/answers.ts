import assert from 'node:assert/strict';
import type {
  Finished,
  GenerateReply,
  GenerateRequest,
  PromptToken,
  Started,
  TokenReply,
} from '../../../shared/wire/messages.js';
import { openReference, type TestModel } from './test-models.js';

export interface CollectedAnswer {
  started: Started;
  /** One entry for each token of the prompt; empty if the request does not ask for them. */
  promptLogprobs: PromptToken[];
  tokens: TokenReply[];
  finished: Finished;
}

/** A greedy request for 12 tokens after these prompt tokens. `changes` replace fields of the request. */
export function requestFor(promptTokenIds: number[], changes: Partial<GenerateRequest> = {}): GenerateRequest {
  return {
    text: '',
    messages: [],
    promptTokenIds,
    raw: true,
    maxTokens: 12,
    sampling: null,
    stop: [],
    ignoreEos: true,
    logprobs: 0,
    ...changes,
  };
}

/** Reads an answer to its end. `onToken` gets the number of tokens so far; it may delay the answer or cause a fault. */
export async function collect(
  replies: AsyncIterable<GenerateReply>,
  onToken: (count: number) => void | Promise<void> = () => undefined,
): Promise<CollectedAnswer> {
  let started: Started | null = null;
  let finished: Finished | null = null;
  const promptLogprobs: PromptToken[] = [];
  const tokens: TokenReply[] = [];
  for await (const reply of replies) {
    if (reply.kind === 'started') started = reply.started;
    else if (reply.kind === 'finished') finished = reply.finished;
    else if (reply.kind === 'prompt') {
      assert.equal(reply.prompt.first, promptLogprobs.length, 'the scores of prompt tokens follow one another');
      assert.equal(tokens.length, 0, 'the prompt comes before the answer');
      promptLogprobs.push(...reply.prompt.tokens);
    } else {
      tokens.push(reply.token);
      await onToken(tokens.length);
    }
  }
  assert.ok(started !== null && finished !== null, 'an answer begins with started and ends with finished');
  return { started, promptLogprobs, tokens, finished };
}

/** The answer of the single-process engine with the model, which every cluster must give. */
export async function referenceAnswer(model: TestModel, request: GenerateRequest): Promise<CollectedAnswer> {
  const reference = await openReference(model);
  try {
    return await collect(reference.generate(request, new AbortController().signal));
  } finally {
    reference.dispose();
  }
}

/** Tokens, text and all requested log-probabilities are the same to the bit. */
export function assertSameAnswer(actual: CollectedAnswer, expected: CollectedAnswer): void {
  assert.deepEqual(
    actual.tokens.map(({ tokenId }) => tokenId),
    expected.tokens.map(({ tokenId }) => tokenId),
  );
  actual.tokens.forEach((token, index) => {
    assert.deepEqual(token, expected.tokens[index], `token ${index} differs`);
  });
  assert.deepEqual(actual.promptLogprobs, expected.promptLogprobs, 'log-probabilities of the prompt');
  assert.equal(actual.finished.text, expected.finished.text);
  assert.equal(actual.finished.finishReason, expected.finished.finishReason);
}

/** Main noticed the loss of these nodes before the end of the answer. */
export function assertWithout(answer: CollectedAnswer, lost: string[]): void {
  const ids = answer.finished.nodes.map(({ identity }) => identity.id);
  for (const id of lost) assert.ok(!ids.includes(id), `${id} was still there at the end of the answer`);
}
