import assert from 'node:assert/strict';
import type { Logger } from '../../shared/base/log/logger.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { NAME_POLL_MS, namedMains, nameDiscovery } from '../../engine/daemon/name-discovery.js';
import {
  NAMED_PEERS_LIMIT,
  namedPeers,
  type NamedService,
  type NameService,
  systemNames,
} from '../../engine/daemon/name-service.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SmallNameServer } from './small-name-server.js';
import { onVirtualClock } from './virtual-run.js';

const DOMAIN = 'odmoe.home.svc.cluster.local';

/** Name servers of a test. `broken`: the reason why they do not answer. */
class ScriptedNames implements NameService {
  readonly srv = new Map<string, NamedService[]>();
  readonly hosts = new Map<string, string[]>();
  readonly asked: string[] = [];
  broken: string | null = null;
  closings = 0;

  async services(name: string): Promise<NamedService[]> {
    return this.answer(name, this.srv);
  }

  async addresses(name: string): Promise<string[]> {
    return this.answer(name, this.hosts);
  }

  close(): void {
    this.closings += 1;
  }

  /** A pod of the headless service. */
  pod(role: RoleSetting, id: string, host: string, port = 7602): void {
    const service = `_${role}._tcp.${DOMAIN}`;
    this.srv.set(service, [...(this.srv.get(service) ?? []), { name: `${id}.${DOMAIN}`, port }]);
    this.hosts.set(`${id}.${DOMAIN}`, [host]);
  }

  private answer<Value>(name: string, records: ReadonlyMap<string, Value[]>): Value[] {
    this.asked.push(name);
    if (this.broken !== null) throw new OdmoeError('NO_MAIN', this.broken);
    return records.get(name) ?? [];
  }
}

function recordingLog(): Logger & { warnings: string[] } {
  const warnings: string[] = [];
  const warn = (event: string, fields: object = {}): void =>
    void warnings.push(`${event} ${'reason' in fields ? String(fields.reason) : ''}`);
  const silent = (): void => undefined;
  return { error: silent, info: silent, debug: silent, warn, warnings };
}

function settingsOf(role: RoleSetting) {
  const flags = {
    id: `${role}-0`,
    cluster: 'home',
    model: '/nowhere',
    discovery: 'dns',
    discoveryName: DOMAIN,
  } as const;
  return resolveNodeSettings(role, defaultClusterConfig(), flags);
}

