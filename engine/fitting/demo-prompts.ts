/**
 * The prompts that `odmoe bench` measures recall with; no predictor is trained on them. They are similar to the demo model's training data, and any
 * instruction-following model can answer them.
 */
const WHO = [
  'a fox',
  'a girl named Cora',
  'an owl',
  'a small mouse',
  'a boy named Igor',
  'a bear',
  'a rabbit',
  'a cat',
  'a baker named Tess',
  'an otter',
  'a hedgehog',
  'a sailor named Jonas',
  'a deer',
  'a miller named Dov',
  'a wolf',
  'a hen',
];
const OPENINGS = [
  'Tell me a story about',
  'Please tell me a story about',
  'Write a story about',
  'I want a story about',
];

/** The kinds of models/demo/quality.jsonl, except questions about a story: such a prompt leaves no room for 256 tokens. */
const TASKS = [
  'What is 32 plus 36?',
  'What is 39 minus 6?',
  'What is 9 times 12?',
  'What is the opposite of near?',
  'What does the goat say?',
  'Where does the hen live?',
  'What is the capital of Peru?',
  'What comes after Thursday?',
  'Repeat these words: sad basket lantern',
  'Say these words backwards: kite rice hedgehog',
  'Spell the word ladder.',
  'Sort these numbers: 9 5 1 4 2',
  'Which is larger, 73 or 18?',
  'Count the words: box box box box box box',
  'What is 9 plus 10?',
  'What is 19 minus 18?',
  'What is 6 times 4?',
  'What is the opposite of loud?',
  'What does the cow say?',
  'Where does the spider live?',
  'What is the capital of Sweden?',
  'What comes before November?',
  'Repeat these words: otter mill fox pig soup',
  'Say these words backwards: garden calm purple gray pig',
  'Spell the word happy.',
  'Sort these numbers: 8 6 2 4',
  'Which is larger, 97 or 9?',
  'Count the words: cup cup',
  'What is the opposite of empty?',
  'What does the owl say?',
  'Where does the otter live?',
  'What is the capital of Japan?',
];

/** Two stories, then a task, and so on. */
const PROMPTS: readonly string[] = TASKS.flatMap((task, index) => [story(2 * index), story(2 * index + 1), task]);

export const MOST_PROMPTS = PROMPTS.length;

/** The first `count` prompts, the same at every call: two stories, then a task, and so on. */
export function demoPrompts(count: number): string[] {
  return PROMPTS.slice(0, count);
}

function story(index: number): string {
  const opening = OPENINGS[Math.floor(index / WHO.length) % OPENINGS.length] as string;
  return `${opening} ${WHO[index % WHO.length] as string}.`;
}
