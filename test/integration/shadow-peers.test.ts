import type { RunningNode } from '../../engine/daemon/running-node.js';
import assert from 'node:assert/strict';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import type { JoinRequest, BeginSequence, NodeIdentity } from '../../shared/wire/messages.js';
import { startShadow } from '../../shadow-node/main.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { testSettings } from './harness/test-settings.js';
import { waitUntil } from './harness/wait-until.js';
import { placementOf, PredictionListener, ScriptedMain } from './shadow/scripted-peers.js';
import { ENVIRONMENT, startRpcServer } from '../wall.js';

const LAYERS = 8;
const SHAPE = { expertLayers: LAYERS, experts: 8, expertsPerToken: 2 };
const PROMPT = [0, 2, 14, 435, 407];

describe('shadow with its peers', () => {
  const log = new TestLog();
  let settings: NodeSettings;
  let shadow: RunningNode;
  const mains: ScriptedMain[] = [];
  const workers: PredictionListener[] = [];

  before(async () => {
    settings = testSettings('shadow', await packOf('demo'), { network: { reconnectDelayMs: 20 } });
  });

  // Each test has its own shadow, because a shadow remembers the newest epoch that any main has sent it.
  beforeEach(async () => {
    shadow = await startShadow(settings, ENVIRONMENT, log.logger('shadow'));
  });

  afterEach(async function () {
    if (this.currentTest?.state === 'failed') log.print();
    await shadow.stop();
    for (const main of mains.splice(0)) main.stream.close();
    for (const worker of workers.splice(0)) await worker.stop();
  });

  async function connect(changes: Partial<NodeIdentity> = {}): Promise<ScriptedMain> {
    const main = await ScriptedMain.connect(shadow.address, settings.network, changes);
    mains.push(main);
    return main;
  }

  /** Tries until the shadow welcomes this main, because the shadow may still serve the main of the test before. */
  async function connectAsOnlyMain(): Promise<ScriptedMain> {
    let main = await connect();
    await waitUntil('the shadow takes this main', async () => {
      await main.greet();
      if (main.welcomed) return true;
      main = await connect();
      return false;
    });
    return main;
  }

  async function startWorker(id: string, port = 0): Promise<PredictionListener> {
    const worker = new PredictionListener(id);
    await worker.start(settings.network, log.logger(id), port);
    workers.push(worker);
    return worker;
  }

  function begin(main: ScriptedMain, changes: Partial<BeginSequence> = {}): void {
    const periods = { alignTokenPeriod: 1, alignKvPeriod: 0 };
    const message = {
      epoch: 1,
      sequence: 1,
      tokenIds: PROMPT,
      promptTokens: PROMPT.length,
      maxPositions: 60,
      optimistic: false,
      spread: false,
      sampling: null,
      ...periods,
    };
    main.send({ kind: 'begin', begin: { ...message, ...changes } });
  }

  function announce(main: ScriptedMain, position: number, epoch = 1, sequence = 1): void {
    main.send({
      kind: 'token',
      token: { epoch, sequence, position, tokenId: 40 + position, rows: 1, nextRows: 1, branch: 0 },
    });
  }

  async function assertServes(main: ScriptedMain): Promise<void> {
    begin(main, { sequence: 99, epoch: 1_000 });
    main.send({
      kind: 'token',
      token: { epoch: 1_000, sequence: 99, position: PROMPT.length, tokenId: 5, rows: 1, nextRows: 1, branch: 0 },
    });
    await main.waitForPosition(99, PROMPT.length, LAYERS);
  }

  it('refuses a main of another cluster, pack or protocol, and both sides log the difference', async () => {
    for (const [changes, named] of [
      [{ cluster: 'elsewhere' }, 'elsewhere'],
      [{ packDigest: 'f00d' }, 'f00d'],
      [{ protocolVersion: 999 }, '999'],
      [{ role: 'ROLE_WORKER' as const }, 'ROLE_WORKER'],
    ] as const) {
      const main = await connect({ ...changes, id: 'stranger' });
      await main.greet();
      assert.equal(main.refusal?.code, 'NODE_REFUSED');
      assert.ok(main.refusal.message.includes(named), main.refusal.message);
      await waitUntil('the stream is closed', () => main.closed !== null);
      assert.ok(
        log.matching('refused a peer').some((line) => line.includes(named)),
        'it is logged here as well',
      );
    }
  });

  it('serves one main at a time; the same main may come again', async () => {
    const first = await connectAsOnlyMain();
    const second = await connect({ id: 'another-main' });
    await second.greet();
    assert.equal(second.refusal?.code, 'NODE_REFUSED');
    assert.ok(second.refusal.message.includes('"main"') || second.refusal.message.includes('main main'));
    await assertServes(first);
    const again = await connect();
    await again.greet();
    assert.ok(again.welcomed);
    await waitUntil('the older stream is closed', () => first.closed !== null);
    await assertServes(again);
  });

  it('closes a stream that does not begin with hello or has a gap, and serves the next', async () => {
    const rude = await connect();
    rude.send({ kind: 'end', end: { sequence: 1 } });
    await waitUntil('the stream is closed', () => rude.closed !== null);
    assert.equal(rude.closed?.error?.code, 'PROTOCOL_VIOLATION');

    const forgetful = await connectAsOnlyMain();
    begin(forgetful);
    announce(forgetful, PROMPT.length + 4);
    await waitUntil('the stream is closed', () => forgetful.closed !== null);
    assert.equal(forgetful.closed?.error?.code, 'PROTOCOL_VIOLATION');

    await assertServes(await connectAsOnlyMain());
  });

  it('answers a sequence that does not fit the model with an error, and goes on', async () => {
    const main = await connectAsOnlyMain();
    begin(main, { tokenIds: [1, 2, 60_000], promptTokens: 3 });
    await waitUntil('the error arrives', () => main.errors.length > 0);
    assert.equal(main.errors[0]?.code, 'PROTOCOL_VIOLATION');
    assert.equal(main.errors[0]?.requestId, 1, 'the error names the sequence');
    assert.equal(main.closed, null);
    await assertServes(main);
  });

  it('answers messages of an older placement and does not act on them', async () => {
    const main = await connectAsOnlyMain();
    const worker = await startWorker('worker-1');
    main.send({ kind: 'placement', placement: placementOf([worker], SHAPE, 5) });
    main.send({ kind: 'placement', placement: placementOf([], SHAPE, 4) });
    begin(main, { epoch: 4 });
    await waitUntil('both are answered', () => main.errors.length === 2);
    assert.deepEqual(
      main.errors.map(({ code, epoch }) => [code, epoch]),
      [
        ['STALE_EPOCH', 4],
        ['STALE_EPOCH', 4],
      ],
    );
    await waitUntil('the worker of epoch 5 is still connected', () => worker.openStreams === 1);
    begin(main, { epoch: 5 });
    announce(main, PROMPT.length, 5);
    await main.waitForPosition(1, PROMPT.length, LAYERS);
    assert.ok(main.predictions.every(({ epoch }) => epoch === 5));
  });

  it('counts a worker’s answer that a prediction was stale, and changes nothing', async () => {
    const main = await connectAsOnlyMain();
    const worker = await startWorker('worker-1');
    worker.staleAnswers = true;
    main.send({ kind: 'placement', placement: placementOf([worker], SHAPE, 1) });
    await waitUntil('the worker is connected', () => worker.openStreams === 1);
    await waitUntil('the worker has got the message', () => {
      begin(main);
      announce(main, PROMPT.length);
      return worker.predictions.length >= LAYERS;
    });
    await waitUntil('the status counts it', () => (main.statuses.at(-1)?.staleMessages ?? 0) >= LAYERS);
    await assertServes(main);
  });

  it('uses a new placement at once, and disconnects from workers that have gone', async () => {
    const main = await connectAsOnlyMain();
    const [first, second] = [await startWorker('worker-1'), await startWorker('worker-2')];
    main.send({ kind: 'placement', placement: placementOf([first], SHAPE, 1) });
    await waitUntil('the first is connected', () => first.openStreams === 1);
    main.send({ kind: 'placement', placement: placementOf([second], SHAPE, 2) });
    await waitUntil('the second is connected', () => first.openStreams === 0 && second.openStreams === 1);
    begin(main, { epoch: 2 });
    announce(main, PROMPT.length, 2);
    await waitUntil('the second has all predictions', () => second.predictions.length === LAYERS);
    assert.equal(first.predictions.length, 0);
    assert.ok(second.predictions.every(({ epoch, experts }) => epoch === 2 && experts.length === 2));
  });

  it('predicts for main while a worker is away, and informs the worker when it is back', async () => {
    const main = await connectAsOnlyMain();
    const worker = await startWorker('worker-1');
    const { port } = parseAddress(worker.address);
    const placement = placementOf([worker], SHAPE, 1);
    await worker.stop();
    main.send({ kind: 'placement', placement });
    begin(main);
    announce(main, PROMPT.length);
    await main.waitForPosition(1, PROMPT.length, LAYERS);
    assert.equal(worker.predictions.length, 0);
    await worker.start(settings.network, log.logger('worker-1'), port);
    await waitUntil('the worker is connected', () => worker.openStreams === 1);
    let position = PROMPT.length;
    await waitUntil('the worker has got the message', () => {
      if (position < 50) announce(main, ++position);
      return worker.predictions.length > 0;
    });
  });

  it('disconnects from the workers of a lost main and serves the next main', async () => {
    const worker = await startWorker('worker-1');
    const lost = await connectAsOnlyMain();
    lost.send({ kind: 'placement', placement: placementOf([worker], SHAPE, 9) });
    begin(lost, { epoch: 9 });
    await waitUntil('the worker is connected', () => worker.openStreams === 1);
    lost.stream.close();
    await waitUntil('the worker is left', () => worker.openStreams === 0);
    // A new main continues from the newest epoch that its peers have seen.
    const next = await connectAsOnlyMain();
    next.send({ kind: 'placement', placement: placementOf([worker], SHAPE, 10) });
    begin(next, { sequence: 2, epoch: 10 });
    announce(next, PROMPT.length, 10, 2);
    await next.waitForPosition(2, PROMPT.length, LAYERS);
    assert.equal(next.errors.length, 0);
  });

  it('advertises itself to main, repeatedly while main is away, and stops on request', async () => {
    let joins = 0;
    const identity = (await connect()).identity;
    const listen = {
      host: '127.0.0.1',
      network: settings.network,
      log: log.logger('main'),
      node: { identify: () => identity },
    };
    const cluster = {
      join: async ({ identity: peer }: JoinRequest) => {
        assert.equal(peer.role, 'ROLE_SHADOW');
        assert.ok(parseAddress(peer.address).port > 0);
        joins += 1;
        return { kind: 'refusal' as const, refusal: { code: 'NODE_REFUSED', message: 'not this one' } };
      },
      status: () => Promise.reject(new Error('nobody asks')),
    };
    const probe = await startRpcServer({ ...listen, port: 0 });
    const { port } = parseAddress(probe.address);
    await probe.stop();
    const joining = await startShadow(
      { ...settings, id: 'joiner', mainAddress: `127.0.0.1:${port}` },
      ENVIRONMENT,
      log.logger('joiner'),
    );
    await waitUntil('it has tried in vain', () => log.matching('main does not answer').length > 0);
    const main = await startRpcServer({ ...listen, port, cluster });
    await waitUntil('it has joined', () => joins > 0);
    await waitUntil('the refusal is logged here too', () => log.matching('not this one').length > 0);
    await joining.stop();
    await joining.stop();
    await main.stop();
  });
});
