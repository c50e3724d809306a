import { socketAddress } from '../../shared/wire/addresses.js';
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { mkdtempSync, renameSync, rmSync, statSync } from 'node:fs';
import { type AddressInfo, connect as connectTcp, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { METHODS } from '../../shared/transport/methods.js';
import {
  fetchStatus,
  generate,
  identifyPeer,
  openShadowStream,
  openWorkerStream,
} from '../../shared/transport/node-clients.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { RpcServerOptions, Transport } from '../../shared/transport/transport.js';
import { TLS_HANDSHAKES_LIMIT } from '../../shared/wire/limits.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { RUNTIME } from '../wall.js';
import { TestCluster, type TestMember } from './cluster-authority.js';
import { plainIdentity } from './plain-identity.js';
import { callOver, dialAny, NETWORK, showing, TrustedServers } from './trusted-servers.js';

const TIMEOUT_MS = 5000;
const QUESTION: GenerateRequest = {
  messages: [],
  promptTokenIds: [],
  stop: [],
  text: 'a',
  raw: true,
  maxTokens: 4,
  ignoreEos: true,
  logprobs: 0,
  sampling: null,
};

describe('transport of a cluster with an authority', () => {
  let servers: TrustedServers;
  let cluster: TestCluster;

  beforeEach(() => {
    servers = new TrustedServers();
    cluster = new TestCluster();
  });

  afterEach(() => servers.stop());

  function transportOf(member: TestMember | null): Transport {
    return new GrpcTransport(RUNTIME, null, member);
  }

  function serve(member: TestMember | null, more: Partial<RpcServerOptions> = {}): Promise<string> {
    return servers.serve(member, more);
  }

  async function refusalOf(asked: Promise<unknown>): Promise<OdmoeError> {
    const thrown: unknown = await asked.then(
      () => null,
      (error: unknown) => error,
    );
    assert.ok(thrown instanceof OdmoeError, 'it was refused');
    return thrown;
  }

  it('tells each handler which peer calls, and the caller which peer answers', async () => {
    const seen: PeerContext['caller'][] = [];
    const address = await serve(cluster.member('worker', 'jetson-2'), {
      node: { identify: (_, { caller }) => (seen.push(caller), plainIdentity()) },
      worker: { serve: (stream, { caller }) => (seen.push(caller), stream.close()) },
    });
    const client = transportOf(cluster.member('main', 'box'));
    await identifyPeer(client, address, TIMEOUT_MS);
    const stream = openWorkerStream(client, address, NETWORK);
    await new Promise((resolve) => stream.onClose(resolve));
    for (const caller of seen) {
      assert.deepEqual([caller?.cluster, caller?.role, caller?.id], ['test', 'main', 'box']);
    }
    assert.equal(seen.length, 2);
    assert.equal(stream.certifiedPeer?.id, 'jetson-2');
  });

  it('refuses a peer of another authority with the same cluster name, in words on both sides', async () => {
    const address = await serve(cluster.member('main'));
    const stranger = new TestCluster().member('worker', 'stranger');
    // A client of another authority does not accept main's certificate, so it sends nothing.
    const refused = await refusalOf(identifyPeer(transportOf(stranger), address, TIMEOUT_MS));
    assert.match(refused.message, /certificate/);
    // A hostile client accepts everything.
    const words = await askAsStranger(address, stranger);
    assert.match(words.message, /not of the authority of "test"/);
    assert.equal(words.code, '16');
    assert.ok(servers.log.all.some((line) => line.includes('not of the authority of')));
  });

  it('refuses a peer without a certificate and says how to join', async () => {
    const words = await askAsStranger(await serve(cluster.member('main')), null);
    assert.match(words.message, /no certificate of the cluster "test": let it join by `odmoe worker`/);
  });

  it('refuses a role, or a server of another role, by the names in the certificates', async () => {
    const main = await serve(cluster.member('main'), {
      cluster: {
        join: () => Promise.reject(new Error('unused')),
        status: () => Promise.reject(new OdmoeError('QUEUE_FULL', 'full')),
      },
      shadow: { serve: (stream) => stream.close() },
    });
    const worker = transportOf(cluster.member('worker', 'jetson-2'));
    assert.equal((await refusalOf(fetchStatus(worker, main, TIMEOUT_MS))).code, 'QUEUE_FULL');
    const asShadow = openShadowStream(worker, main, NETWORK);
    const error = await new Promise<OdmoeError | null>((resolve) => asShadow.onClose(resolve));
    // Main's certificate does not have the name of a shadow.
    assert.match(error?.message ?? '', /the daemon there is not shadow.odmoe.internal/);
    const operator = transportOf(cluster.member('operator', 'laptop'));
    const shadow = await serve(cluster.member('shadow'), { shadow: { serve: (stream) => stream.close() } });
    const stream = openShadowStream(operator, shadow, NETWORK);
    const refused = await new Promise<OdmoeError | null>((resolve) => stream.onClose(resolve));
    assert.equal(refused?.code, 'NOT_ALLOWED');
  });

  it('tells a client that it speaks no TLS to a server that does, by calls and by streams, with one probe', async () => {
    let connections = 0;
    const main = await serve(cluster.member('main'), { enrol: (socket) => socket.destroy() });
    const counting = createServer((socket) => {
      connections += 1;
      const [host, port] = main.split(':');
      const through = connectTcp(Number(port), host);
      socket.pipe(through).pipe(socket);
      for (const end of [socket, through]) end.on('error', () => undefined);
    });
    await new Promise<void>((resolve) => counting.listen(0, '127.0.0.1', resolve));
    const address = `127.0.0.1:${(counting.address() as AddressInfo).port}`;
    try {
      const plain = transportOf(null);
      for (const [ask, peer] of [
        [() => identifyPeer(plain, address, TIMEOUT_MS), 'the daemon at'],
        [() => fetchStatus(plain, address, TIMEOUT_MS), 'main at'],
      ] as const) {
        const { code, message } = await refusalOf(ask());
        assert.equal(code, 'TLS_MISMATCH');
        assert.ok(message.startsWith(`${peer} ${address} speaks TLS, and this process spoke none`), message);
        assert.match(message, /--insecure was given, leave that out; else this machine has to join first/);
      }
      const stream = openWorkerStream(plain, address, NETWORK);
      const error = await new Promise<OdmoeError | null>((resolve) => stream.onClose(resolve));
      assert.equal(error?.code, 'TLS_MISMATCH');
      assert.match(error?.message ?? '', /^worker at .* speaks TLS/);
      assert.equal(connections, 4, 'three dials, and one probe');
    } finally {
      counting.close();
    }
  });

  it('tells a client with a certificate that a server speaks no TLS', async () => {
    const plain = await serve(null, { worker: { serve: () => undefined } });
    const client = transportOf(cluster.member('main'));
    const { code, message } = await refusalOf(fetchStatus(client, plain, TIMEOUT_MS));
    assert.equal(code, 'TLS_MISMATCH');
    assert.match(
      message,
      /^main at .* speaks no TLS: its cluster has no authority .*, it was started with --insecure, or it is of release 0\.2 or older$/,
    );
    const stream = openWorkerStream(client, plain, NETWORK);
    const error = await new Promise<OdmoeError | null>((resolve) => stream.onClose(resolve));
    assert.equal(error?.code, 'TLS_MISMATCH');
  });

  it('says as ever that nothing listens, and that what answers is no daemon', async () => {
    const { code, message } = await refusalOf(identifyPeer(transportOf(null), '127.0.0.1:1', TIMEOUT_MS));
    assert.deepEqual([code, message.includes('ECONNREFUSED')], ['NO_MAIN', true]);
    const rude = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => rude.listen(0, '127.0.0.1', resolve));
    const address = `127.0.0.1:${(rude.address() as AddressInfo).port}`;
    assert.equal((await refusalOf(identifyPeer(transportOf(null), address, TIMEOUT_MS))).code, 'NO_MAIN');
    rude.close();
  });

  it('ends the streams of a removed peer with words, and takes it no more', async () => {
    const worker = cluster.member('worker', 'jetson-2');
    const address = await serve(worker, { worker: { serve: () => undefined } });
    const client = transportOf(cluster.member('shadow', 'helper'));
    const stream = openWorkerStream(client, address, NETWORK);
    await identifyPeer(client, address, TIMEOUT_MS);
    const ended = new Promise<OdmoeError | null>((resolve) => stream.onClose(resolve));
    cluster.remove('helper');
    const reason = await ended;
    assert.equal(reason?.code, 'TRUST_REFUSED');
    assert.equal(reason.message, 'node helper was removed from "test"');
    const again = await refusalOf(identifyPeer(client, address, TIMEOUT_MS));
    assert.deepEqual([again.code, again.message], ['TRUST_REFUSED', 'node helper was removed from "test"']);
  });

  it('ends its own stream to a removed peer', async () => {
    const address = await serve(cluster.member('worker', 'jetson-2'), { worker: { serve: () => undefined } });
    const client = transportOf(cluster.member('main', 'box'));
    const stream = openWorkerStream(client, address, NETWORK);
    await identifyPeer(client, address, TIMEOUT_MS);
    const ended = new Promise<OdmoeError | null>((resolve) => stream.onClose(resolve));
    cluster.remove('jetson-2');
    assert.equal((await ended)?.code, 'TRUST_REFUSED');
    const again = await refusalOf(identifyPeer(client, address, TIMEOUT_MS));
    assert.match(again.message, /node jetson-2 was removed from "test"/);
  });

  /** Messages without an end, until the caller has gone. */
  async function* endless<Reply>(reply: Reply, gone: AbortSignal): AsyncGenerator<Reply> {
    while (!gone.aborted) {
      yield reply;
      await RUNTIME.sleep(5, gone);
    }
  }

  /** Takes replies, calls `removed` after the first one, and returns the error with which they end. */
  async function errorOfReplies(replies: AsyncIterable<unknown>, removed: () => void): Promise<OdmoeError> {
    let isRemoved = false;
    const taken = async (): Promise<void> => {
      for await (const reply of replies) {
        assert.ok(reply !== undefined);
        if (!isRemoved) removed();
        isRemoved = true;
      }
    };
    return refusalOf(taken());
  }

  it('ends the running replies to a removed peer with words', async () => {
    const token = { kind: 'token' as const, token: { tokenId: 1, text: 'a', logprob: 0, top: [] } };
    const address = await serve(cluster.member('main', 'box'), {
      inference: { generate: (_, gone) => endless(token, gone) },
    });
    // The operator does not know the roster that removes it.
    const anna = transportOf(new TestCluster('test', cluster.authority).member('operator', 'anna'));
    const error = await errorOfReplies(generate(anna, address, QUESTION), () => cluster.remove('anna'));
    assert.deepEqual([error.code, error.message], ['TRUST_REFUSED', 'node anna was removed from "test"']);
  });

  it('ends its own calls to a removed peer', async () => {
    const worker = new TestCluster('test', cluster.authority).member('worker', 'jetson-2');
    const address = await serve(worker, {
      node: { identify: () => new Promise(() => undefined) },
      pack: {
        describe: () => new Promise(() => undefined),
        manifest: (_, gone) => endless({ bytes: Buffer.alloc(8) }, gone),
        read: (_, gone) => endless({ bytes: Buffer.alloc(8) }, gone),
      },
    });
    const main = transportOf(cluster.member('main', 'box'));
    const call = refusalOf(identifyPeer(main, address, TIMEOUT_MS));
    const replies = main.replies(address, METHODS.pack.manifest, { packDigest: 'a'.repeat(64) }, {});
    const error = await errorOfReplies(replies, () => cluster.remove('jetson-2'));
    for (const each of [error, await call])
      assert.deepEqual([each.code, each.message], ['TRUST_REFUSED', 'node jetson-2 was removed from "test"']);
  });

  it('shows a renewed certificate to new connections, and goes on with old streams', async () => {
    const member = cluster.member('worker', 'jetson-2');
    const address = await serve(member, { worker: { serve: (stream) => stream.onMessage(() => stream.close()) } });
    const client = transportOf(cluster.member('main', 'box'));
    const before = await certificateAt(address);
    const stream = openWorkerStream(client, address, NETWORK);
    await identifyPeer(client, address, TIMEOUT_MS);
    member.own = cluster.certify('worker', 'jetson-2');
    cluster.changed();
    assert.notEqual(await certificateAt(address), before);
    stream.send({ kind: 'hello', hello: plainIdentity() } as never);
    assert.equal(await new Promise((resolve) => stream.onClose(resolve)), null);
    await identifyPeer(client, address, TIMEOUT_MS);
  });

  it('lets operators of its host in by a Unix socket that only its user can open', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'odmoe-door-'));
    const path = join(directory, 'private', 'main.sock');
    const seen: PeerContext['caller'][] = [];
    const options: Partial<RpcServerOptions> = {
      node: { identify: (_, { caller }) => (seen.push(caller), plainIdentity()) },
      operatorSocket: path,
    };
    try {
      await serve(cluster.member('main'), options);
      await identifyPeer(transportOf(null), socketAddress(path), TIMEOUT_MS);
      assert.deepEqual(seen, [{ cluster: 'test', role: 'operator', id: 'local' }]);
      assert.deepEqual([statSync(path).mode & 0o777, statSync(dirname(path)).mode & 0o777], [0o600, 0o700]);
      const second = await refusalOf(serve(cluster.member('main'), options));
      assert.match(second.message, /another main of this cluster runs here/);
      await servers.stop();
      // A killed main leaves its socket behind.
      renameSync(await leftBehind(directory), path);
      await serve(cluster.member('main'), options);
      await identifyPeer(transportOf(null), socketAddress(path), TIMEOUT_MS);
    } finally {
      await servers.stop();
      rmSync(directory, { recursive: true, force: true });
    }
  });

  /** Path of a socket on which nobody listens. */
  async function leftBehind(directory: string): Promise<string> {
    const [bound, left] = [join(directory, 'bound'), join(directory, 'left')];
    const listener = createServer();
    await new Promise<void>((resolve) => listener.listen({ path: bound }, resolve));
    renameSync(bound, left);
    await new Promise((resolve) => listener.close(resolve));
    return left;
  }

  it('speaks TLS 1.3 alone', async () => {
    const address = await serve(cluster.member('main'));
    await assert.rejects(dialAny(address, { maxVersion: 'TLSv1.2' }), { code: /PROTOCOL_VERSION|ALERT/ });
  });

  it('drops handshakes that never end when one host has too many, and serves others', async () => {
    const address = await serve(cluster.member('main'));
    const [host = '', port = ''] = address.split(':');
    const silent = Array.from({ length: TLS_HANDSHAKES_LIMIT.ofHost + 50 }, () =>
      connectTcp({ host, port: Number(port) }),
    );
    let closed = 0;
    for (const socket of silent) {
      socket.on('error', () => undefined);
      socket.on('close', () => (closed += 1));
    }
    while (closed < 50) await delay(5);
    // Another address of this machine stands for another host.
    const other = await dialAny(address, {
      localAddress: '127.0.0.2',
      ...showing(cluster.certify('worker', 'worker')),
    });
    assert.equal(other.alpnProtocol, 'h2');
    other.destroy();
    for (const socket of silent) socket.destroy();
  });

  async function certificateAt(address: string): Promise<string> {
    const socket = await dialAny(address, showing(cluster.certify('worker', 'worker')));
    const { fingerprint256 } = socket.getPeerCertificate();
    socket.destroy();
    return fingerprint256;
  }

  /** The status and words that a client gets which accepts any server. */
  async function askAsStranger(address: string, member: TestMember | null): Promise<{ code: string; message: string }> {
    const socket = await dialAny(address, member === null ? {} : showing(member.own));
    return callOver(socket, METHODS.node.identify.path);
  }
});
