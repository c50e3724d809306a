/** How a model writes what it thinks before it answers. */
export interface ReasoningStyle {
  begin: string;
  end: string;
  /** What models write between reasoning and answer. */
  gap: string;
  /** Texts around the answer itself, which are left out; '': there are none. */
  answerBegin: string;
  answerEnd: string;
}

const style = (begin: string, end: string, gap = ''): ReasoningStyle => ({
  begin,
  end,
  gap,
  answerBegin: '',
  answerEnd: '',
});

const THINK = style('<think>', '</think>', '\n\n');

/** Published styles. Of several in one template the first counts. */
const STYLES: readonly ReasoningStyle[] = [
  style('[THINK]', '[/THINK]'),
  style('<|channel>thought\n', '<channel|>'),
  style('<seed:think>', '</seed:think>'),
  THINK,
];

/** Found in the template's text, or among the tokenizer's special tokens. */
export function reasoningStyleOf(source: string, specialNames: ReadonlySet<string>): ReasoningStyle | null {
  const has = (text: string): boolean => source.includes(text) || specialNames.has(text);
  const found = STYLES.find(({ begin, end }) => has(begin.trim()) || has(end));
  if (found !== THINK) return found ?? null;
  if (has('<answer>') && has('</answer>')) return { ...THINK, ...around('answer') };
  // MiniMax's template has these tags around what tools answer.
  if (has('<response>') && has('</response>') && !source.includes('minimax:')) {
    return { ...THINK, ...around('response') };
  }
  return THINK;
}

function around(tag: string): Pick<ReasoningStyle, 'answerBegin' | 'answerEnd'> {
  return { answerBegin: `<${tag}>`, answerEnd: `</${tag}>` };
}
