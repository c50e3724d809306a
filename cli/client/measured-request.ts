/** The request by which a cluster is measured: a greedy answer with a fixed number of tokens. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished, GenerateReply, GenerateRequest } from '../../shared/wire/messages.js';

export interface CollectedAnswer {
  tokenIds: number[];
  finished: Finished;
}

/** A greedy request for exactly `tokens` tokens; end tokens do not end the answer. */
export function answerRequest(promptIds: readonly number[], tokens: number): GenerateRequest {
  return {
    text: '',
    messages: [],
    promptTokenIds: [...promptIds],
    raw: true,
    stop: [],
    maxTokens: tokens,
    sampling: null,
    ignoreEos: true,
    logprobs: 0,
  };
}

/** Throws PROTOCOL_VIOLATION if the answer ends without its last message. */
export async function collectAnswer(replies: AsyncIterable<GenerateReply>): Promise<CollectedAnswer> {
  const tokenIds: number[] = [];
  let finished: Finished | null = null;
  for await (const reply of replies) {
    if (reply.kind === 'token') tokenIds.push(reply.token.tokenId);
    if (reply.kind === 'finished') finished = reply.finished;
  }
  if (finished === null) throw new OdmoeError('PROTOCOL_VIOLATION', 'an answer ended without its last message');
  return { tokenIds, finished };
}
