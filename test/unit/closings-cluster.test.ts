import assert from 'node:assert/strict';
import bonjourService from 'bonjour-service';
import { Membership } from '../../main-node/cluster/membership.js';
import { Roster } from '../../main-node/cluster/roster.js';
import { multicastDiscovery } from '../../shared/transport/discovery/discovery.js';
import { InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import { JoinLoop } from '../../shared/transport/discovery/join-loop.js';
import { InProcessTransport } from '../../shared/transport/in-process-transport.js';
import type { NodeStatus, ShadowReply, ShadowRequest } from '../../shared/wire/messages.js';
import type { WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import type { Transport } from '../../shared/transport/transport.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { Predictor } from '../../shadow-node/predictor/predictor.js';
import { ShadowService } from '../../shadow-node/rpc/shadow-service.js';
import { WorkerLinks } from '../../shadow-node/rpc/worker-links.js';
import { MemoryStream } from '../integration/harness/memory-stream.js';
import { openTestHttpApi } from '../integration/harness/test-http-api.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { joinMain, RUNTIME, startRpcServer } from '../wall.js';
import { assertWaits, type Closing, HeldWork, itWaitsForWork, turns } from './held-work.js';
import { GROUPING, plainShape } from './plain-shape.js';
import { begin, PASS_ROWS, ScriptedModel, SHAPE } from './scripted-shadow-model.js';
import { silentLog } from './worker-test-slots.js';
import { identity } from './membership-setting.js';
import { openWorkerStream } from '../../shared/transport/node-clients.js';

const nothing = (): void => undefined;
const { network } = testSettings('main', '/nowhere');
const IDENTITY = identity('one', 'ROLE_MAIN');

function joining(): Closing {
  const work = new HeldWork();
  work.holdNext();
  const loop = new JoinLoop({
    runtime: RUNTIME,
    mainAddress: 'main:1',
    identity: () => IDENTITY,
    isServed: () => false,
    retryDelayMs: 1,
    endRefused: null,
    transport: { call: () => work.whenLetGo(() => Promise.reject(new Error('nobody answers'))) },
    log: silentLog,
  });
  assert.equal(work.underWay, 1);
  return { close: () => loop.stop(), letGo: () => work.letGo() };
}

type OpenTransport = Pick<Transport, 'call' | 'stream'>;

/** A main that dials one address. */
function membershipOn(transport: OpenTransport): Membership {
  const shape = plainShape({ expertLayers: 1 });
  const listeners = { onPrediction: nothing, onRestart: nothing, onDraft: nothing, onPrefixKept: () => true };
  const membership = new Membership({
    identity: () => IDENTITY,
    network,
    runtime: RUNTIME,
    transport: transport as Transport,
    interfaces: { addresses: [] },
    trust: null,
    shape,
    roster: new Roster(shape, GROUPING, 1, RUNTIME, silentLog),
    shadowListener: { ...listeners, onSequenceDropped: nothing, onLost: nothing, onDrained: nothing },
    log: silentLog,
  });
  membership.addOwn('one:1', 'one');
  return membership;
}

/** A stream whose end is reported when the test allows it. */
class LateStream<Out, In> extends MemoryStream<Out, In> {
  constructor(private readonly work: HeldWork) {
    super();
  }

  override close(): void {
    void this.work.whenLetGo(() => super.close());
  }
}

/** Main has said hello to a worker. `leave` runs before main stops. */
async function greeting(leave: (membership: Membership) => void): Promise<Closing> {
  const work = new HeldWork();
  const stream = new LateStream<WorkerRequest, WorkerReply>(work);
  const membership = membershipOn({
    call: (async () => ({ ...IDENTITY, role: 'ROLE_WORKER' })) as unknown as Transport['call'],
    stream: (() => stream) as unknown as Transport['stream'],
  });
  await waitUntil('hello is said', () => stream.sent.length > 0);
  leave(membership);
  work.holdNext({ works: Infinity });
  return { close: () => membership.stop(), letGo: () => work.letGo() };
}

/** Main asks an address for the identity of its daemon. */
async function identifying(): Promise<Closing> {
  const work = new HeldWork();
  work.holdNext();
  const membership = membershipOn({
    call: (_, __, ___, { signal }) =>
      new Promise((____, reject) => {
        onAbort(signal, () => void work.whenLetGo(() => reject(new Error('nobody waits any more'))));
      }),
    stream: () => assert.fail('nobody is greeted'),
  });
  await turns();
  return { close: () => membership.stop(), letGo: () => work.letGo() };
}

/** A shadow in the middle of a pass, with streams of main and to a worker. */
async function predicting(): Promise<Closing> {
  const model = new ScriptedModel();
  model.heldLayer = 0;
  const toWorker = new MemoryStream<WorkerRequest, WorkerReply>();
  const workers = new WorkerLinks({
    runtime: RUNTIME,
    open: () => toWorker,
    identity: () => IDENTITY,
    reconnectDelayMs: 60_000,
    log: silentLog,
  });
  const service = new ShadowService({
    runtime: RUNTIME,
    identity: () => ({ ...IDENTITY, id: 'shadow', role: 'ROLE_SHADOW' }),
    workers,
    takeRoster: nothing,
    status: (epoch) => ({ identity: IDENTITY, epoch }) as NodeStatus,
    shape: SHAPE,
    log: silentLog,
    createPredictor: (events) => new Predictor(model, model.createPass(), PASS_ROWS, events, RUNTIME),
  });
  const main = new MemoryStream<ShadowReply, ShadowRequest>();
  service.accept(main, { host: '127.0.0.1', caller: null });
  main.arrive({ kind: 'hello', hello: IDENTITY });
  const placed = [{ id: 'w', address: 'w:1', slots: 1 }];
  const { expertLayers: layers, experts, expertsPerToken } = SHAPE;
  const groups = [{ workerIds: ['w'] }];
  const placement = { epoch: 1, layers, experts, expertsPerToken, homes: 0, spread: false, workers: placed, groups };
  main.arrive({ kind: 'placement', placement });
  main.arrive({ kind: 'begin', begin: begin(5) });
  await turns();
  assert.equal(model.passes.length, 1);
  // A cancelled pass ends at its next check for cancellation, not earlier.
  const resume = model.resume.bind(model);
  model.resume = nothing;
  const letGo = (): void => {
    assert.ok(model.cancelled > 0, 'nobody wants the pass any more');
    assert.notEqual(toWorker.closedWith, undefined, 'links to workers are closed');
    assert.notEqual(main.closedWith, undefined, "main's stream is closed");
    resume();
  };
  return { close: () => service.stop(), letGo, holds: () => (model.disposed.length > 0 ? [] : ['rows']) };
}

/** Multicast whose goodbyes and sockets end when the test allows it. */
class LateBonjour extends bonjourService.Bonjour {
  static readonly goodbyes = new HeldWork();
  static readonly sockets = new HeldWork();
  static open = 0;

  constructor(...options: ConstructorParameters<typeof bonjourService.Bonjour>) {
    super(...options);
    LateBonjour.open += 1;
  }

  override unpublishAll(done?: () => void): void {
    super.unpublishAll(() => void LateBonjour.goodbyes.whenLetGo(() => done?.()));
  }

  override destroy(done?: () => void): void {
    super.destroy(() => {
      void LateBonjour.sockets.whenLetGo(() => {
        LateBonjour.open -= 1;
        done?.();
      });
    });
  }
}

/** A daemon that advertises itself and listens by mDNS. `held`: the parts that end late. */
async function multicast(
  kind: 'advertise' | 'watchPeers',
  held: 'goodbyes' | 'sockets',
  moves = false,
): Promise<Closing> {
  let [addresses, look] = [['127.0.0.2'], nothing];
  const polled = Object.assign(new WallRuntime(), {
    every: (_intervalMs: number, run: () => void) => {
      look = run;
      return { cancel: nothing, unref: nothing };
    },
  });
  const interfaces = new InterfaceWatch(polled, () =>
    addresses.map((address) => ({ name: 'lo', address, internal: false })),
  );
  // A stop has a time limit for goodbyes. In this test none is late.
  const timeless = Object.assign(new WallRuntime(), { after: () => ({ cancel: nothing, unref: nothing }) });
  const discovery = multicastDiscovery(timeless, interfaces);
  const settings = testSettings('main', '/nowhere', { provider: 'mdns' });
  const work = LateBonjour[held];
  const part =
    kind === 'advertise'
      ? await discovery.advertise(settings, { ...IDENTITY, address: '127.0.0.1:7600' }, silentLog)
      : await discovery.watchPeers(settings, nothing, silentLog);
  work.holdNext();
  if (moves) {
    addresses = [];
    look();
    await waitUntil('the socket of the network that is gone closes', () => work.underWay > 0);
  }
  return {
    close: () => part.stop(),
    letGo: () => work.letGo(),
    holds: () => (LateBonjour.open > 0 ? ['the socket'] : []),
  };
}

/** A call that a server has yet to answer. */
async function calling(): Promise<Closing> {
  const work = new HeldWork();
  work.holdNext();
  const server = await startRpcServer({
    host: '127.0.0.1',
    port: 0,
    network,
    log: silentLog,
    node: { identify: () => IDENTITY },
    cluster: {
      join: () =>
        work.whenLetGo(() => ({ kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'no' } }) as const),
      status: () => assert.fail('nobody asks'),
    },
  });
  const answer = joinMain(server.address, IDENTITY, 10_000);
  await waitUntil('main is asked', () => work.underWay > 0);
  const letGo = async (): Promise<void> => {
    work.letGo();
    assert.equal((await answer).kind, 'refusal', 'who has asked is answered');
  };
  return { close: () => server.stop(), letGo };
}

/** Last words of a worker in main's process. */
async function lastWords(): Promise<Closing> {
  const turnsToCome: (() => void)[] = [];
  const runtime = Object.assign(new WallRuntime(), {
    nextTurn: (run: () => void) => {
      turnsToCome.push(run);
      return { cancel: nothing, unref: nothing };
    },
  });
  const transport = new InProcessTransport(runtime, {} as Transport);
  transport.address = 'own:1';
  const server = await transport.ofWorker.serve({
    host: '',
    port: 0,
    network,
    log: silentLog,
    node: { identify: () => IDENTITY },
    worker: { serve: nothing },
  });
  const stream = openWorkerStream(transport.ofMain, 'own:1', network);
  let ended = false;
  stream.onClose(() => (ended = true));
  const letGo = async (): Promise<void> => {
    while (turnsToCome.length > 0) {
      turnsToCome.shift()?.();
      await turns();
    }
  };
  const close = async (): Promise<void> => {
    const stopping = server.stop();
    if (ended) await letGo();
    await stopping;
  };
  return { close, letGo, holds: () => (ended ? [] : ["main's stream"]) };
}

/** A client that waits for its answer by HTTP. */
async function askedByHttp(): Promise<Closing> {
  const work = new HeldWork();
  work.holdNext();
  const httpApi = await openTestHttpApi((app) => {
    app.get('/slow', () => work.whenLetGo(() => 'done'));
  });
  const answer = fetch(`http://${httpApi.address}/slow`).then((response) => response.text());
  await waitUntil('the client has asked', () => work.underWay > 0);
  const letGo = async (): Promise<void> => {
    work.letGo();
    assert.equal(await answer, 'done');
  };
  return { close: () => httpApi.close(), letGo };
}

describe('stopping a part of the cluster waits for', () => {
  const { Bonjour } = bonjourService;
  before(() => void Object.assign(bonjourService, { Bonjour: LateBonjour }));
  after(() => void Object.assign(bonjourService, { Bonjour }));

  itWaitsForWork({
    'a Join that main has yet to answer': joining,
    'its question who answers at an address': identifying,
    'a worker that it says hello to': () => greeting(nothing),
    'a worker that it says hello to at an address that it has forgotten': () =>
      greeting((membership) => membership.moveOwn('two:1', 'one')),
    "shadow's pass": predicting,
    'the goodbye of what it advertises': () => multicast('advertise', 'goodbyes'),
    'the socket by which it advertises itself': () => multicast('advertise', 'sockets'),
    'the socket by which it listens': () => multicast('watchPeers', 'sockets'),
    'the socket of a network that is gone': () => multicast('advertise', 'sockets', true),
    'last words in the same process': lastWords,
    'an answer by HTTP': askedByHttp,
  });

  // Not by itWaitsForWork: the caller's own socket takes a moment to close.
  it('a call that is not yet answered', async () => assertWaits(await calling()));
});
