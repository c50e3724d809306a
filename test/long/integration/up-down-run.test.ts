import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { packOf } from '../../integration/harness/test-models.js';
import { waitUntil } from '../../integration/harness/wait-until.js';
import { fetchStatus } from '../../wall.js';

const STATUS_TIMEOUT_MS = 5_000;

async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      return server;
    }),
  );
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

describe('odmoe up and odmoe down', () => {
  let directory: string;
  let configPath: string;
  let ports: number[];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-up-'));
    ports = await freePorts(3);
    configPath = join(directory, 'cluster.yaml');
    const nodes = [`{ id: head, role: main, port: ${ports[0]} }`];
    nodes.push(`{ id: first, role: worker, port: ${ports[1]} }`, `{ id: second, role: worker, port: ${ports[2]} }`);
    await configure(nodes);
  });

  afterEach(async () => {
    await odmoe('down');
    await rm(directory, { recursive: true, force: true });
  });

  const stateFiles = () => readdir(join(directory, 'odmoe', 'up-down-test')).catch(() => []);

  async function recordsLeft(): Promise<string[]> {
    return (await stateFiles()).filter((name) => name.endsWith('.pid')).sort();
  }

  async function configure(nodes: readonly string[]): Promise<void> {
    const head = [
      'cluster: up-down-test',
      `model: ${await packOf('tiny')}`,
      'discovery: { provider: static }',
      'nodes:',
    ];
    await writeFile(configPath, `${[...head, ...nodes.map((node) => `  - ${node}`)].join('\n')}\n`);
  }

  interface Ended {
    status: number;
    stdout: string;
    stderr: string;
  }

  const odmoe = (command: string, ...flags: string[]): Promise<Ended> => spawnOdmoe(command, ...flags).ended;

  function spawnOdmoe(command: string, ...flags: string[]): { child: ChildProcess; ended: Promise<Ended> } {
    const words = [join(packageRoot(), 'bin', 'odmoe'), command, '--config', configPath, ...flags];
    const child = spawn(process.execPath, words, { env: { ...process.env, XDG_STATE_HOME: directory }, stdio: 'pipe' });
    const result = { stdout: '', stderr: '' };
    child.stdout.on('data', (data: Buffer) => (result.stdout += data.toString()));
    child.stderr.on('data', (data: Buffer) => (result.stderr += data.toString()));
    const ended = once(child, 'close').then(([status]) => ({ status: status as number, ...result }));
    return { child, ended };
  }

  it('start this host’s daemons once, and stop them', async () => {
    const up = await odmoe('up');
    assert.equal(up.status, 0, up.stderr);
    for (const [index, id] of ['head', 'first', 'second'].entries()) {
      assert.match(up.stdout, new RegExp(`${id} listens on 127\\.0\\.0\\.1:${ports[index]} `));
    }
    assert.match(up.stdout, /head listens on \S+ \(process \d+\) and serves HTTP at http:\/\/127\.0\.0\.1:\d+$/m);
    await waitUntil('main has both workers', async () => {
      const status = await fetchStatus(`127.0.0.1:${ports[0]}`, STATUS_TIMEOUT_MS);
      return status.placement?.workers.length === 2;
    });
    const again = await odmoe('up');
    assert.equal(again.status, 0, again.stderr);
    assert.equal(again.stdout.match(/runs already/g)?.length, 3, again.stdout);

    const down = await odmoe('down');
    assert.equal(down.status, 0, down.stderr);
    assert.equal(down.stdout.match(/stopped/g)?.length, 3, down.stdout);
    await assert.rejects(fetchStatus(`127.0.0.1:${ports[0]}`, STATUS_TIMEOUT_MS));
    assert.deepEqual(
      (await stateFiles()).filter((name) => !name.endsWith('.log')),
      [],
    );
    assert.match((await odmoe('down')).stdout, /nothing was started/);
  });

  it('take turns: the first of two starts the daemons and the second finds them', async () => {
    const both = await Promise.all([odmoe('up'), odmoe('up')]);
    for (const { status, stderr } of both) assert.equal(status, 0, stderr);
    const said = both.map(({ stdout }) => stdout).join('');
    assert.equal(said.match(/ listens on /g)?.length, 3, said);
    assert.equal(said.match(/runs already/g)?.length, 3, said);
    const down = await odmoe('down');
    assert.equal(down.stdout.match(/stopped/g)?.length, 3, down.stdout);
    await assert.rejects(fetchStatus(`127.0.0.1:${ports[0]}`, STATUS_TIMEOUT_MS));
  });

  it('report why a daemon did not start, and stop the others that were started with it', async () => {
    const taken = createServer().listen(ports[2], '127.0.0.1');
    await once(taken, 'listening');
    const up = await odmoe('up');
    taken.close();
    assert.notEqual(up.status, 0);
    assert.match(up.stdout, /failed: worker second ended with status 3; its log says:\n.*cannot listen/);
    assert.match(up.stderr, /none that this command has started runs any more: worker second ended with status 3/);
    assert.deepEqual(await recordsLeft(), []);
    const second = await odmoe('up');
    assert.equal(second.status, 0, second.stderr);
    assert.equal(second.stdout.match(/ listens on /g)?.length, 3, second.stdout);
    assert.match(await readFile(join(directory, 'odmoe', 'up-down-test', 'second.log'), 'utf8'), /cannot listen/);
  });

  it('leave earlier daemons running, when one that is started beside them fails', async () => {
    await configure([`{ id: head, role: main, port: ${ports[0]} }`]);
    assert.equal((await odmoe('up')).status, 0);
    await configure([
      `{ id: head, role: main, port: ${ports[0]} }`,
      `{ id: first, role: worker, port: ${ports[1]} }`,
      `{ id: second, role: worker, port: ${ports[2]}, model: ${join(directory, 'no', 'such', 'place')} }`,
    ]);
    const up = await odmoe('up');
    assert.equal(up.status, 2, up.stdout);
    assert.match(up.stderr, /worker second ended with status 2[^]*no\/such does not exist[^]*\[CONFIG_INVALID\]\n$/);
    assert.deepEqual(await recordsLeft(), ['head.pid']);
    await fetchStatus(`127.0.0.1:${ports[0]}`, STATUS_TIMEOUT_MS);
  });

  it('end when main fails, although a worker without a pack would wait for it for ever', async () => {
    await configure([
      `{ id: head, role: main, port: ${ports[0]}, model: ${join(directory, 'mistyped')} }`,
      `{ id: first, role: worker, port: ${ports[1]}, model: ${join(directory, 'to-be-fetched')} }`,
    ]);
    const up = await odmoe('up');
    assert.equal(up.status, 3, up.stdout);
    assert.match(up.stderr, /main head ended with status 3[^]*MODEL_NOT_FOUND/);
    assert.deepEqual(await recordsLeft(), []);
    assert.deepEqual(
      (await readdir(directory)).filter((name) => name === 'mistyped' || name === 'to-be-fetched'),
      [],
      'no directory is made of a name that was mistyped',
    );
  });

  it('stop the daemons that they have started at Ctrl-C', async () => {
    await configure([
      `{ id: far, role: main, host: 192.0.2.1, port: ${ports[0]} }`,
      `{ id: first, role: worker, port: ${ports[1]}, model: ${join(directory, 'to-be-fetched')} }`,
    ]);
    const waiting = spawnOdmoe('up');
    await waitUntil('the worker is recorded', async () => (await recordsLeft()).includes('first.pid'));
    waiting.child.kill('SIGINT');
    const { status, stderr } = await waiting.ended;
    assert.equal(status, 1);
    assert.match(stderr, /interrupted while the daemons were starting \[CANCELLED\]/);
    assert.deepEqual(await recordsLeft(), []);
  });

  it('leave a daemon that is only late, and report it', async () => {
    await configure([
      `{ id: far, role: main, host: 192.0.2.1, port: ${ports[0]} }`,
      `{ id: first, role: worker, port: ${ports[1]}, model: ${join(directory, 'to-be-fetched')} }`,
    ]);
    const { status, stdout, stderr } = await odmoe('up', '--timeout', '3');
    assert.equal(status, 3, stdout);
    assert.match(stdout, /late: worker first is not ready after 3 s; it goes on starting/);
    assert.match(stderr, /1 of 1 daemons are not ready yet/);
    assert.deepEqual(await recordsLeft(), ['first.pid']);
  });

  it('refuse a configuration without daemons for this host', async () => {
    await writeFile(configPath, 'cluster: up-down-test\nnodes:\n  - { id: far, role: worker, host: far.example }\n');
    const up = await odmoe('up');
    assert.equal(up.status, 2);
    assert.match(up.stderr, /far\.example/);
  });
});
