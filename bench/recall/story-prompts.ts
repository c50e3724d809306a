/** Requests in the manner of what the demo model was trained on; any instruction-following model can take them. */
const WHO = [
  'a fox',
  'a girl named Cora',
  'an owl',
  'a small mouse',
  'a boy named Igor',
  'a bear',
  'a rabbit',
  'a cat',
];
const OPENINGS = [
  'Tell me a story about',
  'Please tell me a story about',
  'Write a story about',
  'I want a story about',
];

export const MOST_PROMPTS = WHO.length * OPENINGS.length;

/** The first `count` story prompts, always the same ones. */
export function storyPrompts(count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const opening = OPENINGS[Math.floor(index / WHO.length) % OPENINGS.length] as string;
    return `${opening} ${WHO[index % WHO.length] as string}.`;
  });
}
