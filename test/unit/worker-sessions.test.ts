import assert from 'node:assert/strict';
import type { NodeIdentity, Placement, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { Predict } from '../../shared/wire/messages.js';
import { MAX_VIOLATIONS, WorkerSessions } from '../../worker-node/rpc/worker-sessions.js';
import { TestLog } from '../integration/harness/test-log.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { plainExecute, plainPrediction, plainRelease, restartAt, type PlainExecute } from './wire-messages.js';
import { TestSlots, settle, testService } from './worker-test-slots.js';
import { RUNTIME } from '../wall.js';
import { plainShape } from './plain-shape.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import { plainIdentity } from './plain-identity.js';

const shape = plainShape({ expertLayers: 4, experts: 8 });
const identity = (role: NodeIdentity['role'], id: string, changes: Partial<NodeIdentity> = {}): NodeIdentity =>
  plainIdentity({
    id,
    role,
    cluster: 'home',
    modelName: 'tiny',
    packDigest: 'abc',
    bootId: 'boot',
    address: `${id}:1`,
    ...changes,
  });
const placement = (epoch: number): Placement => ({
  epoch,
  layers: 4,
  experts: 8,
  expertsPerToken: 2,
  homes: 0,
  spread: false,
  workers: [{ id: 'w', address: 'w:1', slots: 1 }],
  groups: [{ workerIds: ['w'] }],
});
const prediction = (epoch: number, layer: number, experts: number[]): Predict =>
  plainPrediction({ epoch, layer, experts });
const release = (epoch: number, layer: number, experts: number[]): WorkerRequest => ({
  kind: 'release',
  release: plainRelease({ epoch, layer, experts }),
});
const execute = (requestId: number, epoch: number, changes: Partial<PlainExecute> = {}): WorkerRequest => ({
  kind: 'execute',
  execute: plainExecute({ requestId, epoch, layer: 0, expert: 3, ...changes }),
});

type Peer = MemoryStream<WorkerReply, WorkerRequest>;

class Setting {
  readonly draftHead = { isHere: false };
  readonly slots = new TestSlots(1);
  readonly experts = testService(this.slots, 8);
  readonly log = new TestLog();
  mainWelcomes = 0;
  onStatus: () => void = () => undefined;
  readonly rosters: Uint8Array[] = [];
  readonly sessions = new WorkerSessions({
    experts: this.experts,
    shape,
    draftHead: this.draftHead,
    identity: () => identity('ROLE_WORKER', 'w'),
    tellStatus: () => {
      this.mainWelcomes += 1;
      this.onStatus();
    },
    takeRoster: (signed) => this.rosters.push(signed),
    runtime: RUNTIME,
    log: this.log.logger('worker'),
    fetch: null,
  });

  connect(peer: NodeIdentity | null): Peer {
    const stream: Peer = new MemoryStream();
    this.sessions.serve(stream, { host: '127.0.0.1', caller: null });
    if (peer !== null) stream.arrive({ kind: 'hello', hello: peer });
    return stream;
  }

  main(epoch = 1): Peer {
    const stream = this.connect(identity('ROLE_MAIN', 'main'));
    stream.arrive({ kind: 'placement', placement: placement(epoch) });
    return stream;
  }
}

const closeCode = (peer: Peer): string | undefined => peer.closedWith?.code;
const kinds = (peer: Peer): string[] => peer.sent.map((reply) => reply.kind);
const lastError = (peer: Peer) => {
  const reply = peer.sent.at(-1);
  assert.ok(reply?.kind === 'error', `the last reply is ${reply?.kind}`);
  return reply.error;
};
const refusal = (peer: Peer): string => {
  const reply = peer.sent.at(-1);
  assert.ok(reply?.kind === 'refusal', `the last reply is ${reply?.kind}`);
  assert.equal(reply.refusal.code, 'NODE_REFUSED');
  assert.equal(peer.closedWith, null, 'the stream ends in order after a refusal');
  return reply.refusal.message;
};

describe('worker: the end of a sequence', () => {
  it('is reported to main with the slots still in use, and again when none is: a cancelled load takes a moment', async () => {
    const here = new Setting();
    const main = here.main(5);
    main.arrive(execute(1, 5));
    await settle();
    const inUse: number[] = [];
    here.onStatus = () => inUse.push(here.experts.counters.slotsInUse);
    main.arrive({ kind: 'end', end: { sequence: 1 } });
    assert.deepEqual(inUse, [1], 'the load has not stopped yet');
    await settle();
    assert.deepEqual(inUse, [1, 0]);
    main.arrive({ kind: 'end', end: { sequence: 2 } });
    assert.deepEqual(inUse, [1, 0, 0], 'once where nothing is in use');
  });
});

describe("worker: the cluster's roster", () => {
  it('is taken from main, and from nobody else', () => {
    const here = new Setting();
    const main = here.main();
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    const signed = Buffer.from('of main');
    main.arrive({ kind: 'roster', roster: { signed } });
    shadow.arrive({ kind: 'roster', roster: { signed: Buffer.from('of a shadow') } });
    assert.deepEqual(here.rosters, [signed]);
    assert.deepEqual(kinds(main), ['welcome']);
    assert.match(lastError(shadow).message, /Only main may send roster/);
  });
});

describe('worker: the handshake of a session', () => {
  it('welcomes main and shadows of its own cluster', () => {
    const here = new Setting();
    assert.deepEqual(kinds(here.connect(identity('ROLE_MAIN', 'main'))), ['welcome']);
    assert.equal(here.mainWelcomes, 1);
    assert.equal(here.sessions.hasMain, true);
    assert.deepEqual(kinds(here.connect(identity('ROLE_SHADOW', 's1'))), ['welcome']);
    assert.deepEqual(kinds(here.connect(identity('ROLE_SHADOW', 's2'))), ['welcome']);
    assert.equal(here.mainWelcomes, 1);
  });

  it('accepts tensors from its main alone', () => {
    const here = new Setting();
    const main = here.connect(identity('ROLE_MAIN', 'main'));
    const others = [
      here.connect(null),
      here.connect(identity('ROLE_SHADOW', 'shadow')),
      here.connect(identity('ROLE_MAIN', 'other')),
      here.connect(identity('ROLE_WORKER', 'v')),
    ];
    assert.deepEqual(
      [main, ...others].map((peer) => peer.takesTensors),
      [true, false, false, false, false],
    );
    for (const peer of others) peer.close();
  });

  it('refuses other clusters, models, packs and protocols, naming both values', () => {
    const here = new Setting();
    assert.match(refusal(here.connect(identity('ROLE_MAIN', 'm', { cluster: 'lab' }))), /"lab".*"home"/);
    assert.match(refusal(here.connect(identity('ROLE_SHADOW', 's', { packDigest: 'xyz' }))), /"xyz".*"abc"/);
    assert.match(refusal(here.connect(identity('ROLE_MAIN', 'm', { modelName: 'big' }))), /"big".*"tiny"/);
    assert.match(
      refusal(here.connect(identity('ROLE_MAIN', 'm', { protocolVersion: 9 }))),
      new RegExp(`"9".*"${OLDEST_PROTOCOL}"`),
    );
    assert.match(refusal(here.connect(identity('ROLE_WORKER', 'v'))), /neither/);
    assert.equal(here.sessions.hasMain, false);
  });

  it('logs a refusal once a peer and reason, and again after the peer was welcome', () => {
    const here = new Setting();
    const refused = () => here.log.matching('refused a peer').length;
    for (let again = 0; again < 5; again++) here.connect(identity('ROLE_MAIN', 'm', { cluster: 'lab' }));
    assert.equal(refused(), 1);
    here.connect(identity('ROLE_SHADOW', 's', { cluster: 'lab' }));
    here.connect(identity('ROLE_MAIN', 'm', { packDigest: 'xyz' }));
    assert.equal(refused(), 3);
    here.connect(identity('ROLE_MAIN', 'm')).close();
    here.connect(identity('ROLE_MAIN', 'm', { cluster: 'lab' }));
    assert.equal(refused(), 4);
  });

  it('serves one main: refuses another, naming it, and takes the same one back', async () => {
    const here = new Setting();
    const first = here.main(5);
    assert.match(refusal(here.connect(identity('ROLE_MAIN', 'other'))), /serves main "main" at main:1/);
    first.arrive(execute(1, 5));
    const again = here.connect(identity('ROLE_MAIN', 'main', { bootId: 'later' }));
    assert.equal(first.closedWith?.code, 'CANCELLED');
    assert.equal(here.sessions.hasMain, true, 'the end of the former stream does not end the new one');
    await settle();
    assert.equal(here.experts.counters.slotsInUse, 0);
    again.arrive({ kind: 'placement', placement: placement(6) });
    again.arrive(execute(1, 6));
    await here.slots.endLoad(0);
    assert.deepEqual(kinds(again), ['welcome', 'result']);
    assert.deepEqual(kinds(first), ['welcome']);
    again.close();
    assert.deepEqual(kinds(here.connect(identity('ROLE_MAIN', 'other'))), ['welcome']);
  });

  it('ends a stream that does not begin with hello', () => {
    const here = new Setting();
    const stranger = here.connect(null);
    stranger.arrive(execute(4, 1));
    assert.deepEqual([lastError(stranger).code, lastError(stranger).requestId], ['PROTOCOL_VIOLATION', 4]);
    assert.equal(stranger.closedWith?.code, 'PROTOCOL_VIOLATION');
  });
});

describe('worker: the requests of a session', () => {
  it('get an answer with an error where they do not fit the model, and the worker serves on', async () => {
    const here = new Setting();
    const main = here.main();
    const bad: [Partial<PlainExecute>, RegExp][] = [
      [{ layer: 4 }, /layer 4, .* layers 0 to 3/],
      [{ expert: 8 }, /expert 8, .* experts 0 to 7/],
      [{ hiddenSize: 2 }, /2 values, .* have 1/],
      [{ dtype: 'TENSOR_TYPE_BF16' }, /bf16 is not yet supported/],
      [{ hidden: Buffer.from(Float32Array.of(NaN).buffer) }, /no finite numbers/],
      [{ hidden: Buffer.from(Float32Array.of(-Infinity).buffer) }, /no finite numbers/],
      [{ epoch: 2 }, /epoch 2 came before/],
    ];
    for (const [index, [changes, message]] of bad.entries()) {
      main.arrive(execute(100 + index, 1, changes));
      assert.equal(lastError(main).code, 'PROTOCOL_VIOLATION');
      assert.equal(lastError(main).requestId, 100 + index);
      assert.match(lastError(main).message, message);
    }
    main.arrive({ kind: 'announce', announce: prediction(1, 0, [8]) });
    assert.equal(lastError(main).code, 'PROTOCOL_VIOLATION');
    main.arrive({ kind: 'placement', placement: { ...placement(2), layers: 5 } });
    assert.match(lastError(main).message, /5 layers of 8 experts/);
    main.arrive(execute(1, 1));
    await here.slots.endLoad(0);
    assert.equal(main.sent.at(-1)?.kind, 'result');
  });

  it("may be for the experts of the model's own head, while these are here", () => {
    const here = new Setting();
    const { draftHead: head } = here;
    const main = here.main();
    for (const isHere of [false, true, false]) {
      head.isHere = isHere;
      assert.equal(here.sessions.counters.servesDraftHead, isHere);
      const before = main.sent.length;
      main.arrive(execute(1, 1, { layer: 4 }));
      main.arrive({ kind: 'announce', announce: prediction(1, 4, [2]) });
      main.arrive(release(1, 4, [2]));
      assert.equal(main.sent.length - before, isHere ? 0 : 3);
      if (!isHere) assert.match(lastError(main).message, /layer 4, .* layers 0 to 3/);
      main.arrive(execute(2, 1, { layer: 5 }));
      assert.match(lastError(main).message, isHere ? /layer 5, .* layers 0 to 4/ : /layer 5, .* layers 0 to 3/);
    }
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    head.isHere = true;
    shadow.arrive({ kind: 'predict', predict: prediction(1, 4, [2]) });
    assert.match(lastError(shadow).message, /layer 4, .* layers 0 to 3/);
  });

  it('end the session of a peer that keeps sending forbidden ones', () => {
    const here = new Setting();
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    for (let count = 1; count < MAX_VIOLATIONS; count++) shadow.arrive(execute(1, 1));
    assert.match(lastError(shadow).message, /Only main may send execute/);
    assert.equal(closeCode(shadow), undefined);
    shadow.arrive(execute(1, 1));
    assert.equal(closeCode(shadow), 'PROTOCOL_VIOLATION');
  });

  it('have no effect with an older placement', () => {
    const here = new Setting();
    const main = here.main(7);
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    main.arrive(execute(9, 6));
    assert.deepEqual([lastError(main).code, lastError(main).requestId, lastError(main).epoch], ['STALE_EPOCH', 9, 6]);
    main.arrive(release(6, 0, [1]));
    main.arrive({ kind: 'placement', placement: placement(6) });
    shadow.arrive({ kind: 'predict', predict: prediction(6, 0, [1]) });
    assert.equal(lastError(shadow).code, 'STALE_EPOCH');
    assert.deepEqual(here.slots.calls, []);
    assert.deepEqual(here.sessions.counters, {
      epoch: 7,
      staleMessages: 4,
      droppedPredictions: 0,
      servesDraftHead: false,
    });
  });

  it('include early predictions of shadow, which wait until main announces their placement', () => {
    const here = new Setting();
    const main = here.main(7);
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    shadow.arrive({ kind: 'predict', predict: prediction(8, 0, [1]) });
    assert.deepEqual(here.slots.calls, []);
    main.arrive({ kind: 'placement', placement: placement(8) });
    assert.deepEqual(here.slots.calls, ['load 0 1']);
    assert.deepEqual(kinds(shadow), ['welcome']);
  });

  it('are cancelled by a restart of the same shadow, and of no other peer', async () => {
    const here = new Setting();
    const main = here.main();
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    shadow.arrive({ kind: 'predict', predict: prediction(1, 2, [4]) });
    const restart = restartAt({});
    main.arrive({ kind: 'restart', restart });
    assert.match(lastError(main).message, /Only shadow may send restart/);
    assert.deepEqual(here.slots.calls, ['load 0 204']);
    shadow.arrive({ kind: 'restart', restart });
    await settle();
    assert.deepEqual(here.slots.calls, ['load 0 204', 'cancel 0']);
    assert.equal(here.experts.counters.slotsInUse, 0);
  });

  it('lose the predictions of an older placement when a new one comes', async () => {
    const here = new Setting();
    const main = here.main(7);
    main.arrive({ kind: 'announce', announce: prediction(7, 0, [1]) });
    main.arrive({ kind: 'placement', placement: placement(8) });
    await settle();
    assert.deepEqual(here.slots.calls, ['load 0 1', 'cancel 0']);
    assert.equal(here.experts.counters.slotsInUse, 0);
  });

  it('are all freed when main leaves in the middle of a load, and shadow stays', async () => {
    const here = new Setting();
    const main = here.main();
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    shadow.arrive({ kind: 'predict', predict: prediction(1, 2, [4]) });
    main.arrive(execute(1, 1));
    main.close();
    await settle();
    assert.equal(here.sessions.hasMain, false);
    assert.equal(here.experts.counters.slotsInUse, 0);
    assert.equal(shadow.closedWith, undefined);
    shadow.arrive({ kind: 'predict', predict: prediction(2, 2, [4]) });
    assert.equal(here.experts.counters.slotsInUse, 0, 'without a placement nothing is loaded');
    here.main(2);
    assert.equal(here.slots.calls.at(-1), 'load 0 204');
  });

  it('release the experts that main names, and everything of an ended sequence', async () => {
    const here = new Setting();
    const main = here.main();
    const shadow = here.connect(identity('ROLE_SHADOW', 's'));
    shadow.arrive({ kind: 'predict', predict: prediction(1, 1, [4]) });
    main.arrive(release(1, 1, [4]));
    await settle();
    assert.deepEqual(here.slots.calls, ['load 0 104', 'cancel 0']);
    shadow.arrive({ kind: 'predict', predict: prediction(1, 2, [4]) });
    main.arrive({ kind: 'end', end: { sequence: 1 } });
    shadow.arrive({ kind: 'predict', predict: prediction(1, 3, [4]) });
    await settle();
    assert.deepEqual(here.slots.calls.slice(2), ['load 0 204', 'cancel 0']);
  });
});
