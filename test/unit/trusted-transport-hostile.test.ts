import assert from 'node:assert/strict';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { generate, identifyPeer } from '../../shared/transport/node-clients.js';
import {
  REFUSED_CONNECTION_MS,
  REFUSED_CONNECTIONS_LIMIT,
  REFUSED_REQUEST_LIMIT_BYTES,
  TLS_HANDSHAKES_LIMIT,
} from '../../shared/wire/limits.js';
import { parseAddress } from '../../shared/wire/addresses.js';
import type { GenerateReply } from '../../shared/wire/messages.js';
import { RUNTIME } from '../wall.js';
import { TestCluster, type TestMember } from './cluster-authority.js';
import { plainIdentity } from './plain-identity.js';
import { packed, RecordingProxy } from './recording-proxy.js';
import { callOver, dialAny, showing, TrustedServers } from './trusted-servers.js';
import { plainFinished, plainRequest } from './wire-messages.js';

const TIMEOUT_MS = 5000;

/** No other text of the protocol holds this one. */
const PROMPT = 'the quick brown marmot of Zwettl';
const TOKEN_IDS = [70_001, 70_002, 70_003, 70_004];

const REQUEST = plainRequest({ text: PROMPT });

describe('hostile peers of a cluster with an authority', () => {
  let servers: TrustedServers;
  let cluster: TestCluster;

  beforeEach(() => {
    servers = new TrustedServers();
    cluster = new TestCluster();
  });

  afterEach(() => servers.stop());

  /** Status 12 (unimplemented) shows that the gRPC server itself has answered. */
  const ask = (socket: TLSSocket): Promise<{ code: string; message: string }> =>
    callOver(socket, '/odmoe.v1.Node/None');

  const answer = async function* (): AsyncGenerator<GenerateReply> {
    yield await Promise.resolve({
      kind: 'started',
      started: { promptTokenIds: TOKEN_IDS, seed: 1, arithmetic: 'exact' },
    });
    yield plainFinished();
  };

  /** Tells which of three forms of the prompt somebody in the middle of a request has seen. */
  async function seenOnTheWay(main: TestMember | null, operator: TestMember | null): Promise<boolean[]> {
    const proxy = new RecordingProxy(await servers.serve(main, { inference: { generate: answer } }));
    try {
      const client = new GrpcTransport(RUNTIME, null, operator);
      const kinds: string[] = [];
      for await (const { kind } of generate(client, await proxy.listen(), REQUEST)) kinds.push(kind);
      assert.deepEqual(kinds, ['started', 'finished']);
      const forms = [Buffer.from(PROMPT), Buffer.from(PROMPT, 'utf16le'), packed(TOKEN_IDS)];
      return forms.map((form) => proxy.saw(form));
    } finally {
      proxy.close();
    }
  }

  it('see nothing of a prompt on the way, neither its text nor its tokens', async () => {
    assert.deepEqual(await seenOnTheWay(cluster.member('main'), cluster.member('operator')), [false, false, false]);
    // The same eyes see both in plaintext, so they look at the right bytes.
    assert.deepEqual(await seenOnTheWay(null, null), [true, false, true]);
  });

  it('are refused on a resumed session after their removal', async () => {
    const address = await servers.serve(cluster.member('main'));
    const { own } = cluster.member('worker', 'jetson-2');
    const certificate = showing(own);
    const first = await dialAny(address, certificate);
    const session = await new Promise<Buffer>((resolve) => first.once('session', resolve));
    assert.equal((await ask(first)).code, '12');
    // A resumed session brings no certificate with it, and the peer is known all the same.
    const resumed = await dialAny(address, { session });
    assert.equal(resumed.isSessionReused(), true);
    assert.equal((await ask(resumed)).code, '12');
    cluster.remove('jetson-2');
    // A change of the roster ends all sessions: the handshake is a whole one, and without a certificate.
    const removed = await dialAny(address, { session });
    assert.equal(removed.isSessionReused(), false);
    assert.equal((await ask(removed)).code, '16');
    const certified = await dialAny(address, certificate);
    assert.deepEqual(await ask(certified), { code: '16', message: 'node jetson-2 was removed from "test"' });
  });

  describe('that speak no gRPC', () => {
    const REQUEST_TEXT = 'GET / HTTP/1.1\r\nhost: main\r\n\r\n';
    const open: Socket[] = [];

    afterEach(() => {
      for (const socket of open.splice(0)) socket.destroy();
    });

    function plainTo(address: string): Socket {
      const socket = connectTcp(parseAddress(address));
      socket.on('error', () => undefined);
      open.push(socket);
      return socket;
    }

    /** All that comes on the connection until it ends. */
    function textFrom(socket: Socket): Promise<string> {
      let text = '';
      socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
      return new Promise((resolve) => socket.once('close', () => resolve(text)));
    }

    function assertWords(text: string, status: string): void {
      const [head = '', body = ''] = text.split('\r\n\r\n');
      assert.ok(head.startsWith(`HTTP/1.1 ${status}\r\n`), text);
      assert.ok(head.includes(`content-length: ${Buffer.byteLength(body)}`), head);
      assert.match(
        body,
        /gRPC over TLS.*\n.*page and the HTTP API.*odmoe status.*\n.*odmoe worker.*odmoe operator join/,
      );
      assert.doesNotMatch(text, /test|jetson/, 'nothing of the cluster is named');
    }

    it('get words by plain HTTP, also when they send a body', async () => {
      const address = await servers.serve(cluster.member('main'));
      for (const request of [REQUEST_TEXT, `POST / HTTP/1.1\r\ncontent-length: 20000\r\n\r\n${'x'.repeat(20_000)}`]) {
        const socket = plainTo(address);
        socket.write(request);
        assertWords(await textFrom(socket), '400 Bad Request');
      }
    });

    it('are told from daemons of releases without TLS, whose first words are logged once', async () => {
      const address = await servers.serve(cluster.member('main'));
      const begin = async (words: string): Promise<void> => {
        const socket = plainTo(address);
        socket.write(words);
        await textFrom(socket);
      };
      await begin(REQUEST_TEXT);
      for (let count = 0; count < 3; count += 1) await begin('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
      const refused = servers.log.all.filter((line) => line.startsWith('refused a connection'));
      assert.equal(refused.length, 1, refused.join('\n'));
      assert.match(refused[0] ?? '', /speaks no TLS: a daemon of release 0\.2 or older, which has to be updated/);
    });

    it('get words over TLS without HTTP/2, before they say anything, whoever they are', async () => {
      const address = await servers.serve(cluster.member('main'));
      const certificate = showing(cluster.member('worker', 'jetson-2').own);
      for (const offered of [[], ['http/1.1']]) {
        for (const shown of [{}, certificate]) {
          const socket = await dialAny(address, { ALPNProtocols: offered, ...shown });
          assertWords(await textFrom(socket), '421 Misdirected Request');
        }
      }
      const refused = servers.log.all.filter((line) => line.startsWith('refused a connection'));
      assert.equal(refused.length, 4);
      for (const line of refused) assert.match(line, /did not ask for HTTP\/2, which gRPC needs/);
    });

    it('get words by HTTP/2, which curl chooses', async () => {
      const socket = await dialAny(await servers.serve(cluster.member('main')), { ALPNProtocols: ['h2', 'http/1.1'] });
      const session = connectHttp2('https://node', { createConnection: () => socket });
      let text = '';
      const status = await new Promise((resolve, reject) => {
        const stream = session.request({ ':path': '/' });
        let shown: unknown = null;
        stream.on('error', reject);
        stream.on('response', (headers) => (shown = headers[':status']));
        stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
        stream.on('end', () => resolve(shown));
      });
      session.destroy();
      assert.equal(status, 403);
      assert.match(text, /^this machine has no certificate of the cluster "test": let it join by [^]*gRPC over TLS/);
    });

    it('keep no place: they are few at a time, each for a short time, and may send little', async () => {
      const address = await servers.serve(cluster.member('main'));
      const beganMs = performance.now();
      const silent: TLSSocket[] = [];
      for (let count = 0; count < REFUSED_CONNECTIONS_LIMIT; count++) {
        const socket = await dialAny(address, { ALPNProtocols: [], allowHalfOpen: true });
        socket.on('error', () => undefined);
        open.push(socket);
        silent.push(socket);
      }
      const ends = silent.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
      await Promise.all(silent.map((socket) => new Promise((resolve) => socket.once('data', resolve))));
      const further = plainTo(address);
      further.write(REQUEST_TEXT);
      assert.equal(await textFrom(further), '', 'one more ends without words');
      // They are no handshakes any more.
      const client = new GrpcTransport(RUNTIME, null, cluster.member('worker'));
      assert.equal((await identifyPeer(client, address, TIMEOUT_MS)).id, plainIdentity().id);
      silent[0]?.write(Buffer.alloc(2 * REFUSED_REQUEST_LIMIT_BYTES));
      // They have read the end of what the server says, and notice by writing that it has closed the connection.
      const writing = setInterval(() => silent.forEach((socket) => socket.write('x')), 50);
      try {
        const first = await Promise.race(ends.map((end, index) => end.then(() => index)));
        assert.equal(first, 0, 'who sends much is ended before its time');
        await Promise.all(ends);
      } finally {
        clearInterval(writing);
      }
      assert.ok(performance.now() - beganMs >= REFUSED_CONNECTION_MS, 'those who stay have their time');
    });
  });

  it('keep nobody out by a thousand handshakes that never end', async () => {
    const address = await servers.serve(cluster.member('main'));
    const [host = '', port = ''] = address.split(':');
    const hosts = Math.floor(TLS_HANDSHAKES_LIMIT.all / TLS_HANDSHAKES_LIMIT.ofHost) - 1;
    let closed = 0;
    const silent = Array.from({ length: 1000 }, (_, index) => {
      // Addresses of this machine stand for hosts.
      const socket = connectTcp({ host, port: Number(port), localAddress: `127.0.1.${1 + (index % hosts)}` });
      socket.on('error', () => undefined);
      socket.on('close', () => (closed += 1));
      return socket;
    });
    try {
      while (closed < silent.length - hosts * TLS_HANDSHAKES_LIMIT.ofHost) await delay(5);
      const client = new GrpcTransport(RUNTIME, null, cluster.member('worker'));
      assert.equal((await identifyPeer(client, address, TIMEOUT_MS)).id, plainIdentity().id);
    } finally {
      for (const socket of silent) socket.destroy();
    }
  });
});
