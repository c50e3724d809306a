// Finds the system's programs and libraries that the build needs, and installs missing ones through apt.
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { BuildError, packageRoot } from './build-state.mjs';

const BUILD_TOOLS = [
  {
    commands: ['c++', 'g++', 'clang++'],
    variable: 'CXX',
    aptPackage: 'g++',
    purpose: 'a C++20 compiler (GCC 11 or newer, or Clang 14)',
  },
  { commands: ['cmake'], aptPackage: 'cmake', purpose: 'CMake 3.18 or newer' },
  { commands: ['make', 'ninja'], aptPackage: 'make', purpose: 'make or ninja' },
];
/** Names in the order in which they are tried. Versions that format our sources alike come before a version that may not. */
export const CLANG_FORMAT_COMMANDS = [
  'clang-format',
  ...[19, 18, 17, 16, 15, 14].map((version) => `clang-format-${version}`),
];
/** Tools for the check of the C++ format. Every test runs without them. */
const CHECK_TOOLS = [{ commands: CLANG_FORMAT_COMMANDS, aptPackage: 'clang-format', purpose: 'clang-format' }];
/** Names of a browser. Without one, the tests of the page in a browser are skipped. */
const BROWSER_COMMANDS = ['chromium', 'chromium-browser', 'google-chrome'];
const BROWSER = { aptPackage: 'chromium', purpose: 'Chromium' };
/** The compiler itself searches for these, because each system has its headers at another place. */
const LIBRARIES = [
  { header: 'zstd.h', library: 'zstd', aptPackage: 'libzstd-dev', purpose: 'libzstd with its header' },
  { header: 'lz4hc.h', library: 'lz4', aptPackage: 'liblz4-dev', purpose: 'liblz4 with its headers' },
];
/** The library for io_uring. Without it, threads read storage. */
const READING_LIBRARY = {
  header: 'liburing.h',
  library: 'uring',
  aptPackage: 'liburing-dev',
  purpose: 'liburing with its header',
};

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The path of a program in the PATH, or at the path that is given; or undefined. It does not start the program. */
export function findCommand(command) {
  if (command.includes('/')) return isProgram(command) ? command : undefined;
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, command)).find(isProgram);
}

/** The path of Chromium, or undefined; `CHROME_PATH` comes before the PATH. */
export function findBrowser() {
  const given = process.env.CHROME_PATH ?? '';
  if (given !== '') return isProgram(given) ? given : undefined;
  return BROWSER_COMMANDS.map(findCommand).find((path) => path !== undefined);
}

/** The program of a tool, or undefined. One that its variable names is the only one that CMake takes; flags may follow it there. */
function programOf({ commands, variable }) {
  const [named = ''] = (process.env[variable] ?? '').trim().split(/\s+/);
  return (named === '' ? commands : [named]).find((command) => findCommand(command) !== undefined);
}

function missingOf(tools) {
  return tools.filter((tool) => programOf(tool) === undefined);
}

/** The list of what is missing for a build, and where it was looked for. */
export function missingWords(missing) {
  const looked = `programs are looked for in PATH (${process.env.PATH ?? ''})`;
  const { CXX } = process.env;
  const other = CXX === undefined || CXX === '' ? 'CXX=/path/to/g++ names a compiler elsewhere' : `CXX names ${CXX}`;
  return `${listOf(missing)}\n${looked}; ${other}`;
}

function listOf(missing) {
  return missing.map(({ purpose, aptPackage }) => `  ${purpose} (Debian, Ubuntu: ${aptPackage})`).join('\n');
}

/** Throws BuildError with the packages to install if build tools are missing. */
export function checkNativeTools() {
  const missing = missingOf(BUILD_TOOLS);
  if (missing.length === 0) return;
  throw new BuildError(
    `the native core cannot be built, these are missing:\n${missingWords(missing)}\n` +
      'Fedora: dnf install gcc-c++ cmake make; macOS: xcode-select --install and brew install cmake',
  );
}

