import type { AlignToken, BeginSequence } from '../../shared/wire/messages.js';
import type { ShadowScript, ShadowStream } from './scripted-shadow.js';

/** The token that a draft of a position has, given the right one. */
export type Guess = (position: number, right: number) => number;

export interface DraftingScript {
  optimistic: boolean;
  /** Tokens of the answer that main is to give. */
  answer: (begin: BeginSequence) => readonly number[];
  guess: Guess;
  /** What main has told is added here. */
  heard: AlignToken[];
}

/**
 * A shadow that knows the answers and drafts a pass's positions: those of the next pass as soon as one begins when it is optimistic,
 * else those behind a token that begins none yet.
 */
export function draftingScript({ optimistic, answer, guess, heard }: DraftingScript): ShadowScript {
  let promptTokens = 0;
  let tokenIds: readonly number[] = [];
  const draft = (stream: ShadowStream, token: AlignToken, position: number, passPosition: number): void => {
    const right = tokenIds[position - promptTokens];
    if (right === undefined) return;
    const { epoch, sequence, branch } = token;
    const tokenId = guess(position, right);
    stream.send({ kind: 'draft', draft: { epoch, sequence, position, tokenId, branch, passPosition, runUs: 100 } });
  };
  return {
    onBegin: (_stream, begin) => {
      promptTokens = begin.promptTokens;
      tokenIds = answer(begin);
    },
    onToken: (stream, token) => {
      heard.push(token);
      const { position, rows, nextRows } = token;
      if (optimistic ? rows === 0 : rows !== 0) return;
      const passPosition = position + rows;
      const begins = optimistic ? passPosition : position + 1;
      for (let next = begins; next < passPosition + nextRows; next++) draft(stream, token, next, passPosition);
    },
  };
}
