import assert from 'node:assert/strict';
import { nameDiscovery } from '../../../engine/daemon/name-discovery.js';
import { systemNames } from '../../../engine/daemon/name-service.js';
import type { RunningNode } from '../../../engine/daemon/running-node.js';
import type { NodeEnvironment } from '../../../engine/environment/node-environment.js';
import { startMain } from '../../../main-node/main.js';
import { startShadow } from '../../../shadow-node/main.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../../shared/settings/setting-choices.js';
import { parseAddress } from '../../../shared/wire/addresses.js';
import { startWorker } from '../../../worker-node/main.js';
import { collect, requestFor } from '../../integration/harness/answers.js';
import { TestLog } from '../../integration/harness/test-log.js';
import { packOf } from '../../integration/harness/test-models.js';
import { testSettings } from '../../integration/harness/test-settings.js';
import { waitUntil } from '../../integration/harness/wait-until.js';
import { type NameRecord, SmallNameServer } from '../../unit/small-name-server.js';
import { ENVIRONMENT, fetchStatus, generate, RUNTIME } from '../../wall.js';

const DOMAIN = 'odmoe.test';
const STATUS_TIMEOUT_MS = 20_000;
const REQUEST = requestFor([1, 2, 3, 4, 5]);

/** Daemons on addresses of loopback, which know each other by a name server alone. */
class NamedCluster {
  readonly log = new TestLog();
  private readonly nodes = new Map<RoleSetting, RunningNode>();

  private constructor(
    private readonly pack: string,
    private readonly records: NameRecord[],
    private readonly server: SmallNameServer,
  ) {}

  static async begin(): Promise<NamedCluster> {
    const records: NameRecord[] = [];
    return new NamedCluster(await packOf('tiny'), records, await SmallNameServer.start(records));
  }

  /** The daemon has no record yet. */
  async start(role: RoleSetting, host: string): Promise<void> {
    const settings = testSettings(role, this.pack, { provider: 'dns', id: `${role}-0` });
    const named: NodeSettings = {
      ...settings,
      listenHost: host,
      discovery: { ...settings.discovery, name: DOMAIN },
    };
    const environment: NodeEnvironment = {
      ...ENVIRONMENT,
      discovery: nameDiscovery(RUNTIME, () => systemNames([this.server.address])),
    };
    const begin = { main: startMain, shadow: startShadow, worker: startWorker }[role];
    this.nodes.set(role, await begin(named, environment, this.log.logger(role)));
  }

  async stop(role: RoleSetting): Promise<void> {
    await this.nodes.get(role)?.stop();
    this.nodes.delete(role);
  }

  /** As a headless service does: an SRV record of the role names a machine, and that name has the address of now. */
  publish(role: RoleSetting): void {
    const { host, port } = parseAddress(this.addressOf(role));
    const target = `${role}-0.${DOMAIN}`;
    const mine = new Set([target, `_${role}._tcp.${DOMAIN}`]);
    const others = this.records.filter(({ name }) => !mine.has(name));
    const bytes = host.split('.').map(Number);
    const service: NameRecord = { type: 'SRV', name: `_${role}._tcp.${DOMAIN}`, port, target };
    this.records.splice(0, Infinity, ...others, service, { type: 'A', name: target, bytes });
  }

  addressOf(role: RoleSetting): string {
    const node = this.nodes.get(role);
    assert.ok(node !== undefined, role);
    return node.address;
  }

  /** "role address" of the daemons with which main is connected. */
  async connected(): Promise<string[]> {
    const { nodes } = await fetchStatus(this.addressOf('main'), STATUS_TIMEOUT_MS);
    const named = nodes.map(({ identity }) => `${identity.id} ${identity.address}`);
    return named.filter((text) => !text.startsWith('main')).sort();
  }

  async untilConnected(): Promise<void> {
    const wanted = (['shadow', 'worker'] as const).map((role) => `${role}-0 ${this.addressOf(role)}`);
    await waitUntil(`main is connected with ${wanted.join(' and ')}`, async () => {
      const now = await this.connected();
      const { placement } = await fetchStatus(this.addressOf('main'), STATUS_TIMEOUT_MS);
      return placement?.workers.length === 1 && wanted.every((one) => now.includes(one));
    });
  }

  async answer(): Promise<number[]> {
    const { tokens } = await collect(generate(this.addressOf('main'), REQUEST));
    return tokens.map(({ tokenId }) => tokenId);
  }

  async end(): Promise<void> {
    for (const role of ['main', 'shadow', 'worker'] as const) await this.stop(role);
    this.server.close();
  }
}

describe('a cluster whose daemons find one another by DNS', function () {
  this.timeout(240_000);
  let cluster: NamedCluster | null = null;

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') cluster?.log.print();
    await cluster?.end();
    cluster = null;
  });

  it('waits for names that have no records yet, and follows addresses that change', async () => {
    const running = (cluster = await NamedCluster.begin());
    await running.start('worker', '127.0.0.1');
    await running.start('shadow', '127.0.0.1');
    await running.start('main', '127.0.0.1');
    assert.deepEqual(await running.connected(), []);
    // Whoever is named first is found: main finds the worker by its record, and the shadow finds main by main's.
    running.publish('worker');
    await waitUntil('main has found the worker', async () => (await running.connected()).length === 1);
    running.publish('main');
    running.publish('shadow');
    await running.untilConnected();
    const answer = await running.answer();
    assert.equal(answer.length, REQUEST.maxTokens);

    // A pod that was made anew has its name and another address.
    await running.stop('worker');
    await running.start('worker', '127.0.0.2');
    running.publish('worker');
    await running.untilConnected();
    assert.deepEqual(await running.answer(), answer);

    await running.stop('main');
    await running.start('main', '127.0.0.3');
    running.publish('main');
    await running.untilConnected();
    assert.deepEqual(await running.answer(), answer);
  });
});
