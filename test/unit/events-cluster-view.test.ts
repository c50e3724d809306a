import assert from 'node:assert/strict';
import { clusterView, joinCommand, type ServedCluster } from '../../main-node/events/cluster-view.js';
import { LOST_REMEMBERED_MS, LostNodes, MAX_LOST_NODES, problemsWithLost } from '../../main-node/events/lost-nodes.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus, RoleName, StatusReply } from '../../shared/wire/messages.js';

function identity(id: string, role: RoleName = 'ROLE_WORKER'): NodeIdentity {
  return {
    id,
    role,
    cluster: 'home',
    protocolVersion: 5,
    modelName: 'm',
    packDigest: 'd',
    bootId: `boot of ${id}`,
    address: `${id}:7600`,
    device: 'cpu',
    release: '1.2.3',
  };
}

const node = (id: string, role: RoleName, status: Partial<NodeStatus> = {}): NodeStatus => ({
  ...emptyNodeStatus(identity(id, role)),
  ...status,
});

const SERVED: ServedCluster = {
  model: {
    name: 'm',
    family: 'mixtral',
    parameters: 1,
    weightFormat: 'BF16',
    contextPositions: 10,
    madeForPositions: 10,
    arithmetic: 'exact',
  },
  expertLayers: 2,
  experts: 4,
  expertsPerToken: 2,
  strictHomes: false,
  machineAddress: '10.0.0.1',
};

function status(changes: Partial<StatusReply> = {}): StatusReply {
  const placement = { epoch: 1, workers: [], groups: [{ workerIds: ['b'] }, { workerIds: ['a'] }] };
  return {
    nodes: [node('main', 'ROLE_MAIN'), node('a', 'ROLE_WORKER')],
    placement: { ...placement, layers: 2, experts: 4, expertsPerToken: 2, homes: 0, spread: false },
    activeSequences: 1,
    queuedRequests: 2,
    problems: [],
    requests: 0,
    tokens: 0,
    groupReason: 'why',
    workerHops: [],
    passes: null,
    ownWorkerId: '',
    layerWaits: [],
    workerWaits: [],
    httpAddress: '',
    links: [{ peer: 'a', sentBytes: 1, receivedBytes: 2, roundTripMs: 0.5 }],
    ...changes,
  };
}

const view = (changes: Partial<StatusReply> = {}) =>
  clusterView(SERVED, { atMs: 5, status: status(changes), lost: [] });

describe("the page's view of a cluster", () => {
  it('has each node with its group, link and waits', () => {
    const workerWaits = [
      { worker: 'a', executes: 9, waitMs: 4, stallMs: 1, executeMs: 2, otherMs: 1, lastShare: 0.5, costMs: 3 },
    ];
    const [main, worker] = view({ workerWaits }).nodes;
    assert.deepEqual([main?.role, main?.group, main?.link, main?.waits, main?.slots], ['main', null, null, null, null]);
    assert.deepEqual([worker?.state, worker?.group], ['up', 1]);
    assert.deepEqual(worker?.link, { roundTripMs: 0.5, sentBytes: 1, receivedBytes: 2 });
    assert.deepEqual(worker.waits, { waitMs: 4, stallMs: 1, executeMs: 2, otherMs: 1, lastShare: 0.5 });
  });

  it('has memory by kind, and counts nothing twice', () => {
    const memory = { deviceMemoryUsedBytes: 100, deviceContextBytes: 5, slots: 3, slotBytes: 10 };
    const [main, worker] = view({
      nodes: [
        node('main', 'ROLE_MAIN', { ...memory, slots: 0, weightBytes: 40, keyValueBytes: 30, prefixBytes: 20 }),
        node('a', 'ROLE_WORKER', memory),
      ],
    }).nodes;
    const { weightBytes, keyValueBytes, prefixBytes, otherBytes } = main?.memory ?? assert.fail();
    assert.deepEqual([weightBytes, keyValueBytes, prefixBytes, otherBytes], [40, 30, 20, 25]);
    assert.deepEqual([worker?.memory.slotBytes, worker?.memory.otherBytes, worker?.memory.usedBytes], [30, 65, 100]);
  });

  it('names the fetching workers, their progress and their problems', () => {
    const fetching = { fetchNeededBytes: 2048, fetchHeldBytes: 1024, fetchReceivedBytes: 7, fetchProblem: 'no disk' };
    const { nodes, problems } = view({ nodes: [node('main', 'ROLE_MAIN'), node('a', 'ROLE_WORKER', fetching)] });
    assert.equal(nodes[1]?.state, 'fetching');
    assert.deepEqual(nodes[1]?.fetch, { heldBytes: 1024, neededBytes: 2048, receivedBytes: 7, problem: 'no disk' });
    assert.deepEqual(problems, [
      { node: 'a', code: 'PACK_INCOMPLETE', message: 'a has fetched 1 KiB of 2 KiB', advice: 'no disk' },
    ]);
    assert.equal(view().nodes[1]?.fetch, null);
  });

  it('tells which nodes are drained, and which of them may go', () => {
    const stateWith = (state: string): string | undefined =>
      view({ drained: [{ id: 'a', role: 'worker', state, openExperts: 0 }] }).nodes[1]?.state;
    assert.deepEqual(['finishing', 'needed', 'may go'].map(stateWith), ['draining', 'draining', 'mayGo']);
  });

  it('shows main at an address that others can reach, if it listens on every interface', () => {
    const addressOf = (address: string): string | undefined => {
      const own = { ...node('main', 'ROLE_MAIN'), identity: { ...identity('main', 'ROLE_MAIN'), address } };
      return view({ nodes: [own] }).nodes[0]?.address;
    };
    assert.deepEqual([':7600', '10.0.0.5:7600'].map(addressOf), ['10.0.0.1:7600', '10.0.0.5:7600']);
  });

  it('names problems and actions: no workers, peers that do not answer, a node that is lost', () => {
    const silent = (id: string) => ({ address: `${id}:1`, id, code: 'TIMEOUT', message: 'no daemon answers' });
    const lost = [
      { identity: identity('b'), address: 'b:1', status: null, reason: 'it was silent', wasUsed: true, lostMs: 0 },
    ];
    const problems = problemsWithLost([silent('b'), silent('c')], lost);
    const now = status({ nodes: [node('main', 'ROLE_MAIN')], problems, placement: null });
    const { problems: named, nodes, groups } = clusterView(SERVED, { atMs: 0, status: now, lost });
    assert.deepEqual(
      named.map((problem) => `${problem.node} ${problem.code}`),
      [' NO_WORKERS', 'b WORKER_LOST', 'c TIMEOUT'],
    );
    for (const { advice } of named) assert.notEqual(advice, '');
    assert.deepEqual(groups, []);
    const gone = nodes[1];
    assert.deepEqual([gone?.id, gone?.state, gone?.reason, gone?.link], ['b', 'lost', 'it was silent', null]);
  });
});

