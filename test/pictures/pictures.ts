/**
 * `npm run pictures [-- --icons] [-- --out FOLDER]`: draws the pictures of README and docs from a demo cluster in Chromium; with --icons the
 * page's icons from dashboard/icon.svg.
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { findBrowser } from '../integration/harness/browser.js';
import { drawPictures } from './demo-pictures.js';
import { drawIcons } from './draw-icons.js';

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { icons: { type: 'boolean', default: false }, out: { type: 'string' } } });
  const browser = findBrowser();
  if (browser === undefined) throw new Error('no Chromium is in the PATH, and CHROME_PATH names none');
  const out = values.out ?? join(packageRoot(), values.icons ? 'dashboard' : join('docs', 'pictures'));
  const drawn = await (values.icons ? drawIcons(browser, out) : drawPictures(browser, out));
  process.stdout.write(`${out}: ${drawn.join(', ')}\n`);
}

main().catch((thrown: unknown) => {
  process.stderr.write(`pictures: ${thrown instanceof Error ? thrown.message : String(thrown)}\n`);
  process.exitCode = 1;
});
