import assert from 'node:assert/strict';
import { type EarlierStatus, statusJson, statusLines as linesOf } from '../../cli/output/status-report.js';
import { tableLines } from '../../cli/output/table.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus, RoleName, StatusReply } from '../../shared/wire/messages.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { plainIdentity } from './plain-identity.js';

function node(role: RoleName, id: string, counters: Partial<NodeStatus> = {}): NodeStatus {
  const identity: NodeIdentity = plainIdentity({
    id,
    role,
    cluster: 'home',
    modelName: 'storyteller',
    packDigest: 'abc',
    bootId: `boot-${id}`,
    address: '10.0.0.1:7000',
    device: 'cpu avx2, 2 threads',
    release: '0.9.1',
  });
  return {
    ...emptyNodeStatus(identity),
    epoch: 3,
    uptimeMs: 61_000,
    residentMemoryBytes: 150e6,
    deviceMemoryUsedBytes: 2e6,
    deviceMemoryHighWaterBytes: 3e6,
    deviceMemoryBudgetBytes: 4e6,
    ...counters,
  };
}

const STATUS: StatusReply = {
  groupReason: 'one worker is enough',
  httpAddress: '127.0.0.1:7680',
  nodes: [
    node('ROLE_MAIN', 'main'),
    node('ROLE_WORKER', 'w1', {
      slots: 2,
      slotsInUse: 1,
      slotBytes: 196_608,
      loads: 30,
      executions: 50,
      loadMsMean: 0.5,
    }),
    node('ROLE_WORKER', 'w2', { slots: 2, loads: 10 }),
  ],
  placement: {
    epoch: 3,
    workers: [],
    groups: [{ workerIds: ['w1'] }, { workerIds: ['w2'] }],
    layers: 8,
    experts: 8,
    expertsPerToken: 2,
    homes: 0,
    spread: false,
  },
  activeSequences: 1,
  queuedRequests: 2,
  problems: [{ address: '10.0.0.9:7000', id: 'w3', code: 'NODE_REFUSED', message: 'has another pack' }],
  requests: 5,
  tokens: 120,
  workerHops: [],
  passes: null,
  ownWorkerId: '',
  layerWaits: [],
  workerWaits: [],
  links: [],
};

/** With all tables. */
function statusLines(status: StatusReply, earlier: EarlierStatus | null): string[] {
  return linesOf(status, { earlier, verbose: true });
}

