import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const SVG = 'icon.svg';
/** The icons of a home screen. `isWhole`: the system cuts the corners itself, so the ground goes to the edges. */
const ICONS = [
  { name: 'icon-192.png', pixels: 192, isWhole: false },
  { name: 'icon-512.png', pixels: 512, isWhole: false },
  { name: 'icon-maskable.png', pixels: 512, isWhole: true },
  { name: 'icon-apple.png', pixels: 180, isWhole: true },
];
const CORNERS = / rx="8"/;

/** Draws the icons of `dashboard` from its SVG, and returns their names. `browser`: the path of Chromium. */
export async function drawIcons(browser: string, dashboard: string): Promise<string[]> {
  const svg = readFileSync(join(dashboard, SVG), 'utf8');
  if (!CORNERS.test(svg)) throw new Error(`${SVG} has no ground with rounded corners (rx="8")`);
  const chrome = await chromium.launch({ executablePath: browser, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const page = await chrome.newPage();
    for (const { name, pixels, isWhole } of ICONS) {
      const drawn = isWhole ? svg.replace(CORNERS, '') : svg;
      await page.setViewportSize({ width: pixels, height: pixels });
      await page.setContent(`<style>*{margin:0}svg{display:block;width:100vw;height:100vh}</style>${drawn}`);
      writeFileSync(join(dashboard, name), await page.screenshot({ omitBackground: true }));
    }
  } finally {
    await chrome.close();
  }
  return ICONS.map(({ name }) => name);
}
