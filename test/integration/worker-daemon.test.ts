import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, openSync, readSync, closeSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openModelSource } from '../../engine/loading/index.js';
import { createExpertSlots, openDevice, type Device, type ExpertSlots } from '../../native/index.js';
import { packageRoot, type RunningNode } from '../../shared/config/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { startRpcServer, type Placement } from '../../shared/rpc/index.js';
import { startWorker } from '../../worker-node/main.js';
import { TestLog } from './harness/test-log.js';
import { packOf } from './harness/test-models.js';
import { testSettings, type SettingsChanges } from './harness/test-settings.js';
import { waitUntil } from './harness/wait-until.js';
import { WorkerTestClient } from './worker-test-client.js';

const MAX_ROWS = 64;
const CHECKPOINT = join(packageRoot(), 'test/fixtures/mixtral');
const placement = (epoch: number): Placement => ({
  ...{ epoch, layers: 4, experts: 8, expertsPerToken: 2 },
  workers: [{ id: 'worker', address: 'worker:1', slots: 1 }],
  groups: [{ workerIds: ['worker'] }],
});

/** Hidden states that differ from row to row. */
function hiddenStates(rows: number, hiddenSize: number, seed = 1): Uint8Array {
  const values = Float32Array.from({ length: rows * hiddenSize }, (_, index) => Math.sin(seed + index * 0.37));
  return new Uint8Array(values.buffer);
}

/** The experts of the checkpoint, not of the pack, run on a device of our own: what a worker must equal to the bit. */
class ReferenceExperts {
  private constructor(
    readonly source: ModelSource,
    private readonly device: Device,
    private readonly slots: ExpertSlots,
  ) {}

  static async open(): Promise<ReferenceExperts> {
    const source = await openModelSource(CHECKPOINT);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const { hiddenSize, intermediateSize } = source.shape;
    const shape = { hiddenSize, intermediateSize, format: source.shippedFormat };
    return new ReferenceExperts(source, device, createExpertSlots(device, shape, 1, MAX_ROWS));
  }

  async run(layer: number, expert: number, hidden: Uint8Array): Promise<Buffer> {
    await this.slots.load(0, this.source.expert(layer, expert));
    const output = Buffer.alloc(hidden.length);
    await this.slots.execute(0, hidden.length / (this.source.shape.hiddenSize * 4), hidden, output);
    return output;
  }

  close(): void {
    this.slots.dispose();
    this.device.dispose();
  }
}

