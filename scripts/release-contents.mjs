// The files of the packages of a release. Pure functions of manifests and of lists of files.
import { basename } from 'node:path';

/** The files needed to run odmoe, and to build its native library where no package of it fits. */
const REQUIRED_FILES = [
  'LICENSE',
  'README.md',
  'CMakeLists.txt',
  'npm-shrinkwrap.json',
  'bin/odmoe',
  'dist/cli/main.js',
  'dist/cli/plan-cluster.js',
  'dist/cli/bench-report.js',
  'dist/dashboard/app.js',
  'dist/dashboard/app.css',
  'dist/main-node/main.js',
  'dist/shadow-node/main.js',
  'dist/worker-node/main.js',
  'models/demo/model.safetensors',
  'models/demo/tokenizer.json',
  'native/CMakeLists.txt',
  'native/cuda.cmake',
  'native/gpu-files.json',
  'native/src/binding/addon.cc',
  'native/src/backends/cuda/nvml_api.cc',
  'node_modules/zod/package.json',
  'node_modules/@grpc/grpc-js/package.json',
  'proto/odmoe/v1/node.proto',
  'scripts/build-native.mjs',
  'scripts/setup.mjs',
];
/** These only take space at the user's, or are of a developer's machine. */
const UNWANTED_FILES = /(\.map|\.tsbuildinfo|\.built\.json)$|^(dist\/(test|bench)|build)\//;
/** The files that a clone has and an installed odmoe does not: tests, and pictures that the pages in docs show. */
const CLONE_FOLDERS = ['test/gpu', 'native/test', 'docs/pictures'];
/** The most that a packed odmoe may take. */
export const PACKED_LIMIT_BYTES = 15_000_000;

/** The npm packages that build the native library stay named, with their versions, for `odmoe setup`. */
const BUILD_PACKAGES = ['cmake-js', 'node-addon-api', 'node-api-headers'];
export const LIBRARY_PROCESSORS = ['x64', 'arm64'];

/** The faults of a package in words. `files`: the paths that it holds. */
export function contentFaults(files, required = REQUIRED_FILES) {
  const there = new Set(files);
  return [
    ...required.filter((file) => !there.has(file)).map((file) => `it lacks ${file}`),
    ...files.filter((file) => UNWANTED_FILES.test(file)).map((file) => `it holds ${file}`),
  ];
}

/** odmoe's package.json as it is released. */
export function releaseManifest(manifest) {
  const { scripts, devDependencies, overrides, ...others } = manifest;
  const version = manifest.version;
  return {
    ...others,
    files: [...manifest.files.filter((path) => !CLONE_FOLDERS.includes(path)), 'npm-shrinkwrap.json'],
    // npm prints this list where it refuses to install, so it also says what to do.
    os: ['linux', 'linux in WSL2 (on Windows)'],
    bundleDependencies: Object.keys(manifest.dependencies),
    optionalDependencies: Object.fromEntries(LIBRARY_PROCESSORS.map((name) => [`@odmoe/linux-${name}`, version])),
    devDependencies: Object.fromEntries(BUILD_PACKAGES.map((name) => [name, devDependencies[name]])),
    scripts: { setup: scripts.setup },
  };
}

/** package.json of a package with a library. `kind`: '' for the addon, '-cuda' for the CUDA library. */
export function libraryManifest({ version, license, engines }, processor, kind, file) {
  return {
    name: `@odmoe/linux-${processor}${kind}`,
    version,
    description: `The ${kind === '' ? 'native' : 'CUDA'} library of odmoe for Linux on ${processor}.`,
    license,
    os: ['linux'],
    cpu: [processor],
    libc: ['glibc'],
    engines,
    preferUnplugged: true,
    files: [file, 'NOTICE'],
  };
}

/**
 * npm-shrinkwrap.json of the release: of package-lock.json the packages that run, which the tarball holds, and the packages of libraries.
 * `libraries`: by processor, the integrity of the packages that this release made.
 */
export function shrinkwrap(lock, manifest, libraries) {
  const { name, version, license, dependencies, optionalDependencies, bundleDependencies, bin, engines, os } = manifest;
  const root = { name, version, license, dependencies, optionalDependencies, bundleDependencies, bin, engines, os };
  const running = Object.entries(lock.packages).filter(([path, entry]) => path !== '' && !entry.dev);
  const packages = [
    ['', root],
    ...running.map(([path, entry]) => [path, { ...entry, inBundle: true }]),
    ...LIBRARY_PROCESSORS.map((processor) => {
      const integrity = libraries[processor];
      const fit = { cpu: [processor], libc: ['glibc'], os: ['linux'], optional: true, engines };
      return [`node_modules/@odmoe/linux-${processor}`, { version, ...(integrity && { integrity }), license, ...fit }];
    }),
  ].sort(([one], [other]) => (one < other ? -1 : 1));
  return { name, version, lockfileVersion: 3, requires: true, packages: Object.fromEntries(packages) };
}

/** True for a path of a clone, from its root, that a release leaves out. */
export function isOfClone(path) {
  return path.endsWith('.map') || CLONE_FOLDERS.includes(path);
}

const KEPT_WORDS = /^(licen[cs]e|notice|copying|authors|patents|copyright)/i;
const LEFT_OUT_FOLDERS = [
  'test',
  'tests',
  '__tests__',
  'example',
  'examples',
  'benchmark',
  'benchmarks',
  'docs',
  'coverage',
  '.github',
];
/** The same programs once more, for browsers, bundlers and other kinds of modules than Node reads here. */
const OTHER_FORMS =
  /\/(yaml\/browser\/.*|async\/dist\/async\.(mjs|min\.js)|tokenizers\/dist\/.*(\.cjs|\.min\.mjs)|zod\/.*\.cjs)$/;
const LEFT_OUT_FILES = /\.(map|ts|cts|mts|md|markdown|flow|tsbuildinfo|html|ya?ml)$/i;

/** True for what a package that odmoe runs on brings and no program reads: types, sources of types, tests, docs, builds for browsers, other languages' words. Licences stay. */
export function isLeftOut(path, isFolder) {
  const name = basename(path);
  if (isFolder) return LEFT_OUT_FOLDERS.includes(name) || path.endsWith('/protobufjs/dist');
  if (/\/bip39\/wordlists\/(?!english)/.test(path)) return true;
  if (OTHER_FORMS.test(path)) return true;
  return !KEPT_WORDS.test(name) && LEFT_OUT_FILES.test(name);
}
