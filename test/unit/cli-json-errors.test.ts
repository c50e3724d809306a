import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { CommanderError, type Command } from 'commander';
import { asksForJson, createProgram } from '../../cli/client/run-command-line.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
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

/** The modules of commands that bin/odmoe starts as programs of their own. */
const APART: ReadonlySet<string> = new Set(['plan-cluster.js', 'bench-report.js']);

type Register = (program: Command) => void;

/** A program with all commands of the command line's own program. bin/odmoe starts the others apart. */
async function wholeProgram(): Promise<Command> {
  const program = createProgram('odmoe').configureOutput({ writeErr: () => undefined });
  const folder = join(packageRoot(), 'dist', 'cli', 'commands');
  const names = readdirSync(folder).filter((name) => name.endsWith('.js') && !APART.has(name));
  for (const name of names) {
    const module = (await import(pathToFileURL(join(folder, name)).href)) as Record<string, unknown>;
    const register = Object.entries(module).find(([key]) => key.startsWith('register'))?.[1];
    assert.ok(typeof register === 'function', `${name} registers its commands`);
    (register as Register)(program);
  }
  return program;
}

/** The words of each command that has --json and does something itself. */
function commandsWithJson(command: Command, words: readonly string[] = []): string[][] {
  const own = command.options.some(({ long }) => long === '--json') ? [[...words]] : [];
  return [...own, ...command.commands.flatMap((child) => commandsWithJson(child, [...words, child.name()]))];
}

function childOf(parent: Command, name: string): Command {
  const child = parent.commands.find((command) => command.name() === name);
  assert.ok(child !== undefined, name);
  return child;
}

describe('a command with --json that ends with an error', () => {
  it('prints an error object on stdout and words on stderr, also where the usage is wrong', function () {
    this.timeout(120_000);
    for (const words of [['inspect'], ['node', 'list'], ['plan', 'cluster'], ['bench', 'report']]) {
      const { status, stdout, stderr } = odmoe(...words, '--json', '--no-such-flag');
      const name = words.join(' ');
      assert.equal(status, 2, name);
      const { error } = JSON.parse(stdout) as { error: { code: string; message: string; field: string | null } };
      assert.equal(error.code, 'USAGE', name);
      assert.ok(error.message !== '' && stderr.includes(error.message), stderr);
    }
  });

  it('is found to have --json, and throws what is wrong with its usage, whichever command it is', async () => {
    const program = await wholeProgram();
    const commands = commandsWithJson(program);
    const files = readdirSync(join(packageRoot(), 'cli', 'commands')).length;
    assert.ok(commands.length >= files - 4, `only ${commands.map((words) => words.join(' ')).join(', ')}`);
    for (const words of commands) {
      const args = [...words, '--json', '--no-such-flag'];
      assert.ok(asksForJson(program, args), words.join(' '));
      let said = '';
      const command = words.reduce(childOf, program);
      command.configureOutput({ writeErr: (text) => (said += text) });
      await assert.rejects(program.parseAsync(args, { from: 'user' }), (thrown) => {
        const name = words.join(' ');
        // A command that hands unknown flags on to main refuses by itself; what runs the command prints its words.
        if (thrown instanceof OdmoeError) return thrown.code === 'USAGE';
        assert.ok(thrown instanceof CommanderError && thrown.exitCode !== 0, `${name}: ${String(thrown)}`);
        assert.ok(said.includes(thrown.message.replace(/^error: /, '')), `${name} says: ${said}`);
        return true;
      });
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
