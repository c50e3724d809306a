import assert from 'node:assert/strict';
import type { PackPiece } from '../../shared/wire/messages.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import type { SimulatedNode } from '../../simulator/cluster/simulated-node.js';
import { checkCounters, type CountedTime } from '../../simulator/faults/accounts/check-accounts.js';
import { checkLinkBytes } from '../../simulator/faults/accounts/check-link-bytes.js';
import { FetchWatch } from '../../simulator/faults/accounts/fetch-watch.js';
import { CachedNewsWatch } from '../../simulator/faults/accounts/cached-news-watch.js';
import { countersOf } from '../../simulator/faults/accounts/main-counters.js';
import { Recorder } from '../../simulator/faults/accounts/recorder.js';
import { AnnouncementWatch } from '../../simulator/faults/accounts/announcement-watch.js';
import { checkUsedNodes, HeardNodes } from '../../simulator/faults/check-used-nodes.js';
import { COMPLETION_PAUSE_MS } from '../../packs/fetching/file-completion.js';
import { DAMAGE_EVENT } from '../../worker-node/loader/expert-loader.js';
import { quietMs } from '../../simulator/faults/check-nothing-left.js';
import { checkRests } from '../../simulator/faults/run-scenario.js';
import { checkSizes, type NodeSizes } from '../../simulator/faults/check-sizes.js';
import { PackPieceFaults } from '../../simulator/faults/scenario-world.js';
import { DrainFaults } from '../../simulator/faults/drain-faults.js';
import type { Fault, Scenario } from '../../simulator/faults/scenario.js';

const EPOCH = 5;
const NO_BYTES = new Uint8Array();
const PLACEMENT = {
  kind: 'placement',
  placement: { epoch: EPOCH, workers: [{ id: 'w0' }, { id: 'w1' }], spread: true },
} as unknown as PeerMessage;

function prediction(position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return {
    kind: 'announce',
    announce: { epoch: EPOCH, pass, rows: [{ ...pass, rows: 1 }], layer, experts },
  };
}

function execute(requestId: number, position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return {
    kind: 'execute',
    execute: {
      requestId,
      epoch: EPOCH,
      hiddenSize: 1,
      dtype: 'TENSOR_TYPE_F32',
      pass,
      rows: [{ ...pass, rows: 1 }],
      layer,
      hidden: NO_BYTES,
      experts: experts.map((expert) => ({ expert, rows: [], last: true })),
    },
  };
}

function release(position: number, layer: number, experts: number[]): PeerMessage {
  const pass = { sequence: 1, position };
  return { kind: 'release', release: { epoch: EPOCH, pass, rows: [{ ...pass, rows: 1 }], layer, experts } };
}

