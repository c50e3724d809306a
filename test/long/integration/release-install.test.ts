import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, realpathSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { odmoeVersion } from '../../../shared/base/files/odmoe-version.js';
import { startPackageRegistry, type PackageRegistry } from './package-registry.js';

const LIBRARY = `@odmoe/linux-${process.arch}`;
const CUDA_LIBRARY = 'libodmoe_cuda.so';
/** All that npm and odmoe need of the system; no compiler is among it. */
const SYSTEM_PROGRAMS = ['node', 'npm', 'sh', 'env', 'uname', 'dirname', 'readlink'];
const INSTALLED_LIMIT_BYTES = 45_000_000;
const UNUSABLE_STATUS = 3;

interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** The release is made of the files as they are, and installed as a user would: from its tarballs, in clean folders, by npm alone. */
describe('a release that npm installs', function () {
  this.timeout(1_200_000);
  let directory: string;
  let tarball: string;
  let registry: PackageRegistry;
  const closings: (() => Promise<void>)[] = [];

  before(async function () {
    if (process.platform !== 'linux') return this.skip();
    directory = await mkdtemp(join(tmpdir(), 'odmoe-release-install-'));
    const out = join(directory, 'release');
    const script = join(packageRoot(), 'scripts', 'release.mjs');
    const made = await run(process.execPath, [script, '--from-checkout', out], process.env);
    assert.equal(made.status, 0, made.stderr);
    tarball = join(out, `odmoe-${odmoeVersion()}.tgz`);
    await mkdir(join(directory, 'programs'));
    await mkdir(join(directory, 'home'));
    for (const name of SYSTEM_PROGRAMS) await symlink(systemProgram(name), join(directory, 'programs', name));
    registry = await startPackageRegistry(out, await packCudaStandIn());
    closings.push(() => registry.close());
    await writeFile(join(directory, 'npmrc'), `registry=${registry.url}\n@odmoe:registry=${registry.url}\n`);
    const installed = await npm('whole', 'install', tarball);
    assert.equal(installed.status, 0, installed.stderr);
  });

  after(async () => {
    for (const close of closings) await close();
    await rm(directory, { recursive: true, force: true });
  });

  async function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<Ended> {
    const child = spawn(command, args, { env, cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
    const ended: Ended = { status: null, stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => (ended.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (ended.stderr += text));
    [ended.status] = (await once(child, 'close')) as [number | null];
    return ended;
  }

  function cleanEnvironment(prefix: string): NodeJS.ProcessEnv {
    const path = [join(directory, prefix, 'bin'), join(directory, 'programs')].join(delimiter);
    const npmSettings = { npm_config_userconfig: join(directory, 'npmrc'), npm_config_cache: join(directory, 'cache') };
    return { PATH: path, HOME: join(directory, 'home'), TMPDIR: directory, ...npmSettings };
  }

  /** npm with its folder for the whole machine at `prefix`. */
  async function npm(prefix: string, command: string, ...args: string[]): Promise<Ended> {
    const flags = ['--global', '--prefix', join(directory, prefix), '--no-audit', '--no-fund', '--no-update-notifier'];
    return await run(systemProgram('npm'), [command, ...flags, ...args], cleanEnvironment(prefix));
  }

  /** The package of the CUDA library with a file in its place that is no library, as an interrupted upload may be. Returns the tarball's folder. */
  async function packCudaStandIn(): Promise<string> {
    const contents = pathToFileURL(join(packageRoot(), 'scripts', 'release-contents.mjs')).href;
    const { libraryManifest } = (await import(contents)) as { libraryManifest: (...parts: unknown[]) => object };
    const own = JSON.parse(await readFile(join(packageRoot(), 'package.json'), 'utf8')) as object;
    const folder = join(directory, 'cuda');
    await mkdir(folder);
    await writeFile(
      join(folder, 'package.json'),
      JSON.stringify(libraryManifest(own, process.arch, '-cuda', CUDA_LIBRARY)),
    );
    await writeFile(join(folder, CUDA_LIBRARY), 'no library\n');
    await writeFile(join(folder, 'NOTICE'), 'none\n');
    const packed = await run(
      systemProgram('npm'),
      ['pack', folder, '--pack-destination', folder],
      cleanEnvironment(''),
    );
    assert.equal(packed.status, 0, packed.stderr);
    return folder;
  }

  const odmoe = async (prefix: string, ...args: string[]): Promise<Ended> =>
    run(join(directory, prefix, 'bin', 'odmoe'), args, cleanEnvironment(prefix));

  it('fetches the library of this processor, and nothing else, from the registry', async () => {
    const version = odmoeVersion();
    assert.ok(registry.asked.includes(`-/odmoe-linux-${process.arch}-${version}.tgz`), registry.asked.join('\n'));
    assert.deepEqual(
      registry.asked.filter((path) => !/^(-\/odmoe-linux-|@odmoe\/linux-)/.test(path)),
      [],
    );
    assert.equal((await odmoe('whole', '--version')).stdout, `${version}\n`);
  });

  it(`takes at most ${INSTALLED_LIMIT_BYTES} bytes`, async () => {
    const place = join(directory, 'whole', 'lib');
    const entries = await readdir(place, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    const sizes = await Promise.all(files.map(async (file) => (await stat(file)).size));
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    assert.ok(bytes <= INSTALLED_LIMIT_BYTES, `${bytes} bytes`);
  });

  it('doctor finds the library in its package', async () => {
    const { stdout } = await odmoe('whole', 'doctor', '--timeout', '200');
    assert.match(stdout, new RegExp(`^ok +native library +\\S*/node_modules/${LIBRARY}/odmoe\\.node; cpu with`, 'm'));
  });

  it('demo answers', async () => {
    const { status, stdout, stderr } = await odmoe('whole', 'demo', '--workers', '1', '--max-tokens', '4', '--json');
    assert.equal(status, 0, stderr);
    assert.equal((JSON.parse(stdout) as { token_ids: number[] }).token_ids.length, 4);
  });

  it('a cluster of two answers as one process does, on a pack made by the installed odmoe', async () => {
    const root = join(directory, 'whole', 'lib', 'node_modules', 'odmoe');
    const pack = join(directory, 'pack');
    const packed = await odmoe('whole', 'pack', join(root, 'models', 'demo'), pack);
    assert.equal(packed.status, 0, packed.stderr);
    const config = join(directory, 'cluster.yaml');
    const [mainPort, workerPort] = await freePorts();
    const nodes = [`{ id: head, role: main, port: ${mainPort} }`, `{ id: hand, role: worker, port: ${workerPort} }`];
    const lines = [
      'cluster: release-install',
      `model: ${pack}`,
      'discovery: { provider: static }',
      'main: { http: off }',
    ];
    await writeFile(config, `${[...lines, 'nodes:', ...nodes.map((node) => `  - ${node}`)].join('\n')}\n`);
    try {
      const up = await odmoe('whole', 'up', '--config', config);
      assert.equal(up.status, 0, up.stderr);
      const flags = ['Tell me', '--max-tokens', '6'];
      const answer = await odmoe('whole', 'prompt', ...flags, '--main', `127.0.0.1:${mainPort}`);
      assert.equal(answer.status, 0, answer.stderr);
      const alone = await odmoe('whole', 'generate', pack, ...flags);
      assert.equal(answer.stdout, alone.stdout);
      const measured = await odmoe('whole', 'bench', 'report', '--tokens', '4', '--main', `127.0.0.1:${mainPort}`);
      assert.equal(measured.status, 0, measured.stderr);
      assert.match(measured.stdout, /^\*\*Model\*\* demo, [^]*\| prompt, answer \| 32 and 4 tokens \|/);
    } finally {
      await odmoe('whole', 'down', '--config', config);
    }
  });

  it('has no other benchmarks, and says where they are', async () => {
    const { status, stderr } = await odmoe('whole', 'bench', 'codec');
    assert.equal(status, UNUSABLE_STATUS);
    assert.match(stderr, /no benchmarks but `odmoe bench report`; clone the repository for the others/);
  });

  it('gets the CUDA library as a package, looks there for it, and says what is wrong with it', async function () {
    // On ARM it is built by the machine's own toolkit.
    if (process.arch !== 'x64') return this.skip();
    const installed = await npm('cuda-box', 'install', tarball);
    assert.equal(installed.status, 0, installed.stderr);
    const before = await odmoe('cuda-box', 'doctor', '--timeout', '200');
    assert.match(before.stdout, /^\S+ +CUDA +not used\b[^]*`odmoe setup --cuda` gets it/m);
    const env = { ...cleanEnvironment('cuda-box'), ODMOE_CUDA: 'on' };
    const setUp = await run(join(directory, 'cuda-box', 'bin', 'odmoe'), ['setup', '--cuda'], env);
    assert.equal(setUp.status, 0, setUp.stderr);
    assert.match(setUp.stderr, new RegExp(`installing ${LIBRARY}-cuda@${odmoeVersion()}`));
    const place = join(directory, 'cuda-box', 'lib', 'node_modules', `${LIBRARY}-cuda`);
    assert.ok(existsSync(join(place, CUDA_LIBRARY)), 'it lies beside odmoe');
    const { stdout } = await odmoe('cuda-box', 'doctor', '--timeout', '200');
    const words = new RegExp(
      `^warn +CUDA +\\S*${LIBRARY}-cuda/${CUDA_LIBRARY}: the library cannot be opened: .*$`,
      'm',
    );
    assert.match(stdout, words);
    assert.match(stdout, /run `odmoe setup --cuda`/);
    const demo = await odmoe('cuda-box', 'demo', '--workers', '1', '--max-tokens', '2', '--json');
    assert.equal(demo.status, 0, 'the processor is used');
    const flags = ['--discovery', 'static', '--host', '127.0.0.1', '--port', '0', '--model', join(directory, 'pack')];
    const worker = await odmoe('cuda-box', 'worker', '--device', 'cuda', ...flags);
    assert.equal(worker.status, UNUSABLE_STATUS);
    assert.match(worker.stderr, /CUDA cannot be used: the library cannot be opened: .*\[DEVICE_UNAVAILABLE\]/);
  });

  it('says which package is missing, and what leaves it out', async () => {
    const installed = await npm('without', 'install', tarball);
    assert.equal(installed.status, 0, installed.stderr);
    // npm itself installs what a shrinkwrap names in spite of --omit=optional; others leave it out.
    const packages = join(directory, 'without', 'lib', 'node_modules', 'odmoe', 'node_modules', '@odmoe');
    await rm(packages, { recursive: true });
    const { status, stderr } = await odmoe('without', 'demo');
    assert.equal(status, UNUSABLE_STATUS);
    assert.match(
      stderr,
      /^odmoe: the package @odmoe\/linux-\S+, .* is not installed \(.*--omit=optional.*`odmoe setup`/,
    );
  });

  it('npm refuses it on other systems, and names WSL2', async () => {
    const mac = join(directory, 'mac.cjs');
    await writeFile(mac, "Object.defineProperty(process, 'platform', { value: 'darwin' });\n");
    const flags = ['install', '--global', '--prefix', join(directory, 'foreign'), tarball];
    const env = { ...cleanEnvironment('foreign'), NODE_OPTIONS: `--require ${mac}` };
    const refused = await run(systemProgram('npm'), flags, env);
    assert.notEqual(refused.status, 0);
    assert.match(refused.stderr, /EBADPLATFORM[^]*linux in WSL2[^]*darwin/);
  });

  it('the sums and the bill of materials are of this release', async () => {
    const out = join(directory, 'release');
    const sums = await readFile(join(out, 'SHA256SUMS'), 'utf8');
    const names = (await readdir(out)).filter((name) => name !== 'SHA256SUMS').sort();
    assert.deepEqual([...sums.matchAll(/^[0-9a-f]{64} {2}(.+)$/gm)].map(([, name]) => name).sort(), names);
    const sbom = JSON.parse(await readFile(join(out, `odmoe-${odmoeVersion()}.cdx.json`), 'utf8')) as {
      bomFormat: string;
      components: { name: string }[];
    };
    assert.equal(sbom.bomFormat, 'CycloneDX');
    const components = sbom.components.map(({ name }) => name);
    assert.ok(components.includes('zod') && !components.includes('mocha'), components.join());
  });

  it('goes away as a whole', async () => {
    const removed = await npm('whole', 'uninstall', 'odmoe');
    assert.equal(removed.status, 0, removed.stderr);
    assert.ok(!existsSync(join(directory, 'whole', 'lib', 'node_modules', 'odmoe')));
    assert.ok(!existsSync(join(directory, 'whole', 'bin', 'odmoe')));
  });
});

/** The file of a program in this process's PATH. */
function systemProgram(name: string): string {
  if (name === 'node') return process.execPath;
  const folders = (process.env.PATH ?? '').split(delimiter);
  const found = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
  assert.ok(found !== undefined, `${name} is not in the PATH`);
  return realpathSync(found);
}

async function freePorts(): Promise<[number, number]> {
  const servers = [createServer(), createServer()].map((server) => server.listen(0, '127.0.0.1'));
  await Promise.all(servers.map(async (server) => once(server, 'listening')));
  const [first = 0, second = 0] = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map(async (server) => new Promise((resolve) => server.close(resolve))));
  return [first, second];
}
