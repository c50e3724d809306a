// Makes a fresh clone runnable: it installs system packages and npm packages, and builds the native core and TypeScript.
// In an odmoe that npm has installed, it builds the native library where no package of it fits. `odmoe setup` runs this.
//   node scripts/setup.mjs [--cuda] [--force]
//     --cuda: also the CUDA library, or an error where it cannot be had
//     --force: in an odmoe that npm has installed, build the native library although one is there that works
// It skips each step whose result already exists. The script uses plain Node, because nothing is installed yet.
import { createHash } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { buildNative, signOfGpu } from './build-native.mjs';
import { installBuildPackages, runNpm } from './build-packages.mjs';
import { BuildError, doStep, isClone, isDone, packageRoot, runBuild } from './build-state.mjs';
import { cudaPlan, installCudaPackage } from './cuda-package.mjs';
import { BENCH_MODULES, PRODUCT_MODULES, TEST_MODULES, buildTypeScript } from './build-typescript.mjs';
import { stageLines, timed } from './stage-times.mjs';
import { installBrowser, installBuildTools, installSystemPackages } from './system-packages.mjs';

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
    runNpm(['ci', '--include=dev']);
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

/** Runs `task` after the set-up, and returns its result. If the set-up fails, it prints the reason and sets the exit status of the process to 1. */
export function afterSetUp(purpose, task) {
  runBuild('setup', () => setUp(purpose));
  return process.exitCode === undefined ? task() : undefined;
}

/** The path of the native library that this odmoe loads; null: it can load none. In a process of its own, because a damaged library may end it. */
export function workingLibrary(root) {
  const module = pathToFileURL(join(root, 'dist', 'native', 'index.js')).href;
  const source = `import { nativeStatus } from '${module}'; console.log(JSON.stringify(nativeStatus()));`;
  const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', source], { encoding: 'utf8' });
  if (status !== 0) return null;
  const { loaded, path } = JSON.parse(stdout);
  return loaded ? path : null;
}

/** For an odmoe that npm has installed: builds its native library on this machine, where none works or the user wants it. */
function setUpInstalled(withCuda, isForced) {
  checkNode();
  const library = withCuda || isForced ? null : workingLibrary(packageRoot);
  if (library !== null) {
    say(`nothing to do: ${library} works (--force builds another one here, --cuda gets the CUDA library)`);
    return;
  }
  requireWritable();
  if (withCuda) return setUpCuda(existsSync(join(packageRoot, 'build', 'Release', 'odmoe.node')));
  buildInstalled('start');
}

function buildInstalled(purpose) {
  installSystemPackages(false, say);
  installBuildPackages(say);
  buildNative(purpose);
}

/** As a package where npm has it, else built by the machine's own toolkit. Throws BuildError where no GPU would use it. */
function setUpCuda(addonIsOwn) {
  const forced = process.env.ODMOE_CUDA === 'on';
  const { way, why } = cudaPlan({ processor: process.arch, gpu: signOfGpu(), forced, addonIsOwn });
  if (way === 'none') throw new BuildError(why);
  if (why !== '') say(why);
  process.env.ODMOE_CUDA = 'on';
  if (way === 'package' && installCudaPackage(say)) return;
  if (addonIsOwn) return buildInstalled('product');
  installBuildTools(say);
  installBuildPackages(say);
  buildNative('cuda');
}

function requireWritable() {
  try {
    accessSync(packageRoot, constants.W_OK);
  } catch {
    throw new BuildError(
      `${packageRoot} cannot be written by this user; run it as the user who installed odmoe (sudo)`,
    );
  }
}

function main() {
  const flags = process.argv.slice(2);
  const [withCuda, isForced] = ['--cuda', '--force'].map((flag) => flags.includes(flag));
  if (flags.some((flag) => flag !== '--cuda' && flag !== '--force')) {
    throw new BuildError('unknown arguments; --cuda and --force are those that may be given');
  }
  if (isClone) {
    if (isForced) throw new BuildError('--force is for an odmoe that npm has installed; here `npm run build` builds');
    if (withCuda) process.env.ODMOE_CUDA = 'on';
    setUp('product');
  } else {
    setUpInstalled(withCuda, isForced);
  }
  const times = stageLines();
  say(`done${times === '' ? '' : `, after\n${times}`}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('setup', main);
