/** A cluster with an authority whose machines are directories of this one, with daemons as processes on 127.0.0.1. */
import { socketAddress } from '../../../shared/wire/addresses.js';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { commandTrust } from '../../../cli/client/operator-access.js';
import { createCluster } from '../../../engine/trust/create-cluster.js';
import { type NodeCredentials, readIdentity } from '../../../engine/trust/identity-files.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { operatorSocketPath, stateDirectory } from '../../../shared/base/files/state-directory.js';
import type { RoleSetting } from '../../../shared/settings/setting-choices.js';
import { GrpcTransport } from '../../../shared/transport/grpc-transport.js';
import { type CallMethod, METHODS } from '../../../shared/transport/methods.js';
import { fetchStatus } from '../../../shared/transport/node-clients.js';
import type { PeerRole } from '../../../shared/transport/trust/peer-role.js';
import type { CreateTokenRequest } from '../../../shared/wire/messages.js';
import { RecordingProxy } from '../../unit/recording-proxy.js';
import { joinWithFiles } from '../../unit/stored-main.js';
import { RUNTIME, TRANSPORT } from '../../wall.js';
import { TestDaemon } from '../harness/test-daemon.js';
import { TestLog } from '../harness/test-log.js';
import { packOf } from '../harness/test-models.js';
import { waitUntil } from '../harness/wait-until.js';

export const CLUSTER = 'home';
/** Another address of this machine. */
export const CALL_TIMEOUT_MS = 20_000;
/** Time for words that must come. */
const WORDS_LIMIT_MS = 10_000;
const DEBUG = ['--log-level', 'debug'];

/** The end of a process. */
export interface Ended {
  readonly status: number | null;
  readonly said: string;
}

/** A process that is expected to end by itself. */
export interface Running {
  /** All that it has written so far. */
  said(): string;
  readonly ended: Promise<Ended>;
  stop(): void;
}

export class ProofCluster {
  readonly log = new TestLog();
  private readonly daemons = new Map<string, TestDaemon>();
  private readonly leave: (() => void)[] = [];
  private recorder: RecordingProxy | null = null;

  private constructor(
    readonly directory: string,
    private readonly pack: string,
  ) {}

  /** Main "box" with an authority, the worker "jetson", the shadow "helper", and main "plain" of a cluster without an authority. */
  static async start(): Promise<ProofCluster> {
    const pack = await packOf('demo');
    const cluster = new ProofCluster(mkdtempSync(join(tmpdir(), 'odmoe-proof-')), pack);
    await createCluster(cluster.stateOf('box'), CLUSTER);
    await Promise.all([cluster.startDaemon('main', 'box'), cluster.startDaemon('main', 'plain')]);
    const letIn = async (role: 'worker' | 'shadow', id: string, more: string[] = []): Promise<void> => {
      await cluster.startDaemon(role, id, ['--main', cluster.main, ...more], {
        ODMOE_JOIN_TOKEN: await cluster.token({ role }),
      });
    };
    const { flags, proxy } = await cluster.behindProxy('127.0.0.2');
    cluster.recorder = proxy;
    await Promise.all([letIn('worker', 'jetson', flags), letIn('shadow', 'helper')]);
    await cluster.joinByHand('operator', 'laptop');
    return cluster;
  }

  /** The proxy through which main dials jetson. It passes everything on, and keeps a copy. */
  get eyes(): RecordingProxy {
    if (this.recorder === null) throw new Error('the cluster has not started');
    return this.recorder;
  }

  get main(): string {
    return this.daemon('box').address;
  }

  daemon(id: string): TestDaemon {
    const daemon = this.daemons.get(id);
    if (daemon === undefined) throw new Error(`no daemon ${id} runs`);
    return daemon;
  }

  /** The directory of the cluster on that machine. */
  stateOf(host: string): string {
    return stateDirectory(CLUSTER, join(this.directory, host, 'state'));
  }

  environmentOf(host: string): Record<string, string> {
    const home = join(this.directory, host);
    mkdirSync(home, { recursive: true });
    return { HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_CONFIG_HOME: join(home, 'config') };
  }

  private flags(more: readonly string[]): string[] {
    const where = ['--cluster', CLUSTER, '--discovery', 'static', '--host', '127.0.0.1'];
    const port = more.includes('--port') ? [] : ['--port', '0'];
    return [...where, ...port, '--device', 'cpu', '--threads', '1', '--model', this.pack, ...DEBUG, ...more];
  }

  /** Starts a daemon on the machine of its own id, and waits until it listens. */
  async startDaemon(
    role: RoleSetting,
    id: string,
    more: readonly string[] = [],
    environment: Record<string, string> = {},
  ): Promise<TestDaemon> {
    const variables = { ...this.environmentOf(id), ...environment };
    const daemon = await TestDaemon.start(role, this.flags(more), id, this.log, variables);
    this.daemons.set(id, daemon);
    return daemon;
  }

  /** Starts a worker that joins by a token, and waits until main has placed it. */
  async joinDaemon(id: string, flags: readonly string[], environment: Record<string, string>): Promise<TestDaemon> {
    const joining = { ...environment, ODMOE_JOIN_TOKEN: await this.token() };
    const daemon = await this.startDaemon('worker', id, ['--main', this.main, ...flags], joining);
    await this.untilConnected(id);
    return daemon;
  }

