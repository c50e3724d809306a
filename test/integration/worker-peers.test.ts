import assert from 'node:assert/strict';
import { connect as connectSocket } from 'node:net';
import { join } from 'node:path';
import { Client, Metadata, credentials, type ClientDuplexStream } from '@grpc/grpc-js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import { waitUntil } from './harness/wait-until.js';
import { CHECKPOINT, MAX_ROWS, WorkerSetting, hiddenStates } from './worker-test-setting.js';
import { startRpcServer } from '../wall.js';
import { METHODS } from '../../shared/transport/methods.js';
import { SERVED_STREAMS_OF_PEER_LIMIT } from '../../shared/wire/limits.js';

const raw = (bytes: Buffer): Buffer => bytes;

describe('worker daemon: the connections to its peers', () => {
  const setting = new WorkerSetting();
  const clients: Client[] = [];

  afterEach(() => {
    for (const client of clients.splice(0)) client.close();
  });

  /** A stream of any bytes, and the words with which the worker ends it. */
  function openRaw(address: string): { call: ClientDuplexStream<Buffer, Buffer>; ended: Promise<string> } {
    const client = new Client(address, credentials.createInsecure());
    clients.push(client);
    const call = client.makeBidiStreamRequest(METHODS.worker.serve.path, raw, raw, new Metadata());
    call.on('data', () => undefined);
    return { call, ended: new Promise((resolve) => call.on('error', ({ message }: Error) => resolve(message))) };
  }

  it('survive garbage on its port', async () => {
    const node = await setting.start();
    const { host, port } = parseAddress(node.address);
    const socket = connectSocket(port, host);
    socket.on('error', () => undefined);
    socket.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'.repeat(100)));
    const client = new Client(node.address, credentials.createInsecure());
    const call = client.makeBidiStreamRequest('/odmoe.v1.Worker/Serve', raw, raw, new Metadata());
    let failure: string | null = null;
    call.on('data', () => undefined);
    call.on('error', (error: Error) => (failure = error.message));
    call.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 0x0f, 0x01]));
    await waitUntil('the stream is ended', () => failure !== null);
    assert.match(failure ?? '', /INVALID_ARGUMENT/);
    client.close();
    socket.destroy();
    const main = await setting.connectMain(node);
    const { hiddenSize } = setting.shape;
    await main.result({ layer: 0, expert: 0, hiddenSize, hidden: hiddenStates(1, hiddenSize) });
  });

  it('are bounded in number by host, and closed in words beyond', async () => {
    const node = await setting.start();
    const main = await setting.connectMain(node);
    const opened = Array.from({ length: SERVED_STREAMS_OF_PEER_LIMIT }, () => openRaw(node.address));
    const ends = await Promise.race(opened.map(({ ended }) => ended));
    assert.match(ends, new RegExp(`${SERVED_STREAMS_OF_PEER_LIMIT} from one peer, are served`));
    const { hiddenSize } = setting.shape;
    await main.result({ layer: 0, expert: 0, hiddenSize, hidden: hiddenStates(1, hiddenSize) });
    for (const { call } of opened) call.cancel();
  });

  it('are refused for another pack, with the reason on both sides, and for a second main', async () => {
    const node = await setting.start();
    const stranger = await setting.connect(node, { packDigest: 'ffff' });
    assert.match(stranger.refusal ?? '', /pack digest is "ffff"/);
    assert.equal(setting.log.matching('ffff').length, 1);
    await setting.connectMain(node);
    const second = await setting.connect(node, { id: 'main-2' });
    assert.match(second.refusal ?? '', /serves main "main"/);
    await waitUntil('the refused streams have ended', () => stranger.closed !== null && second.closed !== null);
  });

  it('may break while it loads and executes, and the next main gets free slots', async () => {
    const node = await setting.start({ slots: 2 });
    const { hiddenSize } = setting.shape;
    const hidden = hiddenStates(MAX_ROWS, hiddenSize);
    for (let round = 0; round < 5; round++) {
      const main = await setting.connectMain(node);
      main.predict({ layer: 1, experts: [1, 2, 3, 4] });
      for (let expert = 0; expert < 8; expert++) void main.execute({ layer: 0, expert, hiddenSize, hidden });
      await new Promise((resolve) => setImmediate(resolve));
      await main.close(new OdmoeError('CANCELLED', 'the test takes main away'));
    }
    const main = await setting.connectMain(node);
    await main.status('every slot is free', ({ slotsInUse }) => slotsInUse === 0);
    const result = await main.result({ layer: 2, expert: 3, hiddenSize, hidden });
    assert.deepEqual(Buffer.from(result.output), await setting.reference.run(2, 3, hidden));
  });

  it('do not begin when the budget holds no expert, or on a checkpoint, and the error says why', async () => {
    await assert.rejects(setting.start({ device: { memoryBudgetBytes: 1000 } }), {
      code: 'DEVICE_OUT_OF_MEMORY',
      message: /1000 left/,
    });
    await assert.rejects(setting.start({}, CHECKPOINT), { code: 'MODEL_NOT_FOUND', message: /odmoe pack/ });
    await assert.rejects(setting.start({}, join(CHECKPOINT, 'nothing')), { code: 'MODEL_NOT_FOUND' });
  });

  it('begin with repeated joins to the given main until it opens its stream, and again after a loss', async () => {
    const knocks: string[] = [];
    const main = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: setting.network,
      log: setting.log.logger('main'),
      node: { identify: () => assert.fail('nobody asks') },
      cluster: {
        join: async ({ identity }) => {
          knocks.push(identity.address);
          return {
            kind: 'welcome',
            welcome: { identity: { ...identity, id: 'main', role: 'ROLE_MAIN' }, partialPack: false, highestEpoch: 0 },
          };
        },
        status: () => assert.fail('nobody asks'),
      },
    });
    try {
      const node = await setting.start({ mainAddress: main.address });
      await waitUntil('the worker knocks', () => knocks.length > 0);
      assert.deepEqual(new Set(knocks), new Set([node.address]));
      const client = await setting.connectMain(node);
      await client.close();
      const before = knocks.length;
      await waitUntil('the worker knocks again', () => knocks.length > before);
    } finally {
      await main.stop();
    }
  });

  it('are logged once where main refuses them', async () => {
    let knocks = 0;
    const main = await startRpcServer({
      host: '127.0.0.1',
      port: 0,
      network: setting.network,
      log: setting.log.logger('main'),
      node: { identify: () => assert.fail('nobody asks') },
      cluster: {
        join: async () => {
          knocks += 1;
          return { kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'another model' } };
        },
        status: () => assert.fail('nobody asks'),
      },
    });
    try {
      await setting.start({ mainAddress: main.address });
      await waitUntil('main has refused', () => knocks > 0 && setting.log.matching('another model').length > 0);
      assert.equal(setting.log.matching('another model').length, 1);
    } finally {
      await main.stop();
    }
  });
});
