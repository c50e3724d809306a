import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../../shared/base/files/package-root.js';

const ODMOE = join(packageRoot(), 'bin', 'odmoe');
const DAEMON_MODULE = fileURLToPath(new URL('../../engine/daemon/run-daemon.js', import.meta.url));
const ERRORS_MODULE = fileURLToPath(new URL('../../shared/base/errors/odmoe-error.js', import.meta.url));

/** Run before bin/odmoe: says when the process handles SIGTERM. */
const TELL_HANDLER = `process.on('newListener', (name) => {
  if (name === 'SIGTERM') setImmediate(() => process.stdout.write('handles SIGTERM\\n'));
});`;

/** The sockets of the daemons lie there. */
const STATE_HOME = mkdtempSync(join(tmpdir(), 'odmoe-life-'));
const ENVIRONMENT = { ...process.env, XDG_STATE_HOME: STATE_HOME };

/** Bodies of `start` for the daemons of these tests; "serving" keeps the process alive as a server's socket would. */
const STARTS = {
  good: `const serving = setInterval(() => undefined, 1000);
    return { address: '127.0.0.1:1', stop: async () => { process.stdout.write('stopped\\n'); } };`,
  serving: `const serving = setInterval(() => undefined, 1000);
    return { address: '127.0.0.1:1', httpAddress: '0.0.0.0:2', stop: async () => undefined };`,
  stuck: `const serving = setInterval(() => undefined, 1000);
    return { address: '127.0.0.1:1', stop: () => new Promise(() => undefined) };`,
  drains: `const serving = setInterval(() => undefined, 1000);
    return { address: '127.0.0.1:1', stop: async () => { process.stdout.write('stopped\\n'); },
      drain: (cut) => new Promise((resolve) => { process.stdout.write('draining\\n');
        process.stdin.once('data', () => { process.stdout.write('drained\\n'); resolve(); });
        cut.addEventListener('abort', () => { process.stdout.write('cut\\n'); resolve(); }); }) };`,
  abandoned: `process.stdout.write('starting\\n');
    await new Promise((resolve) => { const waiting = setInterval(() => undefined, 1000);
      abandoned.addEventListener('abort', () => { clearInterval(waiting); resolve(); }); });
    process.stdout.write('lock removed\\n');
    requireWanted(abandoned);`,
  late: `process.stdout.write('starting\\n');
    await new Promise((resolve) => setTimeout(resolve, 500));
    return { address: '127.0.0.1:1', stop: async () => { process.stdout.write('stopped\\n'); } };`,
  deaf: `process.stdout.write('starting\\n'); const waiting = setInterval(() => undefined, 1000);
    return new Promise(() => undefined);`,
  refused: `throw new OdmoeError('MODEL_NOT_FOUND', 'no model at ' + settings.modelPath);`,
  broken: `throw new TypeError('a defect');`,
  crashing: `setTimeout(() => { throw new Error('later defect'); }, 50);
    return { address: '127.0.0.1:1', stop: async () => { process.stdout.write('stopped\\n'); } };`,
  lost: `const serving = setInterval(() => undefined, 1000);
    setTimeout(() => giveUp(new OdmoeError('DEVICE_LOST', 'the device is gone')), 50);
    return { address: '127.0.0.1:1', stop: async () => { process.stdout.write('stopped\\n'); } };`,
} as const;

