// Builds the native addon (build/Release/odmoe.node) and the C++ tests beside it; skips what has not changed.
//   node scripts/build-native.mjs              the addon, by cmake-js
//   node scripts/build-native.mjs --sanitize   the C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer, in build-sanitize/
// Where nvcc is found the addon's build makes the CUDA backend too, build/Release/libodmoe_cuda.so (native/cuda.cmake). ODMOE_CUDA=off
// leaves it out, ODMOE_CUDA=on insists on it; ODMOE_CUDA_ARCHITECTURES="86;87" says for which compute capabilities.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const packageRoot = dirname(dirname(fileURLToPath(import.meta.url)));

const TOOLS = [
  { commands: ['c++', 'g++', 'clang++'], purpose: 'a C++20 compiler (GCC 11 or newer, or Clang 14)', package: 'g++' },
  { commands: ['cmake'], purpose: 'CMake 3.18 or newer', package: 'cmake' },
  { commands: ['ninja', 'make'], purpose: 'ninja or make', package: 'make' },
];
const LOCK_WAIT_MS = 15 * 60_000;
const LOCK_POLL_MS = 500;

class BuildError extends Error {}

function say(text) {
  process.stderr.write(`native: ${text}\n`);
}

function works(command) {
  return spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0;
}

function checkTools() {
  const missing = TOOLS.filter((tool) => !tool.commands.some(works));
  if (missing.length === 0) return;
  const list = missing.map((tool) => `  ${tool.purpose}`).join('\n');
  const packages = missing.map((tool) => tool.package).join(' ');
  throw new BuildError(
    `the native core cannot be built, these are missing:\n${list}\n` +
      `Debian, Ubuntu: apt-get install ${packages}; Fedora: dnf install gcc-c++ cmake make; macOS: xcode-select --install and brew install cmake`,
  );
}

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

function installedVersion(name) {
  return JSON.parse(readFileSync(join(packageRoot, 'node_modules', name, 'package.json'), 'utf8')).version;
}

