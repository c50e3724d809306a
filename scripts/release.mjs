// Makes the tarballs of a release in release/, and publishes nothing:
//   npm run release   of the commit that is checked out, in a clean copy
//   node scripts/release.mjs --from-checkout OUT
//                     for tests: of the files as they are, with node_modules and addon of this checkout, into OUT
// release/ then has odmoe, @odmoe/linux-x64, @odmoe/linux-x64-cuda where nvcc is, SHA256SUMS and an SBOM; release/arm64 has @odmoe/linux-arm64
// where the cross compiler is (test/arm/run --fetch-only gets ARM's libraries). At the end it draws docs/pictures anew where Chromium is; they are no part
// of a package. It fails where a file is missing, where a library asks for newer
// symbols than the oldest systems have, or where a size is passed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BuildError, packageRoot, runBuild } from './build-state.mjs';
import { requireReleasable } from './library-gate.mjs';
import { drawPictures } from './pictures.mjs';
import {
  PACKED_LIMIT_BYTES,
  contentFaults,
  isLeftOut,
  isOfClone,
  libraryManifest,
  releaseManifest,
  shrinkwrap,
} from './release-contents.mjs';
import { findBrowser, findCommand } from './system-packages.mjs';

const SHRINKWRAP = 'npm-shrinkwrap.json';
const ARM_COMPILER = 'aarch64-linux-gnu';
/** Debian's words about the libraries that the addon holds; their licences ask for them. */
const COPYRIGHTS = ['libzstd-dev', 'liblz4-dev', 'liburing-dev'].map((name) => `/usr/share/doc/${name}/copyright`);

function say(text) {
  process.stderr.write(`release: ${text}\n`);
}

/** stdout of the command; all else that it prints goes to stderr. Throws BuildError. */
function run(command, args, cwd) {
  const result = spawnSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 2], maxBuffer: 1e8 });
  if (result.error) throw new BuildError(`${command} could not be run: ${result.error.message}`);
  if (result.status !== 0) throw new BuildError(`${command} ${args.join(' ')} failed (see above)\n${result.stdout}`);
  return result.stdout;
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function writeJson(path, value) {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}

/** Copies the files that git tracks or would track, as they are, so that nothing built in this checkout gets into a release. */
function copyTracked(place) {
  const paths = run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], packageRoot).split('\0');
  for (const path of paths.filter((name) => name !== '' && existsSync(join(packageRoot, name)))) {
    mkdirSync(dirname(join(place, path)), { recursive: true });
    cpSync(join(packageRoot, path), join(place, path), { verbatimSymlinks: true });
  }
}

function requireCommitted() {
  // The release itself draws the pictures, which no package holds.
  const changes = run('git', ['status', '--porcelain', '--', '.', ':!docs/pictures'], packageRoot);
  if (changes !== '') throw new BuildError(`there are changes that are not committed; commit them first:\n${changes}`);
}

function installPackages(place, fromCheckout) {
  if (fromCheckout) symlinkSync(join(packageRoot, 'node_modules'), join(place, 'node_modules'));
  else run('npm', ['ci', '--include=dev', '--ignore-scripts', '--no-audit', '--no-fund'], place);
}

/** The libraries of this processor: {kind, processor, path, file, notices}. */
function buildLibraries(place, fromCheckout) {
  const addon = { kind: '', processor: process.arch, file: 'odmoe.node', notices: COPYRIGHTS };
  if (fromCheckout) return [{ ...addon, path: join(packageRoot, 'build/Release/odmoe.node') }];
  const build = (flag) => run(process.execPath, ['scripts/build-native.mjs', flag], place);
  build('--release');
  const libraries = [{ ...addon, path: join(place, 'build-release/Release/odmoe.node') }];
  const cuda = { kind: '-cuda', processor: process.arch, file: 'libodmoe_cuda.so' };
  if (process.arch === 'x64' && (findCommand('nvcc') !== undefined || existsSync('/usr/local/cuda/bin/nvcc'))) {
    build('--cuda');
    const notices = [join(place, 'packaging/cuda-notice.txt')];
    libraries.push({ ...cuda, path: join(place, 'build-cuda/Release/libodmoe_cuda.so'), notices });
  } else {
    say('nvcc is not here: @odmoe/linux-x64-cuda is NOT made');
  }
  for (const { path } of libraries) requireReleasable(path);
  return libraries;
}