/** Compiler flags for the folders in which CMake searches and a compiler by itself does not. */
function librarySearchFlags() {
  const prefixes = ['/usr/local', '/opt/homebrew', '/opt/local', ...(process.env.CMAKE_PREFIX_PATH ?? '').split(':')];
  return prefixes
    .filter((prefix) => prefix !== '' && existsSync(join(prefix, 'include')))
    .flatMap((prefix) => [`-I${join(prefix, 'include')}`, `-L${join(prefix, 'lib')}`]);
}

function succeeds(command, args) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

/** True if an empty program links with the library. False if there is no compiler yet. */
function linksWith({ header, library }) {
  const compiler = programOf(BUILD_TOOLS[0]);
  if (compiler === undefined) return false;
  const folder = mkdtempSync(join(tmpdir(), 'odmoe-setup-'));
  try {
    const source = join(folder, 'links.cc');
    writeFileSync(source, `#include <${header}>\nint main() { return 0; }\n`);
    return succeeds(compiler, [...librarySearchFlags(), source, '-o', join(folder, 'links'), `-l${library}`]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** True if CMake has configured a build before, and so has found the libraries. After an error it writes no file for make or ninja. */
function isConfigured() {
  return ['Makefile', 'build.ninja'].some((name) => existsSync(join(packageRoot, 'build', name)));
}

function missingTools() {
  return missingOf(BUILD_TOOLS);
}

function missingForBuild() {
  return [...missingTools(), ...(isConfigured() ? [] : LIBRARIES.filter((library) => !linksWith(library)))];
}

function aptPrefix() {
  if (findCommand('apt-get') === undefined) return undefined;
  if (process.getuid?.() === 0) return ['apt-get'];
  return succeeds('sudo', ['-n', 'true']) ? ['sudo', '-n', 'apt-get'] : undefined;
}

function aptGet([command, ...first], ...args) {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const { status } = spawnSync(command, [...first, ...args], { stdio: ['ignore', 2, 2], env });
  if (status !== 0) throw new BuildError(`apt-get ${args.join(' ')} failed (see above)`);
}

/**
 * Installs missing packages for the build and, if `withChecks`, for the checks of sources. Throws BuildError if packages for the build are
 * missing and cannot be installed.
 */
export function installSystemPackages(withChecks, say) {
  installNeededPackages(missingForBuild, withChecks, say);
  if (process.platform === 'linux' && !isConfigured() && !linksWith(READING_LIBRARY)) {
    installOptional(READING_LIBRARY, 'storage is read by threads, not through io_uring, without it', say);
  }
}

/** Installs what a build of the CUDA backend alone needs besides CUDA's toolkit. Throws BuildError as installSystemPackages does. */
export function installBuildTools(say) {
  installNeededPackages(missingTools, false, say);
}

/** `findMissing`: what is missing for the build. */
function installNeededPackages(findMissing, withChecks, say) {
  const needed = findMissing();
  const missing = [...needed, ...(withChecks ? missingOf(CHECK_TOOLS) : [])];
  if (missing.length === 0) return;
  const prefix = aptPrefix();
  if (prefix === undefined) {
    if (needed.length > 0) {
      throw new BuildError(`these system packages are missing; install them and run again:\n${missingWords(needed)}`);
    }
    say(`for \`npm run format:check\` this is missing:\n${listOf(missing)}`);
    return;
  }
  const packages = missing.map(({ aptPackage }) => aptPackage);
  say(`installing system packages: ${packages.join(' ')}`);
  aptGet(prefix, 'update');
  aptGet(prefix, 'install', '--yes', '--no-install-recommends', ...packages);
  const still = findMissing();
  if (still.length > 0) throw new BuildError(`still missing after the installation:\n${missingWords(still)}`);
}

/** Installs Chromium for the tests. If that is not possible, it says so and throws nothing. */
export function installBrowser(say) {
  if (findBrowser() !== undefined) return;
  installOptional(BROWSER, 'the tests of the page in a browser are skipped without it', say);
}

function installOptional(wanted, consequence, say) {
  const without = `${consequence}:\n${listOf([wanted])}`;
  const prefix = aptPrefix();
  if (prefix === undefined) return say(without);
  say(`installing ${wanted.aptPackage}`);
  try {
    aptGet(prefix, 'update');
    aptGet(prefix, 'install', '--yes', '--no-install-recommends', wanted.aptPackage);
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    say(`${error.message}; ${without}`);
  }
}
