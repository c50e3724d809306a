import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { findAddons, findCudaLibrary, type Installation } from '../../native/addon-search.js';

const VERSION = '9.8.7';

describe('the search for the native library', () => {
  let directory: string;
  let root: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-addon-search-'));
    root = join(directory, 'node_modules', 'odmoe');
    await write(join(root, 'package.json'), JSON.stringify({ name: 'odmoe', version: VERSION }));
  });

  afterEach(() => rm(directory, { recursive: true }));

  async function write(path: string, text = ''): Promise<string> {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
    return path;
  }

  const built = (): Promise<string> => write(join(root, 'build', 'Release', 'odmoe.node'));
  const clone = (): Promise<string> => write(join(root, 'tsconfig.json'));

  /** `within`: the folder in which npm put the package; beside odmoe, as npm does for a project, or below it, as for the whole machine. */
  async function packaged(name: string, version: string, file: string, within = directory): Promise<string> {
    const folder = join(within, 'node_modules', name);
    await write(join(folder, 'package.json'), JSON.stringify({ name, version }));
    return await write(join(folder, file));
  }

  function installation(changes: Partial<Installation> = {}): Installation {
    const machine = { platform: 'linux', processor: 'x64', glibc: () => '2.36' };
    return { root, version: VERSION, namedAddon: '', ...machine, ...changes };
  }

  const pathsOf = (changes: Partial<Installation> = {}): string[] =>
    findAddons(installation(changes)).found.map(({ path }) => path);

  const absenceOf = (changes: Partial<Installation> = {}): string => {
    const { found, absence } = findAddons(installation(changes));
    assert.deepEqual(found, []);
    return absence;
  };

  it('tries an own build before the package of exactly this version', async () => {
    const own = await built();
    const fromPackage = await packaged('@odmoe/linux-x64', VERSION, 'odmoe.node');
    assert.deepEqual(pathsOf(), [own, fromPackage]);
    await rm(own);
    assert.deepEqual(pathsOf(), [fromPackage]);
    assert.deepEqual(pathsOf({ version: '9.8.8' }), []);
  });

  it('finds the package below odmoe, too', async () => {
    const below = await packaged('@odmoe/linux-arm64', VERSION, 'odmoe.node', root);
    assert.deepEqual(pathsOf({ processor: 'arm64' }), [below]);
  });

  it('tries what ODMOE_ADDON names, and nothing else', async () => {
    await built();
    const named = await write(join(directory, 'other.node'));
    assert.deepEqual(pathsOf({ namedAddon: named }), [named]);
    const missing = join(directory, 'missing.node');
    assert.match(absenceOf({ namedAddon: missing }), /missing\.node has not been built; correct or unset ODMOE_ADDON/);
  });

  it('names the package that is missing, and the flags that leave it out', async () => {
    assert.match(absenceOf(), /@odmoe\/linux-x64.* is not installed .*--omit=optional.*odmoe@9\.8\.7.*`odmoe setup`/);
    assert.match(absenceOf(), /give npm odmoe-linux-x64-9\.8\.7\.tgz in the same call as odmoe-9\.8\.7\.tgz/);
    await packaged('@odmoe/linux-x64', '9.8.6', 'odmoe.node');
    assert.match(absenceOf(), /@odmoe\/linux-x64 is of version 9\.8\.6, and odmoe of 9\.8\.7; install again/);
    await packaged('@odmoe/linux-x64', VERSION, 'README.md');
    await rm(join(directory, 'node_modules', '@odmoe/linux-x64', 'odmoe.node'));
    assert.match(absenceOf(), /@odmoe\/linux-x64 is damaged: .*odmoe\.node is missing/);
  });

  it('checks glibc itself, because old versions of npm install packages of both C libraries', async () => {
    const fromPackage = await packaged('@odmoe/linux-x64', VERSION, 'odmoe.node');
    for (const glibc of ['2.34', '2.100', '3.0']) assert.deepEqual(pathsOf({ glibc: () => glibc }), [fromPackage]);
    assert.match(absenceOf({ glibc: () => '2.31' }), /glibc 2\.34 or newer .*this system has 2\.31; run `odmoe setup`/);
    assert.match(absenceOf({ glibc: () => null }), /glibc 2\.34 or newer, and this system has none.*`odmoe setup`/);
  });

  it('says what to do on other systems and processors', () => {
    assert.match(absenceOf({ platform: 'win32' }), /runs on Linux, and this is win32; .*WSL2/);
    assert.match(absenceOf({ platform: 'darwin' }), /runs on Linux, and this is darwin; .*over HTTP/);
    assert.match(
      absenceOf({ processor: 'riscv64' }),
      /for x64 and arm64, and this processor is riscv64; run `odmoe setup`/,
    );
  });

  it('tells a clone to build', async () => {
    await clone();
    assert.match(absenceOf(), /build\/Release\/odmoe\.node has not been built; run `npm run build`/);
  });

  it('finds the CUDA library for a packaged addon: built on this machine, or in its package', async () => {
    const fromPackage = { path: 'any', origin: 'package' } as const;
    assert.equal(findCudaLibrary(installation(), fromPackage), null);
    const packagedLibrary = await packaged('@odmoe/linux-x64-cuda', VERSION, 'libodmoe_cuda.so');
    assert.equal(findCudaLibrary(installation(), fromPackage), packagedLibrary);
    assert.equal(findCudaLibrary(installation({ version: '9.8.8' }), fromPackage), null);
    const own = await write(join(root, 'build-cuda', 'Release', 'libodmoe_cuda.so'));
    assert.equal(findCudaLibrary(installation(), fromPackage), own);
    // An addon that was built here looks beside itself.
    assert.equal(findCudaLibrary(installation(), { path: 'any', origin: 'built' }), null);
  });
});
