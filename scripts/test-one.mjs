// `npm run test:one -- NAME [MOCHA_OPTIONS]` builds the addon and TypeScript, then runs the test files whose path contains NAME. It does not
// build C++ tests and the stand-in for CUDA. `npm run test:watch -- NAME` runs them again at each change of a source, until Ctrl-C.
import { watch } from 'node:fs';
import { buildNative } from './build-native.mjs';
import { BuildError, filesBelow, packageRoot, runBuild } from './build-state.mjs';
import { BENCH_MODULES, buildTypeScript, PRODUCT_MODULES, TEST_MODULES } from './build-typescript.mjs';
import { runMocha } from './run-mocha.mjs';

/** Changes within this time count as one change, because editors write a file in several steps. */
const SETTLE_MS = 200;
/** Files whose change starts a new run: sources, and no files that a build writes. */
const SOURCES = /\.(?:ts|tsx|proto|css)$/;
const BUILT = /^(?:dist|build|build-sanitize|node_modules|\.git)(?:\/|$)/;

function build() {
  buildNative('start');
  buildTypeScript([...PRODUCT_MODULES, ...BENCH_MODULES, ...TEST_MODULES], () => undefined);
}

/** Test files whose path contains the name. Throws BuildError if there are none. */
function chosenFiles(name) {
  const files = filesBelow('dist/test', (file) => file.endsWith('.test.js')).filter((path) => path.includes(name));
  if (files.length === 0)
    throw new BuildError(`no test file has "${name}" in its path below test/; give a part of one`);
  return files;
}

function runOnce(name, options) {
  runBuild('test', build);
  if (process.exitCode !== undefined) return;
  runBuild('test', () => {
    const { failed } = runMocha(chosenFiles(name), options);
    if (failed > 0) process.exitCode = 1;
  });
}

function runAgain(name, options) {
  runOnce(name, options);
  let timer = null;
  watch(packageRoot, { recursive: true }, (_event, path) => {
    if (path === null || BUILT.test(path) || !SOURCES.test(path)) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      process.exitCode = undefined;
      runOnce(name, options);
    }, SETTLE_MS);
  });
}

const given = process.argv.slice(2).filter((argument) => argument !== '--watch');
const [name, ...options] = given;
if (name === undefined) {
  process.stderr.write(
    'usage: npm run test:one -- NAME [MOCHA_OPTIONS], as in: npm run test:one -- unit/main-roster --grep lost\n',
  );
  process.exitCode = 2;
} else if (process.argv.includes('--watch')) runAgain(name, options);
else runOnce(name, options);