/** The addon for ARM, by the cross compiler; null, with words, where that or ARM's libraries are missing. */
function crossBuild(place) {
  const libraries = process.env.ODMOE_ARM_ROOT ?? join(packageRoot, 'build-arm/root');
  if (
    findCommand(`${ARM_COMPILER}-g++`) === undefined ||
    !existsSync(join(libraries, `usr/lib/${ARM_COMPILER}/libzstd.a`))
  ) {
    say(
      "g++-aarch64-linux-gnu or ARM's libraries (test/arm/run --fetch-only) are not here: @odmoe/linux-arm64 is NOT made",
    );
    return null;
  }
  const headers = ['node-api-headers/include', 'node-addon-api'].map((name) => join(place, 'node_modules', name));
  const settings = {
    CMAKE_BUILD_TYPE: 'Release',
    CMAKE_SYSTEM_NAME: 'Linux',
    CMAKE_SYSTEM_PROCESSOR: 'aarch64',
    CMAKE_C_COMPILER: `${ARM_COMPILER}-gcc`,
    CMAKE_CXX_COMPILER: `${ARM_COMPILER}-g++`,
    CMAKE_LIBRARY_ARCHITECTURE: ARM_COMPILER,
    CMAKE_FIND_ROOT_PATH: libraries,
    CMAKE_JS_INC: headers.join(';'),
    ODMOE_VERSION: readJson(join(place, 'package.json')).version,
    ODMOE_CUDA: 'off',
    ODMOE_RELEASE: 'ON',
    ODMOE_NATIVE_TESTS: 'OFF',
  };
  const flags = Object.entries(settings).map(([name, value]) => `-D${name}=${value}`);
  process.stderr.write(run('cmake', ['-S', 'native', '-B', 'build-arm-release', ...flags], place));
  process.stderr.write(run('cmake', ['--build', 'build-arm-release', '--target', 'odmoe_addon', '--parallel'], place));
  const path = join(place, 'build-arm-release/odmoe.node');
  requireReleasable(path, `${ARM_COMPILER}-objdump`);
  return { kind: '', processor: 'arm64', file: 'odmoe.node', path, notices: COPYRIGHTS };
}

