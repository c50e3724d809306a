import assert from 'node:assert/strict';
import { DrainedNodes, MAX_DRAINED } from '../../main-node/cluster/drained-nodes.js';
import { drainNode } from '../../main-node/cluster/drain-node.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { ShadowLink } from '../../main-node/cluster/shadow-link.js';
import { WorkerLink } from '../../main-node/cluster/worker-link.js';
import type {
  DrainedNode,
  Prospect,
  ShadowReply,
  ShadowRequest,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { RUNTIME } from '../wall.js';
import { silentLog } from './worker-test-slots.js';
import { plainIdentity } from './plain-identity.js';
import { plainResult } from './wire-messages.js';
import { GROUPING } from './plain-shape.js';

const SHAPE = { expertLayers: 4, experts: 8, expertsPerToken: 2 };
const OWN = { main: 'box', ownWorker: 'box-worker', members: () => ['away-1'] };
const WORK = {
  pass: { sequence: 1, position: 0 },
  rows: [{ sequence: 1, position: 0, rows: 1 }],
  layer: 0,
  hidden: new Uint8Array(16),
};
const never = new AbortController().signal;

describe('main: drained nodes', () => {
  let roster: Roster;
  let streams: Map<string, MemoryStream<WorkerRequest, WorkerReply>>;
  const lost: [id: string, reason: string, wasUsed: boolean][] = [];
  const dropped: string[] = [];

  const worker = (id: string, bootId = `boot of ${id}`, partialPack = false): WorkerLink => {
    const stream = new MemoryStream<WorkerRequest, WorkerReply>();
    streams.set(id, stream);
    const limits = { hiddenSize: 4, experts: 100, executeTimeoutMs: 1000, runtime: RUNTIME };
    return new WorkerLink(
      plainIdentity({ id, bootId, address: '' }),
      `${id}:1`,
      stream,
      limits,
      silentLog,
      partialPack,
    );
  };
  const shadow = (id: string, bootId = `boot of ${id}`): ShadowLink => {
    const nothing = (): undefined => undefined;
    const listener = {
      onPrediction: nothing,
      onRestart: nothing,
      onDraft: nothing,
      onPrefixKept: () => true,
      onSequenceDropped: nothing,
      onLost: nothing,
      onDrained: ({ id: drained }: ShadowLink) => void dropped.push(`${drained}, of ${roster.shadow?.id ?? 'none'}`),
    };
    const stream = new MemoryStream<ShadowRequest, ShadowReply>();
    const shape = { ...SHAPE, vocabSize: 300 };
    return new ShadowLink(plainIdentity({ id, bootId }), `${id}:1`, stream, shape, listener, silentLog);
  };
  const usedShadow = (): string | null => roster.shadow?.id ?? null;
  const placedIds = (): string[] => roster.placement?.workers.map(({ id }) => id) ?? [];
  const sent = (id: string, kind: WorkerRequest['kind']): number =>
    streams.get(id)?.sent.filter((message) => message.kind === kind).length ?? 0;
  const drain = (id: string): DrainedNode | null => drainNode(roster, OWN, { id, undo: false });
  const undo = (id: string): DrainedNode | null => drainNode(roster, OWN, { id, undo: true });
  const execute = (link: WorkerLink): Promise<void> =>
    link.execute({ ...WORK, experts: [{ expert: 3, rows: [], last: false }] }, roster.epoch, () => undefined, never);

  beforeEach(() => {
    streams = new Map();
    lost.length = 0;
    dropped.length = 0;
    roster = new Roster(SHAPE, GROUPING, 100, RUNTIME, silentLog, {
      changed: () => undefined,
      lost: ({ id }, reason, wasUsed) => void lost.push([id, reason, wasUsed]),
      distrusted: () => undefined,
    });
  });
  afterEach(() => roster.stop());

  const started = async (...links: WorkerLink[]): Promise<WorkerLink[]> => {
    for (const link of links) roster.addWorker(link);
    await roster.waitForPlacement(1000, never);
    return links;
  };

  it('get no work and no placement, and others have their experts at once', async () => {
    await started(worker('a'), worker('b'));
    const { epoch } = roster;
    assert.deepEqual(drain('a'), { id: 'a', role: 'worker', state: 'may go', openExperts: 0 });
    assert.deepEqual([placedIds(), roster.epoch, roster.worker('a')], [['b'], epoch + 1, null]);
    assert.deepEqual([sent('a', 'placement'), sent('b', 'placement')], [1, 2]);
    assert.equal(roster.connectedWorkers().length, 2);
    roster.endSequence(7);
    assert.equal(sent('a', 'end'), 1, 'what it holds for an answer is given back');
    drain('a');
    assert.equal(roster.epoch, epoch + 1, 'asked again, main changes nothing');
    assert.equal(undo('a'), null);
    assert.deepEqual([placedIds(), roster.drainedNodes()], [['a', 'b'], []]);
  });

  it('finish the experts that were sent to them before they may go', async () => {
    const [a] = await started(worker('a'), worker('b'));
    assert.ok(a !== undefined);
    const executed = execute(a);
    assert.deepEqual(drain('a'), { id: 'a', role: 'worker', state: 'finishing', openExperts: 1 });
    a.receive({
      kind: 'result',
      result: plainResult({ requestId: 1, hiddenSize: 4, expert: { expert: 3, output: new Uint8Array(16) } }),
    });
    await executed;
    assert.equal(roster.drainedNodes()[0]?.state, 'may go');
  });

  it('go on where no other worker is there, until one comes', async () => {
    await started(worker('a'));
    assert.equal(drain('a')?.state, 'needed');
    assert.deepEqual(placedIds(), ['a']);
    const b = worker('b');
    roster.addWorker(b);
    await roster.waitForChange(1000, never);
    assert.deepEqual([placedIds(), roster.drainedNodes()[0]?.state], [['b'], 'may go']);
    roster.removeWorker(b, 'it was killed');
    assert.deepEqual([placedIds(), roster.drainedNodes()[0]?.state], [['a'], 'needed'], 'answers go on');
  });

  it('that were told to go get no work again when the last other one is drained, but when it has gone', async () => {
    const [, b] = await started(worker('a'), worker('b'));
    assert.ok(b !== undefined);
    drain('a');
    const { epoch } = roster;
    assert.equal(drain('b')?.state, 'needed');
    assert.deepEqual([placedIds(), roster.epoch], [['b'], epoch]);
    assert.deepEqual(
      roster.drainedNodes().map(({ id, state }) => [id, state]),
      [
        ['a', 'may go'],
        ['b', 'needed'],
      ],
    );
    roster.removeWorker(b, 'it was stopped all the same');
    assert.deepEqual(placedIds(), ['a'], 'answers go on');
  });

  it('leave without a new placement and without an alarm', async () => {
    const [a] = await started(worker('a'), worker('b'));
    assert.ok(a !== undefined);
    drain('a');
    const { epoch } = roster;
    roster.removeWorker(a, 'it ended the stream');
    assert.equal(roster.epoch, epoch);
    assert.deepEqual(lost, [['a', 'it was drained, and has left (it ended the stream)', false]]);
  });

  it('stay drained over a broken connection, and get work when they were started again', async () => {
    const [a] = await started(worker('a'), worker('b'));
    assert.ok(a !== undefined);
    drain('a');
    roster.removeWorker(a, 'the link broke');
    const back = worker('a');
    roster.addWorker(back);
    await roster.waitForChange(1000, never);
    assert.deepEqual([placedIds(), roster.drainedNodes().length], [['b'], 1]);
    roster.removeWorker(back, 'it ended');
    roster.addWorker(worker('a', 'the next boot'));
    await roster.waitForChange(1000, never);
    assert.deepEqual([placedIds(), roster.drainedNodes()], [['a', 'b'], []]);
  });

  it('that are not connected can be undone', async () => {
    const [a] = await started(worker('a'), worker('b'));
    assert.ok(a !== undefined);
    drain('a');
    roster.removeWorker(a, 'the link broke');
    assert.equal(undo('a'), null);
    roster.addWorker(worker('a'));
    await roster.waitForChange(1000, never);
    assert.deepEqual(placedIds(), ['a', 'b']);
  });

  it('are named where an id is none of them, and main and its own worker are refused in words', async () => {
    await started(worker('a'), worker('b'));
    assert.throws(() => drain('c'), { code: 'USAGE', message: /no node "c" is connected to main; a, b are/ });
    assert.throws(() => undo('c'), { code: 'USAGE', message: /no node "c"/ });
    assert.throws(() => drain('box'), { code: 'USAGE', message: /is main itself.*stop it when you like/ });
    assert.throws(() => drain('box-worker'), { code: 'USAGE', message: /main's own process/ });
    assert.throws(() => drainNode(roster, { ...OWN, ownWorker: '' }, { id: '', undo: false }), { code: 'USAGE' });
    assert.equal(undo('a'), null, 'one that gets work gets work');
  });

  it('may be stopped where they are not connected and the cluster knows them; the nearest id is named for all others', async () => {
    const [a] = await started(worker('jetson-1'), worker('jetson-b'));
    assert.ok(a !== undefined);
    const refusal = (id: string): string => {
      try {
        drain(id);
      } catch (thrown) {
        return thrown instanceof Error ? thrown.message : '';
      }
      return '';
    };
    assert.match(
      refusal('jetsom_1'),
      /jetson-1, jetson-b are. The cluster knows no node of this id: did you mean "jetson-1"\?$/,
    );
    assert.doesNotMatch(refusal('jetsom_1') + refusal('nothing like it'), /may be stopped/);
    assert.match(refusal('away-1'), /^no node "away-1" is connected to main; .*it may be stopped$/);
    roster.removeWorker(a, 'the link broke');
    assert.match(refusal('jetson-1'), /^no node "jetson-1" is connected to main; jetson-b is\..*it may be stopped$/);
  });

  it('give others the experts that these fetch, and are in no plan for them', async () => {
    await started(worker('a'), worker('b'));
    drain('a');
    roster.addWorker(worker('late', 'boot of late', true));
    const prospects = (streams.get('late')?.sent ?? []).flatMap((message): Prospect[] =>
      message.kind === 'prospect' ? [message.prospect] : [],
    );
    const [prospect] = prospects.slice(-1);
    assert.deepEqual(
      prospect?.placement?.workers.map(({ id }) => id),
      ['b', 'late'],
    );
    assert.ok(prospect.sources.includes('a:1'), 'its files are as good as before');
  });

  it('that fetch get no prospect, and hold up no other', async () => {
    await started(worker('a'));
    roster.addWorker(worker('f', 'boot of f', true));
    roster.addWorker(worker('g', 'boot of g', true));
    drain('f');
    const before = sent('f', 'prospect');
    const g = (streams.get('g')?.sent ?? []).flatMap((message): Prospect[] =>
      message.kind === 'prospect' ? [message.prospect] : [],
    );
    assert.deepEqual(
      g.at(-1)?.placement?.workers.map(({ id }) => id),
      ['a', 'g'],
    );
    assert.equal(drain('f')?.state, 'may go');
    assert.equal(sent('f', 'prospect'), before);
  });

  it('may be shadows: the next one is used, and the drained one drops what it follows', () => {
    const [first, second] = [shadow('s1'), shadow('s2')];
    roster.addShadow(first);
    roster.addShadow(second);
    assert.deepEqual(drain('s1'), { id: 's1', role: 'shadow', state: 'may go', openExperts: 0 });
    assert.deepEqual(dropped, ['s1, of s1'], 'while it is still known as the one in use');
    assert.equal(usedShadow(), 's2');
    assert.equal(roster.connectedShadows().length, 2);
    drain('s2');
    assert.equal(usedShadow(), null);
    undo('s1');
    assert.equal(usedShadow(), 's1');
    roster.removeShadow(second, 'it ended');
    assert.deepEqual(lost, [['s2', 'it was drained, and has left (it ended)', false]]);
    roster.addShadow(shadow('s2'));
    assert.deepEqual([usedShadow(), roster.drainedNodes().length], ['s1', 1], 'the same start of it');
    roster.removeShadow(first, 'it ended');
    assert.equal(usedShadow(), null);
  });

  it('are remembered up to a bound', () => {
    const nodes = new DrainedNodes();
    const start = (number: number) => ({ identity: { id: `w${number}`, bootId: `boot ${number}` } });
    for (let number = 0; number <= MAX_DRAINED; number++) nodes.add(start(number));
    assert.deepEqual([nodes.has(start(0)), nodes.has(start(1)), nodes.has(start(MAX_DRAINED))], [false, true, true]);
  });
});