describe('the command that joins another box', () => {
  const command = (address: string, strictHomes = false, cluster = 'home'): string =>
    joinCommand({ address, cluster }, { strictHomes, machineAddress: '192.168.1.10' });

  it('names an address of main that the other box can reach', () => {
    assert.equal(command('10.0.0.5:7600'), 'odmoe worker --main 10.0.0.5:7600 --cluster home');
    assert.equal(command(':7600'), 'odmoe worker --main 192.168.1.10:7600 --cluster home');
    assert.equal(command('[fe80::1]:7600'), "odmoe worker --main '[fe80::1]:7600' --cluster home");
  });

  it('is for the same box where no other can reach main, and keeps the flags for strict homes', () => {
    assert.equal(command('127.0.0.1:7600'), 'odmoe worker --main 127.0.0.1:7600 --cluster home --port 0');
    assert.ok(!view().isThisMachineOnly);
    const main = node('main', 'ROLE_MAIN');
    const local = { ...main, identity: { ...main.identity, address: '127.0.0.1:7600' } };
    assert.ok(view({ nodes: [local] }).isThisMachineOnly);
    assert.match(command('10.0.0.5:7600', true), / --homes strict$/);
    assert.match(command('10.0.0.5:7600', false, "it's mine"), / --cluster 'it'\\''s mine'$/);
  });
});

describe("the page's view of who may join", () => {
  it('says whether main asks anybody, how many wait, and whether the cluster is open to strangers', () => {
    const joining = ({ hasAuthority, waitingMachines, isInsecure }: ReturnType<typeof view>) => [
      hasAuthority,
      waitingMachines,
      isInsecure,
    ];
    const waiting = ['a', 'b'].map((id) => ({ id, role: 'worker', device: 'cpu', address: '10.0.0.2', waitedMs: 5 }));
    assert.deepEqual(joining(view()), [false, 0, false]);
    assert.deepEqual(joining(view({ trust: { words: 'a b c d', waiting } })), [true, 2, false]);
    assert.deepEqual(joining(view({ trust: null, insecure: true })), [false, 0, true]);
  });
});

describe('the list of lost nodes', () => {
  it('keeps nodes until they are back, or for ten minutes, and is bounded', () => {
    const clock = { ms: 0 };
    const nodes = new LostNodes(() => clock.ms);
    const lose = (id: string, wasUsed = false): void =>
      nodes.lost({ identity: identity(id), address: `${id}:1`, status: null }, 'gone', wasUsed);
    const listed = (connected: string[] = []): string[] =>
      nodes.list(new Set(connected)).map((lost) => lost.identity.id);
    lose('a');
    clock.ms = 1000;
    lose('b');
    lose('c');
    assert.deepEqual(listed(['c']), ['a', 'b']);
    assert.deepEqual(listed(), ['a', 'b'], 'once back, it was lost no more');
    clock.ms = LOST_REMEMBERED_MS;
    assert.deepEqual(listed(), ['b']);
    for (let index = 0; index < MAX_LOST_NODES; index++) lose(`n${index}`);
    assert.equal(listed().length, MAX_LOST_NODES);
    assert.equal(listed()[0], 'n0');
    lose('worker', true);
    for (let index = 0; index < MAX_LOST_NODES; index++) lose(`stranger ${index}`);
    assert.equal(listed().length, MAX_LOST_NODES);
    assert.equal(listed()[0], 'worker', 'who was in the placement is pushed out by nobody who was not');
    for (let index = 0; index < MAX_LOST_NODES; index++) lose(`u${index}`, true);
    assert.deepEqual([listed().length, listed()[0]], [MAX_LOST_NODES, 'u0']);
  });
});
