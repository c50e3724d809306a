// Builds the native core into build/, and skips builds whose sources have not changed.
//   node scripts/build-native.mjs              the addon (odmoe.node) and, if nvcc is installed, the CUDA backend (libodmoe_cuda.so)
//   node scripts/build-native.mjs --start      as above, but the CUDA backend only if this machine has a GPU or an earlier build of it
//   node scripts/build-native.mjs --tests      as --start, with the C++ tests and the stand-in for CUDA
//   node scripts/build-native.mjs --release    the addon as npm's package has it, in build-release/: it holds the libraries that it needs
//   node scripts/build-native.mjs --cuda       the CUDA backend alone, in build-cuda/, for an addon that came as a package
//   node scripts/build-native.mjs --sanitize   addon and C++ tests with AddressSanitizer and UndefinedBehaviorSanitizer, in build-sanitize/
// ODMOE_CUDA=off leaves the CUDA backend out, and ODMOE_CUDA=on requires it. ODMOE_CUDA_ARCHITECTURES="86;87" sets the compute
// capabilities (native/cuda.cmake). Their default is the usual ones; --tests takes one alone if there is no CUDA backend yet.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  BuildError,
  doStep,
  fileState,
  filesBelow,
  inputState,
  isClone,
  isDone,
  packageRoot,
  runBuild,
  withLock,
} from './build-state.mjs';
import { buildPackage, buildPackageVersions } from './build-packages.mjs';
import { checkNativeTools, findCommand } from './system-packages.mjs';

const CUDA_LIBRARY = 'build/Release/libodmoe_cuda.so';
/** Its PTX runs on all newer GPUs, too. */
const TESTED_ARCHITECTURE = '86';
/** Each of these files shows a GPU. They belong to the drivers for graphics cards, for Tegra, and for Windows' subsystem for Linux. */
const GPU_FILES = JSON.parse(readFileSync(join(packageRoot, 'native/gpu-files.json'), 'utf8'));
const CMAKE_FILES = ['CMakeLists.txt', 'native/CMakeLists.txt', 'native/cuda.cmake'];
/** Environment variables that the build uses. CMake reads them only when it first configures a build directory, and ignores later values. */
const COMPILER_VARIABLES = ['CC', 'CXX', 'CFLAGS', 'CXXFLAGS', 'LDFLAGS'];

const ADDON_FOLDERS = [
  'native/include',
  'native/src/backends',
  'native/src/binding',
  'native/src/runtime',
  'native/src/store',
];
const CUDA_FOLDER = 'native/src/backends/cuda/';

/** Each build has the folders whose changes require it, CMake's targets, and the files that must exist afterwards. */
const BUILDS = {
  addon: {
    folders: ADDON_FOLDERS,
    leftOut: CUDA_FOLDER,
    targets: ['odmoe_addon'],
    results: ['build/Release/odmoe.node'],
  },
  cuda: {
    folders: ['native/include', 'native/src/backends'],
    targets: ['odmoe_cuda_if_found'],
    results: [],
  },
  tests: {
    folders: ['native'],
    targets: ['odmoe_tests'],
    results: ['build/Release/odmoe_native_tests'],
  },
  release: {
    folders: ADDON_FOLDERS,
    leftOut: CUDA_FOLDER,
    targets: ['odmoe_addon'],
    results: ['build-release/Release/odmoe.node'],
  },
  cudaAlone: {
    folders: ['native/include', 'native/src/backends'],
    targets: ['odmoe_cuda'],
    results: ['build-cuda/Release/libodmoe_cuda.so'],
  },
  sanitize: {
    folders: ['native'],
    targets: ['odmoe_addon', 'odmoe_native_tests'],
    results: ['build-sanitize/Release/odmoe.node', 'build-sanitize/Release/odmoe_native_tests'],
  },
};

function say(text) {
  process.stderr.write(`native: ${text}\n`);
}

function compilerSettings() {
  return COMPILER_VARIABLES.map((name) => `${name}=${process.env[name] ?? ''}`).join('\n');
}

/** The path of the nvcc that native/cuda.cmake finds, and its size and time of change. It does not start nvcc. */
function nvccState() {
  const homes = [process.env.CUDA_HOME, process.env.CUDA_PATH].filter((home) => home !== undefined && home !== '');
  const candidates = [
    ...homes.map((home) => join(home, 'bin', 'nvcc')),
    findCommand('nvcc'),
    '/usr/local/cuda/bin/nvcc',
  ];
  const nvcc = candidates.find((candidate) => candidate !== undefined && existsSync(candidate));
  return nvcc === undefined ? 'none' : `${nvcc} ${fileState(nvcc)}`;
}

