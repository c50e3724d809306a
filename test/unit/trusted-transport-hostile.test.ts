import assert from 'node:assert/strict';
import { connect as connectTcp } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { generate, identifyPeer } from '../../shared/transport/node-clients.js';
import { TLS_HANDSHAKES_LIMIT } from '../../shared/wire/limits.js';
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