describe('discovery by names', () => {
  it('finds the machines of an SRV record at the ports that it gives, by the first label of their names', async () => {
    const names = new ScriptedNames();
    names.pod('worker', 'worker-0', '10.42.0.7');
    names.pod('worker', 'worker-1', 'fd00::8', 7700);
    names.pod('shadow', 'shadow-0', '10.42.0.9', 7601);
    assert.deepEqual(await namedPeers(names, DOMAIN, 'worker'), [
      { id: 'worker-0', role: 'worker', address: '10.42.0.7:7602' },
      { id: 'worker-1', role: 'worker', address: '[fd00::8]:7700' },
    ]);
  });

  it('leaves out a machine that has no address yet, and takes a bounded number', async () => {
    const names = new ScriptedNames();
    for (let index = 0; index <= NAMED_PEERS_LIMIT; index += 1) names.pod('worker', `worker-${index}`, '10.0.0.1');
    names.hosts.delete(`worker-0.${DOMAIN}`);
    const found = await namedPeers(names, DOMAIN, 'worker');
    assert.equal(found.length, NAMED_PEERS_LIMIT - 1);
    assert.equal(found[0]?.id, 'worker-1');
  });

  it('takes the addresses of ROLE.DOMAIN and the usual port where there is no SRV record', async () => {
    const names = new ScriptedNames();
    names.hosts.set('main.odmoe', ['172.18.0.2']);
    names.hosts.set('worker.odmoe', ['172.18.0.3', '172.18.0.4']);
    assert.deepEqual(await namedMains('odmoe', names), ['172.18.0.2:7600']);
    assert.equal(names.closings, 1);
    const workers = await namedPeers(names, 'odmoe', 'worker');
    assert.deepEqual(
      workers.map(({ id, address }) => `${id} ${address}`),
      [' 172.18.0.3:7602', ' 172.18.0.4:7602'],
    );
  });

  it('tells main of shadow and workers at once and every 5 s, also of those that come later or move', async () => {
    await onVirtualClock(async (runtime) => {
      const names = new ScriptedNames();
      names.pod('shadow', 'shadow-0', '10.42.0.9', 7601);
      const heard: string[] = [];
      const discovery = nameDiscovery(runtime, () => names);
      const onPeer = ({
        id,
        role,
        cluster,
        address,
      }: Parameters<Parameters<typeof discovery.watchPeers>[1]>[0]): void =>
        void heard.push(`${runtime.nowMs()} ${cluster} ${role} ${id} ${address}`);
      const watch = await discovery.watchPeers(settingsOf('main'), onPeer, recordingLog());
      await runtime.sleep(NAME_POLL_MS - 1);
      names.pod('worker', 'worker-0', '10.42.0.7');
      await runtime.sleep(NAME_POLL_MS);
      names.hosts.set(`worker-0.${DOMAIN}`, ['10.42.1.1']);
      await runtime.sleep(NAME_POLL_MS);
      await watch.stop();
      await runtime.sleep(3 * NAME_POLL_MS);
      const shadow = 'home shadow shadow-0 10.42.0.9:7601';
      assert.deepEqual(heard.sort(), [
        `0 ${shadow}`,
        `10000 ${shadow}`,
        '10000 home worker worker-0 10.42.1.1:7602',
        `5000 ${shadow}`,
        '5000 home worker worker-0 10.42.0.7:7602',
      ]);
      assert.equal(names.closings, 1);
    });
  });

  it('a worker looks for main alone', async () => {
    await onVirtualClock(async (runtime) => {
      const names = new ScriptedNames();
      const watch = await nameDiscovery(runtime, () => names).watchPeers(
        settingsOf('worker'),
        () => assert.fail('there is no main'),
        recordingLog(),
      );
      await runtime.sleep(1);
      await watch.stop();
      assert.deepEqual(names.asked, [`_main._tcp.${DOMAIN}`, `main.${DOMAIN}`]);
    });
  });

  it('says once that names cannot be looked up, says it again after it worked, and goes on', async () => {
    await onVirtualClock(async (runtime) => {
      const names = new ScriptedNames();
      names.broken = 'the name servers of this host do not answer';
      const log = recordingLog();
      const watch = await nameDiscovery(runtime, () => names).watchPeers(settingsOf('worker'), () => undefined, log);
      await runtime.sleep(3 * NAME_POLL_MS + 1);
      assert.equal(log.warnings.length, 1);
      assert.match(log.warnings[0] ?? '', /may not find others the name servers/);
      names.broken = null;
      await runtime.sleep(NAME_POLL_MS);
      names.broken = 'the name servers of this host do not answer';
      await runtime.sleep(NAME_POLL_MS);
      assert.equal(log.warnings.length, 2);
      await watch.stop();
    });
  });

  it('is refused without a name, in words that say where to give it', () => {
    const flags = { id: 'worker-0', cluster: 'home', discovery: 'dns' } as const;
    assert.throws(() => resolveNodeSettings('worker', defaultClusterConfig(), flags), {
      code: 'CONFIG_INVALID',
      message: /--discovery-name or discovery\.name/,
    });
  });
});

describe('the name servers of this host', () => {
  let server: SmallNameServer;
  const ask = (): NameService => systemNames([server.address]);

  before(async () => {
    server = await SmallNameServer.start([
      { type: 'SRV', name: '_worker._tcp.odmoe.test', port: 7702, target: 'worker-0.odmoe.test' },
      { type: 'A', name: 'worker-0.odmoe.test', bytes: [10, 42, 0, 7] },
      { type: 'AAAA', name: 'main.odmoe.test', bytes: [0xfd, ...Array<number>(14).fill(0), 1] },
    ]);
  });

  after(() => server.close());

  it('are asked for SRV, A and AAAA records', async () => {
    const found = await namedPeers(ask(), 'odmoe.test', 'worker');
    assert.deepEqual(found, [{ id: 'worker-0', role: 'worker', address: '10.42.0.7:7702' }]);
    assert.deepEqual(await namedMains('odmoe.test', ask()), ['[fd00::1]:7600']);
    assert.deepEqual(await namedPeers(ask(), 'odmoe.test', 'shadow'), []);
  });

  it('are named with what to look at where they do not answer', async () => {
    server.fails = true;
    await assert.rejects(namedPeers(ask(), 'odmoe.test', 'worker'), {
      code: 'NO_MAIN',
      message: /_worker\._tcp\.odmoe\.test \(ESERVFAIL\): see that \/etc\/resolv\.conf/,
    });
    assert.deepEqual(await namedMains('odmoe.test', ask()), []);
  });
});
