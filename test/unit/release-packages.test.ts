import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../shared/base/files/package-root.js';

interface Manifest {
  version: string;
  files: string[];
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
  bundleDependencies: string[];
}
interface Entry {
  dev?: boolean;
  inBundle?: boolean;
  integrity?: string;
  cpu?: string[];
}
interface Lock {
  packages: Record<string, Entry>;
}
interface Scripts {
  releaseFaults(tables: string): string[];
  contentFaults(files: string[], required?: string[]): string[];
  releaseManifest(manifest: Manifest): Manifest;
  shrinkwrap(lock: Lock, manifest: Manifest, libraries: Record<string, string>): Lock;
  isLeftOut(path: string, isFolder: boolean): boolean;
  isOfClone(path: string): boolean;
  placeOf(directory: string): string[];
  cudaPlan(machine: { processor: string; gpu: string | undefined; forced: boolean; addonIsOwn: boolean }): {
    way: string;
    why: string;
  };
  withoutPackage(version: string): string[];
}

const objdump = (libraries: string[], symbols: string[]): string =>
  [
    '\nodmoe.node:     file format elf64-x86-64\n\nDynamic Section:',
    ...libraries.map((name) => `  NEEDED               ${name}`),
    '  SONAME               odmoe.node\n\nVersion References:\n  required from libc.so.6:',
    ...symbols.map((name) => `    0x069691b4 0x00 20 ${name}`),
  ].join('\n');

