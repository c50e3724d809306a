import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { demoPrompts, MOST_PROMPTS } from '../recall/demo-prompts.js';

/** Requests that one prompt is made of, at most. */
const REQUESTS_LIMIT = 64;

/**
 * `count` prompts of exactly `length` token ids: story requests in the model's chat template, the request extended by further
 * ones and cut where the length is reached. Where the template itself does not fit, the prompt is cut behind.
 */
export function testbedPrompts(tokenizer: Tokenizer, length: number, count: number): number[][] {
  if (count > MOST_PROMPTS)
    throw new OdmoeError('USAGE', `there are ${MOST_PROMPTS} prompts, and ${count} are asked for`);
  return Array.from({ length: count }, (_, index) => promptOf(tokenizer, length, index));
}

function promptOf(tokenizer: Tokenizer, length: number, index: number): number[] {
  const stories = demoPrompts(MOST_PROMPTS);
  const request = (sentences: number): string =>
    Array.from({ length: sentences }, (_, place) => stories[(index + place) % stories.length] ?? '').join(' ');
  const render = (text: string): number[] =>
    tokenizer.hasChatTemplate
      ? tokenizer.encodeRendered(tokenizer.renderChat([{ role: 'user', content: text }], { values: {}, wallMs: 0 }))
      : tokenizer.encode(text);
  // What all requests end in is the template's.
  const ending = tokenizer.hasChatTemplate ? commonEnd(render('one'), render('two')) : 0;
  for (let sentences = 1; sentences <= REQUESTS_LIMIT; sentences += 1) {
    const ids = render(request(sentences));
    if (ids.length < length) continue;
    if (ending >= length) return ids.slice(0, length);
    return [...ids.slice(0, length - ending), ...ids.slice(ids.length - ending)];
  }
  throw new OdmoeError('USAGE', `no prompt of ${length} tokens can be made; ask for a shorter one`);
}

function commonEnd(left: readonly number[], right: readonly number[]): number {
  let length = 0;
  while (length < Math.min(left.length, right.length) && left.at(-1 - length) === right.at(-1 - length)) length += 1;
  return length;
}
