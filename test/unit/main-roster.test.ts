import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { MAX_DAMAGE_ANSWERS } from '../../main-node/cluster/damaged-workers.js';
import { JOIN_BATCH_MS, Roster, type RosterObserver } from '../../main-node/cluster/roster.js';
import { MAX_FAILURES_IN_A_ROW } from '../../main-node/cluster/failing-workers.js';
import { COHORT_WAIT_MS } from '../../main-node/cluster/fetching-workers.js';
import { EPOCH_LIMIT, firstEpoch, PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import { isBeyondShadow, placedAddress } from '../../main-node/cluster/placed-address.js';
import { ShadowLink } from '../../main-node/cluster/shadow-link.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type {
  NodeIdentity,
  NodeStatus,
  Prospect,
  ShadowReply,
  ShadowRequest,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { RUNTIME } from '../wall.js';
import { onVirtualClock } from './virtual-run.js';
import { GROUPING } from './plain-shape.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { plainIdentity } from './plain-identity.js';

const SILENT = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const never = new AbortController().signal;

const identity = (id: string): NodeIdentity => plainIdentity({ id, bootId: `boot of ${id}`, address: '' });

function worker(
  id: string,
  dialled = `${id}:1`,
  advertised = '',
  partialPack = false,
): { link: WorkerLink; stream: MemoryStream<WorkerRequest, WorkerReply> } {
  const stream = new MemoryStream<WorkerRequest, WorkerReply>();
  const link = new WorkerLink(
    { ...identity(id), address: advertised },
    dialled,
    stream,
    { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME },
    SILENT,
    partialPack,
  );
  return { link, stream };
}

function shadow(
  id: string,
  address = `${id}:1`,
): { link: ShadowLink; stream: MemoryStream<ShadowRequest, ShadowReply> } {
  const stream = new MemoryStream<ShadowRequest, ShadowReply>();
  const listener = {
    onPrediction: () => undefined,
    onRestart: () => undefined,
    onDraft: () => undefined,
    onPrefixKept: () => true,
    onSequenceDropped: () => undefined,
    onLost: () => undefined,
    onDrained: () => undefined,
  };
  const link = new ShadowLink(
    identity(id),
    address,
    stream,
    { expertLayers: 4, experts: 8, vocabSize: 300 },
    listener,
    SILENT,
  );
  return { link, stream };
}

function epochs(stream: MemoryStream<WorkerRequest, WorkerReply> | MemoryStream<ShadowRequest, ShadowReply>): number[] {
  return stream.sent.flatMap((message) => (message.kind === 'placement' ? [message.placement.epoch] : []));
}

const newRoster = (log: Logger = SILENT, runtime: Runtime = RUNTIME, observer?: RosterObserver) =>
  new Roster({ expertLayers: 4, experts: 8, expertsPerToken: 2 }, GROUPING, 100, runtime, log, observer);

describe('main: the roster', () => {
  it('makes one placement for workers that come together, and sends it to them and to shadow', async () => {
    const roster = newRoster();
    const [a, b, s] = [worker('a'), worker('b'), shadow('s')];
    roster.addShadow(s.link);
    roster.addWorker(a.link);
    roster.addWorker(b.link);
    await roster.waitForPlacement(1000, never);
    assert.deepEqual([epochs(a.stream), epochs(b.stream), epochs(s.stream)], [[101], [101], [101]]);
    assert.deepEqual(roster.placement?.groups, [{ workerIds: ['a', 'b'] }]);
    roster.stop();
  });

  it('places anew at once when a worker is lost', async () => {
    const roster = newRoster();
    const [a, b] = [worker('a'), worker('b')];
    roster.addWorker(a.link);
    roster.addWorker(b.link);
    await roster.waitForPlacement(1000, never);
    roster.removeWorker(a.link, 'test');
    assert.equal(roster.placement?.epoch, 102);
    assert.deepEqual(epochs(b.stream), [101, 102]);
    roster.removeWorker(b.link, 'test');
    assert.equal(roster.placement, null);
    assert.equal(roster.epoch, 103);
    roster.stop();
  });

  it('continues above the epochs that a peer has seen of an earlier main', async () => {
    const roster = newRoster();
    const [a, s] = [worker('a'), shadow('s')];
    roster.goAbove(500, 'a');
    roster.addWorker(a.link);
    await roster.waitForPlacement(1000, never);
    roster.goAbove(501, 'a');
    assert.deepEqual(epochs(a.stream), [501], 'its own placement is no reason for another one');
    roster.goAbove(900, 's');
    roster.addShadow(s.link);
    assert.deepEqual([epochs(a.stream), epochs(s.stream)], [[501, 901], [901]]);
    roster.stop();
  });

  it('ignores an epoch too great for any main, and continues above the greatest valid one', async () => {
    const roster = newRoster();
    const a = worker('a');
    for (const poison of [PEER_EPOCH_LIMIT + 1, 2 ** 53 - 2, 2 ** 60, Infinity, NaN]) roster.goAbove(poison, 'a');
    roster.addWorker(a.link);
    await roster.waitForPlacement(1000, never);
    assert.deepEqual(epochs(a.stream), [101]);
    roster.goAbove(PEER_EPOCH_LIMIT, 'a');
    assert.deepEqual(epochs(a.stream), [101, PEER_EPOCH_LIMIT + 1]);
    assert.ok(PEER_EPOCH_LIMIT + 1 < EPOCH_LIMIT && Number.isSafeInteger(EPOCH_LIMIT));
    roster.stop();
  });

  it('announces no older placement after a newer one when a stream breaks during the announcement', async () => {
    const roster = newRoster();
    const [a, b] = [worker('a'), worker('b')];
    a.stream.send = () => roster.removeWorker(a.link, 'broke');
    roster.addWorker(a.link);
    roster.addWorker(b.link);
    await roster.waitForPlacement(1000, never);
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(epochs(b.stream), [102]);
    roster.stop();
  });

  it('waits for a worker for the given time, then fails with NO_WORKERS', async () => {
    const roster = newRoster();
    await assert.rejects(roster.waitForPlacement(5, never), { code: 'NO_WORKERS' });
    const waiting = roster.waitForPlacement(5000, never);
    roster.addWorker(worker('a').link);
    assert.equal((await waiting).epoch, 101);
    roster.stop();
  });

  it('stops waiting when the request is cancelled', async () => {
    const roster = newRoster();
    const gone = new AbortController();
    const waiting = roster.waitForPlacement(60_000, gone.signal);
    gone.abort();
    await assert.rejects(waiting, { code: 'CANCELLED' });
  });

  it('waits until all have sent their status again, are gone, or the limit is over', async () => {
    const roster = newRoster();
    const [a, b] = [worker('a'), worker('b')];
    roster.addWorker(a.link);
    roster.addWorker(b.link);
    let over = false;
    const statuses = roster.nextStatuses(60_000).then(() => (over = true));
    a.link.receive({ kind: 'status', status: { ...emptyNodeStatus(identity('a')), executions: 5 } });
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(over, false);
    b.link.streamClosed(null);
    await statuses;
    assert.equal(a.link.status?.executions, 5);
    await roster.nextStatuses(1);
    roster.stop();
  });

  it('uses one shadow, and the standby when that is lost', async () => {
    const roster = newRoster();
    const [first, second, a] = [shadow('s1'), shadow('s2'), worker('a')];
    roster.addShadow(first.link);
    roster.addShadow(second.link);
    roster.addWorker(a.link);
    await roster.waitForPlacement(1000, never);
    assert.equal(roster.shadow, first.link);
    assert.deepEqual(epochs(second.stream), []);
    roster.removeShadow(first.link, 'test');
    assert.equal(roster.shadow, second.link);
    assert.deepEqual(epochs(second.stream), [101]);
    roster.stop();
  });

  it('keeps the shadow in use when a standby is lost', async () => {
    const roster = newRoster();
    const [first, second] = [shadow('s1'), shadow('s2')];
    roster.addShadow(first.link);
    roster.addShadow(second.link);
    roster.removeShadow(second.link, 'test');
    roster.removeShadow(second.link, 'test');
    assert.equal(roster.shadow, first.link);
    assert.deepEqual(roster.connectedShadows(), [first.link]);
    roster.stop();
  });

  it('records of a lost node whether it had a part in the cluster', async () => {
    const lost: string[] = [];
    const roster = newRoster(SILENT, RUNTIME, {
      changed: () => undefined,
      lost: ({ id }, _reason, wasUsed) => lost.push(`${id} ${wasUsed ? 'used' : 'idle'}`),
      distrusted: () => undefined,
    });
    const [placed, aside, fetching] = [worker('a'), worker('b'), worker('c', 'c:1', '', true)];
    const [first, second] = [shadow('s1'), shadow('s2')];
    for (const { link } of [first, second]) roster.addShadow(link);
    for (const { link } of [placed, aside, fetching]) roster.addWorker(link);
    await roster.waitForPlacement(1000, never);
    for (let answer = 0; answer < MAX_DAMAGE_ANSWERS; answer++) roster.workerDamaged(aside.link, 'damaged');
    for (const { link } of [placed, aside, fetching]) roster.removeWorker(link, 'test');
    for (const { link } of [second, first]) roster.removeShadow(link, 'test');
    assert.deepEqual(lost, ['a used', 'b idle', 'c idle', 's2 idle', 's1 used']);
    roster.stop();
  });

  it('counts the bytes of all connections to a daemon, ended ones too', () => {
    const roster = newRoster();
    const bytes = (): number[][] => roster.links().map((link) => [link.sentBytes, link.receivedBytes]);
    for (const connection of [1, 2, 3]) {
      const [a, s] = [worker('a'), shadow('s')];
      Object.assign(a.stream, { sentBytes: 10, receivedBytes: 20 });
      Object.assign(s.stream, { sentBytes: 100, receivedBytes: 200 });
      roster.addWorker(a.link);
      roster.addShadow(s.link);
      assert.deepEqual(bytes(), [
        [100 * connection, 200 * connection],
        [10 * connection, 20 * connection],
      ]);
      roster.removeWorker(a.link, 'test');
      roster.removeShadow(s.link, 'test');
      assert.deepEqual(bytes(), []);
    }
    roster.stop();
  });

  it('reports the end of a sequence once to every worker that may hold data of it', async () => {
    const roster = newRoster();
    const members = ['damaged', 'failing', 'lying', 'placed'].map((id) => worker(id));
    const [damaged, failing, lying] = members;
    assert.ok(damaged !== undefined && failing !== undefined && lying !== undefined);
    for (const { link } of members) roster.addWorker(link);
    await roster.waitForPlacement(1000, never);
    for (let time = 0; time < MAX_DAMAGE_ANSWERS; time += 1) roster.workerDamaged(damaged.link, 'a checksum fails');
    for (let time = 0; time < MAX_FAILURES_IN_A_ROW; time += 1) roster.workerFailed(failing.link, 'INTERNAL', 'no');
    roster.distrust(lying.link, 'it lies');
    assert.deepEqual(
      roster.placement?.workers.map(({ id }) => id),
      ['placed'],
    );
    roster.endSequence(7);
    for (const { link, stream } of members) {
      const ends = stream.sent.flatMap((message) => (message.kind === 'end' ? [message.end.sequence] : []));
      assert.deepEqual(ends, [7], link.id);
    }
    roster.stop();
  });
});

describe('main: fetching workers', () => {
  let roster: Roster;

  beforeEach(() => {
    roster = newRoster();
  });

  afterEach(() => roster.stop());

  const fetching = (id: string): ReturnType<typeof worker> => worker(id, `${id}:1`, '', true);
  type Fetching = ReturnType<typeof worker>;

  function prospects({ stream }: Fetching): Prospect[] {
    return stream.sent.flatMap((message) => (message.kind === 'prospect' ? [message.prospect] : []));
  }

  function latest(member: Fetching): Prospect {
    return prospects(member).at(-1) ?? assert.fail(`nothing was announced to ${member.link.id}`);
  }

  function tell(member: Fetching, status: Partial<NodeStatus>): void {
    member.link.receive({ kind: 'status', status: { ...emptyNodeStatus(identity(member.link.id)), ...status } });
    roster.workerReported(member.link);
  }

  const ready = (member: Fetching): void => tell(member, { fetchReadyFor: latest(member).number });
  const placedIds = (): string[] | undefined => roster.placement?.workers.map(({ id }) => id);

  it('are connected and not placed before they have the needed experts, and then placed at once', async () => {
    const [whole, fresh] = [worker('a'), fetching('b')];
    roster.addWorker(whole.link);
    roster.addWorker(fresh.link);
    await roster.waitForPlacement(1000, never);
    assert.deepEqual(placedIds(), ['a']);
    assert.deepEqual(
      roster.connectedWorkers().map(({ id }) => id),
      ['a', 'b'],
    );
    assert.equal(roster.connectedBootId('b'), 'boot of b');
    assert.deepEqual(epochs(fresh.stream), []);
    assert.deepEqual(latest(fresh).placement.groups, [{ workerIds: ['a', 'b'] }]);
    assert.deepEqual(latest(fresh).sources, ['a:1']);
    tell(fresh, { fetchNeededBytes: 100, fetchHeldBytes: 50 });
    tell(fresh, { fetchReadyFor: latest(fresh).number - 1 });
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(placedIds(), ['a']);
    ready(fresh);
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(placedIds(), ['a', 'b']);
    assert.equal(roster.worker('b'), fresh.link);
    assert.equal(prospects(whole).length, 0, 'a worker with the whole pack gets a prospect');
  });

  it('learn all sources that they may fetch from, whoever comes and goes', async () => {
    const [a, b, whole] = [fetching('a'), fetching('b'), worker('whole')];
    roster.addWorker(a.link);
    assert.deepEqual(latest(a).sources, []);
    const { number } = latest(a);
    const [first, second] = [shadow('s1'), shadow('s2')];
    roster.addShadow(first.link);
    assert.deepEqual(latest(a).sources, ['s1:1']);
    roster.addShadow(second.link);
    assert.deepEqual(latest(a).sources, ['s1:1', 's2:1']);
    roster.removeShadow(first.link, 'test');
    assert.deepEqual(latest(a).sources, ['s2:1']);
    assert.equal(latest(a).number, number, 'it needs what it needed before');
    roster.addWorker(b.link);
    assert.deepEqual(latest(a).sources, ['s2:1', 'b:1']);
    assert.deepEqual(latest(b).sources, ['s2:1', 'a:1']);
    roster.addWorker(whole.link);
    await roster.waitForPlacement(1000, never);
    assert.deepEqual(latest(a).sources, ['s2:1', 'whole:1', 'b:1']);
    roster.removeWorker(b.link, 'test');
    assert.deepEqual(latest(a).sources, ['s2:1', 'whole:1']);
  });

  it('come together, and each learns the future placement of all', async () => {
    const members = ['a', 'b', 'c', 'd'].map(fetching);
    for (const { link } of members) roster.addWorker(link);
    const groups = [{ workerIds: ['a', 'b'] }, { workerIds: ['c', 'd'] }];
    for (const member of members) assert.deepEqual(latest(member).placement.groups, groups);
    for (const member of members.slice(1)) ready(member);
    await sleep(2 * JOIN_BATCH_MS);
    assert.equal(roster.placement, null);
    ready(members[0] as Fetching);
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(placedIds(), ['a', 'b', 'c', 'd']);
    const announcements = members.map((member) => prospects(member).length);
    ready(members[0] as Fetching);
    assert.deepEqual(
      members.map((member) => prospects(member).length),
      announcements,
    );
  });

  it('do not wait for a blocked or lost one', async () => {
    const [a, b, c] = [fetching('a'), fetching('b'), fetching('c')];
    for (const { link } of [a, b, c]) roster.addWorker(link);
    tell(b, { fetchProblem: 'the disk is full' });
    assert.deepEqual(latest(a).placement.groups, [{ workerIds: ['a', 'c'] }]);
    assert.deepEqual(latest(b).placement.groups, [{ workerIds: ['a', 'b', 'c'] }]);
    ready(a);
    roster.removeWorker(c.link, 'test');
    assert.deepEqual(latest(a).placement.groups, [{ workerIds: ['a'] }]);
    ready(a);
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(placedIds(), ['a']);
    ready(b);
    await sleep(2 * JOIN_BATCH_MS);
    assert.deepEqual(placedIds(), ['a', 'b']);
  });

  it('do not wait for ever for a slow one', async () => {
    await onVirtualClock(async (runtime) => {
      roster = newRoster(SILENT, runtime);
      const [fast, slow] = [fetching('a'), fetching('b')];
      for (const { link } of [fast, slow]) roster.addWorker(link);
      ready(fast);
      await runtime.sleep(COHORT_WAIT_MS + 1);
      assert.deepEqual(latest(fast).placement.groups, [{ workerIds: ['a'] }]);
      ready(fast);
      await runtime.sleep(JOIN_BATCH_MS + 1);
      assert.deepEqual(placedIds(), ['a']);
      ready(slow);
      await runtime.sleep(JOIN_BATCH_MS + 1);
      assert.deepEqual(placedIds(), ['a', 'b']);
    });
  });

  it('are named in the error, with their progress, when no other worker exists', async () => {
    const fresh = fetching('a');
    roster.addWorker(fresh.link);
    tell(fresh, { fetchNeededBytes: 4096, fetchHeldBytes: 1024, fetchProblem: 'the disk is full' });
    await assert.rejects(roster.waitForPlacement(5, never), {
      code: 'NO_WORKERS',
      message: /1 worker is still fetching.*a: 1 KiB of 4 KiB, held up: the disk is full/,
    });
  });

  it('get new experts to fetch when a worker is lost, and keep the fetched ones', async () => {
    const [a, b] = [fetching('a'), fetching('b')];
    for (const { link } of [a, b]) roster.addWorker(link);
    ready(a);
    ready(b);
    await roster.waitForPlacement(1000, never);
    const before = latest(a).number;
    roster.removeWorker(b.link, 'test');
    assert.deepEqual(placedIds(), ['a']);
    assert.ok(latest(a).number > before);
    assert.deepEqual(latest(a).placement.groups, [{ workerIds: ['a'] }]);
  });
});

describe('main: the worker addresses that shadow receives', () => {
  async function announced(shadowAddress: string): Promise<{ addresses: string[]; unreachable: unknown[] }> {
    const unreachable: unknown[] = [];
    const roster = newRoster({
      ...SILENT,
      warn: (event, fields) => {
        if (event === 'shadow cannot reach worker') unreachable.push(fields?.['worker']);
      },
    });
    const s = shadow('s', shadowAddress);
    roster.addShadow(s.link);
    roster.addWorker(worker('a', '127.0.0.1:7601', '192.0.2.5:7601').link);
    roster.addWorker(worker('b', '127.0.0.1:7602', ':7602').link);
    roster.addWorker(worker('c', '192.0.2.6:7601', '127.0.0.1:7601').link);
    await roster.waitForPlacement(1000, never);
    roster.addWorker(worker('d', '[::1]:7603', '[fe80::1]:7603').link);
    await sleep(2 * JOIN_BATCH_MS);
    roster.stop();
    const last = s.stream.sent.at(-1);
    assert.ok(last?.kind === 'placement');
    return { addresses: last.placement.workers.map(({ address }) => address), unreachable };
  }

  const ADDRESSES = ['192.0.2.5:7601', '127.0.0.1:7602', '192.0.2.6:7601', '[fe80::1]:7603'];

  it('are not the loopback address that main dialled, where the worker advertises a better one', async () => {
    assert.deepEqual(await announced('127.0.0.1:7700'), { addresses: ADDRESSES, unreachable: [] });
  });

  it('are those that main dialled when the worker advertises none', () => {
    const own = { ...identity('w'), address: 'somewhere:far' };
    assert.equal(placedAddress({ address: '127.0.0.1:7601', identity: own }), '127.0.0.1:7601');
  });

  it('cause one warning where a shadow on another machine cannot reach them', async () => {
    assert.deepEqual(await announced('192.0.2.9:7700'), { addresses: ADDRESSES, unreachable: ['b'] });
  });

  it('cause no warning when main knows a shadow of its own machine by an outer address', () => {
    const host = { hostname: 'box', addresses: ['192.0.2.9'], processId: 1, stateHome: '/state' };
    assert.equal(isBeyondShadow('192.0.2.9:7700', '127.0.0.1:7602', host), false);
    assert.equal(isBeyondShadow('192.0.2.8:7700', '127.0.0.1:7602', host), true);
    assert.equal(isBeyondShadow('192.0.2.8:7700', '192.0.2.9:7602', host), false);
  });
});

describe('main: the first epoch', () => {
  it('grows from one start to the next and leaves room for epochs in between', () => {
    const start = Date.UTC(2026, 5, 1);
    assert.ok(firstEpoch(start + 1) - firstEpoch(start) >= 1000);
    for (const year of [1970, 2019, 2099, 2100, 2300, 275_000]) {
      const first = firstEpoch(Date.UTC(year, 0, 1));
      assert.ok(first >= 1 && first <= PEER_EPOCH_LIMIT, `the clock shows ${year}`);
    }
  });

  it('names workers that cache nothing where experts have strict homes', () => {
    const shape = { expertLayers: 4, experts: 8, expertsPerToken: 2 };
    const strict = new Roster(shape, { ...GROUPING, homes: 1 }, 100, RUNTIME, SILENT);
    const { link: keeps } = worker('keeps');
    const { link: forgets } = worker('forgets');
    for (const link of [keeps, forgets]) strict.addWorker(link);
    assert.deepEqual(strict.problems(), [], 'before they have reported anything');
    const none = NO_CAPACITIES;
    const cache = { policy: 'lru', bytes: 1, capacities: none, kept: none, hits: none, misses: 0, packed: 0 };
    keeps.receive({ kind: 'status', status: { ...emptyNodeStatus(identity('keeps')), cache } });
    forgets.receive({ kind: 'status', status: emptyNodeStatus(identity('forgets')) });
    assert.deepEqual(
      strict.problems().map(({ id, code }) => [id, code]),
      [['forgets', 'CONFIG_INVALID']],
    );
    strict.stop();
  });
});