/** Packs the folder into `out`. Returns what npm says of the tarball. Throws BuildError with every fault of its contents. */
function pack(folder, out, required) {
  mkdirSync(out, { recursive: true });
  const [packed] = JSON.parse(run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', out], folder));
  const faults = contentFaults(
    packed.files.map(({ path }) => path),
    required,
  );
  if (faults.length > 0) throw new BuildError(`${packed.name} cannot be released:\n  ${faults.join('\n  ')}`);
  const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
  say(`${packed.name}@${packed.version}: ${mb(packed.size)} packed, ${mb(packed.unpackedSize)} unpacked`);
  return packed;
}

function packLibrary(place, out, { kind, processor, file, path, notices }) {
  const folder = join(place, 'stage', `linux-${processor}${kind}`);
  mkdirSync(folder, { recursive: true });
  const manifest = libraryManifest(readJson(join(place, 'package.json')), processor, kind, file);
  writeJson(join(folder, 'package.json'), manifest);
  cpSync(path, join(folder, file), { dereference: true });
  cpSync(join(place, 'LICENSE'), join(folder, 'LICENSE'));
  const absent = notices.find((notice) => !existsSync(notice));
  if (absent !== undefined) throw new BuildError(`${absent} is missing: the package must name what the library holds`);
  writeFileSync(join(folder, 'NOTICE'), notices.map((notice) => readFileSync(notice, 'utf8')).join('\n'));
  const words = readFileSync(join(place, 'packaging', kind === '' ? 'library.md' : 'cuda.md'), 'utf8');
  const where = `Linux on ${processor === 'x64' ? 'x86-64' : 'ARM, 64 bit'}`;
  writeFileSync(join(folder, 'README.md'), words.replace('NAME', manifest.name).replace('WHERE', where));
  return pack(folder, out, [file, 'LICENSE', 'NOTICE', 'README.md']);
}

/** The packages that odmoe runs on, without what no program reads of them. */
function copyDependencies(place, folder, lock) {
  const running = Object.entries(lock.packages).filter(([path, { dev, optional }]) => path !== '' && !dev && !optional);
  for (const [path] of running) {
    const from = join(place, path);
    const filter = (source) => {
      const inside = relative(from, source);
      return inside === '' || (inside !== 'node_modules' && !isLeftOut(source, statSync(source).isDirectory()));
    };
    cpSync(from, join(folder, path), { recursive: true, filter });
  }
}

/** The folder of odmoe as it is released, without its libraries. */
function stageProduct(place, libraries) {
  const folder = join(place, 'stage', 'odmoe');
  const manifest = releaseManifest(readJson(join(place, 'package.json')));
  const lock = readJson(join(place, 'package-lock.json'));
  const filter = (source) => !isOfClone(relative(place, source));
  for (const path of manifest.files.filter((name) => name !== SHRINKWRAP)) {
    cpSync(join(place, path), join(folder, path), { recursive: true, filter });
  }
  rmSync(join(folder, 'dist/.built.json'), { force: true });
  writeJson(join(folder, 'package.json'), manifest);
  writeJson(join(folder, SHRINKWRAP), shrinkwrap(lock, manifest, libraries));
  copyDependencies(place, folder, lock);
  return folder;
}

/** npm's --omit=dev also omits what development needs besides, so the bill is made of a folder that knows no development. */
function billOfMaterials(place, product) {
  const folder = join(place, 'stage', 'bill');
  mkdirSync(folder);
  const { devDependencies, ...manifest } = readJson(join(product, 'package.json'));
  writeJson(join(folder, 'package.json'), manifest);
  cpSync(join(product, SHRINKWRAP), join(folder, SHRINKWRAP));
  return run('npm', ['sbom', '--sbom-format=cyclonedx', '--package-lock-only'], folder);
}

function writeSums(out) {
  const files = readdirSync(out, { recursive: true }).filter((name) => statSync(join(out, name)).isFile());
  const line = (name) =>
    `${createHash('sha256')
      .update(readFileSync(join(out, name)))
      .digest('hex')}  ${name}\n`;
  writeFileSync(join(out, 'SHA256SUMS'), files.sort().map(line).join(''));
}

function release(place, out, fromCheckout) {
  copyTracked(place);
  installPackages(place, fromCheckout);
  run(process.execPath, ['scripts/build-typescript.mjs', '--release'], place);
  const libraries = buildLibraries(place, fromCheckout);
  const arm = fromCheckout ? null : crossBuild(place);
  const integrity = {};
  for (const library of libraries) {
    const packed = packLibrary(place, out, library);
    if (library.kind === '') integrity[library.processor] = packed.integrity;
  }
  if (arm !== null) integrity.arm64 = packLibrary(place, join(out, 'arm64'), arm).integrity;
  const folder = stageProduct(place, integrity);
  const packed = pack(folder, out);
  if (packed.size > PACKED_LIMIT_BYTES) {
    throw new BuildError(`odmoe takes ${packed.size} bytes packed, and at most ${PACKED_LIMIT_BYTES} are allowed`);
  }
  writeFileSync(join(out, `odmoe-${packed.version}.cdx.json`), billOfMaterials(place, folder));
  writeSums(out);
  say(`done: ${out}`);
}

function renewPictures() {
  if (findBrowser() === undefined) {
    say('Chromium is not here: docs/pictures are NOT drawn anew; `npm run pictures` does it where it is');
    return;
  }
  say('drawing docs/pictures anew, from a demo cluster');
  drawPictures([]);
  say('docs/pictures are new: look at them, and commit them (the packages are made, and hold none of them)');
}

function main() {
  const [flag, ...more] = process.argv.slice(2);
  const fromCheckout = flag === '--from-checkout';
  const out = fromCheckout ? more.shift() : join(packageRoot, 'release');
  if ((flag !== undefined && !fromCheckout) || more.length > 0 || out === undefined) {
    throw new BuildError('unknown arguments; only --from-checkout OUT may be given');
  }
  if (!fromCheckout) requireCommitted();
  rmSync(out, { recursive: true, force: true });
  const place = mkdtempSync(join(tmpdir(), 'odmoe-release-'));
  try {
    release(place, out, fromCheckout);
  } catch (error) {
    // Tarballs of a release that failed must not look like those of one.
    rmSync(out, { recursive: true, force: true });
    throw error;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
  if (!fromCheckout) renewPictures();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) runBuild('release', main);
