import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { nodesOfThisHost, resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import { defaultClusterConfig, parseClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { drawableOfRows } from '../../simulator/faults/drawn-rows.js';
import { rowsOf, SETTINGS, type SettingsGroup } from '../../shared/settings/settings-table.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';

const HOST = { hostname: 'box1.lan', addresses: ['192.168.1.20', '127.0.0.1'], processId: 42, stateHome: '/state' };

const STATIC = `
cluster: lab
model: packs/mixtral
discovery: {provider: static}
worker: {slots: 3}
nodes:
  - {id: m, role: main, host: 192.168.1.20}
  - {id: s, role: shadow, host: box2}
  - {id: w1, role: worker, host: box1, memory_budget: 2 GiB, threads: 4, slots: 1}
  - {id: w2, role: worker, host: 192.168.1.22, model: /data/pack}
`;

function settle(role: RoleSetting, flags: Parameters<typeof resolveNodeSettings>[2], source = STATIC): NodeSettings {
  return resolveNodeSettings(role, parseClusterConfig(source, '/etc/odmoe/cluster.yaml'), flags, HOST);
}

describe('the settings of a daemon', () => {
  it('come from defaults when nothing else sets them', () => {
    const settings = settle('worker', { model: '/packs/demo' }, '');
    const { role, id, cluster, stateDirectory, modelPath, listenHost, listenPort, advertiseHost, mainAddress } =
      settings;
    assert.deepEqual([role, id, cluster], ['worker', 'worker-box1-7602', 'odmoe']);
    assert.deepEqual([stateDirectory, modelPath], ['/state/odmoe/odmoe', '/packs/demo']);
    assert.deepEqual([listenHost, listenPort, advertiseHost, mainAddress], ['127.0.0.1', 7602, null, null]);
    assert.deepEqual(settings.joining, {
      lan: false,
      insecure: false,
      token: null,
      tokenPath: null,
      rejoin: false,
      isClusterGiven: true,
      isListenHostGiven: false,
    });
    assert.deepEqual(settings.discovery, { provider: 'mdns', interfaceAddress: null, name: null, peers: [] });
    assert.equal(settings.emulation, null);
    assert.equal(settings.device.memoryBudgetBytes, 2 ** 30);
    const { cacheBytes, cachePolicy, yields } = settings.worker;
    assert.deepEqual([cacheBytes, cachePolicy, yields], [0, 'planned', false], 'no cache unless somebody asks for one');
    const main = settle('main', { model: 'p' }, '');
    assert.deepEqual(main.device, {
      backend: 'auto',
      device: null,
      arithmetic: 'exact',
      instructionSet: 'auto',
      threads: 0,
      memoryBudgetBytes: 0,
    });
    assert.deepEqual(main.main.http, {
      host: '127.0.0.1',
      port: 7680,
      isAddressGiven: false,
      hosts: [],
      origins: [],
      apiKeysPath: null,
    });
    assert.equal(settle('worker', { model: 'p', port: 0 }, '').id, 'worker-box1-p42');
    assert.equal(settle('main', { model: 'p', discovery: 'static' }, '').listenHost, '127.0.0.1');
  });

  it('listen on every network with lan, unless an address is given', () => {
    assert.equal(settle('main', { model: 'p', lan: true }, '').listenHost, '0.0.0.0');
    assert.equal(settle('main', { model: 'p', discovery: 'static' }, 'lan: true').listenHost, '0.0.0.0');
    const given = settle('main', { model: 'p', lan: true, host: '192.168.1.9' }, '');
    assert.deepEqual([given.listenHost, given.joining.isListenHostGiven], ['192.168.1.9', true]);
  });

  it('say how the daemon joins', () => {
    const byFile = settle('worker', { joinFile: 'token', insecure: true, rejoin: true }, '').joining;
    assert.deepEqual([byFile.tokenPath, byFile.insecure, byFile.rejoin], [resolve('token'), true, true]);
    assert.equal(settle('worker', { join: 'odmoe1-x' }, '').joining.token, 'odmoe1-x');
    assert.throws(() => settle('worker', { join: 'odmoe1-x', joinFile: 'token' }, ''), { code: 'CONFIG_INVALID' });
    const unnamed = resolveNodeSettings('worker', defaultClusterConfig(), {}, HOST);
    assert.equal(unnamed.joining.isClusterGiven, false);
    const named = resolveNodeSettings('worker', defaultClusterConfig(), { cluster: 'home' }, HOST);
    assert.deepEqual([named.joining.isClusterGiven, named.stateDirectory], [true, '/state/odmoe/home']);
  });

  // docs/settings.md has the defaults themselves, and a test compares it with the rows.
  // The row "device" becomes two fields, which a test below reads.
  for (const group of (Object.keys(SETTINGS) as SettingsGroup[]).filter((name) => name !== 'device')) {
    const rows = rowsOf(group).filter(([, row]) => row.default !== undefined);
    const found: unknown = { ...settle('worker', { model: '/packs/demo' }, '') }[group as keyof NodeSettings];
    if (rows.length === 0 || typeof found !== 'object' || found === null) continue;
    it(`of ${group} have the defaults of their rows when nothing else sets them`, () => {
      const values = found as Record<string, unknown>;
      for (const [name, row] of rows) assert.deepEqual(values[name], row.default, name);
    });
  }

  it("come from the node's own entry, found by this host's name", () => {
    const settings = settle('worker', {});
    assert.equal(settings.id, 'w1');
    assert.equal(settings.modelPath, '/etc/odmoe/packs/mixtral');
    assert.equal(settings.listenHost, '0.0.0.0');
    assert.equal(settings.advertiseHost, 'box1');
    assert.equal(settings.mainAddress, '192.168.1.20:7600');
    assert.deepEqual(settings.device, {
      backend: 'auto',
      device: null,
      arithmetic: 'exact',
      instructionSet: 'auto',
      threads: 4,
      memoryBudgetBytes: 2 ** 31,
    });
    assert.equal(settings.worker.slots, 1);
    assert.deepEqual(settings.discovery.peers, [
      { role: 'main', id: 'm', address: '192.168.1.20:7600' },
      { role: 'shadow', id: 's', address: 'box2:7601' },
      { role: 'worker', id: 'w2', address: '192.168.1.22:7602' },
    ]);
    const main = settle('main', {});
    assert.equal(main.listenHost, '192.168.1.20');
    assert.equal(main.mainAddress, null);
  });

  it('name a device by node, by role, or by flag', () => {
    const source = `
      shadow: {device: cpu}
      worker: {device: cuda, arithmetic: fast}
      nodes:
        - {id: m, role: main, model: p}
        - {id: s, role: shadow, model: p}
        - {id: w1, role: worker, device: cuda:2}
        - {id: w2, role: worker, arithmetic: exact}
    `;
    const deviceOf = (role: RoleSetting, flags: Parameters<typeof settle>[1]) => {
      const { backend, device, arithmetic } = settle(role, flags, source).device;
      return [backend, device, arithmetic];
    };
    assert.deepEqual(deviceOf('main', {}), ['auto', null, 'exact']);
    assert.deepEqual(deviceOf('shadow', {}), ['cpu', null, 'exact']);
    assert.deepEqual(deviceOf('worker', { id: 'w1' }), ['cuda', 2, 'fast']);
    assert.deepEqual(deviceOf('worker', { id: 'w2' }), ['cuda', null, 'exact']);
    assert.deepEqual(deviceOf('worker', { id: 'w2', device: 'auto', arithmetic: 'fast' }), ['auto', null, 'fast']);
    for (const wrong of ['gpu', 'cuda:', 'cuda:x', 'cuda:-1', '1']) {
      assert.throws(() => settle('main', {}, `main: {device: "${wrong}"}`), { code: 'CONFIG_INVALID' }, wrong);
      assert.throws(() => parseDaemonFlags('main', ['--model', 'p', '--device', wrong]), { code: 'USAGE' }, wrong);
    }
  });

  it('come from the entry named by --id, and from flags before all', () => {
    const settings = settle('worker', { id: 'w2', slots: 9, port: 9000, host: '::', cluster: 'x', main: 'h:1' });
    assert.equal(settings.modelPath, '/data/pack');
    assert.equal(settings.worker.slots, 9);
    assert.equal(settings.listenPort, 9000);
    assert.equal(settings.listenHost, '::');
    assert.equal(settings.cluster, 'x');
    assert.equal(settings.mainAddress, 'h:1');
    assert.equal(settle('worker', { id: 'stranger', model: '/p' }).id, 'stranger');
  });

  it('make a worker with its own experts keep them within its memory, unless a cache size is set', () => {
    const own =
      'placement: {homes: strict}\nworker: {memory_budget: 3 MiB}\nnodes: [{id: a, role: worker, cache: 1 MiB}]';
    assert.equal(settle('worker', { model: 'p', id: 'b' }, own).worker.cacheBytes, 3 * 2 ** 20);
    assert.equal(settle('worker', { model: 'p', id: 'a' }, own).worker.cacheBytes, 2 ** 20);
    assert.equal(settle('worker', { model: 'p', cache: 0 }, own).worker.cacheBytes, 0);
  });

  it('cover the cache of all workers, of one, and by flags', () => {
    const cached = `worker: {cache: 1 MiB, cache_policy: lru, decompression_threads: 3, direct_io: true, read_depth: 6,
  host_memory: 8 MiB}
nodes: [{id: a, role: worker}, {id: b, role: worker, cache: 2 MiB}]`;
    const { slots, cacheBytes, cachePolicy, ...loading } = settle('worker', { model: 'p', id: 'a' }, cached).worker;
    assert.deepEqual([slots, cacheBytes, cachePolicy], ['auto', 2 ** 20, 'lru']);
    const { decompressionThreads, directIo, readDepth, hostMemory } = loading;
    assert.deepEqual([decompressionThreads, directIo, readDepth, hostMemory], [3, true, 6, 2 ** 23]);
    assert.equal(settle('worker', { model: 'p', id: 'b' }, cached).worker.cacheBytes, 2 ** 21);
    assert.equal(settle('worker', { model: 'p', id: 'b', cache: 7 }, cached).worker.cacheBytes, 7);
    const pools = 'worker: {pools: {full: 1, sign_mantissa: 2}}';
    const expected = { full: 1, compressed: 0, signMantissa: 2, exponent: 0 };
    assert.deepEqual(settle('worker', { model: 'p' }, pools).worker.pools, expected);
    assert.equal(settle('worker', { model: 'p', cache: 9 }, pools).worker.pools, null, 'a flag goes first');
    assert.throws(() => settle('worker', { model: 'p', cachePolicy: 'lru' }, pools), {
      code: 'CONFIG_INVALID',
      message: /worker\.pools keep parts of experts, and cache policy lru only whole ones/,
    });
  });

  it('refuse memory for whole experts where a worker computes with slices', () => {
    const sliced = "main: {quality: 'sliced(8,4,low)'}\n";
    const settled = (role: 'worker' | 'shadow', text: string) => settle(role, { model: 'p' }, sliced + text).worker;
    const refused = (message: RegExp): object => ({ code: 'CONFIG_INVALID', message });
    const quality = /sliced\(8,4,low\) computes with slices: leave it out/;
    for (const text of ['worker: {cache: 1 MiB, cache_policy: lru}', 'worker: {pools: {full: 1}}']) {
      assert.throws(() => settled('worker', text), refused(quality), text);
    }
    assert.throws(() => settled('worker', 'worker: {cache_policy: planned}'), refused(/or set it to sliced/));
    assert.throws(() => settled('worker', 'worker: {host_memory: 1 MiB}'), refused(/worker\.host_memory/));
    for (const form of ['auto', 'bf16', 'fixed4']) {
      assert.throws(
        () => settled('worker', `worker: {resident: ${form}}`),
        refused(/worker\.resident holds experts as/),
      );
    }
    assert.ok(settled('worker', 'worker: {slots: 3}'));
    assert.ok(settled('shadow', 'worker: {cache: 1 MiB, cache_policy: lru}'), 'it is not about shadow');
  });

  it('give a worker that computes with slices a cache of slices, and no other worker', () => {
    const settled = (text: string) => settle('worker', { model: 'p' }, text).worker;
    const sliced = "main: {quality: 'sliced(8,4)'}\n";
    assert.equal(settled(`${sliced}worker: {cache: 1 MiB}`).cachePolicy, 'sliced');
    assert.equal(settled(`${sliced}worker: {cache: 1 MiB, cache_policy: sliced}`).cacheBytes, 2 ** 20);
    const strict = settled(`${sliced}placement: {homes: strict}`);
    assert.deepEqual([strict.cachePolicy, strict.cacheBytes], ['sliced', 2 ** 30]);
    assert.throws(() => settled('worker: {cache: 1 MiB, cache_policy: sliced}'), {
      code: 'CONFIG_INVALID',
      message: /sliced keeps slices, and main\.quality exact computes without them: leave it out/,
    });
  });

  it('refuse the arithmetic of tensor cores with a sliced quality, whose bits are the same everywhere', () => {
    const sliced = "main: {quality: 'sliced(8,4)'}\n";
    const refused = { code: 'CONFIG_INVALID', message: /quality sliced\(8,4\) is computed by the one arithmetic/ };
    for (const role of ['main', 'worker'] as const) {
      assert.throws(() => settle(role, { model: 'p', arithmetic: 'fast' }, sliced), refused);
      assert.ok(settle(role, { model: 'p', arithmetic: 'fast' }, ''));
    }
    assert.ok(settle('shadow', { model: 'p', arithmetic: 'fast' }, sliced), 'shadow only predicts');
  });

  it('refuses to verify executions whose bits fast arithmetic does not keep, wherever it stands', () => {
    const verified = 'main: {verify_share: 0.1}';
    const refused = { code: 'CONFIG_INVALID', message: /main.verify_share .* arithmetic fast/ };
    assert.equal(settle('main', { model: 'p' }, verified).main.verifyShare, 0.1);
    assert.throws(() => settle('main', { model: 'p', arithmetic: 'fast' }, verified), refused);
    for (const source of ['worker: {arithmetic: fast}', 'nodes: [{id: a, role: worker, arithmetic: fast}]']) {
      assert.throws(() => settle('main', { model: 'p', verifyShare: 1 }, source), refused, source);
      assert.ok(settle('main', { model: 'p' }, source), 'without a share nothing is compared');
    }
  });

  it("choose the node that runs main's experts by the file, and by a flag that overrides it", () => {
    assert.equal(settle('main', { model: 'p' }, '').main.experts, 'workers');
    assert.equal(settle('main', { model: 'p' }, 'main: {experts: both}').main.experts, 'both');
    assert.equal(settle('main', { model: 'p', experts: 'local' }, 'main: {experts: both}').main.experts, 'local');
  });

  it('set drafts, predictions and alignment by the file, and by flags that override it', () => {
    const source = `align: {token: 2, stream_kv: false}
drafting: {optimistic: true, rows: auto}
placement: {spread: all, homes: strict, replicas: 2}
nodes: []`;
    const settings = settle('main', { model: 'p' }, source);
    assert.deepEqual(settings.align, { tokenPeriod: 2, keyValuePeriod: 1, streamKeyValues: false });
    assert.deepEqual(settings.drafting, { optimistic: true, rows: 'auto', source: 'auto', headExperts: 'auto' });
    assert.deepEqual(settings.placement, { groupSize: 'auto', spread: 'all', homes: 'strict', replicas: 2 });
    const flagged = settle(
      'main',
      { model: 'p', draftRows: 4, spread: 'group', homes: 'group', streamKv: false },
      source,
    );
    assert.deepEqual(flagged.drafting, { optimistic: true, rows: 4, source: 'auto', headExperts: 'auto' });
    assert.equal(flagged.placement.spread, 'group');
    assert.equal(flagged.placement.homes, 'group');
    assert.equal(settle('main', { model: 'p', streamKv: false }, '').align.streamKeyValues, false);
    assert.equal(settle('main', { model: 'p', prediction: 'random' }, '').prediction.source, 'random');
    assert.throws(() => settle('main', { model: 'p', prediction: 'off' }, source), {
      code: 'CONFIG_INVALID',
      message: /prediction off has no shadow.*drafting\.optimistic/,
    });
    assert.equal(settle('main', { model: 'p', prediction: 'off', draftRows: 2 }, '').drafting.rows, 2);
    assert.throws(() => settle('main', { model: 'p', prediction: 'off', draftSource: 'shadow' }, ''), {
      code: 'CONFIG_INVALID',
      message: /drafting\.source/,
    });
  });

  it('set the emulated hardware; a profile file is relative to the configuration', () => {
    const source = 'emulation: {profile: profiles/lab.yaml, expert_storage: fixed4}';
    const expected = { profilePath: '/etc/odmoe/profiles/lab.yaml', expertStorage: 'fixed4' };
    assert.deepEqual(settle('worker', { model: 'p' }, source).emulation, expected);
    assert.equal(settle('worker', { model: 'p' }, source).device.memoryBudgetBytes, 0, 'the profile says it');
    const limited = `${source}\nworker: {memory_budget: 2 GiB}`;
    assert.equal(settle('worker', { model: 'p' }, limited).device.memoryBudgetBytes, 2 ** 31);
    const flags = { model: 'p', profile: '/lab/other.yaml', expertStorage: 'bf16' } as const;
    const flagged = { profilePath: '/lab/other.yaml', expertStorage: 'bf16' };
    assert.deepEqual(settle('worker', flags, source).emulation, flagged);
    assert.equal(settle('worker', { model: 'p', expertStorage: 'bf16' }, '').emulation, null);
    assert.equal(settle('worker', { model: 'p', cache: 1 }, source).worker.cacheBytes, 1, 'it may have a cache');
  });

  it('refuse copies of experts and later routers where nothing uses them', () => {
    const ofMain = (flags: Parameters<typeof resolveNodeSettings>[2], source = '') =>
      settle('main', { model: 'p', id: 'm', ...flags }, source);
    assert.throws(() => ofMain({ replicas: 2 }), /add --homes strict, or leave out --replicas/);
    assert.throws(() => ofMain({ layersAhead: 2 }), /add --prediction router-ahead, or leave out --layers-ahead/);
    assert.throws(() => ofMain({}, 'placement: {replicas: 2}'), /only placement.homes: strict has copies/);
    assert.throws(() => ofMain({}, 'prediction: {layers_ahead: 2}'), /only prediction.source: router-ahead/);
    assert.throws(() => ofMain({}, 'batching: {enabled: false, max_delay_ms: 9}'), /each pass has one sequence/);
    assert.throws(() => ofMain({}, 'batching: {max_rows: 2}\ndrafting: {rows: 3}'), /a pass has 2 rows/);
    assert.equal(ofMain({ replicas: 2, homes: 'strict' }).placement.replicas, 2);
    assert.equal(ofMain({ layersAhead: 2, prediction: 'router-ahead' }).prediction.layersAhead, 2);
  });

  it('refuse a GPU for an emulated device, which computes on the processor', () => {
    const source = 'emulation: {profile: lab.yaml}';
    const refusal = { code: 'CONFIG_INVALID', message: /leave out device cuda/ };
    assert.throws(() => settle('worker', { model: 'p', device: 'cuda:1' }, source), refusal);
    assert.throws(() => settle('main', { model: 'p' }, `${source}\nmain: {device: cuda}`), refusal);
    assert.equal(settle('main', { model: 'p' }, source).device.backend, 'auto');
  });

  it('need no model for a worker and a shadow: they fetch one', () => {
    assert.equal(settle('worker', {}, '').modelPath, null);
    assert.equal(settle('shadow', {}, '').modelPath, null);
    assert.equal(settle('worker', {}, 'model: /packs/demo').modelPath, '/packs/demo');
  });

  it('are refused when the node is ambiguous, has another role or has no model', () => {
    assert.throws(() => settle('worker', { id: 'm' }), { code: 'CONFIG_INVALID', message: /"m" is a main/ });
    const two = 'nodes: [{id: a, role: worker}, {id: b, role: worker}]';
    assert.throws(() => settle('worker', { model: 'p' }, two), { code: 'CONFIG_INVALID', message: /a, b.*--id/ });
    assert.throws(() => settle('main', {}, ''), { code: 'CONFIG_INVALID', message: /no model.*--model/ });
  });

  it('know only peers whose host is configured, under mDNS', () => {
    const source = 'nodes: [{id: m, role: main}, {id: w, role: worker, host: 10.0.0.9}, {id: s, role: shadow}]';
    const settings = settle('shadow', { model: 'p' }, source);
    assert.deepEqual(settings.discovery.peers, [{ role: 'worker', id: 'w', address: '10.0.0.9:7602' }]);
    assert.equal(settings.mainAddress, null);
  });
});

describe('the settings that rows list values for', () => {
  it('are all drawn by the seeds', () => {
    const listed = (Object.keys(SETTINGS) as SettingsGroup[]).flatMap((group) =>
      rowsOf(group).flatMap(([name, { drawn }]) => (drawn === undefined ? [] : [`${group}.${name}`])),
    );
    assert.ok(listed.length > 0);
    assert.deepEqual(
      Object.keys(drawableOfRows()).sort(),
      listed.sort(),
      'DRAWN_GROUPS has the groups that seeds draw',
    );
  });
});

describe('nodesOfThisHost of a configuration', () => {
  it('returns the nodes whose host is a name or an address of this machine', () => {
    const ids = nodesOfThisHost(parseClusterConfig(STATIC, 'c.yaml'), HOST).map(({ id }) => id);
    assert.deepEqual(ids, ['m', 'w1']);
    const hosts = ['localhost', '127.0.0.1', 'BOX1', 'box1.lan', 'box1.local', '192.168.1.21', 'box10'];
    const nodes = hosts.map((host, index) => `{id: n${index}, role: worker, port: ${9000 + index}, host: ${host}}`);
    const here = nodesOfThisHost(parseClusterConfig(`nodes: [${nodes.join(', ')}]`, 'c.yaml'), HOST);
    assert.deepEqual(
      here.map(({ host }) => host),
      hosts.slice(0, 5),
    );
  });
});

describe('the flags of a daemon', () => {
  it('make a worker own its experts', () => {
    const argv = ['--model', '/p', '--homes', 'strict', '--memory-budget', '3 MiB'];
    const request = parseDaemonFlags('worker', argv);
    assert.ok(request.kind === 'run');
    const { placement, worker } = request.settings;
    assert.deepEqual([placement.homes, worker.cacheBytes], ['strict', 3 * 2 ** 20]);
  });

  it('are read for each role', () => {
    const request = parseDaemonFlags('worker', [
      '--model',
      '/p',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--id',
      'w',
      '--main',
      '127.0.0.1:7600',
      '--discovery',
      'static',
      '--memory-budget',
      '8 MiB',
      '--slots',
      '1',
      '--threads',
      '2',
      '--cluster',
      'demo',
      '--instruction-set',
      'scalar',
      '--log-level',
      'debug',
      '--log-format',
      'json',
      '--exit-with-parent',
      '--advertise-host',
      'me',
      '--interface',
      '10.0.0.1',
      '--cache',
      '4 MiB',
      '--cache-policy',
      'fifo',
      '--decompression-threads',
      '2',
      '--direct-io',
      '--device',
      'cuda:1',
      '--arithmetic',
      'fast',
      '--host-memory',
      'auto',
    ]);
    assert.ok(request.kind === 'run');
    assert.equal(request.exitWithParent, true);
    const { settings } = request;
    assert.equal(settings.cluster, 'demo');
    const { slots, cacheBytes, cachePolicy, decompressionThreads, directIo, hostMemory } = settings.worker;
    assert.deepEqual([slots, cacheBytes, cachePolicy], [1, 4 * 2 ** 20, 'fifo']);
    assert.deepEqual([decompressionThreads, directIo, hostMemory], [2, true, 'auto']);
    assert.deepEqual([settings.id, settings.listenHost, settings.listenPort], ['w', '127.0.0.1', 0]);
    assert.deepEqual(settings.discovery, { provider: 'static', interfaceAddress: '10.0.0.1', name: null, peers: [] });
    assert.deepEqual(settings.device, {
      backend: 'cuda',
      device: 1,
      arithmetic: 'fast',
      instructionSet: 'scalar',
      threads: 2,
      memoryBudgetBytes: 2 ** 23,
    });
    assert.deepEqual(settings.log, { level: 'debug', format: 'json' });
    assert.equal(settings.advertiseHost, 'me');
    assert.equal(settings.mainAddress, '127.0.0.1:7600');

    const main = parseDaemonFlags('main', [
      '--model',
      '/p',
      '--group-size',
      '3',
      '--align-token',
      '4',
      '--align-kv',
      '0',
      '--max-active',
      '2',
      '--max-context',
      '99',
      '--execute-timeout',
      '1500',
      '--no-stream-kv',
      '--optimistic',
      '--draft-rows',
      '4',
      '--context-memory',
      '4 GiB',
      '--no-reuse-prefixes',
      '--spread',
      'all',
      '--profile',
      '/lab.yaml',
      '--expert-storage',
      'fixed4',
      '--batching',
      'off',
      '--max-rows',
      '64',
    ]);
    assert.ok(main.kind === 'run');
    assert.equal(main.settings.placement.groupSize, 3);
    assert.deepEqual(main.settings.align, { tokenPeriod: 4, keyValuePeriod: 0, streamKeyValues: false });
    assert.deepEqual(main.settings.drafting, { optimistic: true, rows: 4, source: 'auto', headExperts: 'auto' });
    assert.equal(main.settings.placement.spread, 'all');
    assert.deepEqual(main.settings.emulation, { profilePath: '/lab.yaml', expertStorage: 'fixed4' });
    assert.deepEqual([main.settings.main.maxActiveSequences, main.settings.main.maxContextPositions], [2, 99]);
    assert.deepEqual([main.settings.main.contextMemoryBytes, main.settings.main.reusePrefixes], [4 * 2 ** 30, false]);
    assert.equal(main.settings.network.executeTimeoutMs, 1500);
    assert.deepEqual(main.settings.batching, { enabled: false, maxRows: 64, maxDelayMs: 'auto' });

    const plain = parseDaemonFlags('main', ['--model', '/p', '--prediction', 'off', '--draft-rows', 'auto']);
    assert.ok(plain.kind === 'run');
    assert.equal(plain.settings.align.streamKeyValues, true);
    assert.deepEqual([plain.settings.main.contextMemoryBytes, plain.settings.main.reusePrefixes], ['auto', true]);
    assert.equal(plain.settings.prediction.source, 'off');
    assert.deepEqual(plain.settings.drafting, { optimistic: false, rows: 'auto', source: 'auto', headExperts: 'auto' });

    const shadow = parseDaemonFlags('shadow', ['--model', '/p', '--precision', 'nf4']);
    assert.ok(shadow.kind === 'run' && shadow.settings.shadow.precision === 'nf4' && !shadow.exitWithParent);
  });

  it('override the file that --config names', () => {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-config-'));
    try {
      const path = join(directory, 'cluster.yaml');
      writeFileSync(path, 'cluster: filed\nmodel: pack\nalign: {token: 7}\n');
      const request = parseDaemonFlags('main', ['--config', path, '--cluster', 'flagged']);
      assert.ok(request.kind === 'run');
      assert.equal(request.settings.cluster, 'flagged');
      assert.equal(request.settings.modelPath, join(directory, 'pack'));
      assert.equal(request.settings.align.tokenPeriod, 7);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('are explained by --help, without those of other roles', () => {
    const help = parseDaemonFlags('worker', ['--help']);
    assert.ok(help.kind === 'help');
    assert.match(help.text, /Usage: odmoe worker/);
    assert.match(help.text, /--slots <count>/);
    assert.match(help.text.replaceAll(/\s+/g, ' '), /--memory-budget <size> [^-]*\(default: 1 GiB\)/);
    assert.match(help.text, /Examples:/);
    assert.doesNotMatch(help.text, /--align-token/);
    assert.match(help.text, /--profile <file>/);
    const ofMain = parseDaemonFlags('main', ['--help']);
    assert.ok(ofMain.kind === 'help');
    for (const flag of ['--prediction', '--no-stream-kv', '--optimistic', '--draft-rows', '--spread']) {
      assert.ok(ofMain.text.includes(flag), flag);
      assert.ok(!help.text.includes(flag), flag);
    }
  });

  const wrong: [RoleSetting, string[], RegExp][] = [
    ['worker', ['--slot', '1'], /unknown option '--slot'/],
    ['worker', ['--slots', 'many'], /whole number from 1/],
    ['main', ['--precision', 'nf4'], /unknown option/],
    ['shadow', ['--cache', '1 GiB'], /unknown option/],
    ['worker', ['--cache', 'much'], /size such as/],
    ['main', ['--port', '70000'], /65535/],
    ['main', ['--main', 'h:1'], /unknown option/],
    ['worker', ['--main', 'h'], /HOST:PORT/],
    ['worker', ['--main', 'h:0'], /HOST:PORT/],
    ['shadow', ['--main', 'h:99999'], /HOST:PORT/],
    ['worker', ['--memory-budget', 'lots'], /size such as/],
    ['shadow', ['--precision', 'int4'], /int8, fp16, nf4/],
    ['main', ['--id', 'no spaces'], /letters, digits/],
    ['main', ['--interface', 'eth0'], /IPv4/],
    ['main', ['--draft-rows', '17'], /from 1 to 16/],
    ['main', ['--spread', 'far'], /group, all/],
    ['main', ['--prediction', 'oracle'], /sep, router-ahead, trained, random, off/],
    ['worker', ['--expert-storage', 'int4'], /fp32, bf16, fixed4, huffman/],
    ['worker', ['--optimistic'], /unknown option/],
    ['main', ['extra'], /argument/],
  ];
  for (const [role, argv, message] of wrong) {
    it(`the flags of a ${role} are refused: ${argv.join(' ')}`, () => {
      assert.throws(() => parseDaemonFlags(role, argv), { code: 'USAGE', message });
    });
  }
});
