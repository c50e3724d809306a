// Compiles TypeScript into dist/ without a check of types (`npm run lint` checks them). The JavaScript of a file depends on that
// file alone (isolatedModules), so only changed files are compiled.
//   node scripts/build-typescript.mjs               the product
//   node scripts/build-typescript.mjs --everything  benchmarks and tests, too
//   node scripts/build-typescript.mjs --release     the product without its comments, as a release holds it
// build-dashboard.mjs bundles the page. The page's modules without JSX are also compiled here, for the tests.
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generateMessages } from './generate-messages.mjs';
import { DASHBOARD_OUTPUTS, buildDashboard, isDashboardBuilt } from './build-dashboard.mjs';
import {
  BuildError,
  fileState,
  filesBelow,
  installedVersion,
  packageRoot,
  runBuild,
  withLock,
} from './build-state.mjs';
import { unpackFixtures } from './fixture-files.mjs';

export const PRODUCT_MODULES = [
  'shared',
  'native',
  'packs',
  'engine',
  'http-api',
  'main-node',
  'shadow-node',
  'worker-node',
  'simulator',
  'cli',
];
export const BENCH_MODULES = ['bench'];
export const TEST_MODULES = ['dashboard', 'test'];
/** Benchmarks read fixtures, and so do tests, which are built with the benchmarks. */
const FIXTURE_READER = 'bench';

/** This file has the state of each source at its last compilation, and the state of the compiler and its settings. */
const STATE_PATH = join(packageRoot, 'dist', '.built.json');
const SOURCE = /(?<!\.d)\.ts$/;
const OUTPUT = /\.js(\.map)?$/;

function outputOf(source) {
  return join('dist', source.replace(SOURCE, '.js'));
}

/** The state of the compiler and its settings. If it changes, everything is compiled again. */
function settingsState(removeComments) {
  return `${fileState('tsconfig.json')} ${installedVersion('typescript')}${removeComments ? ' without comments' : ''}`;
}

function readState(settings) {
  if (!existsSync(STATE_PATH)) return { settings, sources: {} };
  const state = JSON.parse(readFileSync(STATE_PATH, 'utf8'));
  return state.settings === settings ? state : { settings, sources: {} };
}

/** Another process that reads the file at the same time sees the old file or the new one, never a part. */
function writeWhole(path, text) {
  const written = `${path}.${process.pid}`;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(written, text);
  renameSync(written, path);
}

/** Deletes outputs whose source no longer exists, because a deleted test must not run. */
function removeStale(modules, sources) {
  const compiled = sources.flatMap((source) => [outputOf(source), `${outputOf(source)}.map`]);
  const expected = new Set([...compiled, ...DASHBOARD_OUTPUTS]);
  const outputs = modules.flatMap((module) => filesBelow(join('dist', module), (name) => OUTPUT.test(name)));
  for (const output of outputs) {
    if (!expected.has(output)) rmSync(join(packageRoot, output), { force: true });
  }
}

function compile(sources, removeComments) {
  if (!existsSync(join(packageRoot, 'node_modules', 'typescript'))) {
    throw new BuildError(
      'the npm packages are not installed; run `npm ci` (or `npm run setup`, which does everything)',
    );
  }
  const ts = createRequire(import.meta.url)('typescript');
  const { config } = ts.readConfigFile(join(packageRoot, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, packageRoot);
  // The compiler reads the sources themselves and no other files.
  Object.assign(options, {
    noCheck: true,
    noResolve: true,
    noLib: true,
    types: [],
    incremental: false,
    removeComments,
  });
  const program = ts.createProgram(
    sources.map((source) => join(packageRoot, source)),
    options,
  );
  const { diagnostics } = program.emit(undefined, writeWhole);
  const wrong = [...program.getSyntacticDiagnostics(), ...diagnostics];
  if (wrong.length === 0) return;
  const host = { getCanonicalFileName: (name) => name, getCurrentDirectory: () => packageRoot, getNewLine: () => '\n' };
  throw new BuildError(`TypeScript does not compile:\n${ts.formatDiagnostics(wrong, host)}`);
}

/** All sources of the modules, and the changed ones, which have to be compiled. */
function changedSources(modules, removeComments) {
  const state = readState(settingsState(removeComments));
  const sources = modules.flatMap((module) => filesBelow(module, (name) => SOURCE.test(name)));
  const changed = sources.filter(
    (source) => state.sources[source] !== fileState(source) || !existsSync(join(packageRoot, outputOf(source))),
  );
  return { state, sources, changed };
}

/** `announce` is called before anything is compiled. Throws BuildError if a source does not compile. */
export function buildTypeScript(modules, announce, removeComments = false) {
  generateMessages();
  if (modules.includes(FIXTURE_READER)) unpackFixtures();
  const { sources, changed } = changedSources(modules, removeComments);
  if (changed.length === 0 && isDashboardBuilt()) return removeStale(modules, sources);
  announce();
  withLock('typescript', () => {
    buildDashboard();
    // Another process may have compiled the sources while this one waited for the lock.
    const { state, sources, changed } = changedSources(modules, removeComments);
    const compiled = changed.map((source) => [source, fileState(source)]);
    if (changed.length > 0) compile(changed, removeComments);
    removeStale(modules, sources);
    Object.assign(state.sources, Object.fromEntries(compiled));
    writeWhole(STATE_PATH, JSON.stringify(state));
  });
}

function main() {
  const given = new Set(process.argv.slice(2));
  const everything = given.delete('--everything');
  const release = given.delete('--release');
  if (given.size > 0)
    throw new BuildError(`unknown argument ${[...given].join(' ')}; there are --everything and --release`);
  const more = everything ? [...BENCH_MODULES, ...TEST_MODULES] : [];
  buildTypeScript([...PRODUCT_MODULES, ...more], () => process.stderr.write('typescript: compiling\n'), release);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('typescript', main);
