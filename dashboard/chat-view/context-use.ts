import { droppedBefore } from './chat-request.js';
import type { Turn } from './conversation.js';

/** The tokens that a prompt would have. */
export interface ContextUse {
  tokens: number;
  /** Some of them are estimated. */
  isAbout: boolean;
}

const BYTES_PER_TOKEN = 4;

/** A guess at the tokens of a text, by its bytes. */
export function guessedTokens(text: string, bytesPerToken = BYTES_PER_TOKEN): number {
  return Math.ceil(new TextEncoder().encode(text).length / bytesPerToken);
}

/** The use of the context by the turns that are sent, and by `typedTokens` of the next question: main's own numbers as far as they go. */
export function contextUse(turns: readonly Turn[], dropped: number, typedTokens: number): ContextUse {
  const known = turns.findLastIndex((turn) => turn.kind === 'answer' && turn.usage !== null);
  const guessed = turns.slice(Math.max(known + 1, dropped)).reduce((sum, turn) => sum + turnTokens(turn), 0);
  const counted = known < dropped ? { tokens: 0, isAbout: false } : countedTokens(turns, known, dropped);
  return {
    tokens: counted.tokens + guessed + typedTokens,
    isAbout: counted.isAbout || guessed + typedTokens > 0,
  };
}

/** Main counted the turns up to `known`, but perhaps with other turns dropped. */
function countedTokens(turns: readonly Turn[], known: number, dropped: number): ContextUse {
  const answer = turns[known];
  if (answer?.kind !== 'answer' || answer.usage === null) return { tokens: 0, isAbout: false };
  const { promptTokens, answerTokens } = answer.usage;
  const before = droppedBefore(answer.settings, known);
  const [from, to] = [Math.min(before, dropped), Math.max(before, dropped)];
  const changed = turns.slice(from, to).reduce((sum, turn) => sum + turnTokens(turn), 0);
  const tokens = promptTokens + answerTokens + (before > dropped ? changed : -changed);
  return { tokens: Math.max(0, tokens), isAbout: changed > 0 };
}

function turnTokens(turn: Turn): number {
  if (turn.kind === 'question') return guessedTokens(turn.text);
  const calls = turn.toolCalls.map(({ arguments: given }) => given).join('');
  return Math.max(turn.tokens.length, guessedTokens(turn.text + calls));
}
