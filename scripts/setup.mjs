// Makes a fresh clone runnable: it installs system packages and npm packages, and builds the native core and TypeScript.
// It skips each step whose result already exists. The script uses plain Node, because nothing is installed yet.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildNative } from './build-native.mjs';
import { BuildError, doStep, isDone, packageRoot, runBuild } from './build-state.mjs';
import { BENCH_MODULES, PRODUCT_MODULES, TEST_MODULES, buildTypeScript } from './build-typescript.mjs';
import { stageLines, timed } from './stage-times.mjs';
import { installBrowser, installSystemPackages } from './system-packages.mjs';

const MINIMUM_NODE = [20, 17];

function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > MINIMUM_NODE[0] || (major === MINIMUM_NODE[0] && minor >= MINIMUM_NODE[1])) return;
  throw new BuildError(
    `Node ${process.versions.node} is too old; install Node ${MINIMUM_NODE.join('.')} or newer (https://nodejs.org)`,
  );
}

/** A hash of the files' content. Their times are no use, because npm itself touches these files. */
function npmState() {
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const lock = readFileSync(join(packageRoot, 'package-lock.json'));
  const asked = JSON.stringify([process.version, dependencies, devDependencies]);
  return createHash('sha256').update(asked).update(lock).digest('hex');
}

function installNpmPackages() {
  const statePath = 'node_modules/.odmoe-setup';
  const state = npmState();
  if (isDone(statePath, state)) return;
  doStep(statePath, state, () => {
    say('installing npm packages');
    // The output of npm is progress and goes to stderr. stdout belongs to the command of the user.
    const args = ['ci', '--include=dev', '--no-audit', '--no-fund'];
    const { status, error } = spawnSync('npm', args, { cwd: packageRoot, stdio: ['ignore', 2, 2] });
    if (error) throw new BuildError(`npm could not be run: ${error.message}`);
    if (status !== 0) throw new BuildError(`npm ${args.join(' ')} failed (see above)`);
  });
}

/**
 * `purpose`: 'start' prepares what this machine needs for a cluster; 'product' adds the CUDA backend; 'tests' prepares everything;
 * 'sanitize' prepares all TypeScript, and the native core with sanitizers. Throws BuildError with a hint for the user if a step fails.
 */
export function setUp(purpose) {
  checkNode();
  const withTests = purpose === 'tests' || purpose === 'sanitize';
  timed('set-up: system packages', () => {
    installSystemPackages(withTests, say);
    if (purpose === 'tests') installBrowser(say);
  });
  timed('set-up: npm packages', installNpmPackages);
  timed('set-up: native core', () => buildNative(purpose));
  const modules = [...PRODUCT_MODULES, ...(withTests ? [...BENCH_MODULES, ...TEST_MODULES] : [])];
  timed('set-up: TypeScript', () => buildTypeScript(modules, () => say('building TypeScript')));
}

/** Runs `task` after the set-up. If the set-up fails, it prints the reason and sets the exit status of the process to 1. */
export function afterSetUp(purpose, task) {
  runBuild('setup', () => setUp(purpose));
  if (process.exitCode === undefined) task();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  afterSetUp('product', () => process.stderr.write(`setup: done, after\n${stageLines()}`));
}
