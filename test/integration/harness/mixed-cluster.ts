import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Context } from 'mocha';
import { createCluster } from '../../../engine/trust/create-cluster.js';
import { operatorSocketPath, stateDirectory } from '../../../shared/base/files/state-directory.js';
import { METHODS } from '../../../shared/transport/methods.js';
import { socketAddress } from '../../../shared/wire/addresses.js';
import { JOIN_TOKEN_VARIABLE } from '../../../shared/transport/trust/operator-join.js';
import type { GenerateRequest, StatusReply } from '../../../shared/wire/messages.js';
import { fetchStatus, generate, TRANSPORT } from '../../wall.js';
import { collect, type CollectedAnswer } from './answers.js';
import { TestDaemon } from './test-daemon.js';
import { TestLog } from './test-log.js';
import { packOf, type TestModel } from './test-models.js';
import { waitUntil } from './wait-until.js';

const CLUSTER = 'mixed';
const CALL_TIMEOUT_MS = 20_000;
/** Longer than a test. */
const TOKEN_LIFE_MS = 3_600_000;

export const PEERS = { shadow: 'shadow', 'worker-0': 'worker', 'worker-1': 'worker', 'worker-2': 'worker' } as const;
export type PeerId = keyof typeof PEERS;
export type MemberId = 'main' | PeerId;
export const PEER_IDS = Object.keys(PEERS) as PeerId[];

/** It has no pack, and fetches its experts from the others. */
const FETCHING: PeerId = 'worker-2';

/** An odmoe from which daemons start. */
export interface Build {
  /** The directory of its package. */
  readonly root: string;
  /** Variables of its daemons. */
  readonly environment: Readonly<Record<string, string>>;
}

/** with an authority: the daemons join by a token, and all connections are TLS. plaintext: on loopback, as releases without TLS do. */
export type Protection = 'authority' | 'plaintext';

/** Main, a shadow and three workers as processes on 127.0.0.1, each of the build that `builds` gives it and in a home of its own. */
export class MixedCluster {
  readonly log = new TestLog();
  private readonly directory = mkdtempSync(join(tmpdir(), 'odmoe-mixed-'));
  private readonly daemons = new Map<MemberId, TestDaemon>();

  private constructor(
    private readonly pack: string,
    private readonly protection: Protection,
    /** The next start of a daemon takes the build that stands here then. */
    readonly builds: Map<MemberId, Build>,
  ) {}

  static async start(
    model: TestModel,
    protection: Protection,
    builds: ReadonlyMap<MemberId, Build>,
  ): Promise<MixedCluster> {
    const cluster = new MixedCluster(await packOf(model), protection, new Map(builds));
    try {
      if (protection === 'authority') await createCluster(cluster.stateOf('main'), CLUSTER);
      await cluster.startDaemon('main');
      await Promise.all(PEER_IDS.map((id) => cluster.startDaemon(id)));
      await cluster.waitForAll();
      return cluster;
    } catch (thrown) {
      cluster.log.print();
      await cluster.end();
      throw thrown;
    }
  }

  get address(): string {
    const main = this.daemons.get('main');
    if (main === undefined) throw new Error('main does not run');
    return main.address;
  }

  /** The address at which main answers its operator. */
  private get operatorAddress(): string {
    return this.protection === 'plaintext' ? this.address : socketAddress(operatorSocketPath(this.stateOf('main')));
  }

  status(): Promise<StatusReply> {
    return fetchStatus(this.operatorAddress, CALL_TIMEOUT_MS);
  }

  ask(request: GenerateRequest): Promise<CollectedAnswer> {
    return collect(generate(this.operatorAddress, request));
  }

  /** Stops a daemon as its user does, and starts it as one of this build, main with the port that it had. */
  async restartAs(id: MemberId, build: Build): Promise<void> {
    const port = this.daemons.get(id)?.address.split(':')[1] ?? '0';
    await this.daemons.get(id)?.end();
    this.builds.set(id, build);
    await this.startDaemon(id, id === 'main' ? port : '0');
  }

  /** Resolves when main has placed all workers and uses the shadow. */
  async waitForAll(): Promise<void> {
    const wanted = [...PEER_IDS].sort();
    let seen: string[] = [];
    await waitUntil(
      () => `main has ${wanted.join(', ')}; it has ${seen.join(', ')}`,
      async () => {
        const { nodes, placement } = await this.status();
        const shadows = nodes
          .filter(({ identity }) => identity.role === 'ROLE_SHADOW')
          .map(({ identity }) => identity.id);
        seen = [...shadows, ...(placement?.workers ?? []).map(({ id }) => id)].sort();
        return seen.join() === wanted.join();
      },
    );
  }

  async end(): Promise<void> {
    await Promise.all([...this.daemons.values()].map((daemon) => daemon.end()));
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  private stateOf(id: MemberId): string {
    return stateDirectory(CLUSTER, join(this.directory, id, 'state'));
  }

  private async startDaemon(id: MemberId, port = '0'): Promise<void> {
    const build = this.builds.get(id);
    if (build === undefined) throw new Error(`${id} has no build`);
    const where = ['--cluster', CLUSTER, '--discovery', 'static', '--host', '127.0.0.1', '--port', port];
    const flags = [...where, '--device', 'cpu', '--threads', '1', '--log-level', 'info'];
    if (id !== FETCHING) flags.push('--model', this.pack);
    if (id !== 'main') flags.push('--main', this.address);
    const home = join(this.directory, id);
    const environment = {
      HOME: home,
      XDG_STATE_HOME: join(home, 'state'),
      XDG_CONFIG_HOME: join(home, 'config'),
      XDG_DATA_HOME: join(home, 'data'),
      ...build.environment,
      ...(await this.joinToken(id)),
    };
    const role = id === 'main' ? 'main' : PEERS[id];
    this.daemons.set(id, await TestDaemon.start(role, flags, id, this.log, environment, build.root));
  }

  /** The variable by which a daemon joins at its first start. */
  private async joinToken(id: MemberId): Promise<Record<string, string>> {
    if (this.protection === 'plaintext' || id === 'main' || this.daemons.has(id)) return {};
    const wish = { role: PEERS[id], name: id, uses: 1, lifeMs: TOKEN_LIFE_MS };
    const limits = { timeoutMs: CALL_TIMEOUT_MS };
    const { text } = await TRANSPORT.call(this.operatorAddress, METHODS.operator.createToken, wish, limits);
    return { [JOIN_TOKEN_VARIABLE]: text };
  }
}

/** Ends the cluster; call this in afterEach. The log is printed if the test has failed. */
export async function endMixedCluster(context: Context, cluster: MixedCluster | null): Promise<void> {
  if (context.currentTest?.state === 'failed') cluster?.log.print();
  await cluster?.end();
}