/** What the nvcc that native/cuda.cmake finds says of itself; empty where there is none. */
function nvccVersion() {
  const homes = [process.env.CUDA_HOME, process.env.CUDA_PATH].filter((home) => home !== undefined && home !== '');
  const candidates = [...homes.map((home) => join(home, 'bin', 'nvcc')), 'nvcc', '/usr/local/cuda/bin/nvcc'];
  for (const candidate of candidates) {
    const { status, stdout } = spawnSync(candidate, ['--version'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    if (status === 0) return stdout;
  }
  return '';
}

/** Always all of them, as CMake remembers what it was told last. */
function cudaSettings() {
  const { ODMOE_CUDA, ODMOE_CUDA_ARCHITECTURES } = process.env;
  return { ODMOE_CUDA: ODMOE_CUDA || 'auto', ODMOE_CUDA_ARCHITECTURES: ODMOE_CUDA_ARCHITECTURES || 'usual' };
}

/** Changes whenever the result of a build could. */
/** What CMake takes of the environment when it first looks at a build directory, and keeps. */
function compilerSettings() {
  return ['CC', 'CXX', 'CFLAGS', 'CXXFLAGS', 'LDFLAGS'].map((name) => `${name}=${process.env[name] ?? ''}`).join('\n');
}

function sourceStamp(odmoeVersion) {
  const hash = createHash('sha256');
  const about = [process.version, process.platform, process.arch, odmoeVersion, packageRoot];
  const packages = ['cmake-js', 'node-addon-api', 'node-api-headers'].map(installedVersion);
  const cuda = [nvccVersion(), cudaSettings()];
  hash.update(JSON.stringify([...about, ...packages, compilerSettings(), ...cuda]));
  const sources = ['include', 'src', 'test'].flatMap((folder) => filesBelow(join(packageRoot, 'native', folder)));
  const lists = ['CMakeLists.txt', 'native/CMakeLists.txt', 'native/cuda.cmake'].map((path) => join(packageRoot, path));
  for (const path of [...lists, ...sources].sort()) hash.update(relative(packageRoot, path)).update(readFileSync(path));
  return hash.digest('hex');
}

function run(command, args) {
  const env = {
    ...process.env,
    CMAKE_BUILD_PARALLEL_LEVEL: process.env.CMAKE_BUILD_PARALLEL_LEVEL ?? String(availableParallelism()),
    NINJA_STATUS: '[%p] ',
  };
  const result = spawnSync(command, args, { cwd: packageRoot, stdio: ['ignore', 'inherit', 'inherit'], env });
  if (result.error) throw new BuildError(`${command} could not be run: ${result.error.message}`);
  if (result.status !== 0) throw new BuildError('the native build failed (see above)');
}

/** A build directory that was made for another place, or with other compilers, cannot be used again. */
function prepareBuildFolder(buildFolder, sourceFolder) {
  const cache = join(buildFolder, 'CMakeCache.txt');
  const settingsPath = join(buildFolder, 'odmoe-compilers');
  if (existsSync(cache)) {
    const home = /^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$/m.exec(readFileSync(cache, 'utf8'))?.[1];
    const settings = existsSync(settingsPath) ? readFileSync(settingsPath, 'utf8') : '';
    const same = home === sourceFolder && settings === compilerSettings();
    if (!same) rmSync(buildFolder, { recursive: true, force: true });
  }
  mkdirSync(buildFolder, { recursive: true });
  writeFileSync(settingsPath, compilerSettings());
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

/** Owner 0: not written yet, or gone since. */
function readLock(lock) {
  try {
    return { owner: Number(readFileSync(lock, 'utf8')), ageMs: Date.now() - statSync(lock).mtimeMs };
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    return { owner: 0, ageMs: 0 };
  }
}

/** Two builds at a time would break each other's files: the second waits. */
function withLock(folder, task) {
  const lock = join(packageRoot, 'node_modules', `.odmoe-native-${folder}.lock`);
  const deadline = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const { owner, ageMs } = readLock(lock);
    if (owner > 0 ? !isAlive(owner) : ageMs > LOCK_POLL_MS) rmSync(lock, { force: true });
    if (Date.now() > deadline) throw new BuildError(`process ${owner} has been building for too long; remove ${lock}`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_POLL_MS);
  }
  try {
    task();
  } finally {
    rmSync(lock, { force: true });
  }
}

function unlessBuilt(buildFolder, result, stamp, build) {
  const stampPath = join(buildFolder, 'odmoe-sources');
  if (existsSync(result) && existsSync(stampPath) && readFileSync(stampPath, 'utf8') === stamp) {
    say(`${relative(packageRoot, result)} is up to date`);
    return;
  }
  checkTools();
  rmSync(stampPath, { force: true });
  build();
  if (!existsSync(result)) throw new BuildError(`the build ended without ${result}`);
  writeFileSync(stampPath, stamp);
}

function buildAddon(stamp, odmoeVersion) {
  const buildFolder = join(packageRoot, 'build');
  unlessBuilt(buildFolder, join(buildFolder, 'Release', 'odmoe.node'), stamp, () => {
    say('building the addon');
    prepareBuildFolder(buildFolder, packageRoot);
    // cmake-js takes node-api-headers and node-addon-api from node_modules, and downloads nothing, because the package.json of
    // its --directory has binary.napi_versions.
    const cmakeJs = [
      join(packageRoot, 'node_modules', 'cmake-js', 'bin', 'cmake-js'),
      ...['--directory', packageRoot, '--out', buildFolder, '--config', 'Release', '--log-level', 'warn'],
      `--CDODMOE_VERSION=${odmoeVersion}`,
      ...Object.entries(cudaSettings()).map(([name, value]) => `--CD${name}=${value}`),
    ];
    run(process.execPath, [...cmakeJs, 'configure']);
    run(process.execPath, [...cmakeJs, 'build']);
  });
}

function buildSanitizedTests(stamp) {
  const buildFolder = join(packageRoot, 'build-sanitize');
  unlessBuilt(buildFolder, join(buildFolder, 'odmoe_native_tests'), stamp, () => {
    say('building the C++ tests with sanitizers');
    const source = join(packageRoot, 'native');
    prepareBuildFolder(buildFolder, source);
    run('cmake', ['-S', source, '-B', buildFolder, '-DCMAKE_BUILD_TYPE=Release', '-DODMOE_SANITIZE=ON']);
    run('cmake', ['--build', buildFolder]);
  });
}

function main() {
  const unknown = process.argv.slice(2).filter((argument) => argument !== '--sanitize');
  if (unknown.length > 0) throw new BuildError(`unknown argument ${unknown.join(' ')}; the only one is --sanitize`);
  if (!existsSync(join(packageRoot, 'node_modules', 'cmake-js'))) {
    throw new BuildError(
      'the npm packages are not installed; run `npm ci` (or `npm run setup`, which does everything)',
    );
  }
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const stamp = sourceStamp(version);
  if (process.argv.includes('--sanitize')) withLock('sanitize', () => buildSanitizedTests(stamp));
  else withLock('release', () => buildAddon(stamp, version));
}

try {
  main();
} catch (error) {
  if (!(error instanceof BuildError)) throw error;
  say(error.message);
  process.exitCode = 1;
}
