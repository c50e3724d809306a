import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';

interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

function odmoe(...args: string[]): Ended {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(packageRoot(), 'bin', 'odmoe'), ...args], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  return { status, stdout, stderr };
}

/** All commands of the command line, from the sources: the table of what needs the native library names each. */
function commandNames(): string[][] {
  const source = readFileSync(join(packageRoot(), 'cli', 'client', 'run-command-line.ts'), 'utf8');
  const names = [...source.matchAll(/^ {2}'odmoe ([a-z ]+)':/gm)].map(([, name]) => name ?? '');
  return names.filter((name) => !name.startsWith('bench')).map((name) => name.split(' '));
}

describe('a command with --json that ends with an error', () => {
  it('prints an error object on stdout and words on stderr, also where the usage is wrong', function () {
    this.timeout(300_000);
    const withJson = commandNames().filter((name) => odmoe(...name, '--help').stdout.includes('--json'));
    const files = readdirSync(join(packageRoot(), 'cli', 'commands')).length;
    assert.ok(withJson.length >= files - 4, `only ${withJson.map((name) => name.join(' ')).join(', ')}`);
    for (const name of withJson) {
      const { status, stdout, stderr } = odmoe(...name, '--json', '--no-such-flag');
      assert.equal(status, 2, name.join(' '));
      const { error } = JSON.parse(stdout) as { error: { code: string; message: string; field: string | null } };
      assert.equal(error.code, 'USAGE', name.join(' '));
      assert.ok(error.message !== '' && stderr.includes(error.message), stderr);
    }
  });

  it('names the code of an error that is thrown later, with its own exit status', () => {
    const down = odmoe('down', '--config', '/nowhere/cluster.yaml', '--json');
    assert.equal(down.status, 2);
    const { error } = JSON.parse(down.stdout) as { error: { code: string; message: string } };
    assert.equal(error.code, 'CONFIG_INVALID');
    assert.match(down.stderr, /\/nowhere\/cluster\.yaml.*\[CONFIG_INVALID\]/);
    const inspected = odmoe('inspect', '/nowhere/pack', '--json');
    assert.equal(inspected.status, 3);
    assert.equal(
      (JSON.parse(inspected.stdout) as typeof down & { error: { code: string } }).error.code,
      'MODEL_NOT_FOUND',
    );
  });

  it('prints nothing on stdout without --json, or where --json is no flag', () => {
    assert.equal(odmoe('down', '--config', '/nowhere/cluster.yaml').stdout, '');
    assert.equal(odmoe('up', '--config', '/nowhere/cluster.yaml', '--json').stdout, '');
  });
});

describe('an error of bin/odmoe itself', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'odmoe-entry-'));
    cpSync(join(packageRoot(), 'bin'), join(root, 'bin'), { recursive: true });
    cpSync(join(packageRoot(), 'package.json'), join(root, 'package.json'));
  });
  afterEach(() => {
    rmSync(root, { recursive: true, force: true });
  });

  function requireError(words: RegExp, args: readonly string[], preloaded: string[] = []): void {
    const command = [...preloaded, join(root, 'bin', 'odmoe')];
    const run = (...more: string[]): Ended =>
      spawnSync(process.execPath, [...command, ...args, ...more], { encoding: 'utf8', timeout: 60_000 });
    const told = run('--json');
    assert.equal(told.status, 3, told.stderr);
    const { error } = JSON.parse(told.stdout) as { error: { code: string; message: string; field: null } };
    assert.equal(error.code, 'INSTALLATION_INCOMPLETE');
    assert.match(error.message, words);
    assert.equal(told.stderr, `odmoe: ${error.message} [${error.code}]\n`);
    assert.equal(error.field, null);
    const untold = run('--', '--json');
    assert.deepEqual([untold.stdout, untold.stderr], ['', told.stderr]);
  }

  it('is an object with --json where odmoe is not built', () => {
    requireError(/cli\/main\.js is missing: odmoe is not set up whole; install odmoe again$/, ['status']);
    requireError(/cli\/bench-report\.js is missing/, ['bench', 'report']);
    requireError(/bench\/main\.js is missing: this installation has no benchmarks but `odmoe bench report`/, [
      'bench',
      'codec',
    ]);
  });

  it('is an object with --json where the benchmarks cannot be built', () => {
    mkdirSync(join(root, 'bench'));
    writeFileSync(join(root, 'bench', 'main.ts'), '');
    writeFileSync(join(root, 'tsconfig.json'), '{}');
    for (const args of [['bench', 'codec'], ['bench'], ['status'], ['bench', 'report']]) {
      requireError(/(npm has installed nothing here|is missing): .*; run `npm run setup` in \S+$/, args);
    }
    mkdirSync(join(root, 'node_modules'));
    requireError(/the benchmarks cannot be built: Cannot find module .*; run `npm run setup` in /, ['bench', 'codec']);
  });

  it('is none where help is asked of an odmoe without benchmarks', () => {
    for (const args of [
      ['bench', '--help'],
      ['help', 'bench'],
    ]) {
      const told = spawnSync(process.execPath, [join(root, 'bin', 'odmoe'), ...args], { encoding: 'utf8' });
      assert.deepEqual([told.status, told.stderr], [0, '']);
      assert.match(told.stdout, /^Usage: odmoe bench report .*\n[^]*A clone of the repository has the others\.\n$/);
    }
  });

  it('is an object with --json where a module is missing', () => {
    mkdirSync(join(root, 'dist', 'engine', 'daemon'), { recursive: true });
    for (const folder of ['engine', 'shared']) {
      cpSync(join(packageRoot(), 'dist', folder), join(root, 'dist', folder), { recursive: true });
    }
    mkdirSync(join(root, 'dist', 'cli'));
    writeFileSync(join(root, 'dist', 'cli', 'main.js'), "import 'no-such-package';\n");
    requireError(/a module is missing \(Cannot find package 'no-such-package'.*run `npm run setup` in /, ['status']);
  });

  it('is an object with --json where Node is too old', () => {
    const preload = join(root, 'old-node.cjs');
    const versions = "{ ...process.versions, node: '18.20.4' }";
    writeFileSync(preload, `Object.defineProperty(process, 'versions', { value: ${versions} });\n`);
    requireError(/^Node 18\.20\.4 is too old; install Node 20\.17 or newer/, ['status'], ['--require', preload]);
  });
});
