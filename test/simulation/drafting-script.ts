import type { AlignToken, BeginSequence } from '../../shared/wire/messages.js';
import type { ShadowScript, ShadowStream } from './scripted-shadow.js';

/** Chooses the token of a draft from its position and the right token. */
export type Guess = (position: number, right: number) => number;

export interface DraftingScript {
  optimistic: boolean;
  /** Tokens of the answer that main must give. */
  answer: (begin: BeginSequence) => readonly number[];
  guess: Guess;
  /** The script adds each AlignToken from main here. */
  heard: AlignToken[];
}

/**
 * A shadow that knows the answers and drafts the positions of passes. An optimistic one drafts for the next pass as soon as a pass begins.
 * Otherwise it drafts the positions behind a token that begins no pass yet (`rows` 0).
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
