import { useEffect, useState } from 'preact/hooks';
import { guessedTokens } from './context-use.js';
import { countTextTokens } from './main-counts.js';
import { QUESTION_CHARACTERS_LIMIT } from './text-files.js';

/** Main counts when nothing was typed for so long. */
const PAUSE_MS = 400;

interface Counted {
  text: string;
  tokens: number;
}

/** The number of tokens in a text that is being typed: main's count of it in each pause, and till then a guess by the last count. */
export function useTypedTokens(text: string): number {
  const [counted, setCounted] = useState<Counted>({ text: '', tokens: 0 });
  useEffect(() => {
    if (text === '' || text.length > QUESTION_CHARACTERS_LIMIT) return;
    const stop = new AbortController();
    const timer = window.setTimeout(() => {
      countTextTokens(text, stop.signal).then(
        (tokens) => setCounted({ text, tokens }),
        () => undefined, // The guess stays: main is silent, or the model has no text.
      );
    }, PAUSE_MS);
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  if (text === '') return 0;
  if (text === counted.text) return counted.tokens;
  return guessedTokens(text, bytesPerToken(counted));
}

function bytesPerToken({ text, tokens }: Counted): number | undefined {
  return tokens === 0 ? undefined : new TextEncoder().encode(text).length / tokens;
}
