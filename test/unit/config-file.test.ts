import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { join } from 'node:path';

import fc from 'fast-check';
import {
  defaultClusterConfig,
  loadClusterConfig,
  parseClusterConfig,
} from '../../shared/settings/load-cluster-config.js';
import { DEFAULT_HTTP_ADDRESS } from '../../shared/settings/http-address.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

import { formatByteSize, parseByteSize } from '../../shared/base/text/byte-size.js';
import { WORKER_BUDGET_DEFAULT_BYTES } from '../../shared/settings/setting-limits.js';

import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { DaemonFlags } from '../../shared/settings/settings-table.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const EXAMPLE = join(packageRoot(), 'cluster.yaml');

function faultsOf(source: string): string[] {
  try {
    parseClusterConfig(source, 'c.yaml');
  } catch (error) {
    assert.ok(error instanceof OdmoeError, String(error));
    assert.equal(error.code, 'CONFIG_INVALID');
    return error.message.split('\n');
  }
  return [];
}

describe('cluster.yaml at the root', () => {
  const source = readFileSync(EXAMPLE, 'utf8');

  it('the cluster.yaml at the root is valid', () => {
    const config = loadClusterConfig(EXAMPLE);
    assert.deepEqual(
      config.nodes.map(({ id, address }) => [id, address.host, address.port]),
      [
        ['main', 'localhost', 7600],
        ['shadow', 'localhost', 7601],
        ['worker-1', 'localhost', 7602],
        ['worker-2', 'localhost', 7603],
      ],
    );
  });

  it('shows in its comments every key of every section, with the true default', () => {
    const shown = source.replaceAll(/^ {2}# ([a-z_]+: \S.*)$/gm, '  $1').replace('static # default: ', '');
    const parsed = parseClusterConfig(shown, 'c.yaml');
    const { path, nodes, ...expected } = defaultClusterConfig();
    assert.deepEqual([path, nodes], [null, []]);
    // This default is set later, because emulation has another one.
    expected.worker.memory_budget = WORKER_BUDGET_DEFAULT_BYTES;
    // This one is set later, because strict homes have another one.
    expected.worker.cache = 0;
    // This one is set later, because a main with its own worker has another one.
    expected.worker.cache_policy = 'planned';
    // If the port is taken, the default changes to another port. A configured address does not change.
    expected.main.http = DEFAULT_HTTP_ADDRESS;
    // The default is the form in which the model is shipped.
    expected.main.resident = 'auto';
    expected.worker.resident = 'auto';
    // There is no default file.
    expected.main.api_keys = 'api-keys.txt';
    const { interface: interfaceAddress, name, ...discovery } = parsed.discovery;
    assert.deepEqual([interfaceAddress, name], ['192.168.1.20', 'odmoe.default.svc.cluster.local']);
    assert.deepEqual(
      { ...parsed, discovery },
      { ...expected, discovery, model: parsed.model, path: parsed.path, nodes: parsed.nodes },
    );
    assert.deepEqual(discovery, expected.discovery);
    for (const [section, keys] of Object.entries(expected)) {
      if (typeof keys !== 'object') continue;
      for (const key of Object.keys(keys)) assert.match(shown, new RegExp(`^  ${key}: `, 'm'), `${section}.${key}`);
    }
    const nodeKeys =
      'id role host port listen model threads memory_budget device arithmetic slots cache instruction_set'.split(' ');
    for (const key of nodeKeys) assert.match(source, new RegExp(`^#   ${key} `, 'm'), key);
  });
});

describe('a configuration file', () => {
  it('may be empty, or have sections that are all commented out', () => {
    const expected = { ...defaultClusterConfig(), path: null };
    for (const source of ['', '# nothing\n', 'align:\n  # token: 1\nlog:\n', '{}']) {
      assert.deepEqual({ ...parseClusterConfig(source, 'c.yaml'), path: null }, expected);
    }
  });

  const wrong: [string, string, RegExp[]][] = [
    [
      'an unknown key',
      'cluster: a\nalgin:\n  token: 1\n',
      [/^c\.yaml:2:1: algin: unknown key; did you mean "align"\?$/],
    ],
    ['an unknown key of a section', 'align:\n  kv: 1\n  tokens: 1\n', [/^c\.yaml:3:3: align\.tokens: .*"token"/]],
    [
      'an unknown key of a node',
      'nodes:\n  - id: a\n    role: main\n    memory-budget: 1\n',
      [/^c\.yaml:4:5: nodes\[0\]\.memory-budget: .*"memory_budget"/],
    ],
    [
      'an unknown key near none',
      'zzzzzzzz: 1\n',
      [/^c\.yaml:1:1: zzzzzzzz: unknown key; the keys here are cluster, model/],
    ],
    ['a wrong type', 'align:\n  token: soon\n', [/^c\.yaml:2:10: align\.token: expected a whole number from 0 to/]],
    ['a negative period', 'align: {token: -1, kv: 1.5}', [/:1:16: align\.token: exp/, /:1:24: align\.kv: exp/]],
    ['a section that is a list', 'align: [1]', [/^c\.yaml:1:8: align: expected /]],
    ['a document that is a list', '- 1\n', [/^c\.yaml:1:1: expected a mapping/]],
    [
      'a value out of a choice',
      'log:\n  level: loud\n',
      [/^c\.yaml:2:10: log\.level: expected one of error, warn, info, debug$/],
    ],
    ['a size that is none', 'worker: {memory_budget: lots}', [/memory_budget: expected a size such as "1 GiB"/]],
    [
      'a quality that is cut',
      'main: {quality: "sliced(8,4,low"}',
      [/quality: "sliced\(8,4,low" is no quality: expected ex/],
    ],
    ['an empty quality', 'main: {quality: ""}', [/quality: "" is no quality: expected exact/]],
    [
      'a pair that is none',
      'main: {quality: "sliced(5,2)"}',
      [/quality: "sliced\(5,2\)" is no quality: no experts are/],
    ],
    [
      'a share that is none',
      'main: {quality: "sliced(8,4,critical=30%)"}',
      [/quality: "sliced\(8,4,critical=30%\)" is no quality: critical is a share/],
    ],
    ['a quality that is a number', 'main: {quality: 8}', [/quality: expected exact, sliced/]],
    ['a group size', 'placement: {group_size: 0}', [/group_size: expected auto or a whole number/]],
    ['a missing key', 'nodes:\n  - role: worker\n', [/^c\.yaml:2:5: nodes\[0\]\.id: expected letters/]],
    [
      'a port out of range',
      'nodes: [{id: a, role: main, port: 70000}]',
      [/port: expected a whole number from 1 to 65535/],
    ],
    ['a host with a port', 'nodes: [{id: a, role: main, host: "h:7600"}]', [/host: expected a host name/]],
    ['a key given twice', 'cluster: a\ncluster: b\n', [/^c\.yaml:2:1: cluster: .*twice; leave one of them out$/]],
    ['an alias of nothing', 'cluster: *nobody\n', [/nobody; write the values out in place of aliases/]],
    ['an alias of itself', 'cluster: &name [*name]\n', [/^c\.yaml:1:\d+: cluster: expected letters/]],
    ['no YAML', 'cluster: [a\nb: c: d\n', [/^c\.yaml:\d+:\d+: /]],
    [
      'two nodes of one id',
      'nodes:\n  - {id: a, role: worker}\n  - {id: a, role: worker}\n',
      [/^c\.yaml:3:10: nodes\[1\]\.id: "a" is already the id of nodes\[0\]$/],
    ],
    [
      'two nodes at one port',
      'nodes:\n  - {id: a, role: main, port: 7602}\n  - {id: b, role: worker, port: 7602}\n',
      [/^c\.yaml:3:33: nodes\[1\]\.port: localhost:7602 is already the address of nodes\[0\] \(a\)/],
    ],
    [
      'a worker of a main that runs all experts itself',
      'main: {experts: local}\nnodes:\n  - {id: a, role: main}\n  - {id: b, role: worker, port: 1}\n',
      [
        /^c\.yaml:4:19: nodes\[1\]\.role: main refuses workers where it runs all experts itself.*leave b out, or say both/,
      ],
    ],
    [
      'two mains',
      'nodes:\n  - {id: a, role: main}\n  - {id: b, role: main, port: 1}\n',
      [/^c\.yaml:3:19: nodes\[1\]\.role: a cluster has one main/],
    ],
    ['slots of a main', 'nodes: [{id: a, role: main, slots: 1}]', [/only a worker has slots/]],
    ['a cache of a main', 'nodes: [{id: a, role: main, cache: 1 MiB}]', [/only a worker has a cache, and a is a main/]],
    [
      'pools beside a cache',
      'worker: {cache: 1 GiB, pools: {full: 3}}',
      [/^c\.yaml:1:\d+: worker\.pools: .*so does worker\.cache/],
    ],
    [
      'pools beside the cache of a node',
      'worker: {pools: {full: 3}}\nnodes: [{id: a, role: worker, cache: 1 GiB}]',
      [/worker\.pools: .*the cache of a/],
    ],
    [
      'parts of experts under a policy of whole ones',
      'worker: {cache_policy: lru, pools: {full: 3, compressed: 1, exponent: 2}}',
      [/worker\.pools\.compressed: cache_policy lru keeps full/, /worker\.pools\.exponent: /],
    ],
    ['emulation of nothing', 'emulation: {expert_storage: bf16}', [/emulation\.profile: expected a device profile/]],
    ['more rows than a pass may have', 'drafting: {rows: 17}', [/drafting\.rows: expected auto or a whole number/]],
    ['a switch that is none', 'align: {stream_kv: maybe}', [/align\.stream_kv: expected true or false/]],
    [
      'a policy that there is not',
      'worker: {cache_policy: random}',
      [/one of planned, lru, fifo, marking, popularity, residency/],
    ],
    ['static discovery of nobody', 'discovery:\n  provider: static\n', [/^c\.yaml:2:13: discovery\.provider: static/]],
    [
      'static discovery without a main',
      'discovery: {provider: static}\nnodes: [{id: a, role: worker}]\n',
      [/^c\.yaml:2:8: nodes: .*main/],
    ],
    ['mini-batches above a pass', 'main: {prefill_rows: 8, mini_batch_rows: 9}', [/mini_batch_rows: .*more than/]],
  ];
  for (const [what, source, patterns] of wrong) {
    it(`is refused for ${what}, naming the place`, () => {
      const faults = faultsOf(source);
      assert.equal(faults.length, patterns.length, faults.join('\n'));
      for (const [index, pattern] of patterns.entries()) assert.match(faults[index] ?? '', pattern);
    });
  }

  it('may set mini-batches as large as a pass', () => {
    assert.deepEqual(faultsOf('main: {prefill_rows: 8, mini_batch_rows: 8}'), []);
  });

  it('is named in the error when it cannot be read', () => {
    assert.throws(() => loadClusterConfig('/nowhere/cluster.yaml'), {
      code: 'CONFIG_INVALID',
      message: /\/nowhere\/cluster\.yaml.*ENOENT/,
    });
  });

  it('always gives a configuration or CONFIG_INVALID', () => {
    const line = fc.constantFrom(
      'cluster: a',
      'nodes:',
      '  - id: a',
      '    role: main',
      'align:',
      '  token: 1',
      '- x',
      ': :',
    );
    fc.assert(
      fc.property(fc.array(fc.oneof(line, fc.string()), { maxLength: 8 }), (lines) => {
        faultsOf(lines.join('\n'));
      }),
    );
  });
});

describe("the cache policy of main's own worker", () => {
  const HOST = { hostname: 'box', addresses: [], processId: 1, stateHome: '/state' };
  const policyOf = (flags: DaemonFlags, text = '') =>
    resolveNodeSettings('main', parseClusterConfig(text, 'c.yaml'), { model: 'p', experts: 'local', ...flags }, HOST)
      .worker.cachePolicy;

  it('is not the plan for fixed memory, where answers take memory', () => {
    const budget = { memoryBudget: 2 ** 30 };
    const refused = { code: 'CONFIG_INVALID', message: /planned divides memory that stays.*leave the policy out/ };
    assert.throws(() => policyOf({ ...budget, cachePolicy: 'planned' }), refused);
    assert.throws(() => policyOf(budget, 'worker: {cache_policy: planned}'), refused);
    assert.equal(policyOf({ ...budget, cachePolicy: 'residency' }), 'residency');
    assert.equal(policyOf({ ...budget, experts: 'workers' }, 'worker: {cache_policy: planned}'), 'planned');
    assert.equal(policyOf({ cachePolicy: 'planned' }), 'planned');
    assert.equal(policyOf(budget, "main: {quality: 'sliced(8,4)'}"), 'sliced');
  });
});

describe("command-line flags for main's own worker", () => {
  const HOST = { hostname: 'box', addresses: [], processId: 1, stateHome: '/state' };
  const workerOf = (flags: DaemonFlags) =>
    resolveNodeSettings('main', parseClusterConfig('', 'c.yaml'), { model: 'p', ...flags }, HOST).worker;

  it('take effect where main has one, and are refused where it has none', () => {
    const flags: DaemonFlags = { slots: 3, cache: 0, hostMemory: 'auto', decompressionThreads: 2, directIo: true };
    for (const experts of ['local', 'both'] as const) {
      const { slots, cacheBytes, hostMemory, decompressionThreads, directIo } = workerOf({ ...flags, experts });
      assert.deepEqual({ slots, cache: cacheBytes, hostMemory, decompressionThreads, directIo }, flags);
    }
    assert.throws(() => workerOf(flags), { code: 'CONFIG_INVALID', message: /--slots is for main's own worker/ });
    assert.throws(() => workerOf({ cache: 0 }), { message: /--cache is for.*--experts local or both/ });
  });
});

describe('sizes in a configuration', () => {
  it('are read with their unit', () => {
    const sizes: [string | number, number | null][] = [
      ['1 GiB', 2 ** 30],
      ['512MiB', 2 ** 29],
      ['1.5 kb', 1500],
      [4096, 4096],
      ['0', 0],
      ['', null],
      ['-1', null],
      ['1 parsec', null],
      ['1e99', null],
    ];
    for (const [text, bytes] of sizes) assert.equal(parseByteSize(text), bytes, String(text));
    assert.equal(formatByteSize(1.5 * 2 ** 30), '1.5 GiB');
  });
});

describe("the form of main's own weights", () => {
  const residentOf = (source: string, flags: DaemonFlags = {}) =>
    resolveNodeSettings('main', parseClusterConfig(source, 'c.yaml'), { model: 'p', ...flags }).main.resident;

  it('comes from the flag, then from cluster.yaml, and is otherwise as shipped', () => {
    assert.equal(residentOf('main: {resident: fixed4}'), 'fixed4');
    assert.equal(residentOf('main: {resident: fixed4}', { resident: 'auto' }), 'auto');
    assert.equal(residentOf(''), null);
  });

  it('is never a form that rounds', () => {
    assert.match(faultsOf('main: {resident: int8}').join(), /one of auto, bf16, fixed4/);
  });
});
