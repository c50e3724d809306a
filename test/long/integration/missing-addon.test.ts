import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { odmoeCommand } from '../../../cli/demo/daemon-process.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';

const MODEL = join(packageRoot(), 'models', 'demo');
const NOBODY = '127.0.0.1:1';
const UNUSABLE_STATUS = 3;
/** At a time, so that none waits long for a processor. */
const PROCESSES = 4;

/** Each with arguments that would have it begin. Those that need the addon would otherwise wait, pack or load first. */
const NEEDING: readonly string[][] = [
  ['demo'],
  ['run', 'owner/model'],
  ['pull', 'owner/model'],
  ['pack', MODEL, 'OUT'],
  ['inspect', MODEL],
  ['fit', MODEL],
  ['plan', MODEL, '--memory', '1GiB'],
  ['rm', 'nobody'],
  ['generate', MODEL, 'hello'],
  ['chat', MODEL],
  ['up', '--config', 'CONFIG'],
  ['main', '--model', MODEL],
  ['shadow', '--model', MODEL],
  ['worker'],
  ['service', 'install', '--dry-run'],
  ['cluster', 'init', '--cluster', 'nobody'],
  ['cluster', 'restore', 'OUT'],
  ...[
    'codec',
    'drafts',
    'emulation',
    'expert',
    'faults',
    'limits',
    'load',
    'operators',
    'paper',
    'pools',
    'prefix-store',
    'recall',
    'recording',
    'serve',
    'slices',
  ].map((name) => ['bench', name]),
  ['bench', 'generate', MODEL],
  ['bench', 'trace', 'OUT'],
  ['bench', 'peers', '--model', MODEL],
  ['bench', 'trust', '--model', MODEL],
];
const WITHOUT: readonly string[][] = [
  ['down', '--config', 'CONFIG'],
  ['prompt', 'hello', '--main', NOBODY],
  ['chat', '--main', NOBODY],
  ['status', '--main', NOBODY],
  ['debug', 'counts', '--at', NOBODY],
  ['top', '--main', NOBODY],
  ['models', '--here'],
  ['models', '--main', NOBODY],
  ['rm', 'nobody', '--force'],
  ['health'],
  ...['status', 'logs', 'remove'].map((words) => ['service', words, '--user']),
  ['accept', '482913', '--main', NOBODY],
  ['cluster', 'backup', 'OUT', '--cluster', 'nobody'],
  ...['list', 'remove nobody', 'replace nobody'].map((words) => ['node', ...words.split(' '), '--main', NOBODY]),
  ['drain', 'nobody', '--main', NOBODY],
  ['operator', 'add', 'anna', '--main', NOBODY],
  ['operator', 'join', 'odmoe1-'],
  ...['create', 'list', 'revoke nobody'].map((words) => ['token', ...words.split(' '), '--main', NOBODY]),
  ['setup', '--help'],
  ['simulate', '--help'],
  ['plan', 'cluster', '--model-profile', 'list'],
  ['worker', '--help'],
  ['bench', 'deepen', '--help'],
  ['bench', 'fluxmoe', '--help'],
  ['bench', 'homes', '--help'],
  ['bench', 'hop', '--help'],
  ['bench', 'report', '--main', NOBODY],
  ['bench', 'schedule', '--instances', '1'],
  ['bench', 'synth', '--help'],
  ['bench', 'tables', '--help'],
];

interface Ended {
  words: readonly string[];
  status: number | null;
  stdout: string;
  stderr: string;
}

describe('without the native library:', function () {
  this.timeout(120_000);
  let directory: string;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-no-addon-'));
    await writeFile(join(directory, 'cluster.yaml'), `cluster: no-addon\nnodes:\n  - id: worker-1\n    role: worker\n`);
  });

  after(() => rm(directory, { recursive: true, force: true }));

  async function odmoe(words: readonly string[], addon: string): Promise<Ended> {
    const places: Record<string, string> = { OUT: join(directory, 'out'), CONFIG: join(directory, 'cluster.yaml') };
    const [executable, ...rest] = odmoeCommand(words.map((word) => places[word] ?? word));
    const env = { ...process.env, ODMOE_ADDON: addon, XDG_STATE_HOME: directory, XDG_DATA_HOME: directory };
    const child = spawn(executable, rest, { stdio: ['ignore', 'pipe', 'pipe'], env });
    const ended: Ended = { words, status: null, stdout: '', stderr: '' };
    child.stdout.setEncoding('utf8').on('data', (text: string) => (ended.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (ended.stderr += text));
    ended.status = await new Promise((resolve) => child.once('close', resolve));
    return ended;
  }

  async function runAll(commands: readonly (readonly string[])[]): Promise<Ended[]> {
    const waiting = [...commands];
    const ended: Ended[] = [];
    const runNext = async (): Promise<void> => {
      for (let words = waiting.shift(); words !== undefined; words = waiting.shift()) {
        ended.push(await odmoe(words, join(directory, 'nothing.node')));
      }
    };
    await Promise.all(Array.from({ length: PROCESSES }, runNext));
    return ended;
  }

  it('each command that needs it ends at once, and prints how to build it', async () => {
    for (const { words, status, stdout, stderr } of await runAll(NEEDING)) {
      const command = words.join(' ');
      assert.equal(status, UNUSABLE_STATUS, `${command}: ${stderr}`);
      assert.equal(stdout, '', command);
      assert.match(
        stderr,
        /^odmoe.*nothing\.node has not been built.*npm run build.*\[DEVICE_UNAVAILABLE\]\n$/,
        command,
      );
    }
  });

  it('each other command works, and does not mention it', async () => {
    for (const { words, stdout, stderr } of await runAll(WITHOUT)) {
      assert.doesNotMatch(stdout + stderr, /nothing\.node|DEVICE_UNAVAILABLE|INTERNAL/, words.join(' '));
    }
  });

  it('odmoe doctor reports it as one of its checks', async () => {
    const { status, stdout } = await odmoe(['doctor', '--timeout', '200'], join(directory, 'nothing.node'));
    assert.equal(status, UNUSABLE_STATUS);
    assert.match(stdout, /^fail {2}native library +.*nothing\.node has not been built/m);
  });

  it('an invalid file, or another library, is reported with a message', async () => {
    const text = join(directory, 'text.node');
    await writeFile(text, 'no library');
    const { status, stderr } = await odmoe(['inspect', MODEL], text);
    assert.equal(status, UNUSABLE_STATUS);
    assert.match(stderr, /text\.node cannot be loaded: .*npm run build.*\[DEVICE_UNAVAILABLE\]\n$/);
  });

  it('these tests try every command', async () => {
    const tried = new Set(
      [...NEEDING, ...WITHOUT].map((words) => words.slice(0, words[0] === 'bench' ? 2 : 1).join(' ')),
    );
    tried.add('doctor');
    const [odmoeHelp, benchHelp] = await Promise.all([odmoe(['--help'], ''), odmoe(['bench', '--help'], '')]);
    const commandsOf = (text: string, prefix: string): string[] =>
      [...text.replace(/^[^]*?\nCommands:\n/, '').matchAll(/^ {2}([a-z]+)(?: |$)/gm)].map(
        ([, name]) => `${prefix}${name}`,
      );
    const all = [
      ...commandsOf(odmoeHelp.stdout.split('\nDaemons')[0] ?? '', ''),
      ...commandsOf(benchHelp.stdout, 'bench '),
    ];
    assert.ok(all.length > 20, all.join());
    assert.deepEqual(
      all.filter((name) => !tried.has(name) && !name.endsWith('help')),
      [],
    );
  });
});