/** The architectures of the existing CUDA library; null if there is no library. */
function builtArchitectures() {
  const cache = join(packageRoot, 'build', 'CMakeCache.txt');
  if (!existsSync(join(packageRoot, CUDA_LIBRARY)) || !existsSync(cache)) return null;
  return /^ODMOE_CUDA_ARCHITECTURES:[A-Z]+=(.*)$/m.exec(readFileSync(cache, 'utf8'))?.[1] ?? null;
}

/** It always returns all settings, because CMake remembers the last value of a setting that is left out. */
function cudaSettings(purpose) {
  const { ODMOE_CUDA, ODMOE_CUDA_ARCHITECTURES } = process.env;
  // Tests use the architectures of the existing library, because the build of each architecture takes a minute or more.
  const usual = purpose === 'tests' ? (builtArchitectures() ?? TESTED_ARCHITECTURE) : 'usual';
  return { ODMOE_CUDA: ODMOE_CUDA || 'auto', ODMOE_CUDA_ARCHITECTURES: ODMOE_CUDA_ARCHITECTURES || usual };
}

/** The file by which this machine shows that it has an NVIDIA GPU; undefined if it shows none. */
export function signOfGpu() {
  return GPU_FILES.find((path) => existsSync(path));
}

/** True for an existing CUDA library, too: the addon would load it, so both must come from the same sources. */
function mayNeedCuda() {
  return signOfGpu() !== undefined || existsSync(join(packageRoot, CUDA_LIBRARY));
}

/** The settings with which CMake is configured. */
function configuration(cuda) {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  return {
    version,
    packages: buildPackageVersions(),
    cuda,
    compilers: compilerSettings(),
    place: packageRoot,
    node: process.version,
  };
}

function run(command, args) {
  const env = {
    ...process.env,
    CMAKE_BUILD_PARALLEL_LEVEL: process.env.CMAKE_BUILD_PARALLEL_LEVEL ?? String(availableParallelism()),
    NINJA_STATUS: '[%p] ',
  };
  // The output of a build is progress and goes to stderr. stdout belongs to the command of the user.
  const result = spawnSync(command, args, { cwd: packageRoot, stdio: ['ignore', 2, 2], env });
  if (result.error) throw new BuildError(`${command} could not be run: ${result.error.message}`);
  if (result.status !== 0) throw new BuildError('the native build failed (see above)');
}

/** Deletes a build directory that was made at another path or with other compilers, because CMake cannot use it again. */
function prepareFolder(folder) {
  const cache = join(packageRoot, folder, 'CMakeCache.txt');
  const settingsPath = join(packageRoot, folder, 'odmoe-compilers');
  if (existsSync(cache)) {
    const home = /^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$/m.exec(readFileSync(cache, 'utf8'))?.[1];
    const settings = existsSync(settingsPath) ? readFileSync(settingsPath, 'utf8') : '';
    const same = home === packageRoot && settings === compilerSettings();
    if (!same) rmSync(join(packageRoot, folder), { recursive: true, force: true });
  }
  mkdirSync(join(packageRoot, folder), { recursive: true });
  writeFileSync(settingsPath, compilerSettings());
}

function configure(folder, settings, options) {
  // The state has no files, because CMake itself checks whether its own files have changed.
  const state = inputState([], { settings, options });
  const statePath = join(folder, 'odmoe-configured');
  if (isDone(statePath, state) && existsSync(join(packageRoot, folder, 'CMakeCache.txt'))) return;
  prepareFolder(folder);
  doStep(statePath, state, () => {
    // cmake-js downloads nothing, because the package.json of its --directory has binary.napi_versions.
    run(process.execPath, [
      join(buildPackage('cmake-js'), 'bin', 'cmake-js'),
      '--directory',
      packageRoot,
      '--out',
      join(packageRoot, folder),
      '--config',
      'Release',
      '--log-level',
      'warn',
      `--CDODMOE_VERSION=${settings.version}`,
      // Of its own accord it looks for the second of them in a clone's packages only.
      `--CDCMAKE_JS_INC=${join(buildPackage('node-api-headers'), 'include')};${buildPackage('node-addon-api')}`,
      ...Object.entries({ ...settings.cuda, ...options }).map(([name, value]) => `--CD${name}=${value}`),
      'configure',
    ]);
  });
}