describe('worker daemon', () => {
  let reference: ReferenceExperts;
  let pack: string;
  let log: TestLog;
  const nodes: RunningNode[] = [];
  const clients: WorkerTestClient[] = [];
  const { network } = testSettings('worker', '/nowhere');

  before(async () => {
    pack = await packOf('tiny');
    reference = await ReferenceExperts.open();
  });
  after(() => reference.close());
  beforeEach(() => (log = new TestLog()));
  afterEach(async function () {
    for (const client of clients.splice(0)) await client.close();
    for (const node of nodes.splice(0)) await node.stop();
    if (this.currentTest?.state === 'failed') log.print();
  });

  const start = async (changes: SettingsChanges = {}, directory = pack): Promise<RunningNode> => {
    const node = await startWorker(
      testSettings('worker', directory, { id: 'worker', ...changes }),
      log.logger('worker'),
    );
    nodes.push(node);
    return node;
  };
  const connect = async (
    node: RunningNode,
    changes: Parameters<typeof WorkerTestClient.connect>[2] = {},
  ): Promise<WorkerTestClient> => {
    const client = await WorkerTestClient.connect(node.address, network, changes);
    clients.push(client);
    return client;
  };
  const connectMain = async (node: RunningNode): Promise<WorkerTestClient> => {
    const main = await connect(node);
    main.place(placement(1));
    return main;
  };

  it('runs a predicted expert from its slot, evicts it, and equals the resident expert to the bit', async () => {
    const main = await connectMain(await start());
    const shadow = await connect(nodes[0] as RunningNode, { id: 'shadow', role: 'ROLE_SHADOW' });
    const { hiddenSize } = reference.source.shape;
    for (const [position, layer, expert] of [
      [0, 1, 6],
      [1, 0, 0],
      [2, 3, 7],
    ] as const) {
      shadow.predict({ position, layer, experts: [expert] });
      await main.status('the prediction is loaded', ({ loads }) => loads === position + 1);
      const hidden = hiddenStates(1, hiddenSize, position);
      const result = await main.result({ position, layer, expert, hiddenSize, hidden });
      assert.deepEqual([result.wasLoaded, result.stallUs, result.rows, result.epoch], [true, 0, 1, 1]);
      assert.deepEqual(Buffer.from(result.output), await reference.run(layer, expert, hidden));
    }
    const status = await main.status('the last eviction is told', ({ evictions }) => evictions === 3);
    assert.deepEqual([status.reloads, status.executions, status.slots, status.slotsInUse], [0, 3, 1, 0]);
    assert.ok(status.storageReadBytes > 0 && status.loadMsMean > 0 && status.executeMsMean > 0);
  });

  it('serves every expert of every layer without any prediction, from one slot', async () => {
    const main = await connectMain(await start({ slots: 1 }));
    const { hiddenSize, layers, experts } = reference.source.shape;
    const hidden = hiddenStates(1, hiddenSize);
    for (let layer = 0; layer < layers; layer++) {
      const runs = Array.from({ length: experts }, (_, expert) => main.result({ layer, expert, hiddenSize, hidden }));
      for (const [expert, result] of (await Promise.all(runs)).entries()) {
        assert.equal(result.wasLoaded, false);
        assert.deepEqual(Buffer.from(result.output), await reference.run(layer, expert, hidden));
      }
    }
    const status = await main.status('all is told', ({ executions }) => executions === layers * experts);
    assert.deepEqual([status.reloads, status.loads, status.slotsInUse], [32, 32, 0]);
  });

  it('gets over mispredictions: the slots held by wrong predictions are given to what main asks for', async () => {
    const main = await connectMain(await start({ slots: 2 }));
    const shadow = await connect(nodes[0] as RunningNode, { id: 'shadow', role: 'ROLE_SHADOW' });
    const { hiddenSize } = reference.source.shape;
    shadow.predict({ layer: 0, experts: [1] });
    shadow.predict({ layer: 2, experts: [2] });
    await main.status('both are loaded', ({ loads }) => loads === 2);
    const hidden = hiddenStates(1, hiddenSize, 9);
    const run = main.result({ layer: 0, expert: 5, hiddenSize, hidden });
    main.send({ kind: 'release', release: { epoch: 1, sequence: 1, position: 0, layer: 0, experts: [1] } });
    const result = await run;
    assert.equal(result.wasLoaded, false);
    assert.ok(result.stallUs > 0);
    assert.deepEqual(Buffer.from(result.output), await reference.run(0, 5, hidden));
    const kept = await main.result({ layer: 2, expert: 2, hiddenSize, hidden });
    assert.equal(kept.wasLoaded, true);
    assert.deepEqual(Buffer.from(kept.output), await reference.run(2, 2, hidden));
    assert.equal((await main.status('a status')).reloads, 1);
  });

  it('runs a prefill: mini-batches in order, the next layer expected meanwhile, same bits as one row at a time', async () => {
    const main = await connectMain(await start({ slots: 2, main: { miniBatchRows: 8 } }));
    const { hiddenSize } = reference.source.shape;
    main.predict({ position: 40, layer: 0, experts: [0, 3, 5] });
    const hidden = [7, 30, 4].map((rows, index) => hiddenStates(rows, hiddenSize, index));
    const runs = [0, 3, 5].flatMap((expert) =>
      hidden.map((batch, index) =>
        main.result({ position: 40, layer: 0, expert, hiddenSize, hidden: batch, last: index === hidden.length - 1 }),
      ),
    );
    main.predict({ position: 40, layer: 1, experts: [2] });
    const results = await Promise.all(runs);
    for (const [index, result] of results.entries()) {
      const expert = [0, 3, 5][Math.floor(index / 3)] as number;
      const batch = hidden[index % 3] as Uint8Array;
      assert.deepEqual(Buffer.from(result.output), await reference.run(0, expert, batch));
    }
    const rowBytes = hiddenSize * 4;
    const row = (hidden[1] as Uint8Array).subarray(5 * rowBytes, 6 * rowBytes);
    const alone = await reference.run(0, 0, row);
    assert.deepEqual(Buffer.from(results[1]?.output ?? []).subarray(5 * rowBytes, 6 * rowBytes), alone);
    const next = await main.status('the next layer is loaded', ({ loads }) => loads === 4);
    assert.deepEqual([next.reloads, next.evictions, next.slotsInUse], [0, 3, 1]);
  });

  it('answers messages of an older placement with STALE_EPOCH and goes on', async () => {
    const main = await connectMain(await start());
    const { hiddenSize } = reference.source.shape;
    const hidden = hiddenStates(1, hiddenSize);
    main.place(placement(2));
    const error = await main.error({ epoch: 1, layer: 0, expert: 0, hiddenSize, hidden });
    assert.deepEqual([error.code, error.epoch], ['STALE_EPOCH', 1]);
    await main.result({ epoch: 2, layer: 0, expert: 0, hiddenSize, hidden });
    const status = await main.status('a status of the new epoch', ({ epoch }) => epoch === 2);
    assert.deepEqual([status.staleMessages, status.executions], [1, 1]);
  });

  it('answers what it cannot run and keeps the stream', async () => {
    const main = await connectMain(await start());
    const { hiddenSize } = reference.source.shape;
    const hidden = hiddenStates(1, hiddenSize);
    const wrongSize = { layer: 0, expert: 0, hiddenSize: 32, hidden: hidden.subarray(0, 128) };
    for (const request of [
      { layer: 4, expert: 0, hiddenSize, hidden },
      { layer: 0, expert: 8, hiddenSize, hidden },
      wrongSize,
    ]) {
      assert.equal((await main.error(request)).code, 'PROTOCOL_VIOLATION');
    }
    await main.result({ layer: 0, expert: 0, hiddenSize, hidden });
  });

  it('refuses a peer with another pack, on both sides with the reason, and a second main', async () => {
    const node = await start();
    const stranger = await connect(node, { packDigest: 'ffff' });
    assert.match(stranger.refusal ?? '', /pack digest is "ffff"/);
    assert.equal(log.matching('ffff').length, 1);
    await connectMain(node);
    const second = await connect(node, { id: 'main-2' });
    assert.match(second.refusal ?? '', /serves main "main"/);
    await waitUntil('the refused streams have ended', () => stranger.closed !== null && second.closed !== null);
  });

  it('survives main vanishing while it loads and executes, and serves the next one from free slots', async () => {
    const node = await start({ slots: 2 });
    const { hiddenSize } = reference.source.shape;
    const hidden = hiddenStates(MAX_ROWS, hiddenSize);
    for (let round = 0; round < 5; round++) {
      const main = await connectMain(node);
      main.predict({ layer: 1, experts: [1, 2, 3, 4] });
      for (let expert = 0; expert < 8; expert++) void main.execute({ layer: 0, expert, hiddenSize, hidden });
      await new Promise((resolve) => setImmediate(resolve));
      await main.close(new OdmoeError('CANCELLED', 'the test takes main away'));
    }
    const main = await connectMain(node);
    await main.status('every slot is free', ({ slotsInUse }) => slotsInUse === 0);
    const result = await main.result({ layer: 2, expert: 3, hiddenSize, hidden });
    assert.deepEqual(Buffer.from(result.output), await reference.run(2, 3, hidden));
  });

  it('answers a corrupt chunk with PACK_CORRUPT and serves the experts that are whole', async () => {
    const parent = mkdtempSync(join(tmpdir(), 'odmoe-worker-'));
    try {
      const copy = join(parent, 'pack');
      cpSync(pack, copy, { recursive: true });
      const { path, offsetBytes } = (await openModelSource(copy)).expert(1, 4).up.chunks[0] ?? assert.fail('no chunk');
      flipByte(path, offsetBytes);
      const main = await connectMain(await start({}, copy));
      const { hiddenSize } = reference.source.shape;
      const hidden = hiddenStates(1, hiddenSize);
      main.predict({ layer: 1, experts: [4] });
      const error = await main.error({ layer: 1, expert: 4, hiddenSize, hidden });
      assert.equal(error.code, 'PACK_CORRUPT');
      assert.match(error.message, /Expert 4 of layer 1/);
      await main.result({ layer: 1, expert: 5, hiddenSize, hidden });
      assert.equal((await main.status('a status', ({ executions }) => executions === 1)).slotsInUse, 0);
    } finally {
      rmSync(parent, { recursive: true, force: true });
    }
  });

  it('keeps within its memory budget, with as many slots as that holds', async () => {
    const roomy = await connectMain(await start({ slots: 4 }));
    const { deviceMemoryUsedBytes, slotBytes } = await roomy.status('a status');
    await roomy.close();
    const budget = deviceMemoryUsedBytes - slotBytes;
    const main = await connectMain(await start({ slots: 4, device: { memoryBudgetBytes: budget } }));
    const { hiddenSize } = reference.source.shape;
    const hidden = hiddenStates(MAX_ROWS, hiddenSize);
    await Promise.all(Array.from({ length: 8 }, (_, expert) => main.result({ layer: 0, expert, hiddenSize, hidden })));
    const status = await main.status('a status', ({ executions }) => executions === 8);
    assert.deepEqual([status.slots, status.deviceMemoryBudgetBytes], [3, budget]);
    assert.ok(status.deviceMemoryHighWaterBytes <= budget);
    assert.equal(log.matching('holds less than was asked for').length, 1);
  });

  it('does not start when the budget does not hold one expert, or on a checkpoint, and says what to do', async () => {
    await assert.rejects(start({ device: { memoryBudgetBytes: 1000 } }), {
      code: 'DEVICE_OUT_OF_MEMORY',
      message: /1000 left/,
    });
    await assert.rejects(start({}, CHECKPOINT), { code: 'MODEL_NOT_FOUND', message: /odmoe pack/ });
    await assert.rejects(start({}, join(CHECKPOINT, 'nothing')), { code: 'MODEL_NOT_FOUND' });
  });

  it('knocks at the main it was given until main opens its stream, and again when that is lost', async () => {
    const knocks: string[] = [];
    const main = await startRpcServer({
      ...{ host: '127.0.0.1', port: 0, network, log: log.logger('main') },
      identity: () => assert.fail('nobody asks'),
      cluster: {
        join: async (identity) => {
          knocks.push(identity.address);
          return { kind: 'welcome', welcome: { identity: { ...identity, id: 'main', role: 'ROLE_MAIN' } } };
        },
        status: () => assert.fail('nobody asks'),
      },
    });
    try {
      const node = await start({ mainAddress: main.address });
      await waitUntil('the worker knocks', () => knocks.length > 0);
      assert.deepEqual(new Set(knocks), new Set([node.address]));
      const client = await connectMain(node);
      await client.close();
      const before = knocks.length;
      await waitUntil('the worker knocks again', () => knocks.length > before);
    } finally {
      await main.stop();
    }
  });

  it('logs once why main refuses it', async () => {
    let knocks = 0;
    const main = await startRpcServer({
      ...{ host: '127.0.0.1', port: 0, network, log: log.logger('main') },
      identity: () => assert.fail('nobody asks'),
      cluster: {
        join: async () => {
          knocks += 1;
          return { kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'another model' } };
        },
        status: () => assert.fail('nobody asks'),
      },
    });
    try {
      await start({ mainAddress: main.address });
      await waitUntil('main has refused', () => knocks > 0 && log.matching('another model').length > 0);
      assert.equal(log.matching('another model').length, 1);
    } finally {
      await main.stop();
    }
  });
});

function flipByte(path: string, offset: number): void {
  const file = openSync(path, 'r+');
  const byte = Buffer.alloc(1);
  readSync(file, byte, 0, 1, offset);
  writeSync(file, Buffer.from([(byte[0] ?? 0) ^ 0x40]), 0, 1, offset);
  closeSync(file);
}
