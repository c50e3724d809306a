import assert from 'node:assert/strict';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { parseClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';

const HOUR_MS = 3_600_000;

function taken(source: string): void {
  parseClusterConfig(source, 'c.yaml');
}

/** `key`: the key that the error must name. */
function refused(source: string, key: string): void {
  assert.throws(
    () => parseClusterConfig(source, 'c.yaml'),
    (thrown: Error & { code?: unknown }) => thrown.code === 'CONFIG_INVALID' && thrown.message.includes(key),
    source,
  );
}

/** Whole numbers from the first to the second. `beside`: other settings without which they have no meaning. */
const RANGES: [key: string, least: number, most: number, beside?: string][] = [
  ['align.token', 0, 1_000_000],
  ['align.kv', 0, 1_000_000],
  ['prediction.layers_ahead', 1, 8, 'source: router-ahead'],
  ['drafting.rows', 1, 16],
  ['placement.group_size', 1, 1024],
  ['placement.replicas', 1, 2, 'homes: strict'],
  ['main.max_active_sequences', 1, 256],
  ['main.max_queued_requests', 0, 1_000_000],
  ['main.max_context_positions', 0, 2 ** 31 - 1],
  ['main.prefill_rows', 1, 16_384, 'mini_batch_rows: 1'],
  ['main.mini_batch_rows', 1, 16_384, 'prefill_rows: 16384'],
  ['main.worker_grace_ms', 0, HOUR_MS],
  ['main.stop_grace_ms', 0, HOUR_MS],
  ['batching.max_rows', 1, 16_384],
  ['batching.max_delay_ms', 0, HOUR_MS],
  ['worker.slots', 1, 1024],
  ['worker.replan_passes', 1, 1_000_000],
  ['worker.decompression_threads', 0, 1024],
  ['worker.read_depth', 1, 16],
  ['network.keepalive_interval_ms', 50, HOUR_MS],
  ['network.keepalive_timeout_ms', 50, HOUR_MS],
  ['network.execute_timeout_ms', 1, HOUR_MS],
  ['network.reconnect_delay_ms', 1, HOUR_MS],
];
/** The same of pools and of a node. */
const NESTED: [key: string, least: number, most: number, source: (value: number) => string][] = [
  ['full', 0, 65_536, (value) => `worker: {pools: {full: ${value}}}`],
  ['compressed', 0, 65_536, (value) => `worker: {pools: {compressed: ${value}}}`],
  ['sign_mantissa', 0, 65_536, (value) => `worker: {pools: {sign_mantissa: ${value}}}`],
  ['exponent', 0, 65_536, (value) => `worker: {pools: {exponent: ${value}}}`],
  ['port', 1, 65_535, (value) => `nodes: [{id: a, role: worker, port: ${value}}]`],
  ['threads', 0, 1024, (value) => `nodes: [{id: a, role: worker, threads: ${value}}]`],
  ['slots', 1, 1024, (value) => `nodes: [{id: a, role: worker, slots: ${value}}]`],
];

function plainSource(key: string, beside?: string): (value: number) => string {
  const [section = '', name = ''] = key.split('.');
  const others = beside === undefined ? '' : `, ${beside}`;
  return (value) => `${section}: {${name}: ${value}${others}}`;
}

const ALL = [
  ...RANGES.map(([key, least, most, beside]) => ({ key, least, most, source: plainSource(key, beside) })),
  ...NESTED.map(([key, least, most, source]) => ({ key, least, most, source })),
];

describe('the number in cluster.yaml', () => {
  for (const { key, least, most, source } of ALL) {
    it(`${key} is a whole number from ${least} to ${most}`, () => {
      const name = key.split('.').at(-1) ?? key;
      for (const value of [least, least + 1, most - 1, most]) taken(source(value));
      for (const value of [least - 1, most + 1, least + 0.5, -1]) refused(source(value), name);
    });
  }
});

/** Flags that override them. */
const FLAGS: [role: RoleSetting, flag: string, least: number, most: number, beside?: string[]][] = [
  ['worker', '--port', 0, 65_535],
  ['worker', '--threads', 0, 1024],
  ['worker', '--slots', 1, 1024],
  ['worker', '--decompression-threads', 0, 1024],
  ['main', '--layers-ahead', 1, 8, ['--prediction', 'router-ahead']],
  ['main', '--draft-rows', 1, 16],
  ['main', '--replicas', 1, 2, ['--homes', 'strict']],
  ['main', '--max-active', 1, 256],
  ['main', '--max-rows', 1, 16_384],
  ['main', '--max-context', 0, 2 ** 31 - 1],
  ['main', '--group-size', 1, 1024],
  ['main', '--align-token', 0, 1_000_000],
  ['main', '--align-kv', 0, 1_000_000],
  ['main', '--stop-grace-ms', 0, HOUR_MS],
  ['main', '--execute-timeout', 1, HOUR_MS],
];

describe('the number of the flag', () => {
  for (const [role, flag, least, most, beside = []] of FLAGS) {
    it(`${flag} is a whole number from ${least} to ${most}`, () => {
      const parse = (value: number): unknown =>
        parseDaemonFlags(role, ['--model', '/p', ...beside, flag, String(value)]);
      for (const value of [least, least + 1, most - 1, most]) parse(value);
      for (const value of [least - 1, most + 1, least + 0.5]) {
        assert.throws(() => parse(value), { code: 'USAGE' }, `${flag} ${value}`);
      }
    });
  }
});

describe('settings that other settings make meaningless', () => {
  const pairs: [what: string, fitting: string[], contradicting: [source: string, key: string][]][] = [
    [
      'drafts that fit into no pass',
      [
        'drafting: {rows: 8}\nbatching: {max_rows: 8}',
        'drafting: {rows: 9}\nbatching: {max_rows: 8, enabled: false}',
        'drafting: {rows: auto}\nbatching: {max_rows: 1}',
      ],
      [['drafting: {rows: 9}\nbatching: {max_rows: 8}', 'drafting.rows']],
    ],
    [
      'mini-batches above a pass',
      ['main: {prefill_rows: 8, mini_batch_rows: 8}'],
      [['main: {prefill_rows: 8, mini_batch_rows: 9}', 'mini_batch_rows']],
    ],
    [
      'copies of experts without homes of their own',
      ['placement: {replicas: 1}', 'placement: {replicas: 2, homes: strict}'],
      [['placement: {replicas: 2}', 'placement.replicas']],
    ],
    [
      'layers ahead where nobody looks ahead',
      ['prediction: {layers_ahead: 1}', 'prediction: {layers_ahead: 2, source: router-ahead}'],
      [['prediction: {layers_ahead: 2}', 'prediction.layers_ahead']],
    ],
    [
      'a delay of answers where no pass is shared',
      ['batching: {enabled: false, max_delay_ms: auto}', 'batching: {max_delay_ms: 5}'],
      [['batching: {enabled: false, max_delay_ms: 5}', 'batching.max_delay_ms']],
    ],
    [
      'workers where main runs all experts',
      ['main: {experts: both}\nnodes: [{id: a, role: worker}]', 'main: {experts: local}\nnodes: [{id: a, role: main}]'],
      [['main: {experts: local}\nnodes: [{id: a, role: worker}]', 'nodes[0].role']],
    ],
    [
      'pools beside another size of the cache',
      ['worker: {pools: {full: 1}, cache: 0}', 'worker: {pools: {full: 1}}\nnodes: [{id: a, role: worker, cache: 0}]'],
      [
        ['worker: {pools: {full: 1}, cache: 1}', 'worker.pools'],
        ['worker: {pools: {full: 1}}\nnodes: [{id: a, role: worker, cache: 1}]', 'worker.pools'],
      ],
    ],
    [
      'pools that a policy does not keep',
      [
        'worker: {cache_policy: planned, pools: {exponent: 1}}',
        'worker: {cache_policy: lru, pools: {full: 1, compressed: 0, exponent: 0}}',
        'worker: {cache_policy: residency, pools: {full: 1, compressed: 1}}',
      ],
      [
        ['worker: {cache_policy: lru, pools: {compressed: 1}}', 'pools.compressed'],
        ['worker: {cache_policy: lru, pools: {sign_mantissa: 1}}', 'pools.sign_mantissa'],
        ['worker: {cache_policy: residency, pools: {exponent: 1}}', 'pools.exponent'],
      ],
    ],
    [
      'keys of workers at other nodes',
      ['nodes: [{id: a, role: worker, slots: 1, cache: 1}]'],
      [
        ['nodes: [{id: a, role: main, slots: 1}]', 'nodes[0].slots'],
        ['nodes: [{id: a, role: shadow, cache: 1}]', 'nodes[0].cache'],
      ],
    ],
    [
      'more than one main, and more than one shadow',
      ['nodes: [{id: a, role: main}, {id: b, role: shadow}, {id: c, role: worker}, {id: d, role: worker}]'],
      [
        ['nodes: [{id: a, role: main}, {id: b, role: main, port: 7700}]', 'nodes[1].role'],
        ['nodes: [{id: a, role: shadow}, {id: b, role: shadow, port: 7700}]', 'nodes[1].role'],
      ],
    ],
    [
      'two nodes at one address',
      ['nodes: [{id: a, role: worker, port: 7700}, {id: b, role: worker, port: 7701}]'],
      [['nodes: [{id: a, role: worker, port: 7700}, {id: b, role: worker, port: 7700}]', 'nodes[1].port']],
    ],
  ];
  for (const [what, fitting, contradicting] of pairs) {
    it(`a setting that another one makes meaningless is refused: ${what}`, () => {
      for (const source of fitting) taken(source);
      for (const [source, key] of contradicting) refused(source, key);
    });
  }
});

describe('the share of verified executions', () => {
  it('is a number from 0 to 1, in cluster.yaml and as a flag', () => {
    const parse = (value: string): unknown => parseDaemonFlags('main', ['--model', '/p', '--verify-share', value]);
    for (const value of ['0', '1', '0.01', '.5']) {
      taken(`main: {verify_share: ${value}}`);
      parse(value);
    }
    for (const value of ['1.01', '-0.1', 'half', '1e-2x', '']) {
      refused(`main: {verify_share: ${value === '' ? '""' : value}}`, 'verify_share');
      assert.throws(() => parse(value), { code: 'USAGE' }, value);
    }
  });
});
