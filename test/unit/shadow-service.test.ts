import assert from 'node:assert/strict';
import type { Pass } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type {
  NodeIdentity,
  NodeStatus,
  OutputFormat,
  Predict,
  Restart,
  SamplingMessage,
  ShadowReply,
  ShadowRequest,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import type { PassPrediction } from '../../shadow-node/predictor/pass-predictions.js';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import { ShadowService } from '../../shadow-node/rpc/shadow-service.js';
import { PREDICTION_BACKLOG_LIMIT_BYTES, WorkerLinks } from '../../shadow-node/rpc/worker-links.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { TestLog } from '../integration/harness/test-log.js';
import { plainShape } from './plain-shape.js';
import { begin, ScriptedModel } from './scripted-shadow-model.js';
import { RUNTIME } from '../wall.js';
import { plainPrediction, restartAt } from './wire-messages.js';
import { plainIdentity } from './plain-identity.js';

const GREEDY: SamplingMessage = { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
const SHAPE = { layers: 2, experts: 4, expertsPerToken: 2, homes: 0, spread: false };

function identity(id: string, role: NodeIdentity['role']): NodeIdentity {
  return plainIdentity({ id, role, cluster: 'c', address: '', device: '' });
}

type WorkerStream = MemoryStream<WorkerRequest, WorkerReply>;

/** A shadow whose connections the test controls. The model never runs, because the test makes the predictions. */
function createShadow() {
  const log = new TestLog();
  const lost: OdmoeError[] = [];
  const rosters: Uint8Array[] = [];
  const opened = new Map<string, WorkerStream[]>();
  const own = identity('shadow', 'ROLE_SHADOW');
  const workers = new WorkerLinks({
    runtime: RUNTIME,
    open: (address) => {
      const stream: WorkerStream = new MemoryStream();
      opened.set(address, [...(opened.get(address) ?? []), stream]);
      return stream;
    },
    identity: () => own,
    reconnectDelayMs: 60_000,
    log: log.logger('shadow'),
  });
  const service = new ShadowService({
    runtime: RUNTIME,
    identity: () => own,
    status: (epoch) => ({ identity: own, epoch }) as NodeStatus,
    shape: plainShape({ expertLayers: SHAPE.layers }),
    createPredictor: (events) => new Predictor(new ScriptedModel(), {} as Pass, 4, events, RUNTIME),
    workers,
    takeRoster: (signed) => rosters.push(signed),
    log: log.logger('shadow'),
    onDeviceLost: (error) => lost.push(error),
  });
  const main = new MemoryStream<ShadowReply, ShadowRequest>();
  service.accept(main, { host: '127.0.0.1', caller: null });
  main.arrive({ kind: 'hello', hello: identity('main', 'ROLE_MAIN') });
  const place = (epoch: number, ids: string[]) => {
    const placed = ids.map((id) => ({ id, address: `${id}:1`, slots: 1 }));
    const groups = ids.length === 0 ? [] : [{ workerIds: ids }];
    main.arrive({ kind: 'placement', placement: { ...SHAPE, epoch, workers: placed, groups } });
  };
  const stream = (id: string): WorkerStream => {
    const last = opened.get(`${id}:1`)?.at(-1);
    assert.ok(last !== undefined, `a stream to ${id}`);
    return last;
  };
  const welcome = (id: string) =>
    stream(id).arrive({
      kind: 'welcome',
      welcome: { identity: identity(id, 'ROLE_WORKER'), partialPack: false, highestEpoch: 0 },
    });
  return { service, workers, main, place, stream, welcome, opened, lost, rosters };
}

const predicted = (position: number, layer: number, experts: number[], again = false, rows = 1): PassPrediction => ({
  position,
  rows,
  layer,
  experts,
  critical: [],
  again,
  runUs: 0,
});

const sentToWorker = (stream: WorkerStream): Predict[] =>
  stream.sent.flatMap((request) => (request.kind === 'predict' ? [request.predict] : []));

const sentToMain = (stream: MemoryStream<ShadowReply, ShadowRequest>): Predict[] =>
  stream.sent.flatMap((reply) => (reply.kind === 'predict' ? [reply.predict] : []));

const restartsOf = (stream: { sent: readonly (ShadowReply | WorkerRequest)[] }): Restart[] =>
  stream.sent.flatMap((message) => (message.kind === 'restart' ? [message.restart] : []));

describe('shadow: the service', () => {
  let shadow: ReturnType<typeof createShadow>;

  beforeEach(() => {
    shadow = createShadow();
  });

  afterEach(() => shadow.service.stop());

  it('accepts tensors from its main alone', () => {
    const others = [identity('other', 'ROLE_MAIN'), identity('worker', 'ROLE_WORKER')].map((peer) => {
      const stream = new MemoryStream<ShadowReply, ShadowRequest>();
      shadow.service.accept(stream, { host: '127.0.0.1', caller: null });
      stream.arrive({ kind: 'hello', hello: peer });
      return stream;
    });
    assert.deepEqual(
      [shadow.main, ...others].map((stream) => stream.takesTensors),
      [true, false, false],
    );
  });

  it("takes the cluster's roster from its main", () => {
    const signed = Buffer.from('signed');
    shadow.main.arrive({ kind: 'roster', roster: { signed } });
    assert.deepEqual(shadow.rosters, [signed]);
  });

  it('sends a future layer to main and workers, and one that main has passed to main alone', () => {
    const { service, main, place, stream, welcome } = shadow;
    place(1, ['a']);
    welcome('a');
    service.onPrediction(5, predicted(9, 0, [3, 1]), true);
    assert.equal(sentToWorker(stream('a')).length, 0);
    service.onPrediction(5, predicted(10, 0, [3, 1]), false);
    assert.deepEqual(
      sentToMain(main).map(({ pass, experts }) => [pass.position, experts]),
      [
        [9, [3, 1]],
        [10, [3, 1]],
      ],
    );
    assert.deepEqual(sentToWorker(stream('a')), [
      plainPrediction({ sequence: 5, position: 10, layer: 0, experts: [1, 3] }),
    ]);
  });

  it('gives up when its device is lost, after it has informed main, and for no other failure', () => {
    const { service, main, lost } = shadow;
    service.onFailure(5, new OdmoeError('DEVICE_OUT_OF_MEMORY', 'no room for another sequence'));
    assert.equal(lost.length, 0);
    service.onFailure(6, new OdmoeError('DEVICE_LOST', 'the GPU is gone'));
    assert.equal(lost.length, 1);
    const errors = main.sent.flatMap((reply) =>
      reply.kind === 'error' ? [[reply.error.code, reply.error.requestId]] : [],
    );
    assert.deepEqual(errors, [
      ['DEVICE_OUT_OF_MEMORY', 5],
      ['DEVICE_LOST', 6],
    ]);
  });

  it('reports an invalid sampling or format of a sequence to main, and goes on serving', () => {
    const { main, service, lost } = shadow;
    const json = { alternatives: [{ parts: [{ kind: 'jsonSchema' as const, jsonSchema: '{}' }] }] };
    const none: OutputFormat = { alternatives: [] };
    const wrong = [
      { topP: 2 },
      { logitBias: [{ tokenId: 1, bias: NaN }] },
      { outputFormat: none },
      { outputFormat: json },
    ];
    for (const [index, change] of wrong.entries()) {
      main.arrive({ kind: 'begin', begin: begin(index, { sampling: { ...GREEDY, ...change } }) });
    }
    const errors = main.sent.flatMap((reply) => (reply.kind === 'error' ? [reply.error.code] : []));
    assert.deepEqual(
      errors,
      wrong.map(() => 'REQUEST_INVALID'),
    );
    assert.deepEqual([lost, service.hasMain, service.openCounts['sequences']], [[], true, 0]);
  });

  it('sends each worker its own experts of a growing set, and an empty set where none remain', () => {
    const { service, place, stream, welcome } = shadow;
    place(1, ['a', 'b']);
    for (const id of ['a', 'b']) welcome(id);
    service.onPrediction(5, predicted(10, 0, [1, 3]), false);
    const expertsOf = (id: string) => sentToWorker(stream(id)).map(({ experts }) => experts);
    assert.deepEqual([expertsOf('a'), expertsOf('b')], [[[3]], [[1]]], 'both at home with b, which has room for one');
    service.onPrediction(5, predicted(10, 0, [1, 3, 0], true), false);
    assert.deepEqual([expertsOf('a').at(-1), expertsOf('b').at(-1)], [[0], [1, 3]]);
    service.onPrediction(5, predicted(10, 0, [1], true), false);
    assert.deepEqual([expertsOf('a').at(-1), expertsOf('b').at(-1)], [[], [1]]);
  });

  it('sends drafts to main, and a restart to main and every worker', () => {
    const { service, main, place, stream, welcome } = shadow;
    place(3, ['a', 'b']);
    for (const id of ['a', 'b']) welcome(id);
    const draft = { position: 11, tokenId: 4, branch: 2, passPosition: 10, runUs: 77 };
    service.onDraft(5, draft);
    const sent = main.sent.at(-1);
    assert.deepEqual(sent?.kind === 'draft' ? sent.draft : null, { epoch: 3, sequence: 5, ...draft });
    service.onRestart(5, 11);
    const restart = restartAt({ epoch: 3, sequence: 5, position: 11 });
    assert.deepEqual(restartsOf(main), [restart]);
    for (const id of ['a', 'b']) assert.deepEqual(restartsOf(stream(id)), [restart]);
  });

  it('sends predictions to main alone for rows that main runs with other sequences', () => {
    const { service, main, place, stream, welcome } = shadow;
    place(1, ['a']);
    welcome('a');
    main.arrive({ kind: 'begin', begin: begin(5) });
    const announce = (position: number, joint: boolean) =>
      main.arrive({
        kind: 'token',
        token: { epoch: 1, sequence: 5, position, tokenId: 4, rows: 1, nextRows: 1, branch: 0, joint },
      });
    const tellOf = (position: number) => service.onPrediction(5, { ...predicted(position, 0, [3]), runUs: 7 }, false);
    tellOf(3);
    announce(3, true);
    tellOf(4);
    announce(4, false);
    tellOf(5);
    assert.deepEqual(
      sentToMain(main).map(({ pass, mainAnnounces, runUs }) => [pass.position, mainAnnounces, runUs]),
      [
        [3, false, 7],
        [4, true, 7],
        [5, false, 7],
      ],
    );
    assert.deepEqual(
      sentToWorker(stream('a')).map(({ pass }) => pass.position),
      [3, 5],
    );
  });

  it('sends a restart to the workers that have received predictions', () => {
    const { service, main, place, stream, welcome } = shadow;
    place(1, ['a']);
    welcome('a');
    main.arrive({ kind: 'begin', begin: begin(5) });
    service.onPrediction(5, predicted(3, 0, [3]), false);
    main.arrive({
      kind: 'token',
      token: { epoch: 1, sequence: 5, position: 3, tokenId: 4, rows: 1, nextRows: 1, branch: 0, joint: true },
    });
    const restarts = () => restartsOf(stream('a')).length;
    service.onRestart(5, 4);
    assert.equal(restarts(), 0);
    service.onRestart(5, 3);
    assert.equal(restarts(), 1);
    service.onRestart(5, 3);
    assert.equal(restarts(), 1);
    assert.equal(restartsOf(main).length, 3);
  });

  describe('with experts spread over all workers', () => {
    const ids = ['a', 'b', 'c', 'd'];
    const begin = (sequence: number, optimistic = true): ShadowRequest => ({
      kind: 'begin',
      begin: {
        epoch: 1,
        sequence,
        tokenIds: [1],
        alignTokenPeriod: 1,
        alignKvPeriod: 1,
        promptTokens: 1,
        maxPositions: 9,
        optimistic,
        spread: true,
        sampling: null,
      },
    });
    const dealt = () => sentToMain(shadow.main).map(({ experts, workers }) => [experts, workers]);

    beforeEach(() => {
      shadow.place(1, ids);
      for (const id of ids) shadow.welcome(id);
    });

    it('deals to the least busy worker, sends main the places, and each worker its own', () => {
      const { service, main, stream } = shadow;
      main.arrive(begin(5));
      service.onPrediction(5, predicted(10, 0, [3, 1]), false);
      service.onPrediction(5, predicted(10, 1, [0, 2]), false);
      service.onPrediction(5, predicted(10, 0, [3, 1, 2], true, 2), false);
      assert.deepEqual(dealt(), [
        [
          [3, 1],
          [0, 1],
        ],
        [
          [0, 2],
          [2, 3],
        ],
        [
          [3, 1, 2],
          [0, 1, 2],
        ],
      ]);
      const toC = sentToWorker(stream('c')).map(({ layer, experts, workers = [] }) => [layer, experts, workers]);
      assert.deepEqual(toC, [
        [1, [0], []],
        [0, [2], []],
      ]);
      assert.equal(sentToWorker(stream('d')).length, 1);
    });

    it("deals to the worker that caches the expert by main's report, under this placement", () => {
      const { service, main } = shadow;
      main.arrive(begin(5));
      const tell = (epoch: number, place: number): void => {
        const kept = [{ worker: place, layer: 1, experts: [0] }];
        const token = { epoch, sequence: 5, position: 1, tokenId: 1, rows: 1, nextRows: 1, branch: 0, kept };
        main.arrive({ kind: 'token', token });
      };
      tell(1, 3);
      tell(0, 2);
      service.onPrediction(5, predicted(10, 1, [0]), false);
      assert.deepEqual(dealt(), [[[0], [3]]]);
    });

    it('forgets predictions that a restart or a new placement takes back', () => {
      const { service, main } = shadow;
      main.arrive(begin(5));
      service.onPrediction(5, predicted(10, 0, [3, 1]), false);
      service.onRestart(5, 10);
      service.onPrediction(5, predicted(10, 0, [2, 3]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [0, 1]);
      service.onPrediction(5, predicted(10, 1, [2, 3]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [2, 3]);
      shadow.place(2, ids);
      service.onPrediction(5, predicted(10, 1, [2, 3]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [0, 1]);
    });

    it("leaves the first layer to main's announcement, at one position a pass, without optimism", () => {
      const { service, main } = shadow;
      main.arrive(begin(5, false));
      main.arrive(begin(6, true));
      service.onPrediction(5, predicted(10, 0, [3, 2]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [3, 2]);
      service.onPrediction(5, predicted(10, 1, [3, 2]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [0, 1]);
      service.onPrediction(6, predicted(30, 0, [3, 2]), false);
      assert.deepEqual(dealt().at(-1)?.[1], [2, 3]);
      service.onPrediction(5, predicted(11, 0, [3, 2], false, 4), false);
      assert.notDeepEqual(dealt().at(-1)?.[1], [3, 2]);
    });

    it('deals no late predictions', () => {
      const { service, main } = shadow;
      main.arrive(begin(5));
      service.onPrediction(5, predicted(10, 0, [3, 1]), true);
      assert.deepEqual(dealt().at(-1)?.[1], []);
    });
  });

  it('predicts for main alone while no worker exists', () => {
    const { service, main, place } = shadow;
    service.onPrediction(5, predicted(9, 0, [3, 1]), false);
    place(4, []);
    service.onPrediction(5, predicted(9, 1, [0, 1]), false);
    assert.deepEqual(
      sentToMain(main).map(({ epoch }) => epoch),
      [0, 4],
    );
  });

  it('drops and counts predictions to a worker that has not said welcome or does not take them', () => {
    const { service, workers, place, stream, welcome } = shadow;
    place(1, ['a']);
    service.onPrediction(1, predicted(9, 0, [3, 1]), false);
    assert.deepEqual([sentToWorker(stream('a')).length, workers.counts.dropped], [0, 1]);
    welcome('a');
    stream('a').backlogBytes = PREDICTION_BACKLOG_LIMIT_BYTES + 1;
    service.onPrediction(1, predicted(9, 1, [3, 1]), false);
    assert.deepEqual([sentToWorker(stream('a')).length, workers.counts.dropped], [0, 2]);
    stream('a').backlogBytes = 0;
    service.onPrediction(1, predicted(10, 0, [3, 1]), false);
    assert.deepEqual([sentToWorker(stream('a')).length, workers.counts.sent], [1, 1]);
  });

  it('reconnects to a lost worker at once when main places it again', () => {
    const { place, stream, opened } = shadow;
    place(1, ['a', 'b']);
    stream('a').close();
    assert.equal(opened.get('a:1')?.length, 1, 'it would wait');
    place(2, ['b']);
    place(3, ['a', 'b']);
    assert.equal(opened.get('a:1')?.length, 2);
    stream('a').close();
    place(4, ['a', 'b']);
    assert.equal(opened.get('a:1')?.length, 3);
    assert.equal(opened.get('b:1')?.length, 1, 'one that is connected is left alone');
  });

  it('disconnects from every worker when main leaves', () => {
    const { main, place, stream, service } = shadow;
    place(1, ['a']);
    main.close();
    assert.equal(stream('a').closedWith, null);
    assert.equal(service.hasMain, false);
  });

  it('refuses a placement for another model', () => {
    const { main } = shadow;
    const placement = { ...SHAPE, layers: 3, epoch: 1, workers: [], groups: [] };
    assert.throws(() => main.arrive({ kind: 'placement', placement }), { code: 'PROTOCOL_VIOLATION' });
  });
});
