import assert from 'node:assert/strict';
import { connect, type ClientHttp2Session } from 'node:http2';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, ChannelCredentials } from '@grpc/grpc-js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import type { GenerateReply, NodeIdentity, StatusReply } from '../../shared/wire/messages.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import { fetchStatus, generate, joinMain, startRpcServer } from '../wall.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import { plainIdentity } from './plain-identity.js';
import { plainFinished, plainRequest } from './wire-messages.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const SILENT: Logger = {
  error: () => undefined,
  warn: () => undefined,
  info: () => undefined,
  debug: () => undefined,
};
const MAIN: NodeIdentity = plainIdentity({
  id: 'main',
  role: 'ROLE_MAIN',
  modelName: 'demo',
  packDigest: 'abc',
  bootId: 'boot',
  device: 'cpu avx2, 2 threads',
});
const HOP = { roundTripMs: 3, transitMs: 1, callMs: 0.25, handOffMs: 0.5, executeMs: 1, replyMs: 0.25 };
const WAIT = { worker: 'w', executes: 9, waitMs: 2.5, stallMs: 0.5 };
const STATUS: StatusReply = {
  nodes: [],
  placement: null,
  activeSequences: 1,
  queuedRequests: 2,
  problems: [{ address: 'a:1', id: 'w', code: 'NODE_REFUSED', message: 'why' }],
  requests: 3,
  tokens: 4,
  verification: null,
  trust: null,
  insecure: false,
  drained: [],
  groupReason: 'why',
  arithmetic: 'exact',
  layerWaits: [{ layer: 3, passes: 9, waitMs: 2.5, stallMs: 0.5, slowestWorker: 'w' }],
  workerWaits: [{ ...WAIT, executeMs: 1.5, otherMs: 0.5, lastShare: 0.75, costMs: 0.25 }],
  workerHops: [{ worker: 'w', hops: 9, median: HOP, p99: { ...HOP, roundTripMs: 6 } }],
  passes: null,
  ownWorkerId: 'w',
  links: [{ peer: 'w', sentBytes: 2 ** 40, receivedBytes: 7, roundTripMs: 0.25 }],
  httpAddress: '',
  contextPositions: null,
  madeForPositions: null,
};
const REQUEST = plainRequest();

function token(tokenId: number): GenerateReply {
  return { kind: 'token', token: { tokenId, text: `t${tokenId}`, logprob: -1, top: [] } };
}

const FINISHED = plainFinished();