  /** Stops a daemon, and starts it again with its address. */
  async restart(role: RoleSetting, id: string, whileStopped: () => void, environment = {}): Promise<void> {
    const { address } = this.daemon(id);
    await this.daemon(id).end();
    whileStopped();
    await this.startDaemon(role, id, ['--port', address.split(':')[1] ?? '0'], environment);
  }

  /** Runs a daemon that is expected to end by itself. */
  runDaemon(
    host: string,
    role: RoleSetting,
    more: readonly string[],
    environment: Record<string, string> = {},
  ): Running {
    const entry = join(packageRoot(), 'dist', `${role}-node`, 'main.js');
    const id = more.includes('--id') ? [] : ['--id', host];
    return this.spawn(host, [entry, ...id, ...this.flags(more)], environment);
  }

  /** Runs a command of a person at that machine. */
  async command(host: string, ...args: string[]): Promise<Ended> {
    return this.spawn(host, [join(packageRoot(), 'bin', 'odmoe'), ...args]).ended;
  }

  private spawn(host: string, args: readonly string[], environment: Record<string, string> = {}): Running {
    const env = { ...process.env, ...this.environmentOf(host), ...environment };
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
    let said = '';
    for (const output of [child.stdout, child.stderr]) output.on('data', (text: Buffer) => (said += text.toString()));
    this.leave.push(() => child.kill('SIGKILL'));
    const ended = new Promise<Ended>((resolve) => child.once('close', (status) => resolve({ status, said })));
    return { said: () => said, ended, stop: () => void child.kill('SIGTERM') };
  }

  /** Asks main as the user of its host does, by the operator's socket. */
  asOperator<Request, Reply>(method: CallMethod<Request, Reply>, request: Request): Promise<Reply> {
    const address = socketAddress(operatorSocketPath(this.stateOf('box')));
    return TRANSPORT.call(address, method, request, { timeoutMs: CALL_TIMEOUT_MS });
  }

  async newToken(changes: Partial<CreateTokenRequest> = {}): Promise<{ id: string; text: string }> {
    const wish = { role: 'worker', name: '', uses: 1, lifeMs: 3_600_000, ...changes } as const;
    return this.asOperator(METHODS.operator.createToken, wish);
  }

  async token(changes: Partial<CreateTokenRequest> = {}): Promise<string> {
    return (await this.newToken(changes)).text;
  }

  /** Lets a machine join without a daemon. */
  async joinByHand(role: Exclude<PeerRole, 'main'>, id: string): Promise<void> {
    await joinWithFiles(this.main, await this.token({ role }), { role, id, stateDirectory: this.stateOf(id) });
  }

  async credentials(id: string): Promise<NodeCredentials> {
    const credentials = await readIdentity(this.stateOf(id), id);
    if (credentials === null) throw new Error(`${id} has not joined`);
    return credentials;
  }

  /** A client with the key and certificate of a machine. */
  async clientOf(id: string): Promise<GrpcTransport> {
    return new GrpcTransport(RUNTIME, null, commandTrust(await this.credentials(id)));
  }

  /** Resolves when main has a stream to the node. */
  async untilConnected(id: string): Promise<void> {
    const client = await this.clientOf('laptop');
    await waitUntil(`${id} is connected`, async () => {
      const { nodes } = await fetchStatus(client, this.main, CALL_TIMEOUT_MS);
      return nodes.some(({ identity }) => identity.id === id);
    });
  }

  /** The lines that the daemon has logged, from number `from` on. */
  linesOf(id: string, from = 0): string {
    return this.log.matching(` ${id}: `).slice(from).join('\n');
  }

  countOf(id: string): number {
    return this.log.matching(` ${id}: `).length;
  }

  async waitForWords(id: string, words: RegExp, from: number): Promise<void> {
    await waitUntil(
      () => `${id} says ${words.source}; it said:\n${this.linesOf(id, from)}`,
      () => words.test(this.linesOf(id, from)),
      WORDS_LIMIT_MS,
    );
  }

  /** Path of a new file of the test. */
  fileWith(name: string, text: string): string {
    const path = join(this.directory, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  /** The variables of a process whose clock is wrong by so much: its own code sees another Date. */
  clockShiftedBy(shiftMs: number): Record<string, string> {
    const text = `const Real = Date;
globalThis.Date = class extends Real {
  constructor(...given) {
    super(...(given.length === 0 ? [Real.now() + ${shiftMs}] : given));
  }
  static now() {
    return Real.now() + ${shiftMs};
  }
};
`;
    return { NODE_OPTIONS: `--import ${this.fileWith(`clock${shiftMs}.mjs`, text)}` };
  }

  /** Flags of a daemon that main dials through a proxy, and the proxy. The caller closes it. */
  async behindProxy(host: string): Promise<{ flags: string[]; proxy: RecordingProxy }> {
    const port = await freePort();
    const proxy = new RecordingProxy(`127.0.0.1:${port}`);
    await proxy.listen(host, port);
    return { flags: ['--port', String(port), '--advertise-host', host], proxy };
  }

  async stop(): Promise<void> {
    for (const leave of this.leave) leave();
    this.recorder?.close();
    await Promise.all([...this.daemons.values()].map((daemon) => daemon.end('SIGKILL')));
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
