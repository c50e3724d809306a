import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const path = fileURLToPath(new URL('../../../dashboard/style/colours.css', import.meta.url));
/** Colours by name, for light and dark. */
const COLOURS = new Map(
  [...readFileSync(path, 'utf8').matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(
    ([, name = '', light = '', dark = '']) => [name, { light, dark }] as const,
  ),
);
/** Colours of texts, each with the colours of its backgrounds. */
const TEXTS: [string, string[]][] = [
  ['text', ['ground', 'surface', 'surface-sunk', 'accent-soft', 'warn-soft', 'bad-soft']],
  ['text-quiet', ['ground', 'surface', 'surface-sunk', 'accent-soft', 'bad-soft']],
  ['accent', ['ground', 'surface', 'accent-soft']],
  ['on-accent', ['accent']],
  ['good', ['surface']],
  ['warn', ['surface', 'warn-soft']],
  ['bad', ['ground', 'surface', 'bad-soft']],
];
/** Least contrast of texts for level AA of WCAG 2. */
const LEAST_CONTRAST = 4.5;

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5]
    .map((begin) => parseInt(colour.slice(begin, begin + 2), 16) / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((left, right) => left - right);
  return (light + 0.05) / (dark + 0.05);
}

function colour(name: string, theme: 'light' | 'dark'): string {
  const found = COLOURS.get(name);
  assert.ok(found, `colours.css has no pair for --${name}`);
  return found[theme];
}

describe('the colours of the page', () => {
  it('are measured as WCAG defines contrast', () => {
    assert.equal(contrast('#000000', '#ffffff'), 21);
    assert.ok(Math.abs(contrast('#777777', '#ffffff') - 4.48) < 0.01);
  });

  for (const theme of ['light', 'dark'] as const) {
    it(`the texts of the ${theme} page can be read on their grounds`, () => {
      const faint = TEXTS.flatMap(([text, grounds]) =>
        grounds
          .map((ground) => ({ text, ground, contrast: contrast(colour(text, theme), colour(ground, theme)) }))
          .filter((pair) => pair.contrast < LEAST_CONTRAST),
      );
      assert.deepEqual(faint, []);
    });
  }
});
