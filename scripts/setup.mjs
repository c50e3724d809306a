// Everything between a fresh clone and a runnable odmoe: system packages, npm packages, native build, TypeScript build.
// Each step is skipped when its result already stands. Plain Node, because nothing is installed yet.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));

const MINIMUM_NODE = [20, 17];
const SYSTEM_TOOLS = [
  { commands: ['c++', 'g++', 'clang++'], aptPackage: 'g++', purpose: 'a C++20 compiler' },
  { commands: ['cmake'], aptPackage: 'cmake', purpose: 'CMake 3.18 or newer' },
  { commands: ['make', 'ninja'], aptPackage: 'make', purpose: 'make or ninja' },
];
/** Found by the compiler itself, wherever the system keeps its headers. */
const SYSTEM_LIBRARIES = [
  { header: 'zstd.h', library: 'zstd', aptPackage: 'libzstd-dev', purpose: 'libzstd with its header' },
  { header: 'lz4hc.h', library: 'lz4', aptPackage: 'liblz4-dev', purpose: 'liblz4 with its headers' },
];
const TYPESCRIPT_ROOMS = [
  'shared',
  'native',
  'engine',
  'main-node',
  'shadow-node',
  'worker-node',
  'cli',
  'bench',
  'test',
];

class SetupError extends Error {}

function say(text) {
  process.stderr.write(`setup: ${text}\n`);
}

function works(command, args) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

function run(command, args, options = {}) {
  // What a build prints is progress: stdout is left to the command that the user asked for.
  const result = spawnSync(command, args, { cwd: packageRoot, stdio: ['ignore', 2, 2], ...options });
  if (result.error) throw new SetupError(`${command} could not be run: ${result.error.message}`);
  if (result.status !== 0) throw new SetupError(`${command} ${args.join(' ')} failed (see above)`);
}

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > MINIMUM_NODE[0] || (major === MINIMUM_NODE[0] && minor >= MINIMUM_NODE[1])) return;
  throw new SetupError(
    `Node ${process.versions.node} is too old; install Node ${MINIMUM_NODE.join('.')} or newer (https://nodejs.org)`,
  );
}

/** Links an empty program with the library. Where there is no compiler yet, nothing can be found. */
function linksWith({ header, library }) {
  const compiler = SYSTEM_TOOLS[0].commands.find((command) => works(command, ['--version']));
  if (compiler === undefined) return false;
  const folder = mkdtempSync(join(tmpdir(), 'odmoe-setup-'));
  try {
    const source = join(folder, 'links.cc');
    writeFileSync(source, `#include <${header}>\nint main() { return 0; }\n`);
    return works(compiler, [...librarySearchFlags(), source, '-o', join(folder, 'links'), `-l${library}`]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Where CMake looks and a compiler does not. */
function librarySearchFlags() {
  const prefixes = ['/usr/local', '/opt/homebrew', '/opt/local', ...(process.env.CMAKE_PREFIX_PATH ?? '').split(':')];
  return prefixes
    .filter((prefix) => prefix !== '' && existsSync(join(prefix, 'include')))
    .flatMap((prefix) => [`-I${join(prefix, 'include')}`, `-L${join(prefix, 'lib')}`]);
}

function missingPackages() {
  return [
    ...SYSTEM_TOOLS.filter((tool) => !tool.commands.some((command) => works(command, ['--version']))),
    ...SYSTEM_LIBRARIES.filter((library) => !linksWith(library)),
  ];
}

function installSystemPackages() {
  const missing = missingPackages();
  if (missing.length === 0) return;
  const packages = missing.map(({ aptPackage }) => aptPackage);
  const list = missing.map(({ purpose, aptPackage }) => `  ${purpose} (Debian, Ubuntu: ${aptPackage})`).join('\n');
  const isRoot = process.getuid?.() === 0;
  const prefix = isRoot ? [] : ['sudo', '-n'];
  const mayInstall = works('apt-get', ['--version']) && (isRoot || works('sudo', ['-n', 'true']));
  if (!mayInstall) throw new SetupError(`these system packages are missing; install them and run again:\n${list}`);
  say(`installing system packages: ${packages.join(' ')}`);
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const aptGet = (...args) => run([...prefix, 'apt-get'][0], [...[...prefix, 'apt-get'].slice(1), ...args], { env });
  aptGet('update');
  aptGet('install', '--yes', '--no-install-recommends', ...packages);
  if (missingPackages().length > 0) throw new SetupError(`still missing after the installation:\n${list}`);
}

function hashFiles(paths) {
  const hash = createHash('sha256');
  hash.update(process.version);
  for (const path of paths) hash.update(path).update(readFileSync(join(packageRoot, path)));
  return hash.digest('hex');
}

function filesBelow(folder, keep) {
  return readdirSync(join(packageRoot, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && keep(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(packageRoot.length + 1))
    .sort();
}

/** Runs `step` unless `stampPath` already holds `stamp` (that is, unless nothing it depends on has changed). */
function unlessDone(stampPath, stamp, step) {
  const path = join(packageRoot, stampPath);
  if (existsSync(path) && readFileSync(path, 'utf8') === stamp) return;
  step();
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, stamp);
}

function installNpmPackages() {
  unlessDone('node_modules/.odmoe-setup', hashFiles(['package.json', 'package-lock.json']), () => {
    say('installing npm packages');
    run('npm', ['ci', '--include=dev', '--no-audit', '--no-fund']);
  });
}

function buildNative() {
  run(process.execPath, [join('scripts', 'build-native.mjs')]);
}

function buildTypeScript() {
  const sources = TYPESCRIPT_ROOMS.flatMap((room) => filesBelow(room, (name) => /\.(ts|json)$/.test(name)));
  unlessDone('dist/.odmoe-setup', hashFiles(['tsconfig.json', 'package-lock.json', ...sources]), () => {
    say('building TypeScript');
    rmSync(join(packageRoot, 'dist'), { recursive: true, force: true });
    run(process.execPath, [join('node_modules', 'typescript', 'bin', 'tsc'), '-p', 'tsconfig.json']);
  });
}

/** Throws SetupError, with what the user can do, when a step cannot be done. */
export function setUp() {
  checkNode();
  installSystemPackages();
  installNpmPackages();
  buildNative();
  buildTypeScript();
}

/** Runs `task` after the set-up and ends the process with the status it returns. */
export function afterSetUp(task) {
  try {
    setUp();
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`setup: ${error.message}\n`);
    process.exit(1);
  }
  task();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) afterSetUp(() => say('done'));
