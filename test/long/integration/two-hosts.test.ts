import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { namespacesUnavailable, TestNetwork, type TestHost } from './network-namespaces.js';

const packageRoot = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', '..');
const odmoe = join(packageRoot, 'bin', 'odmoe');
const START_LIMIT_MS = 30_000;
const ROSTER_LIMIT_MS = 30_000;
const ANSWER_LIMIT_MS = 60_000;

interface Answer {
  text: string;
  token_ids: number[];
  sep: { recall: number } | null;
}

interface Roster {
  nodes: { id: string; role: string; address: string }[];
}

/** Hosts share the disk of this machine, and each has a state directory of its own. */
let stateRoot = '';

function environmentOf(host: TestHost): NodeJS.ProcessEnv {
  return {
    ...process.env,
    XDG_STATE_HOME: join(stateRoot, host.address),
    XDG_CONFIG_HOME: join(stateRoot, host.address),
  };
}

function runOdmoe(args: readonly string[], host?: TestHost): string {
  const command = [process.execPath, odmoe, ...args];
  const [file = '', ...rest] = host ? host.commandLine(command) : command;
  const env = host ? environmentOf(host) : process.env;
  return execFileSync(file, rest, { encoding: 'utf8', timeout: ANSWER_LIMIT_MS, env });
}

class HostDaemon {
  readonly logs: string[] = [];
  private readonly process: ChildProcess;
  /** The exit status; null: a signal ended the daemon. */
  readonly ended: Promise<number | null>;
  readonly listening: Promise<void>;

  constructor(
    readonly role: string,
    readonly host: TestHost,
    flags: readonly string[],
  ) {
    const [file = '', ...args] = host.commandLine([process.execPath, odmoe, role, ...flags]);
    this.process = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], env: environmentOf(host) });
    this.ended = new Promise((settle) => this.process.once('exit', (status) => settle(status)));
    this.process.stderr?.on('data', (data: Buffer) => this.logs.push(data.toString()));
    this.listening = new Promise((settle, fail) => {
      const timer = setTimeout(() => fail(new Error(`${role} did not start in time`)), START_LIMIT_MS);
      this.process.stdout?.on('data', (data: Buffer) => {
        this.logs.push(data.toString());
        if (data.toString().includes('listening on')) {
          clearTimeout(timer);
          settle();
        }
      });
      this.process.once('exit', (status) => {
        clearTimeout(timer);
        fail(new Error(`${role} ended with status ${status}: ${this.logs.join('')}`));
      });
    });
    this.listening.catch(() => undefined);
  }

  kill(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }

  async end(): Promise<void> {
    this.process.kill('SIGKILL');
    await this.ended;
  }
}