describe('the invariant checks of simulated clusters', () => {
  const violationsAfter = (...messages: PeerMessage[]): number => {
    const watch = new AnnouncementWatch('main');
    for (const message of messages) watch.messages('sent', 'main', 'w0', message);
    return watch.violations.length;
  };

  it('find an announced expert of a worker that main neither requests nor releases', () => {
    const announced = prediction(7, 0, [2, 3]);
    assert.equal(violationsAfter(announced, execute(1, 7, 0, [2]), release(7, 0, [3]), execute(2, 7, 1, [1])), 0);
    assert.equal(violationsAfter(announced, execute(1, 7, 0, [2]), execute(2, 7, 1, [1])), 1, 'a later layer');
    assert.equal(violationsAfter(announced, execute(1, 8, 0, [2])), 2, 'a later pass');
    assert.equal(violationsAfter(announced, PLACEMENT, execute(1, 8, 0, [2])), 0, 'announced under another placement');
  });

  it("find a worker's cached experts that shadow does not know", () => {
    const keptBy = (kept: { worker: number; layer: number; experts: number[] }[]): string[] => {
      const watch = new CachedNewsWatch('main');
      watch.messages('sent', 'main', 'w1', PLACEMENT);
      watch.messages('sent', 'main', 'w1', execute(9, 7, 2, [4]));
      const result = { requestId: 9, epoch: EPOCH, experts: [], kept: { experts: [4, 1] } };
      watch.messages('arrived', 'w1', 'main', { kind: 'result', result } as unknown as PeerMessage);
      watch.messages('sent', 'main', 's0', { kind: 'token', token: { epoch: EPOCH, kept } } as unknown as PeerMessage);
      return watch.violations;
    };
    assert.deepEqual(keptBy([{ worker: 1, layer: 2, experts: [1, 4] }]), []);
    assert.equal(keptBy([]).length, 1);
    assert.equal(keptBy([{ worker: 0, layer: 2, experts: [1, 4] }]).length, 1, 'for another worker');
  });

  it('know whether the latest status of each worker tells of all its results', () => {
    const recorder = new Recorder('main');
    const say = (from: string, kind: 'result' | 'status'): boolean => {
      const message = { kind, [kind]: { experts: [] } } as unknown as PeerMessage;
      recorder.messages('sent', from, 'main', message);
      return recorder.areStatusesCurrent;
    };
    assert.ok(say('w1', 'result'), 'there is no placement');
    recorder.messages('sent', 'main', 'w1', PLACEMENT);
    assert.deepEqual(
      [say('w0', 'status'), say('w1', 'status'), say('w0', 'result'), say('w9', 'result'), say('w0', 'status')],
      [false, true, false, false, true],
    );
  });

  it('find uncounted bytes of a connection', () => {
    const carried = new Map([['w0', { sent: 10, arrived: 20 }]]);
    const readPack = (sent: number): ReadonlyMap<string, number> =>
      new Map([
        ['odmoe_link_sent_bytes_total{node="w0"}', sent],
        ['odmoe_link_received_bytes_total{node="w0"}', 20],
      ]);
    assert.deepEqual(checkLinkBytes(readPack(10), carried), []);
    assert.equal(checkLinkBytes(readPack(9), carried).length, 1);
    assert.deepEqual(checkLinkBytes(new Map(), carried), [], 'nothing is reported of a node that is not connected');
  });

  it('find growth between two rests', () => {
    const rest = (entries: number): ReadonlyMap<string, number> => new Map([['entries of main', entries]]);
    assert.deepEqual(checkRests([rest(2), rest(2), rest(1)]), []);
    assert.equal(checkRests([rest(2), rest(2), rest(3)]).length, 1);
  });

  it('find growing collections, and bounded ones that exceed their bound', () => {
    const sizesOf = (name: string, size: number): NodeSizes => new Map([['main', new Map([[name, size]])]]);
    const grows = (name: string, from: number, to: number): boolean =>
      checkSizes(sizesOf(name, from), sizesOf(name, to)).length > 0;
    assert.deepEqual([grows('Roster.waiting', 2, 2), grows('Roster.waiting', 2, 3)], [false, true]);
    assert.deepEqual([grows('ClientShares.rows', 0, 1), grows('ClientShares.rows', 1, 2)], [false, true]);
    assert.equal(checkSizes(new Map(), sizesOf('Roster.waiting', 3)).length, 0, 'the node was not there before');
    assert.equal(checkSizes(new Map([['main', new Map()]]), sizesOf('Roster.waiting', 1)).length, 1, 'it was empty');
  });

  it('find a worker that reports the end of its fetching late', () => {
    const lateBy = (ms: number, { number = 3, standsStill = false, lastPackPieceMs = 100 } = {}): number => {
      let nowMs = 10;
      const runtime = { nowMs: () => nowMs } as VirtualRuntime;
      const stopped = new Set(standsStill ? ['w0'] : []);
      const watch = new FetchWatch(() => runtime, { lastMsOf: () => lastPackPieceMs }, stopped);
      watch.messages('arrived', 'main', 'w0', { kind: 'prospect', prospect: { number: 3 } } as PeerMessage);
      nowMs = Math.max(10, lastPackPieceMs) + ms;
      const status = { fetchReadyFor: number };
      watch.messages('sent', 'w0', 'main', { kind: 'status', status } as unknown as PeerMessage);
      return watch.violations.length;
    };
    assert.deepEqual([lateBy(50), lateBy(51)], [0, 1]);
    const nothingMissing = { lastPackPieceMs: -Infinity };
    assert.deepEqual([lateBy(50, nothingMissing), lateBy(51, nothingMissing)], [0, 1], 'from the prospect on');
    assert.equal(lateBy(51, { number: 2 }), 0, 'it is not ready yet');
    assert.equal(lateBy(51, { standsStill: true }), 0, 'its process is stopped at times');
  });

  it('wait for a fetched pack to be completed again after damage', () => {
    assert.ok(quietMs([{ event: 'another one' }]) < COMPLETION_PAUSE_MS);
    assert.ok(quietMs([{ event: 'another one' }, { event: DAMAGE_EVENT }]) > COMPLETION_PAUSE_MS);
  });

  it('find running nodes that main does not hear or does not use', () => {
    const unused = ({
      placed = ['w0'],
      statusMs = 9000,
      faults = [] as Scenario['faults'],
      isReady = true,
    }): string[] => {
      let nowMs = statusMs;
      const heard = new HeardNodes(() => nowMs);
      for (const id of ['w0', 's0']) heard.messages('arrived', id, 'main', { kind: 'status' } as PeerMessage);
      const placement = { workers: placed.map((id) => ({ id })) };
      heard.messages('sent', 'main', 'w0', { kind: 'placement', placement } as unknown as PeerMessage);
      nowMs = 11_000;
      const node = (id: string, role: string): unknown => ({ settings: { id, role, main: {} }, fetches: false });
      const nodes = [node('main', 'main'), node('w0', 'worker'), node('s0', 'shadow')];
      const running = new Map(['main', 'w0', 's0'].map((id) => [id, { isReady: isReady || id === 'main' }]));
      const cluster = { nodes: running } as unknown as SimulatedCluster;
      return checkUsedNodes(cluster, { nodes, faults } as Scenario, heard).map(({ detail }) => detail);
    };
    assert.deepEqual(unused({}), []);
    assert.deepEqual(unused({ placed: [] }), ['main does not use w0, which runs and tells its status']);
    assert.deepEqual(
      unused({ statusMs: 8999 }),
      ['w0', 's0'].map((id) => `main hears nothing of ${id}, which runs`),
    );
    assert.deepEqual(unused({ statusMs: 8999, isReady: false }), [], 'they do not run');
    const faults = [{ kind: 'flippedBits', node: 'w0' }] as Scenario['faults'];
    assert.deepEqual(unused({ placed: [], faults }), [], 'it may be set aside');
  });

  it("find counters of main that miss answers, and read them from main's metrics", async () => {
    const metrics = '# HELP odmoe_generated_tokens_total tokens\nodmoe_generated_tokens_total 7\nup{node="a b"} 1\n';
    const main = { isReady: true, metrics: () => Promise.resolve(metrics) } as unknown as SimulatedNode;
    const after = await countersOf(main);
    assert.deepEqual(
      [...after],
      [
        ['odmoe_generated_tokens_total', 7],
        ['up{node="a b"}', 1],
      ],
    );
    assert.equal((await countersOf(undefined)).size, 0);
    const grownBy = (
      tokens: number,
      finished: object | null = { reloads: 0, cachedTokens: 0, drafts: [] },
      requests = 1,
    ): string[] => {
      const answer = { finished, promptTokenIds: [1], tokens: Array.from({ length: tokens }) };
      const before = new Map([['odmoe_generated_tokens_total', 4]]);
      const now = new Map([...after, ['odmoe_requests_total{code="ok"}', requests]]);
      const time = { before, after: now, events: [], accounts: [], answers: [{ answer }], hasBudget: false };
      return checkCounters(time as unknown as CountedTime);
    };
    assert.deepEqual(grownBy(3), []);
    assert.deepEqual(grownBy(2), ['odmoe_generated_tokens_total has grown by 3, and 2 were due']);
    assert.equal(grownBy(3, undefined, 0).length, 1, 'a request that has not ended for main');
    assert.deepEqual(grownBy(2, null), [], 'an answer has not come to its end');
  });
});

