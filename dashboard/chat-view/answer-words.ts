import type { Answer, AnswerToken } from './conversation.js';

/** Least probabilities of the degrees of a token's shade. Degree 0 has no shade and stands for a nearly certain token. */
const SHADE_PROBABILITIES = [0.9, 0.6, 0.3, 0.1];

/** A token has the shade of degree n + 1 if its probability is below this number of percents at index n. */
export const SHADE_PERCENTS = SHADE_PROBABILITIES.map((probability) => Math.round(probability * 100));

export function probabilityOf(logprob: number): number {
  return Math.exp(Math.min(0, logprob));
}

/** The degree of shade, from 0 to SHADE_PROBABILITIES.length; it is higher for a less likely token. */
export function shadeOf({ logprob }: AnswerToken): number {
  const probability = probabilityOf(logprob);
  const index = SHADE_PROBABILITIES.findIndex((least) => probability >= least);
  return index < 0 ? SHADE_PROBABILITIES.length : index;
}

/** For example "97 %", "0.4 %" or "<0.01 %". */
export function percent(probability: number): string {
  const percents = probability * 100;
  if (percents >= 99.95) return '100 %';
  if (percents >= 10) return `${percents.toFixed(0)} %`;
  if (percents >= 0.01) return `${percents.toFixed(percents >= 1 ? 1 : 2)} %`;
  return '<0.01 %';
}

/** Makes a token's text visible: blanks and line ends are replaced by signs. */
export function visibleText(text: string): string {
  if (text === '') return '(no text)';
  return text.replaceAll(' ', '␣').replaceAll('\n', '⏎').replaceAll('\t', '⇥').replaceAll('\r', '␍');
}

/** Tells whether the tokens form the whole text, so that it can be drawn token by token. */
export function areTokensWhole({ text, tokens }: Pick<Answer, 'text' | 'tokens'>): boolean {
  return tokens.length > 0 && tokens.map((token) => token.text).join('') === text;
}

/** The speed of the answer without its first token; null: it has too few tokens. */
export function tokensPerSecond({
  tokens,
  firstMs,
  lastMs,
}: Pick<Answer, 'tokens' | 'firstMs' | 'lastMs'>): number | null {
  if (firstMs === null || lastMs === null || lastMs <= firstMs || tokens.length < 3) return null;
  return ((tokens.length - 1) * 1000) / (lastMs - firstMs);
}

/** Counts words; each sign of a script without blanks between words is one. */
export function wordCount(text: string): number {
  return text.match(WORD)?.length ?? 0;
}

const WORD = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]|[^\s\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]+/gu;

const FINISH_WORDS: Record<string, string> = {
  stop: 'ended by itself',
  length: 'cut off at the limit',
  tool_calls: 'asks for a tool',
};

/** The facts about an answer that has ended, one text each. */
export function usageWords(answer: Answer): string[] {
  if (answer.isImported) return ['from a file'];
  const rate = tokensPerSecond(answer);
  const { usage, finishReason, settings, fingerprint } = answer;
  return [
    ...(usage === null ? [] : [`${usage.answerTokens} tokens`]),
    ...(rate === null ? [] : [`${rate.toFixed(1)} tokens/s`]),
    ...(usage === null ? [] : [`prompt ${usage.promptTokens} tokens, ${usage.cachedTokens} of them reused`]),
    ...(finishReason === '' ? [] : [FINISH_WORDS[finishReason] ?? finishReason]),
    `seed ${settings.seed}`,
    ...(fingerprint === '' ? [] : [fingerprint]),
  ];
}