describe('the printed status of a cluster', () => {
  it('marks the worker in main’s own process, whose memory is in main’s row', () => {
    const row = (ownWorkerId: string): string =>
      statusLines({ ...STATUS, ownWorkerId }, null).find((line) => /^w2 .*7000/.test(line)) ?? '';
    assert.match(row(''), /^w2 +worker +10\.0\.0\.1:7000 .*150 MB/);
    assert.match(row('w2'), /^w2 +worker on main +10\.0\.0\.1:7000 /);
    assert.doesNotMatch(row('w2'), /MB/);
    assert.equal(statusJson({ ...STATUS, ownWorkerId: 'w2' })['own_worker_id'], 'w2');
    assert.equal(statusJson(STATUS)['own_worker_id'], null);
  });

  it('says of a worker how many experts it keeps, not which', () => {
    const workers = [
      { id: 'w1', address: '', slots: 1 },
      { id: 'w2', address: '', slots: 1, homeShare: 24, keptExperts: Uint8Array.of(0b101, 1) },
    ];
    const placement = { ...(STATUS.placement ?? assert.fail('no placement')), workers };
    assert.deepEqual((statusJson({ ...STATUS, placement })['placement'] as { workers: unknown }).workers, [
      { id: 'w1', address: '', slots: 1, kept_experts_count: 0 },
      { id: 'w2', address: '', slots: 1, home_share: 24, kept_experts_count: 3 },
    ]);
  });

  it('shows what verified executions have found, and why nothing can be compared', () => {
    assert.doesNotMatch(statusLines(STATUS, null).join('\n'), /run again|compared/);
    assert.equal(statusJson(STATUS)['verification'], null);
    const verification = { share: 0.01, agreed: 7, differed: 1, dropped: 2, impossible: 3, open: 4, obstacle: 'alone' };
    const lines = statusLines({ ...STATUS, verification }, null);
    assert.ok(
      lines.includes(
        'a share of 0.01 of executions is run again by another worker: 8 compared, 1 differed, 4 under way, 2 dropped, 3 without a second worker',
      ),
    );
    assert.ok(lines.includes('executions cannot be compared: alone'));
    assert.deepEqual(statusJson({ ...STATUS, verification })['verification'], verification);
  });

  it("shows the size and the form of main's weights where main reports them", () => {
    assert.doesNotMatch(statusLines(STATUS, null).join('\n'), /weights:/);
    const [main, ...others] = STATUS.nodes;
    assert.ok(main !== undefined);
    const withFormat = { ...main, weightBytes: 3e6, weightFormat: 'fixed4' };
    assert.ok(
      statusLines({ ...STATUS, nodes: [withFormat, ...others] }, null).includes('weights: main 3.00 MB as fixed4'),
    );
  });

  it('shows the memory of sequence rows, where there are any', () => {
    assert.doesNotMatch(statusLines(STATUS, null).join('\n'), /rows of sequences/);
    const [main, ...others] = STATUS.nodes;
    const nodes = [...(main === undefined ? [] : [{ ...main, keyValueBytes: 3e6, prefixBytes: 1e6 }]), ...others];
    const lines = statusLines({ ...STATUS, nodes }, null);
    assert.ok(
      lines.includes('rows of sequences: main 3.00 MB, of which 1.00 MB are retained for prompts that begin alike'),
    );
  });

  it('shows the device of each node, and the reason, where one runs on a GPU', () => {
    assert.ok(!statusLines(STATUS, null).some((line) => line.includes('GPU')));
    const onGpu = node('ROLE_WORKER', 'w3', {
      deviceName: 'NVIDIA GeForce RTX 3090',
      deviceReason: 'the first GPU that can be used',
      deviceContextBytes: 300e6,
      deviceDriverUsedBytes: 900e6,
    });
    const lines = statusLines({ ...STATUS, nodes: [...STATUS.nodes, onGpu] }, null);
    const line = lines.find((text) => text.includes('RTX 3090')) ?? '';
    for (const fact of ['w3', formatBytes(300e6), formatBytes(900e6), 'the first GPU']) assert.ok(line.includes(fact));
    const [json] = (statusJson({ ...STATUS, nodes: [onGpu] }) as { nodes: Record<string, unknown>[] }).nodes;
    assert.deepEqual(
      [json?.['device_name'], json?.['device_context_bytes'], json?.['device_driver_used_bytes']],
      ['NVIDIA GeForce RTX 3090', 300e6, 900e6],
    );
  });

  it('shows the progress of workers that fetch their experts, and their problems', () => {
    const fetching = (id: string, fetchHeldBytes: number, fetchProblem = ''): NodeStatus =>
      node('ROLE_WORKER', id, { fetchNeededBytes: 8e9, fetchHeldBytes, fetchProblem });
    const nodes = [...STATUS.nodes, fetching('w4', 2e9), fetching('w5', 1e9, 'the disk is full'), fetching('w6', 8e9)];
    const lines = statusLines({ ...STATUS, nodes }, null);
    const from = lines.indexOf('fetching experts:');
    assert.deepEqual(lines.slice(from, from + 4), [
      'fetching experts:',
      '  w4: 2.00 GB of 8.00 GB (25 %), not placed yet',
      '  w5: 1.00 GB of 8.00 GB (12 %), not placed yet; held up: the disk is full',
      '',
    ]);
    assert.ok(!statusLines(STATUS, null).includes('fetching experts:'));
  });

  it('shows roster, workers, placement and problems', () => {
    const text = statusLines(STATUS, null).join('\n');
    assert.ok(
      text.startsWith('cluster home serves storyteller\n\nproblems:\n  w3 at 10.0.0.9:7000: has another pack'),
      text,
    );
    assert.match(text, /^1 answer running, 2 waiting, 5 requests and 120 tokens so far$/m);
    assert.match(
      text,
      /^w1 +worker +10\.0\.0\.1:7000 +1 min 1 s +2\.00 MB +3\.00 MB +4\.00 MB +150 MB +cpu avx2, 2 threads +0\.9\.1$/m,
    );
    assert.match(text, /^w1 +1\/2 +197 KB +30 +0 +0 +50 /m);
    assert.match(text, /no shadow is connected/);
    assert.match(text, /group 1: w2 {2}\(layers 1, 3, 5, 7\)/);
    assert.match(text, /w3 at 10\.0\.0\.9:7000: has another pack \[NODE_REFUSED\]/);
    assert.doesNotMatch(text, /tokens\/s/);
  });

  it('names the nodes that are drained, and what they wait for', () => {
    const drained = [
      { id: 'w1', role: 'worker', state: 'finishing', openExperts: 2 },
      { id: 'w2', role: 'worker', state: 'may go', openExperts: 0 },
    ];
    const lines = statusLines({ ...STATUS, drained }, null);
    assert.deepEqual(lines.slice(lines.indexOf('drained:'), lines.indexOf('drained:') + 3), [
      'drained:',
      '  w1 is draining: it gets no new work, and ends 2 experts first',
      '  w2 is drained and may go: nothing in the cluster needs it',
    ]);
    assert.deepEqual((statusJson({ ...STATUS, drained }) as { drained: object[] }).drained[0], {
      id: 'w1',
      role: 'worker',
      state: 'finishing',
      open_experts: 2,
      others_lack_bytes: 0,
    });
    const fetching = node('ROLE_WORKER', 'w3', { fetchNeededBytes: 20e6, fetchHeldBytes: 8e6 });
    const last = { ...STATUS, nodes: [...STATUS.nodes, fetching], drained };
    assert.ok(
      statusLines(last, null).includes(
        '  w2 is drained; others fetch 12.0 MB of its experts first, from it, too, as long as it runs',
      ),
    );
    const told = (statusJson(last) as { drained: { others_lack_bytes: number }[] }).drained;
    assert.deepEqual(
      told.map((each) => each.others_lack_bytes),
      [12e6, 12e6],
    );
    assert.ok(!statusLines(STATUS, null).includes('drained:'));
  });

  it('shows the cache of each worker that has one', () => {
    const counts = NO_CAPACITIES;
    const cache = {
      policy: 'planned',
      bytes: 5e6,
      misses: 7,
      packed: 2,
      capacities: { ...counts, full: 4, signMantissa: 6 },
      kept: { ...counts, full: 3, signMantissa: 6 },
      hits: { full: 20, compressed: 1, signMantissa: 2, exponent: 3 },
    };
    const nodes = [node('ROLE_WORKER', 'w1', { cache }), node('ROLE_WORKER', 'w2')];
    const lines = statusLines({ ...STATUS, nodes }, null);
    const table = lines.slice(
      lines.findIndex((line) => line.startsWith('cache ')),
      -1,
    );
    assert.match(table[1] ?? '', /^w1 +planned +5\.00 MB +3\/4 +0\/0 +6\/6 +0\/0 +2 +20 +6 +7$/);
    assert.doesNotMatch(table.slice(1, 3).join('\n'), /w2/);
    const [first] = statusJson({ ...STATUS, nodes }).nodes as { cache: { hits: unknown } }[];
    assert.deepEqual(first?.cache.hits, { full: 20, compressed: 1, sign_mantissa: 2, exponent: 3 });
    assert.ok(!statusLines(STATUS, null).some((line) => line.startsWith('cache ')));
  });

  it('shows rates since an earlier look; a restarted worker counts from zero', () => {
    const earlier: StatusReply = {
      ...STATUS,
      tokens: 100,
      nodes: [
        node('ROLE_WORKER', 'w1', { loads: 10, executions: 10 }),
        { ...node('ROLE_WORKER', 'w2', { loads: 500 }) },
      ],
    };
    const restarted = earlier.nodes[1];
    if (restarted !== undefined) restarted.identity.bootId = 'an older boot';
    const text = statusLines(STATUS, { status: earlier, elapsedMs: 2000 }).join('\n');
    assert.match(text, /10\.0 tokens\/s/);
    assert.match(text, /^w1 .* 10\.0 +20\.0 +0 B$/m);
    assert.match(text, /^w2 .* 5\.0 +0\.0 +0 B$/m);
  });

  it('is at most 80 columns wide without details, with a row for each node as people count, and problems first', () => {
    const ids = Array.from({ length: 12 }, (_, index) => `worker-jetson-orin-nx-of-the-kitchen-${index + 1}`);
    const workers = ids.map((id) =>
      node('ROLE_WORKER', id, { uptimeMs: 90 * 3_600_000, deviceMemoryBudgetBytes: 12e9 }),
    );
    const nodes = [...workers.reverse(), node('ROLE_SHADOW', 's'), node('ROLE_MAIN', 'm')];
    const links = nodes.map(({ identity }) => ({ peer: identity.id, roundTripMs: 123.456 }) as StatusReply['links'][0]);
    const lines = linesOf({ ...STATUS, nodes, links, ownWorkerId: ids[3] ?? '' }, { earlier: null, verbose: false });
    for (const line of lines) assert.ok(line.length <= 80, line);
    const first = lines.findIndex((line) => line.startsWith('node '));
    const roles = lines.slice(first + 1).map((line) => line.split(/ {2,}/)[0]);
    const named = (count: string): string => `worker-jetson-…${`-the-kitchen-${count}`.slice(-13)}`;
    assert.deepEqual(roles, ['m', 's', ...Array.from({ length: 12 }, (_, index) => named(String(index + 1)))]);
    assert.equal(lines.indexOf('problems:'), 2);
  });

  it('says why a cluster does not serve', () => {
    const first = (changes: Partial<StatusReply>): string | undefined =>
      linesOf({ ...STATUS, placement: null, ...changes }, { earlier: null, verbose: false })[0];
    const alone = [node('ROLE_MAIN', 'main')];
    const silent = 'cluster home does not serve storyteller: no worker is';
    assert.equal(first({ nodes: alone, problems: [] }), `${silent} connected: start one (odmoe worker)`);
    assert.equal(first({ nodes: alone }), `${silent} connected; 1 problem below says why`);
    assert.equal(first({}), `${silent} used yet`);
    const fetching = node('ROLE_WORKER', 'w', { fetchNeededBytes: 2 ** 31, fetchHeldBytes: 2 ** 30 });
    assert.match(
      first({ nodes: [...alone, fetching] }) ?? '',
      /: no worker has its experts yet: w has fetched 1 GiB of 2 GiB$/,
    );
  });

  it('shows an empty cluster', () => {
    const empty: StatusReply = { ...STATUS, nodes: [node('ROLE_MAIN', 'main')], placement: null, problems: [] };
    assert.match(statusLines(empty, null).join('\n'), /no worker is connected/);
  });

  it('shows the address that HTTP clients use, if there is one', () => {
    assert.ok(statusLines(STATUS, null).includes('HTTP clients, and the page: http://127.0.0.1:7680'));
    assert.doesNotMatch(statusLines({ ...STATUS, httpAddress: '' }, null).join('\n'), /HTTP/);
  });

  it('is JSON with snake_case keys', () => {
    const json = JSON.parse(JSON.stringify(statusJson(STATUS))) as Record<string, unknown>;
    assert.deepEqual(json['placement'], {
      epoch: 3,
      workers: [],
      groups: [{ worker_ids: ['w1'] }, { worker_ids: ['w2'] }],
      layers: 8,
      experts: 8,
      experts_per_token: 2,
      homes: 0,
      spread: false,
    });
    assert.equal(json['group_reason'], 'one worker is enough');
    assert.equal(json['http_address'], '127.0.0.1:7680');
    assert.equal(statusJson({ ...STATUS, httpAddress: '' })['http_address'], null);
    const [main] = json['nodes'] as Record<string, unknown>[];
    assert.equal(main?.['role'], 'main');
    assert.equal(main?.['device_memory_high_water_bytes'], 3e6);
  });
});