describe('the watch over drained nodes of simulated clusters', () => {
  const FAULT: Fault = { kind: 'drain', atMs: 0, forMs: 1, node: 'w0', peer: '', seed: 1 };
  const ORDER = execute(1, 0, 0, [1]);
  const placementOf = (...ids: string[]): PeerMessage =>
    ({ kind: 'placement', placement: { workers: ids.map((id) => ({ id })) } }) as unknown as PeerMessage;
  let asked: boolean[];
  let drains: DrainFaults;
  const sent = (to: string, message: PeerMessage): void => drains.messages('sent', 'main', to, message);

  beforeEach(() => {
    asked = [];
    const cluster = {
      node: () => ({ address: 'main:1' }),
      call: async (_address: string, _method: unknown, { undo }: { undo: boolean }) => {
        asked.push(undo);
        return undo ? { node: null } : { node: { id: 'w0', role: 'worker', state: 'may go', openExperts: 0 } };
      },
    } as unknown as SimulatedCluster;
    drains = new DrainFaults(cluster);
    sent('w1', placementOf('w1'));
  });

  /** What main sends after it has said that w0 may go. */
  async function afterMayGo(...messages: (readonly [to: string, message: PeerMessage])[]): Promise<string[]> {
    drains.begin(FAULT, () => undefined);
    await new Promise(setImmediate);
    assert.equal(drains.mayGo, 1);
    for (const message of messages) sent(...message);
    return drains.violations;
  }

  it('finds an order to a worker that may go', async () => {
    const [found, ...others] = await afterMayGo(['w1', ORDER], ['w0', ORDER]);
    assert.match(found ?? '', /sent w0 an execute, though it had said that w0 may go/);
    assert.deepEqual(others, []);
  });

  it('allows orders when main has placed it again, or greets it anew', async () => {
    assert.deepEqual(await afterMayGo(['w0', placementOf('w0')], ['w0', ORDER]), []);
    const hello = { kind: 'hello' } as unknown as PeerMessage;
    assert.deepEqual(
      [sent('w1', placementOf('w1')), sent('w0', hello), sent('w0', ORDER), drains.violations].at(-1),
      [],
    );
  });

  it('undoes a drain at its end, in the order of the calls', async () => {
    const started: string[] = [];
    const end = drains.begin({ ...FAULT, seed: 2 }, (id) => started.push(id));
    end();
    await new Promise(setImmediate);
    assert.deepEqual([asked, started], [[false, true], ['w0']]);
    sent('w0', ORDER);
    assert.deepEqual(drains.violations, []);
  });
});

