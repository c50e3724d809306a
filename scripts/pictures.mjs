// `npm run pictures` builds odmoe and draws the pictures of README and docs anew, from a demo cluster in Chromium (two minutes and a half);
// `npm run pictures -- --icons` draws the page's icons from dashboard/icon.svg. The release runs it, too.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildNative } from './build-native.mjs';
import { BuildError, packageRoot, runBuild } from './build-state.mjs';
import { BENCH_MODULES, buildTypeScript, PRODUCT_MODULES, TEST_MODULES } from './build-typescript.mjs';
import { findBrowser } from './system-packages.mjs';

/** Throws BuildError where Chromium is missing or a picture fails. */
export function drawPictures(args) {
  if (findBrowser() === undefined) throw new BuildError('Chromium is not here (CHROME_PATH may name one)');
  buildNative('start');
  buildTypeScript([...PRODUCT_MODULES, ...BENCH_MODULES, ...TEST_MODULES], () => undefined);
  const program = join(packageRoot, 'dist/test/pictures/pictures.js');
  const { status } = spawnSync(process.execPath, [program, ...args], { stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new BuildError('the pictures were not drawn (see above); `npm run pictures` tries again');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  runBuild('pictures', () => drawPictures(process.argv.slice(2)));
}
