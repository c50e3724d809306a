import assert from 'node:assert/strict';
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Server, ServerCredentials, type ServerDuplexStream, type UntypedHandleCall } from '@grpc/grpc-js';
import { METHODS } from '../../shared/transport/methods.js';
import { UnfinishedRequests } from '../../shared/transport/unfinished-requests.js';
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';
import { identifyPeer, RUNTIME, startRpcServer } from '../wall.js';
import { plainIdentity } from './plain-identity.js';
import { Lines } from './log-lines.js';
import { NETWORK } from './trusted-servers.js';

const KILOBYTE_BYTES = 1024;
/** All requests come within it, however busy the machine is. */
const REQUEST_LIMIT_MS = 20_000;

/** A call that a hostile client holds. */
interface HeldCall {
  readonly stream: ClientHttp2Stream;
  /** Resolves when the client has given all bytes to the system. */
  readonly sent: Promise<void>;
  /** The status with its words, once the server has ended the call; then the server has also reset the stream. */
  readonly ended: Promise<{ code: string; message: string }>;
  isOpen(): boolean;
}

describe('requests that do not come whole', function () {
  this.timeout(60_000);
  const sessions: ClientHttp2Session[] = [];
  const stops: (() => Promise<void> | void)[] = [];

  afterEach(async () => {
    for (const session of sessions.splice(0)) session.destroy();
    for (const stop of stops.splice(0)) await stop();
  });

  function dial(address: string): ClientHttp2Session {
    const session = connect(`http://${address}`);
    session.on('error', () => undefined);
    sessions.push(session);
    return session;
  }

  /** Sends `sentBytes` of a message that says it has `messageBytes`, and leaves the call open. */
  function begin(session: ClientHttp2Session, path: string, messageBytes: number, sentBytes: number): HeldCall {
    const stream = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc' });
    stream.on('error', () => undefined);
    let status = { code: '', message: '' };
    stream.on('response', (headers) => {
      status = {
        code: String(headers['odmoe-code']),
        message: decodeURI(String(headers['grpc-message'])),
      };
    });
    const ended = new Promise<typeof status>((resolve) => stream.once('close', () => resolve(status)));
    const header = Buffer.alloc(5);
    header.writeUInt32BE(messageBytes, 1);
    const sent = new Promise<void>((resolve) => {
      stream.write(Buffer.concat([header, Buffer.alloc(sentBytes)]), () => resolve());
    });
    return { stream, sent, ended, isOpen: () => !stream.closed };
  }

  it('end in words, give back their memory, and keep nobody else waiting', async () => {
    const node = { identify: () => plainIdentity() };
    const options = {
      host: '127.0.0.1',
      port: 0,
      network: NETWORK,
      log: new Lines(),
      node,
      requestLimitMs: REQUEST_LIMIT_MS,
    };
    const server = await startRpcServer(options);
    stops.push(() => server.stop());
    const freeBytes = await settledBuffers();
    const { path } = METHODS.node.identify;
    const calls = [1, 2, 3].flatMap(() => {
      const session = dial(server.address);
      return Array.from({ length: 7 }, () => begin(session, path, 4 * MEGABYTE_BYTES, 3 * MEGABYTE_BYTES));
    });
    const arrivedBytes = 50 * MEGABYTE_BYTES;
    await Promise.all(calls.map(({ sent }) => sent));
    for (let tries = 0; tries < 40 && heldBuffers() - freeBytes <= arrivedBytes; tries += 1) await delay(50);
    assert.ok(heldBuffers() - freeBytes > arrivedBytes, 'the server holds what came');
    assert.equal((await identifyPeer(server.address, 4000)).id, plainIdentity().id);
    assert.ok(
      calls.every((call) => call.isOpen()),
      'another peer is served while these wait',
    );
    for (const { ended } of calls) {
      const { code, message } = await ended;
      assert.equal(code, 'REQUEST_SLOW');
      assert.match(message, /did not come whole within 20 s; check the network/);
    }
    assert.ok(calls.every(({ stream }) => stream.rstCode === constants.NGHTTP2_NO_ERROR));
    for (let tries = 0; tries < 50 && heldBuffers() - freeBytes > 8 * MEGABYTE_BYTES; tries += 1) await delay(50);
    assert.ok(heldBuffers() - freeBytes <= 8 * MEGABYTE_BYTES, `${heldBuffers() - freeBytes} bytes are still held`);
  });

  interface Bounded {
    readonly address: string;
    readonly unfinished: UnfinishedRequests;
  }

  /** A server with small bounds. Peers are told apart by their hosts. */
  async function serveBounded(limitMs: number): Promise<Bounded> {
    const limits = { all: 1024 * KILOBYTE_BYTES, ofConnection: 512 * KILOBYTE_BYTES };
    const unfinished = new UnfinishedRequests(RUNTIME, limitMs, limits);
    const server = new Server({ interceptors: [unfinished.interceptor((call) => call.getPeer().split(':')[0] ?? '')] });
    const raw = (bytes: Buffer): Buffer => bytes;
    const serve = (path: string, isStream: boolean, handle: UntypedHandleCall): void => {
      const shape = { path, requestStream: isStream, responseStream: isStream };
      const codec = {
        requestSerialize: raw,
        requestDeserialize: raw,
        responseSerialize: raw,
        responseDeserialize: raw,
      };
      server.addService({ Method: { ...shape, ...codec } }, { Method: handle });
    };
    serve('/call', false, (call: { request: Buffer }, reply: (error: null, bytes: Buffer) => void) =>
      reply(null, call.request),
    );
    serve('/stream', true, (call: ServerDuplexStream<Buffer, Buffer>) => void call.on('data', () => undefined));
    const port = await new Promise<number>((resolve, reject) => {
      server.bindAsync('0.0.0.0:0', ServerCredentials.createInsecure(), (error, bound) =>
        error === null ? resolve(bound) : reject(error),
      );
    });
    stops.push(() => server.forceShutdown());
    return { address: `127.0.0.1:${port}`, unfinished };
  }

  async function holds({ unfinished }: Bounded, leastKilobytes: number): Promise<void> {
    for (let tries = 0; tries < 100 && unfinished.bytes < leastKilobytes * KILOBYTE_BYTES; tries += 1) await delay(20);
    assert.ok(unfinished.bytes >= leastKilobytes * KILOBYTE_BYTES, `${unfinished.bytes} bytes are held`);
  }

  it('are bounded by connection: the largest one is ended', async () => {
    const server = await serveBounded(20_000);
    const session = dial(server.address);
    const small = begin(session, '/call', 4 * MEGABYTE_BYTES, 100 * KILOBYTE_BYTES);
    const large = begin(session, '/stream', 4 * MEGABYTE_BYTES, 300 * KILOBYTE_BYTES);
    await holds(server, 400);
    const last = begin(session, '/call', 4 * MEGABYTE_BYTES, 200 * KILOBYTE_BYTES);
    const { code, message } = await large.ended;
    assert.equal(code, 'QUEUE_FULL');
    assert.match(
      message,
      /requests of this connection that have not come whole hold 0.5 MiB, and at most 0.5 MiB are kept/,
    );
    await holds(server, 300);
    assert.deepEqual([small.isOpen(), last.isOpen()], [true, true]);
    session.destroy();
    for (let tries = 0; tries < 100 && server.unfinished.bytes > 0; tries += 1) await delay(20);
    assert.equal(server.unfinished.bytes, 0);
  });

  it('are bounded in all: the peer that holds most loses, over however many connections', async () => {
    const server = await serveBounded(20_000);
    const other = server.address.replace('127.0.0.1', '127.0.0.2');
    const honest = begin(dialFrom('127.0.0.2', other), '/call', 4 * MEGABYTE_BYTES, 400 * KILOBYTE_BYTES);
    await holds(server, 400);
    const flood = Array.from({ length: 10 }, () =>
      begin(dial(server.address), '/call', 4 * MEGABYTE_BYTES, 100 * KILOBYTE_BYTES),
    );
    const { code, message } = await Promise.race(flood.map(({ ended }) => ended));
    assert.equal(code, 'QUEUE_FULL');
    assert.match(message, /requests of all connections.* at most 1.0 MiB/);
    assert.equal(honest.isOpen(), true);
  });

  function dialFrom(localAddress: string, address: string): ClientHttp2Session {
    const [host = '', port = ''] = address.split(':');
    const session = connect(`http://${address}`, {
      createConnection: () => connectTcp({ host, port: Number(port), localAddress }),
    });
    session.on('error', () => undefined);
    sessions.push(session);
    return session;
  }

  it('leave whole requests alone: slow ones, and streams after their first message', async () => {
    const server = await serveBounded(600);
    const session = dial(server.address);
    const stream = begin(session, '/stream', 10, 10);
    const halfMessage = begin(session, '/stream', 10, 9);
    const slow = begin(session, '/call', 2000, 1000);
    await delay(200);
    slow.stream.end(Buffer.alloc(1000));
    slow.stream.resume();
    await slow.ended;
    assert.equal(slow.stream.rstCode, constants.NGHTTP2_NO_ERROR);
    assert.equal((await halfMessage.ended).code, 'REQUEST_SLOW');
    await delay(400);
    assert.equal(stream.isOpen(), true);
    assert.equal(server.unfinished.bytes, 0);
  });
});

/** Bytes of buffers that are in use, after what is free has been collected. */
function heldBuffers(): number {
  setFlagsFromString('--expose_gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().arrayBuffers;
}

/** The same, once the buffers of tests that ran before in this process are gone: some go only in a later collection. */
async function settledBuffers(): Promise<number> {
  let bytes = heldBuffers();
  for (let tries = 0; tries < 20; tries += 1) {
    await delay(50);
    const before = bytes;
    bytes = heldBuffers();
    if (before - bytes < MEGABYTE_BYTES / 4) break;
  }
  return bytes;
}