describe('damaged pack pieces of a simulated node', () => {
  const BYTES = Uint8Array.of(1, 2, 3, 4);
  const PEER = { host: 'main', caller: null };

  async function readPack(
    change: (faults: PackPieceFaults) => void,
  ): Promise<{ pieces: number[][]; whole: boolean; sent: number }> {
    const faults = new PackPieceFaults();
    change(faults);
    async function* read(): AsyncGenerator<PackPiece, void, undefined> {
      yield* [{ bytes: BYTES }, { bytes: BYTES }];
    }
    const heldExperts = new Uint8Array(1);
    const description = { packDigest: 'd', layers: 2, experts: 4, whole: false, heldExperts };
    const pack = faults.wrap({ describe: () => description, manifest: read, read });
    const pieces: number[][] = [];
    const request = { packDigest: 'd', file: 'f', offsetBytes: 0, lengthBytes: 8 };
    for await (const { bytes } of pack.read(request, new AbortController().signal, PEER)) pieces.push([...bytes]);
    const { whole, heldExperts: bits } = await pack.describe({}, PEER);
    assert.equal(
      whole,
      [...bits].every((byte) => byte === 0xff),
      'who has the whole pack has every expert',
    );
    return { pieces, whole, sent: faults.sent };
  }

  it('are real ones with a changed bit, a half of the first one, or claimed but absent', async () => {
    const real = [1, 2, 3, 4];
    assert.deepEqual(await readPack(() => undefined), { pieces: [real, real], whole: false, sent: 0 });
    const wrong = [1, 2, 7, 4];
    assert.deepEqual(await readPack((faults) => (faults.areWrong = true)), {
      pieces: [wrong, wrong],
      whole: false,
      sent: 2,
    });
    assert.deepEqual(await readPack((faults) => (faults.areShort = true)), {
      pieces: [[1, 2]],
      whole: false,
      sent: 1,
    });
    assert.deepEqual(await readPack((faults) => (faults.claimsAll = true)), {
      pieces: [real, real],
      whole: true,
      sent: 1,
    });
    assert.deepEqual([...BYTES], real, 'what the pack has stays as it is');
  });
});