describe('printed tables and units', () => {
  it('align their columns', () => {
    const columns = [
      { title: 'a', align: 'left' as const },
      { title: 'bb', align: 'right' as const },
    ];
    assert.deepEqual(
      tableLines(columns, [
        ['xyz', '1'],
        ['', '100'],
      ]),
      ['a     bb', 'xyz    1', '     100'],
    );
  });

  it('are readable for people', () => {
    assert.deepEqual([0, 999, 1000, 13_944_336, 999_600, 1e18].map(formatBytes), [
      '0 B',
      '999 B',
      '1.00 KB',
      '13.9 MB',
      '1.00 MB',
      '1000 PB',
    ]);
    assert.deepEqual([5.4, 12_300, 185_000, 7_800_000, 97 * 3_600_000].map(formatDuration), [
      '5 ms',
      '12 s',
      '3 min 5 s',
      '2 h 10 min',
      '4 d 1 h',
    ]);
  });
});

describe('the status of a cluster', () => {
  /** The lines behind the address for HTTP clients. */
  function protectionLines(status: StatusReply): string[] {
    const lines = statusLines(status, null);
    return lines.slice(lines.findIndex((line) => line.startsWith('HTTP clients')) + 1);
  }

  it('says what protects it, and who waits', () => {
    const waiting = { id: 'jetson-2', role: 'worker', device: 'cuda sm_87', address: '192.168.1.21', waitedMs: 61_000 };
    const trusted = { ...STATUS, trust: { words: 'amber fox lunar seven', waiting: [waiting] } };
    assert.deepEqual(protectionLines(trusted).slice(0, 3), [
      'every connection is TLS, certificates of this cluster only; words: amber fox lunar seven',
      '1 machine waits: odmoe accept CODE',
      '  jetson-2 (worker, "cuda sm_87", 192.168.1.21), for 1 min 1 s',
    ]);
    const json = statusJson(trusted);
    assert.deepEqual(json['trust'], {
      words: 'amber fox lunar seven',
      waiting: [{ id: 'jetson-2', role: 'worker', device: 'cuda sm_87', address: '192.168.1.21', waited_ms: 61_000 }],
    });
    assert.equal(json['insecure'], false);
    const posing = { ...waiting, device: 'x", 10.0.0.1), for 1 s' };
    const lines = protectionLines({ ...STATUS, trust: { words: 'w', waiting: [posing] } });
    assert.equal(lines[2], '  jetson-2 (worker, "x\\", 10.0.0.1), for 1 s", 192.168.1.21), for 1 min 1 s');
    const two = { ...STATUS, trust: { words: 'w', waiting: [waiting, { ...waiting, id: 'jetson-3' }] } };
    assert.equal(protectionLines(two)[1], '2 machines wait: odmoe accept CODE');
  });

  it('says that nothing protects an insecure cluster, and nothing of one on loopback', () => {
    const insecure = { ...STATUS, insecure: true };
    const words = 'insecure: nothing protects this cluster (--insecure): anyone on the network can use it';
    assert.equal(protectionLines(insecure)[0], words);
    assert.deepEqual([statusJson(insecure)['trust'], statusJson(insecure)['insecure']], [null, true]);
    assert.doesNotMatch(statusLines(STATUS, null).join('\n'), /insecure|words:/);
  });
});

describe('the status of a cluster whose context goes past what its model was made for', () => {
  it('says so, and that of any other says nothing', () => {
    const past = { ...STATUS, contextPositions: 65_536, madeForPositions: 2048 };
    const line = 'context: 65536 tokens, past the 2048 that the model was made for';
    assert.ok(statusLines(past, null).includes(line), statusLines(past, null).join('\n'));
    assert.deepEqual([statusJson(past)['context_positions'], statusJson(past)['made_for_positions']], [65_536, 2048]);
    // A message has null where main says nothing.
    for (const other of [STATUS, { ...STATUS, contextPositions: null, madeForPositions: null }]) {
      assert.doesNotMatch(statusLines(other, null).join('\n'), /made for/);
    }
  });
});