describe('the process of a daemon', function () {
  this.timeout(20_000);
  let children: ChildProcess[] = [];

  after(() => rmSync(STATE_HOME, { recursive: true }));

  afterEach(() => {
    for (const child of children) child.kill('SIGKILL');
    children = [];
  });

  function start(
    kind: keyof typeof STARTS,
    args: string[],
  ): { child: ChildProcess; output: () => string; errors: () => string } {
    const source = `
      import { requireWanted, runDaemon } from ${JSON.stringify(DAEMON_MODULE)};
      import { OdmoeError } from ${JSON.stringify(ERRORS_MODULE)};
      await runDaemon('worker', async (settings, log, giveUp, abandoned) => { ${STARTS[kind]} }, { requireAddon: () => undefined, exitWithParent: () => process.stdout.write('bound to parent\\n'), leaveNoCore: () => undefined, sendServiceNotice: () => null });`;
    // With -e there is no script path, but the daemon's arguments begin at the same index as behind a script path.
    const child = spawn(process.execPath, ['--input-type=module', '-e', source, 'script', ...args], {
      stdio: 'pipe',
      env: ENVIRONMENT,
    });
    children.push(child);
    let out = '';
    let err = '';
    child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
    child.stderr.on('data', (bytes: Buffer) => (err += bytes.toString()));
    return { child, output: () => out, errors: () => err };
  }

  async function ready(daemon: { child: ChildProcess; output: () => string }): Promise<void> {
    while (!daemon.output().includes('listening')) await once(daemon.child.stdout ?? daemon.child, 'data');
  }

  async function ended({ child }: { child: ChildProcess }): Promise<number | null> {
    if (child.exitCode === null) await once(child, 'close');
    return child.exitCode;
  }

  const model = ['--model', '/packs/demo', '--id', 'w1'];

  it('serves on where nobody reads its output', async () => {
    const daemon = start('good', model);
    daemon.child.stdout?.destroy();
    while (!daemon.errors().includes('standard output cannot be written')) {
      await once(daemon.child.stderr ?? daemon.child, 'data');
    }
    assert.equal(daemon.child.exitCode, null);
    daemon.child.kill('SIGKILL');
    await ended(daemon);
    assert.equal(daemon.child.signalCode, 'SIGKILL');
    assert.doesNotMatch(daemon.errors(), /a defect/);
  });

  it('prints its address, and stops cleanly on SIGTERM and on SIGINT', async () => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      const daemon = start('good', model);
      await ready(daemon);
      daemon.child.kill(signal);
      assert.equal(await ended(daemon), 0);
      assert.equal(daemon.output(), 'odmoe worker w1 listening on 127.0.0.1:1\nstopped\n');
      assert.equal(daemon.errors(), '');
    }
  });

  it('ends at once where the GPU that it was told to use is not there, before it waits for main', () => {
    for (const role of ['worker', 'shadow']) {
      const args = [ODMOE, role, '--main', '127.0.0.1:1', '--device', 'cuda:77', '--id', 'no-gpu'];
      // A daemon that waited for main would not end by itself.
      const ran = spawnSync(process.execPath, args, { env: ENVIRONMENT, encoding: 'utf8', timeout: 15_000 });
      assert.deepEqual([ran.status, ran.stdout], [3, ''], ran.stderr);
      assert.match(ran.stderr, new RegExp(`^odmoe ${role}: .*(CUDA|GPU).*\\[DEVICE_\\w+\\]\\n$`));
    }
  });

  it('is asked for its health by its id, until it ends', async () => {
    const asked = (...words: string[]): { status: number | null; said: string } => {
      const ran = spawnSync(process.execPath, [ODMOE, 'health', ...words], { env: ENVIRONMENT, encoding: 'utf8' });
      return { status: ran.status, said: ran.stdout + ran.stderr };
    };
    const daemon = start('good', model);
    await ready(daemon);
    assert.deepEqual(asked('w1'), { status: 0, said: 'w1  serving: listens on 127.0.0.1:1\n' });
    daemon.child.kill('SIGTERM');
    await ended(daemon);
    const gone = asked('w1');
    assert.equal(gone.status, 3);
    assert.match(gone.said, /no daemon w1 that this user may ask runs on this host.*\[DAEMON_NOT_SERVING\]\n$/);
  });

  it('prints the address for HTTP clients in the same write', async () => {
    const daemon = start('serving', model);
    await ready(daemon);
    assert.equal(
      daemon.output(),
      'odmoe worker w1 listening on 127.0.0.1:1\nodmoe worker w1 serves HTTP at http://127.0.0.1:2\n',
    );
    daemon.child.kill('SIGTERM');
    assert.equal(await ended(daemon), 0);
  });

  it('abandons its start in order on a signal, with status 0', async () => {
    for (const [kind, output] of [
      ['abandoned', 'starting\nlock removed\n'],
      ['late', 'starting\nstopped\n'],
      ['deaf', 'starting\n'],
    ] as const) {
      const daemon = start(kind, model);
      while (!daemon.output().includes('starting')) await once(daemon.child.stdout ?? daemon.child, 'data');
      daemon.child.kill('SIGTERM');
      assert.equal(await ended(daemon), 0, kind);
      assert.equal(daemon.output(), output);
      assert.equal(daemon.errors(), '');
    }
  });

  it('ends in order on a signal that comes while its modules are read', async () => {
    const preload = `--import=data:text/javascript,${encodeURIComponent(TELL_HANDLER)}`;
    for (const role of ['main', 'shadow', 'worker']) {
      const child = spawn(process.execPath, [preload, ODMOE, role, ...model], {
        stdio: ['ignore', 'pipe', 'pipe'],
        env: ENVIRONMENT,
      });
      children.push(child);
      await once(child.stdout, 'data');
      child.kill('SIGTERM');
      const [status, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
      assert.deepEqual([status, signal], [0, null], role);
    }
  });

  it('lets running work end before it stops, until standard input ends or a second signal comes', async () => {
    const asked = async (): Promise<ReturnType<typeof start>> => {
      const daemon = start('drains', [...model, '--exit-with-parent']);
      await ready(daemon);
      daemon.child.kill('SIGTERM');
      while (!daemon.output().includes('draining')) await once(daemon.child.stdout ?? daemon.child, 'data');
      return daemon;
    };
    const patient = await asked();
    patient.child.stdin?.write('the answers have ended');
    assert.equal(await ended(patient), 0);
    assert.match(patient.output(), /draining\ndrained\nstopped\n$/);
    const orphan = await asked();
    orphan.child.stdin?.end();
    assert.equal(await ended(orphan), 0);
    assert.match(orphan.output(), /draining\ncut\nstopped\n$/);
    const twice = await asked();
    twice.child.kill('SIGINT');
    assert.equal(await ended(twice), 1);
    assert.match(twice.output(), /draining\n$/);
  });

  it('ends at a second signal although its stop hangs', async () => {
    const daemon = start('stuck', [...model, '--log-level', 'info']);
    await ready(daemon);
    daemon.child.kill('SIGTERM');
    while (!daemon.errors().includes('stopping')) await once(daemon.child.stderr ?? daemon.child, 'data');
    daemon.child.kill('SIGTERM');
    assert.equal(await ended(daemon), 1);
  });

  it('stops when standard input ends, with --exit-with-parent only', async () => {
    const bound = start('good', [...model, '--exit-with-parent']);
    await ready(bound);
    bound.child.stdin?.end();
    assert.equal(await ended(bound), 0);
    assert.match(bound.output(), /^bound to parent\n.*listening.*\nstopped\n$/);

    const free = start('good', model);
    free.child.stdin?.end();
    await ready(free);
    assert.equal(free.child.exitCode, null);
  });

  it("ends with the error's exit status and message when it cannot start", async () => {
    const daemon = start('refused', model);
    assert.equal(await ended(daemon), 3);
    assert.equal(daemon.errors(), 'odmoe worker: no model at /packs/demo [MODEL_NOT_FOUND]\n');
    const broken = start('broken', model);
    assert.equal(await ended(broken), 1);
    assert.match(broken.errors(), /a defect \[INTERNAL\]\n.*TypeError/);
  });

  it('ends with status 2 on a wrong flag and 0 after --help', async () => {
    const wrong = start('good', ['--modle', 'x']);
    assert.equal(await ended(wrong), 2);
    assert.match(wrong.errors(), /unknown option '--modle'[^]*--help/);
    const help = start('good', ['--help']);
    assert.equal(await ended(help), 0);
    assert.match(help.output(), /Usage: odmoe worker/);
  });

  it('stops and exits with the status of the error that made the node give up', async () => {
    const daemon = start('lost', model);
    assert.equal(await ended(daemon), 3);
    assert.match(daemon.errors(), /odmoe worker: the device is gone \[DEVICE_LOST\]/);
    assert.match(daemon.output(), /stopped/);
  });

  it('logs an internal error, stops and ends with status 1', async () => {
    const daemon = start('crashing', model);
    assert.equal(await ended(daemon), 1);
    assert.match(daemon.errors(), /a defect ends the daemon.*later defect/);
    assert.match(daemon.output(), /stopped/);
  });
});