/** A client whose HTTP/2 window is closed from the start, so that the server can send it nothing. */
function generateWithoutReading(address: string): ClientHttp2Session {
  const session = connect(`http://${address}`, { settings: { initialWindowSize: 0 } });
  session.on('error', () => undefined);
  const call = session.request({
    ':method': 'POST',
    ':path': '/odmoe.v1.Inference/Generate',
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  call.on('error', () => undefined);
  // GenerateRequest{text: "a", max_tokens: 1} behind gRPC's five bytes: not compressed, and the length.
  call.end(Buffer.from([0, 0, 0, 0, 5, 0x0a, 1, 0x61, 0x28, 1]));
  return session;
}

describe('RPC calls', function () {
  this.timeout(20_000);
  let server: RpcServer | null = null;

  async function serve(options: Partial<RpcServerOptions>): Promise<string> {
    const fixed = { host: '127.0.0.1', port: 0, network: NETWORK, log: SILENT, node: { identify: () => MAIN } };
    server = await startRpcServer({ ...fixed, ...options });
    return server.address;
  }

  afterEach(async () => {
    await server?.stop();
    server = null;
  });

  it('are cancelled when their client takes no replies, which frees their resources', async () => {
    let freed: () => void = () => undefined;
    const ended = new Promise<void>((resolve) => (freed = resolve));
    const endless = async function* (): AsyncGenerator<GenerateReply> {
      try {
        for (let id = 0; ; id++) {
          await delay(1);
          yield token(id);
        }
      } finally {
        freed();
      }
    };
    const client = generateWithoutReading(await serve({ inference: { generate: endless }, slowReaderLimitMs: 200 }));
    try {
      const outcome = await Promise.race([ended.then(() => 'freed'), delay(5000, 'still held')]);
      assert.equal(outcome, 'freed');
    } finally {
      client.destroy();
    }
  });

  it('serve the standard health check', async () => {
    const address = await serve({});
    const client = new Client(address, ChannelCredentials.createInsecure());
    const raw = (bytes: Buffer): Buffer => bytes;
    const reply = await new Promise<Buffer | undefined>((resolve, reject) => {
      client.makeUnaryRequest('/grpc.health.v1.Health/Check', raw, raw, Buffer.alloc(0), (error, bytes) => {
        if (error === null) resolve(bytes);
        else reject(error);
      });
    });
    client.close();
    // HealthCheckResponse{status: SERVING}
    assert.deepEqual(Buffer.from(reply ?? []), Buffer.from([8, 1]));
  });

  it('join main, which learns the source address, and ask for its status', async () => {
    const joined: [string, string][] = [];
    const address = await serve({
      cluster: {
        join: async ({ identity }, peer) => {
          joined.push([identity.id, peer.host]);
          if (identity.cluster !== MAIN.cluster) {
            return { kind: 'refusal', refusal: { code: 'NODE_REFUSED', message: 'other cluster' } };
          }
          return { kind: 'welcome', welcome: { identity: MAIN, partialPack: false, highestEpoch: 0 } };
        },
        status: async () => STATUS,
      },
    });
    const worker: NodeIdentity = { ...MAIN, id: 'w', role: 'ROLE_WORKER' };
    assert.deepEqual(await joinMain(address, worker, 2000), {
      kind: 'welcome',
      welcome: { identity: MAIN, partialPack: false, highestEpoch: 0 },
    });
    const refused = await joinMain(address, { ...worker, cluster: 'x' }, 2000);
    assert.equal(refused.kind, 'refusal');
    assert.deepEqual(joined, [
      ['w', '127.0.0.1'],
      ['w', '127.0.0.1'],
    ]);
    assert.deepEqual(await fetchStatus(address, 2000), STATUS);
  });

  it('without a node id are refused before the handler sees them', async () => {
    let called = false;
    const address = await serve({
      cluster: {
        join: async () => {
          called = true;
          throw new OdmoeError('QUEUE_FULL', 'no room');
        },
        status: async () => STATUS,
      },
    });
    await assert.rejects(joinMain(address, { ...MAIN, id: '' }, 2000), { code: 'PROTOCOL_VIOLATION' });
    assert.equal(called, false);
  });

  it('fail by NO_MAIN on a closed port, TIMEOUT without an answer, PROTOCOL_VIOLATION from another program', async () => {
    const address = await serve({});
    await assert.rejects(fetchStatus(address, 2000), { code: 'PROTOCOL_VIOLATION' });
    await server?.stop();
    await assert.rejects(fetchStatus(address, 2000), {
      code: 'NO_MAIN',
      message: /failed: connect ECONNREFUSED 127\.0\.0\.1:\d+; is main running there/,
    });
    let connections = 0;
    const silent = createServer((socket) => {
      connections += 1;
      socket.on('close', () => (connections -= 1)).resume();
    });
    await new Promise<void>((resolve) => {
      silent.listen(0, '127.0.0.1', resolve);
    });
    const bound = silent.address();
    assert.ok(bound !== null && typeof bound === 'object');
    await assert.rejects(fetchStatus(`127.0.0.1:${bound.port}`, 300), { code: 'TIMEOUT' });
    // grpc-js alone would keep the connection for ever.
    while (connections > 0) await delay(50);
    silent.close();
  });

  it('fail by equal words each time at the port of an HTTP server', async () => {
    const page = createHttpServer((_, response) => response.end('a page'));
    await new Promise<void>((resolve) => {
      page.listen(0, '127.0.0.1', resolve);
    });
    const bound = page.address();
    assert.ok(bound !== null && typeof bound === 'object');
    const failure = `the connection to 127.0.0.1:${bound.port} failed: what answers there speaks no gRPC (main's page and HTTP API are such)`;
    await assert.rejects(fetchStatus(`127.0.0.1:${bound.port}`, 2000), {
      message: `${failure}; is main running there? odmoe doctor says what answers`,
    });
    page.close();
  });

  it('fail with clear words if grpc-js has no method _createSecureConnector, by which a channel gets its sockets', async () => {
    const prototype = Object.getPrototypeOf(ChannelCredentials.createInsecure()) as Record<string, unknown>;
    const { _createSecureConnector: method } = prototype;
    assert.equal(typeof method, 'function');
    delete prototype._createSecureConnector;
    try {
      await assert.rejects(fetchStatus('127.0.0.1:1', 300), {
        code: 'INTERNAL',
        message: /grpc-js connects a channel by the method _createSecureConnector/,
      });
    } finally {
      prototype._createSecureConnector = method;
    }
  });

  it('with a value out of range are refused before the handler sees them', async () => {
    let called = false;
    const address = await serve({
      inference: {
        generate: async function* () {
          called = true;
          yield FINISHED;
        },
      },
    });
    const answer = generate(address, { ...REQUEST, logprobs: 2000 });
    await assert.rejects(answer.next(), { code: 'REQUEST_INVALID', message: /logprobs/ });
    assert.equal(called, false);
  });
});

describe('checkPeer', () => {
  it('accepts equal peers, whatever their role and id', () => {
    assert.equal(checkPeer(MAIN, { ...MAIN, id: 'w', role: 'ROLE_WORKER', bootId: 'other', address: 'x:2' }), null);
  });

  it('accepts a shadow without a quality, because it only predicts', () => {
    const main = { ...MAIN, quality: 'sliced(8,4)', slicesDigest: 'd5' };
    assert.equal(checkPeer(main, { ...MAIN, id: 's', role: 'ROLE_SHADOW' }), null);
    assert.equal(checkPeer({ ...MAIN, id: 's', role: 'ROLE_SHADOW' }, main), null);
  });

  const differences: [Partial<NodeIdentity>, RegExp][] = [
    [
      { protocolVersion: 99 },
      new RegExp(`protocol version is "99" there and "${OLDEST_PROTOCOL}" here.*update the older`),
    ],
    [{ cluster: 'lab' }, /cluster name is "lab" there and "test" here/],
    [{ modelName: 'mixtral' }, /model is "mixtral" there and "demo" here.*same pack/],
    [{ packDigest: '' }, /pack digest is \(none\) there and "abc" here/],
    [{ quality: 'sliced(8,4,low)' }, /quality is "sliced\(8,4,low\)" there and "exact" here.*main\.quality/],
    [{ slicesDigest: 'd5' }, /digest of the slices is "d5" there and \(none\) here/],
  ];
  for (const [difference, message] of differences) {
    it(`refuses another ${Object.keys(difference).join()}, saying both values`, () => {
      const refusal = checkPeer(MAIN, { ...MAIN, id: 'w7', role: 'ROLE_WORKER', ...difference });
      assert.equal(refusal?.code, 'NODE_REFUSED');
      assert.match(refusal.message, message);
      assert.match(refusal.message, /worker "w7" and main "main"/);
    });
  }
});

describe('peer addresses', () => {
  it('are split into host and port', () => {
    assert.deepEqual(parseAddress('box-1.local:7600'), { host: 'box-1.local', port: 7600 });
    assert.deepEqual(parseAddress('[fe80::1%eth0]:1'), { host: 'fe80::1%eth0', port: 1 });
    for (const wrong of ['', 'host', 'host:', ':7600', 'host:0', 'host:65536', 'http://h:1', '::1:7600', 'h:1x']) {
      assert.throws(() => parseAddress(wrong), { code: 'USAGE' }, wrong);
    }
  });

  it('are recognized as loopback or not', () => {
    for (const host of ['127.0.0.1', '127.8.9.1', 'localhost', '::1', '[::1]', '::ffff:127.0.0.1']) {
      assert.equal(isLoopbackHost(host), true, host);
    }
    for (const host of ['0.0.0.0', '::', '192.168.1.1', '127.0.0.1.example.org', 'example.org', '']) {
      assert.equal(isLoopbackHost(host), false, host);
    }
  });
});