/** Runs all builds of one folder that are not up to date, with one call of CMake. `cuda`: cudaSettings, `options`: other CMake options. */
function buildIn(folder, names, cuda, options = {}) {
  const settings = configuration(cuda);
  const builds = names.map((name) => {
    const { folders, leftOut, targets, results } = BUILDS[name];
    const sources = folders
      .flatMap((below) => filesBelow(below))
      .filter((path) => !leftOut || !path.startsWith(leftOut));
    const { cuda, ...others } = settings;
    const about = name.startsWith('cuda') ? { ...settings, nvcc: nvccState() } : others;
    const state = inputState([...CMAKE_FILES, ...sources], { about, options });
    const statePath = join(folder, `odmoe-built-${name}`);
    const done = isDone(statePath, state) && results.every((result) => existsSync(join(packageRoot, result)));
    return { name, targets, results, state, statePath, done };
  });
  const toDo = builds.filter(({ done }) => !done);
  if (toDo.length === 0) return;
  say(`building ${toDo.map(({ name }) => name).join(', ')}`);
  checkNativeTools();
  for (const { statePath } of toDo) rmSync(join(packageRoot, statePath), { force: true });
  configure(folder, settings, options);
  run('cmake', ['--build', join(packageRoot, folder), '--target', ...toDo.flatMap(({ targets }) => targets)]);
  for (const { results, state, statePath } of toDo) {
    const missing = results.find((result) => !existsSync(join(packageRoot, result)));
    if (missing !== undefined) throw new BuildError(`the build ended without ${missing}`);
    writeFileSync(join(packageRoot, statePath), state);
  }
}

/** Builds with a folder and options of their own, and one result each. */
const SEPARATE_BUILDS = {
  sanitize: { folder: 'build-sanitize', name: 'sanitize', cuda: 'off', options: { ODMOE_SANITIZE: 'ON' } },
  release: {
    folder: 'build-release',
    name: 'release',
    cuda: 'off',
    options: { ODMOE_RELEASE: 'ON', ODMOE_NATIVE_TESTS: 'OFF' },
  },
  cuda: {
    folder: 'build-cuda',
    name: 'cudaAlone',
    cuda: 'on',
    options: { ODMOE_CUDA_ONLY: 'ON', ODMOE_NATIVE_TESTS: 'OFF' },
  },
};

/** `purpose`: 'start', 'product', 'tests', 'release', 'cuda' or 'sanitize', as in the list at the top. Throws BuildError. */
export function buildNative(purpose) {
  if (buildPackageVersions().includes('none')) {
    throw new BuildError(
      'the npm packages are not installed; run `npm ci` (or `npm run setup`, which does everything)',
    );
  }
  if (Object.hasOwn(SEPARATE_BUILDS, purpose)) {
    const { folder, name, cuda, options } = SEPARATE_BUILDS[purpose];
    const { ODMOE_CUDA_ARCHITECTURES } = cudaSettings('product');
    withLock(folder, () => buildIn(folder, [name], { ODMOE_CUDA: cuda, ODMOE_CUDA_ARCHITECTURES }, options));
    return;
  }
  // nvcc takes many minutes. The build leaves it out if no GPU would use the result.
  const asked = cudaSettings(purpose);
  const withCuda = purpose === 'product' || asked.ODMOE_CUDA !== 'auto' || mayNeedCuda();
  const cuda = withCuda ? asked : { ODMOE_CUDA: 'off', ODMOE_CUDA_ARCHITECTURES: 'usual' };
  const names = ['addon', ...(withCuda ? ['cuda'] : []), ...(purpose === 'tests' ? ['tests'] : [])];
  // A package of npm has no tests.
  const options = isClone ? {} : { ODMOE_NATIVE_TESTS: 'OFF' };
  withLock('native', () => buildIn('build', names, cuda, options));
}

function main() {
  const [flag, ...more] = process.argv.slice(2);
  const names = ['start', 'tests', 'release', 'cuda', 'sanitize'];
  const purposes = Object.fromEntries(names.map((name) => [`--${name}`, name]));
  const purpose = flag === undefined ? 'product' : purposes[flag];
  if (purpose === undefined || more.length > 0) {
    throw new BuildError(`unknown arguments; one of ${Object.keys(purposes).join(', ')} may be given`);
  }
  buildNative(purpose);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('native', main);