describe('the packages of a release', () => {
  let scripts: Scripts;
  const manifest = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8')) as Manifest;
  const lock = JSON.parse(readFileSync(join(packageRoot(), 'package-lock.json'), 'utf8')) as Lock;

  before(async () => {
    const names = ['library-gate', 'release-contents', 'cuda-package'];
    const files = names.map((name) => pathToFileURL(join(packageRoot(), 'scripts', `${name}.mjs`)).href);
    const modules: object[] = [];
    for (const file of files) modules.push((await import(file)) as object);
    scripts = Object.assign({}, ...modules) as Scripts;
  });

  it('a library may need what the oldest systems have', () => {
    const libraries = ['libstdc++.so.6', 'libm.so.6', 'libgcc_s.so.1', 'libc.so.6', 'ld-linux-x86-64.so.2'];
    const symbols = ['GLIBC_2.2.5', 'GLIBC_2.34', 'GLIBCXX_3.4.30', 'GLIBCXX_3.4', 'CXXABI_1.3.13', 'GCC_3.0'];
    assert.deepEqual(scripts.releaseFaults(objdump(libraries, symbols)), []);
  });

  it('a library that needs a newer symbol, or a library that others may lack, is refused with its name', () => {
    const faults = scripts.releaseFaults(
      objdump(
        ['libc.so.6', 'libzstd.so.1'],
        ['GLIBC_2.35', 'GLIBC_2.100', 'GLIBCXX_3.4.31', 'CXXABI_1.3.13', 'GLIBC_2.35'],
      ),
    );
    assert.equal(faults.length, 4, faults.join('\n'));
    for (const name of ['libzstd.so.1', 'GLIBC_2.35', 'GLIBC_2.100', 'GLIBCXX_3.4.31']) {
      assert.ok(
        faults.some((fault) => fault.includes(`${name},`)),
        `${name} in ${faults.join('\n')}`,
      );
    }
    assert.equal(scripts.releaseFaults('not what objdump prints').length, 1);
  });

  it('a package that lacks a file, or holds one of the build or of the tests, is refused', () => {
    assert.deepEqual(scripts.contentFaults(['odmoe.node', 'LICENSE'], ['odmoe.node', 'LICENSE']), []);
    assert.deepEqual(scripts.contentFaults(['LICENSE', 'dist/test/unit/a.test.js'], ['odmoe.node', 'LICENSE']), [
      'it lacks odmoe.node',
      'it holds dist/test/unit/a.test.js',
    ]);
    assert.ok(scripts.contentFaults([]).length > 20);
  });

  it('the released manifest names the packages of libraries in exactly its version, and what builds them', () => {
    const released = scripts.releaseManifest(manifest);
    const { version } = manifest;
    assert.deepEqual(released.optionalDependencies, { '@odmoe/linux-x64': version, '@odmoe/linux-arm64': version });
    assert.deepEqual(released.bundleDependencies, Object.keys(manifest.dependencies));
    assert.deepEqual(Object.keys(released.devDependencies), ['cmake-js', 'node-addon-api', 'node-api-headers']);
    // `odmoe setup` asks npm for these very versions.
    for (const wanted of Object.values(released.devDependencies)) assert.match(wanted, /^\d+\.\d+\.\d+$/);
    assert.ok(released.files.includes('native') && !released.files.includes('test/gpu'));
  });

  it('the shrinkwrap has what runs and the packages of libraries, and nothing of development', () => {
    const { packages } = scripts.shrinkwrap(lock, scripts.releaseManifest(manifest), { x64: 'sha512-of-x64' });
    assert.equal(packages['node_modules/@odmoe/linux-x64']?.integrity, 'sha512-of-x64');
    assert.deepEqual(packages['node_modules/@odmoe/linux-arm64']?.cpu, ['arm64']);
    assert.equal(packages['node_modules/zod']?.inBundle, true);
    for (const name of ['mocha', 'cmake-js', 'typescript']) assert.ok(!(`node_modules/${name}` in packages), name);
    assert.deepEqual(
      Object.entries(packages).filter(([, { dev }]) => dev),
      [],
    );
  });

  it('of the packages that odmoe runs on, programs, data and licences are kept', () => {
    for (const path of [
      'zod/index.d.cts',
      'fastify/README.md',
      'yaml/a.js.map',
      'zod/src/x.ts',
      '@scure/bip39/wordlists/czech.js',
      'yaml/browser/dist/index.js',
      'async/dist/async.mjs',
      'zod/v4/index.cjs',
    ]) {
      assert.ok(scripts.isLeftOut(`/n/${path}`, false), path);
    }
    for (const path of [
      'zod/index.js',
      'fastq/queue.cjs',
      'fastify/LICENSE.md',
      'protobufjs/google/api.proto',
      'yaml/dist/index.js',
      'async/dist/async.js',
      '@scure/bip39/wordlists/english.js',
    ]) {
      assert.ok(!scripts.isLeftOut(`/n/${path}`, false), path);
    }
    assert.ok(scripts.isLeftOut('/n/fastify/test', true) && !scripts.isLeftOut('/n/fastify/lib', true));
    assert.ok(scripts.isOfClone('dist/cli/main.js.map') && !scripts.isOfClone('dist/cli/main.js'));
  });

  it('the CUDA library comes as a package where a graphics card is, is built on a Jetson, and is refused without a GPU', () => {
    const card = { processor: 'x64', gpu: '/dev/nvidiactl', forced: false, addonIsOwn: false };
    assert.deepEqual(scripts.cudaPlan(card), { way: 'package', why: '' });
    assert.equal(scripts.cudaPlan({ ...card, processor: 'arm64', gpu: '/dev/nvhost-gpu' }).way, 'build');
    assert.equal(scripts.cudaPlan({ ...card, addonIsOwn: true }).way, 'build');
    const { way, why } = scripts.cudaPlan({ ...card, gpu: undefined });
    assert.equal(way, 'none');
    assert.match(why, /no NVIDIA GPU.*nvidia-smi.*odmoe setup --cuda/);
    assert.equal(scripts.cudaPlan({ ...card, gpu: undefined, forced: true }).way, 'package');
  });

  it('a set-up builds nothing where a library works, and says where it looked for a compiler that is missing', async () => {
    const load = async (name: string): Promise<unknown> =>
      import(pathToFileURL(join(packageRoot(), `scripts/${name}.mjs`)).href);
    const setup = (await load('setup')) as { workingLibrary(root: string): string | null };
    assert.match(setup.workingLibrary(packageRoot()) ?? '', /odmoe\.node$/);
    assert.equal(setup.workingLibrary('/nowhere'), null);
    const tools = (await load('system-packages')) as { checkNativeTools(): void };
    const { PATH, CXX } = process.env;
    try {
      process.env.PATH = '/no/programs';
      delete process.env.CXX;
      assert.throws(
        () => tools.checkNativeTools(),
        /g\+\+\)[^]*in PATH \(\/no\/programs\); CXX=\/path\/to\/g\+\+ names/,
      );
      process.env.CXX = `${process.execPath} -O1`;
      assert.throws(() => tools.checkNativeTools(), /^(?![^]*g\+\+\))[^]*CMake[^]*CXX names/);
    } finally {
      process.env.PATH = PATH;
      if (CXX === undefined) delete process.env.CXX;
      else process.env.CXX = CXX;
    }
  });

  it('the CUDA library is offered as the file of a release, before it is built, where npm has no package', () => {
    const [why, command, ...more] = scripts.withoutPackage('9.8.7');
    assert.match(why ?? '', /^npm has no @odmoe\/linux-x64-cuda@9\.8\.7/);
    assert.match(command ?? '', / \.\/odmoe-9\.8\.7\.tgz \S+x64-9\.8\.7\.tgz \.\/odmoe-linux-x64-cuda-9\.8\.7\.tgz$/);
    assert.deepEqual(more, ['building the CUDA library here']);
  });

  it('the CUDA package goes beside odmoe, into a project or for the whole machine', () => {
    assert.deepEqual(scripts.placeOf('/usr/lib/node_modules/odmoe'), ['--global', '--prefix', '/usr']);
    assert.ok(scripts.placeOf('/home/anna/project/node_modules/odmoe').includes('/home/anna/project'));
  });
});