describe('two hosts and more with multicast discovery:', function () {
  this.timeout(240_000);
  const prompt = 'Tell me a story about a fox.';
  const cluster = `hosts-${process.pid}`;
  let directory: string;
  let pack: string;
  let reference: Answer;
  let network: TestNetwork | undefined;
  let daemons: HostDaemon[] = [];

  before(function () {
    const reason = namespacesUnavailable();
    if (reason !== null) {
      console.log(`      skipped: ${reason}`);
      this.skip();
    }
    directory = mkdtempSync(join(tmpdir(), 'odmoe-hosts-'));
    pack = join(directory, 'pack');
    runOdmoe(['pack', join(packageRoot, 'models', 'demo'), pack]);
    reference = JSON.parse(
      runOdmoe(['generate', pack, prompt, '--max-tokens', '200', '--ignore-eos', '--json']),
    ) as Answer;
  });

  beforeEach(() => {
    stateRoot = mkdtempSync(join(directory, 'state-'));
    network = new TestNetwork(`odmoe-${process.pid}`);
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') {
      for (const daemon of daemons)
        console.log(`--- ${daemon.role} on ${daemon.host.address}\n${daemon.logs.join('')}`);
    }
    await Promise.all(daemons.map((daemon) => daemon.end()));
    daemons = [];
    network?.remove();
  });

  after(() => {
    if (directory) rmSync(directory, { recursive: true, force: true });
  });

  function start(
    role: string,
    host: TestHost,
    clusterName = cluster,
    flags: readonly string[] = [],
    model = pack,
    protection: readonly string[] = ['--insecure'],
  ): HostDaemon {
    const daemon = new HostDaemon(role, host, [
      '--cluster',
      clusterName,
      '--model',
      model,
      '--interface',
      host.address,
      '--threads',
      '1',
      '--log-level',
      'info',
      ...protection,
      ...flags,
    ]);
    daemons.push(daemon);
    return daemon;
  }

  async function waitForRoster(client: TestHost, main: TestHost, ids: readonly string[]): Promise<void> {
    const deadline = Date.now() + ROSTER_LIMIT_MS;
    let seen: string[] = [];
    while (Date.now() < deadline) {
      const roster = JSON.parse(runOdmoe(['status', '--main', `${main.address}:7600`, '--json'], client)) as Roster;
      seen = roster.nodes.map((node) => node.id).sort();
      if (ids.every((id) => seen.includes(id))) return;
      await new Promise((settle) => setTimeout(settle, 200));
    }
    assert.fail(`the roster holds ${seen.join(', ')}, expected ${ids.join(', ')}`);
  }

  it('main, shadow and workers on separate hosts find each other and answer as one process does', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 4 }, () => network!.addHost()) as [TestHost, TestHost, TestHost, TestHost];
    const started = [
      start('main', hosts[0], cluster, ['--id', 'm']),
      start('shadow', hosts[1], cluster, ['--id', 's']),
      start('worker', hosts[2], cluster, ['--id', 'w1']),
      start('worker', hosts[3], cluster, ['--id', 'w2']),
      start('worker', hosts[3], `${cluster}-stranger`, ['--id', 'stranger', '--port', '0']),
    ];
    await Promise.all(started.map((daemon) => daemon.listening));
    await waitForRoster(hosts[1], hosts[0], ['m', 's', 'w1', 'w2']);

    const args = ['prompt', prompt, '--cluster', cluster, '--max-tokens', '200', '--ignore-eos', '--json'];
    const answer = JSON.parse(runOdmoe(args, hosts[2])) as Answer;
    assert.deepEqual(answer.token_ids, reference.token_ids);
    assert.ok(answer.sep !== null && answer.sep.recall > 0.9, `recall ${answer.sep?.recall}`);

    const roster = JSON.parse(runOdmoe(['status', '--main', `${hosts[0].address}:7600`, '--json'], hosts[2])) as Roster;
    assert.ok(!roster.nodes.some((node) => node.id === 'stranger'), 'a node of another cluster is in the roster');
  });

  it('with an authority, hosts come in by codes, which the operator types on the host of main, and nobody else does', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 4 }, () => network!.addHost()) as [TestHost, TestHost, TestHost, TestHost];
    const inCluster = (role: string, host: TestHost, id: string): HostDaemon =>
      start(role, host, cluster, ['--id', id], pack, role === 'main' ? ['--lan'] : []);
    await inCluster('main', hosts[0], 'm').listening;
    const joining = [inCluster('shadow', hosts[1], 's'), inCluster('worker', hosts[2], 'w1')];
    for (const daemon of joining) {
      runOdmoe(['accept', await codeOf(daemon), '--cluster', cluster], hosts[0]);
      await daemon.listening;
    }
    await waitForRoster(hosts[0], hosts[0], ['m', 's', 'w1']);
    const args = ['prompt', prompt, '--cluster', cluster, '--max-tokens', '200', '--ignore-eos', '--json'];
    assert.deepEqual((JSON.parse(runOdmoe(args, hosts[0])) as Answer).token_ids, reference.token_ids);
    const asStranger = (): string => runOdmoe(['status', '--main', `${hosts[0].address}:7600`], hosts[3]);
    assert.throws(asStranger, /lets only operators ask: on its host say odmoe operator add NAME/);
    await joining[1]?.end();
    const again = inCluster('worker', hosts[2], 'w1');
    await again.listening;
    await waitForRoster(hosts[0], hosts[0], ['m', 's', 'w1']);
    // Main does not dial a node that was removed while it was off, so the node has to ask.
    await again.end();
    runOdmoe(['node', 'remove', 'w1', '--cluster', cluster], hosts[0]);
    const removed = inCluster('worker', hosts[2], 'w1');
    await removed.listening;
    assert.equal(await removed.ended, 4, removed.logs.join(''));
    assert.match(removed.logs.join(''), /node w1 was removed from/);
  });

  /** The code that a daemon shows. */
  async function codeOf(daemon: HostDaemon): Promise<string> {
    for (const deadline = Date.now() + START_LIMIT_MS; ;) {
      const code = /odmoe accept (\d{6})/.exec(daemon.logs.join(''))?.[1];
      if (code !== undefined) return code;
      assert.ok(Date.now() < deadline, `${daemon.role} shows no code:\n${daemon.logs.join('')}`);
      await new Promise((settle) => setTimeout(settle, 100));
    }
  }

  it('workers that listen on loopback are used by a main of their own host, and dialled from no other', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 2 }, () => network!.addHost()) as [TestHost, TestHost];
    const main = start('main', hosts[0], cluster, ['--id', 'm']);
    const inner = ['--host', '127.0.0.1', '--id'];
    const workers = hosts.map((host, index) => start('worker', host, cluster, [...inner, `w${index + 1}`]));
    await Promise.all([main, ...workers].map((daemon) => daemon.listening));
    await waitForRoster(hosts[1], hosts[0], ['m', 'w1']);
    for (const deadline = Date.now() + ROSTER_LIMIT_MS; !main.logs.join('').includes('loopback of its own host');) {
      assert.ok(Date.now() < deadline, 'main does not say why it leaves w2 alone');
      await new Promise((settle) => setTimeout(settle, 200));
    }
    const status = runOdmoe(['status', '--main', `${hosts[0].address}:7600`, '--json'], hosts[1]);
    const { nodes } = JSON.parse(status) as Roster;
    assert.deepEqual(nodes.map(({ id, address }) => (id === 'm' ? id : `${id} ${address}`)).sort(), [
      'm',
      'w1 127.0.0.1:7602',
    ]);
    assert.doesNotMatch(main.logs.join(''), /127\.0\.0\.1:7602.*"w2"|w2.*127\.0\.0\.1:7602/);
  });

  it('a worker without the pack finds main by multicast and fetches its experts', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 3 }, () => network!.addHost()) as [TestHost, TestHost, TestHost];
    const fresh = ['w1', 'w2'].map((id, index) =>
      start('worker', hosts[index + 1] ?? hosts[1], cluster, ['--id', id], join(directory, id)),
    );
    const main = start('main', hosts[0], cluster, ['--id', 'm']);
    await Promise.all([main, ...fresh].map((daemon) => daemon.listening));
    await waitForRoster(hosts[0], hosts[0], ['m', 'w1', 'w2']);
    const args = ['prompt', prompt, '--cluster', cluster, '--max-tokens', '200', '--ignore-eos', '--json'];
    let answer: Answer | null = null;
    for (const deadline = Date.now() + ROSTER_LIMIT_MS; answer === null;) {
      try {
        answer = JSON.parse(runOdmoe(args, hosts[2])) as Answer;
      } catch (thrown) {
        // Until the workers have their experts the answer is NO_WORKERS.
        if (Date.now() > deadline) throw thrown;
      }
    }
    assert.deepEqual(answer.token_ids, reference.token_ids);
  });

  it('a worker is found when its host gets a network late, and again when its address changes', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 3 }, () => network!.addHost()) as [TestHost, TestHost, TestHost];
    hosts[2].changeAddress(hosts[2].address, null);
    const started = [
      start('main', hosts[0], cluster, ['--id', 'm']),
      start('worker', hosts[1], cluster, ['--id', 'w1']),
      start('worker', hosts[2], cluster, ['--id', 'w2']),
    ];
    await Promise.all(started.map((daemon) => daemon.listening));
    await waitForRoster(hosts[0], hosts[0], ['m', 'w1']);
    assert.match(started[2]?.logs.join('') ?? '', /others cannot reach this daemon.*no interface of this host has/);
    hosts[2].changeAddress(null, hosts[2].address);
    await waitForRoster(hosts[0], hosts[0], ['m', 'w1', 'w2']);

    const moved = hosts[1].address.replace(/\d+$/, '201');
    hosts[1].changeAddress(hosts[1].address, moved);
    let addresses: string[] = [];
    for (const deadline = Date.now() + ROSTER_LIMIT_MS; !addresses.includes(`w1 ${moved}:7602`);) {
      assert.ok(Date.now() < deadline, `the roster holds ${addresses.join(', ')}`);
      await new Promise((settle) => setTimeout(settle, 200));
      const reported = runOdmoe(['status', '--main', `${hosts[0].address}:7600`, '--json'], hosts[0]);
      addresses = (JSON.parse(reported) as Roster).nodes.map(({ id, address }) => `${id} ${address}`);
    }
    assert.equal(addresses.length, 3, addresses.join(', '));
    const args = [
      'prompt',
      prompt,
      '--main',
      `${hosts[0].address}:7600`,
      '--max-tokens',
      '200',
      '--ignore-eos',
      '--json',
    ];
    assert.deepEqual((JSON.parse(runOdmoe(args, hosts[0])) as Answer).token_ids, reference.token_ids);
  });

  it('a cable pulled in the middle of an answer does not change it, and the worker is used again afterwards', async () => {
    assert.ok(network);
    const hosts = Array.from({ length: 3 }, () => network!.addHost()) as [TestHost, TestHost, TestHost];
    const started = [
      start('main', hosts[0], cluster, ['--id', 'm']),
      start('worker', hosts[1], cluster, ['--id', 'w1']),
      start('worker', hosts[2], cluster, ['--id', 'w2']),
    ];
    await Promise.all(started.map((daemon) => daemon.listening));
    await waitForRoster(hosts[0], hosts[0], ['m', 'w1', 'w2']);

    const command = [process.execPath, odmoe, 'prompt', prompt, '--main', `${hosts[0].address}:7600`];
    const [file = '', ...args] = hosts[0].commandLine([
      ...command,
      '--max-tokens',
      '200',
      '--ignore-eos',
      '--json',
      '--logprobs',
      '1',
    ]);
    const env = environmentOf(hosts[0]);
    const client = spawn(file, args, { stdio: ['ignore', 'pipe', 'inherit'], timeout: ANSWER_LIMIT_MS, env });
    const output: Buffer[] = [];
    client.stdout.on('data', (data: Buffer) => output.push(data));
    const done = new Promise<number | null>((settle) => client.once('exit', (status) => settle(status)));
    // Long enough for the answer to be under way, short of its end: 200 tokens of 8 layers are 1,600 round trips.
    await new Promise((settle) => setTimeout(settle, 600));
    hosts[2].pullCable();
    assert.equal(await done, 0);
    const answer = JSON.parse(Buffer.concat(output).toString()) as Answer;
    assert.deepEqual(answer.token_ids, reference.token_ids);

    hosts[2].plugCable();
    await waitForRoster(hosts[0], hosts[0], ['m', 'w1', 'w2']);
  });
});
