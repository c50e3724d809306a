import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { demoPrompts } from '../../engine/fitting/demo-prompts.js';

export const PROMPT_KINDS = ['repeat', 'reverse', 'quote', 'story'] as const;
export type PromptKind = (typeof PROMPT_KINDS)[number];

export interface DraftPrompt {
  text: string;
  /** Without the chat template. */
  raw: boolean;
  maxTokens: number;
}

/** Most prompts of a kind. */
export const MOST_PROMPTS = 20;
const STORY_TOKENS = 96;
const QUOTE_TOKENS = 64;
/** Share of a text that stands a second time in the prompt of a quotation. */
const QUOTED_SHARE = 0.25;

interface QualityLine {
  task: string;
  prompt: string;
}

/** Prompts of a kind for the demo model; twice `count`, up to MOST_PROMPTS, where answers are short. quote: a story, and its beginning a second time, which the answer continues. */
export function draftPrompts(kind: PromptKind, count: number): DraftPrompt[] {
  if (kind === 'story')
    return demoPrompts(count).map((text): DraftPrompt => ({ text, raw: false, maxTokens: STORY_TOKENS }));
  const lines = readFileSync(join(packageRoot(), 'models', 'demo', 'quality.jsonl'), 'utf8')
    .trim()
    .split('\n');
  const all = lines.map((line) => JSON.parse(line) as QualityLine);
  const task = kind === 'quote' ? 'story-qa' : kind;
  // Answers of a few words say little of a speed.
  const wanted = kind === 'quote' ? count : 2 * count;
  return all
    .filter((line) => line.task === task)
    .slice(0, Math.min(wanted, MOST_PROMPTS))
    .map(({ prompt }) =>
      kind === 'quote' ? quotation(prompt) : { text: prompt, raw: false, maxTokens: QUOTE_TOKENS },
    );
}

function quotation(prompt: string): DraftPrompt {
  const [story = ''] = prompt.split('\n');
  const words = story.split(' ');
  const again = words.slice(0, Math.ceil(QUOTED_SHARE * words.length)).join(' ');
  return { text: `${story}\n${again}`, raw: true, maxTokens: QUOTE_TOKENS };
}
