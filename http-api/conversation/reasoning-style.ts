/** The form in which a model writes its reasoning before the answer. */
export interface ReasoningStyle {
  begin: string;
  end: string;
  /** Text that models write between reasoning and answer. */
  gap: string;
  /** Texts around the answer itself, which are dropped; '': there are none. */
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

/** Published styles. If a template has several, the first counts. */
const STYLES: readonly ReasoningStyle[] = [
  style('[THINK]', '[/THINK]'),
  style('<|channel>thought\n', '<channel|>'),
  style('<seed:think>', '</seed:think>'),
  THINK,
];

/** Finds the style from the template's text or the tokenizer's special tokens. */
export function reasoningStyleOf(source: string, specialNames: ReadonlySet<string>): ReasoningStyle | null {
  const has = (text: string): boolean => source.includes(text) || specialNames.has(text);
  const found = STYLES.find(({ begin, end }) => has(begin.trim()) || has(end));
  if (found !== THINK) return found ?? null;
  if (has('<answer>') && has('</answer>')) return { ...THINK, ...around('answer') };
  // MiniMax's template has these tags around results of tools.
  if (has('<response>') && has('</response>') && !source.includes('minimax:')) {
    return { ...THINK, ...around('response') };
  }
  return THINK;
}

function around(tag: string): Pick<ReasoningStyle, 'answerBegin' | 'answerEnd'> {
  return { answerBegin: `<${tag}>`, answerEnd: `</${tag}>` };
}
