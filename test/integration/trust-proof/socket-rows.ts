/** Sockets that speak an old TLS, that never finish their handshake, or that come back with a session of before; and OpenSSL's own client. */
import { spawn } from 'node:child_process';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { METHODS } from '../../../shared/transport/methods.js';
import { identifyPeer } from '../../../shared/transport/node-clients.js';
import { pemOf } from '../../../shared/transport/trust/tls-options.js';
import { TLS_HANDSHAKES_LIMIT } from '../../../shared/wire/limits.js';
import { parseAddress } from '../../../shared/wire/addresses.js';
import { callOver, dialAny, showing } from '../../unit/trusted-servers.js';
import { waitUntil } from '../harness/wait-until.js';
import { CALL_TIMEOUT_MS, type ProofCluster } from './proof-cluster.js';
import { errorWords, type Row, type Seen, wordsOf } from './row.js';

const HALF_OPEN = 1000;
/** Addresses of this machine stand for hosts; fewer than would take all places for handshakes. */
const HOSTS = Math.floor(TLS_HANDSHAKES_LIMIT.all / TLS_HANDSHAKES_LIMIT.ofHost) - 1;

export const SOCKET_ROWS: readonly Row[] = [
  {
    done: 'a client that speaks TLS 1.2 alone',
    act: async (cluster) =>
      wordsOf(dialAny(cluster.main, { maxVersion: 'TLSv1.2', ...showing(await cluster.credentials('jetson')) })),
    here: /PROTOCOL_VERSION|alert protocol version/i,
    there: { of: 'box', say: /a connection ended in its TLS handshake .*unsupported protocol/i },
    status: null,
  },
  {
    done: 'a client that never finishes its handshake',
    act: async ({ main }) => {
      const socket = silentAt(main);
      await new Promise((resolve) => socket.once('close', resolve));
      return { said: 'closed', status: null };
    },
    here: /^closed$/,
    there: { of: 'box', say: /a connection ended in its TLS handshake .*handshake timeout/i },
    status: null,
  },
  {
    done: `${HALF_OPEN} connections that never finish their handshake, while main answers others`,
    act: amongHalfOpen,
    here: /^box answers$/,
    there: null,
    status: null,
  },
  {
    done: 'a session of TLS that is taken up again after the removal of its machine',
    act: resumedAfterRemoval,
    here: /^whole handshake, 16: node cellar was removed from "home"/,
    there: { of: 'box', say: /refused a connection .*node cellar was removed from/ },
    status: null,
  },
  {
    done: "openssl s_client with a node's certificate",
    act: async (cluster) => {
      const { said, status } = await openssl(await sClient(cluster, cluster.main));
      const agreed = [
        /Verify return code: 0 \(ok\)/,
        /New, TLSv1\.3, /,
        /ALPN protocol: h2/,
        /Verified peername: main\.odmoe\.internal/,
      ];
      return { said: agreed.every((words) => words.test(said)) ? 'agrees' : said, status };
    },
    here: /^agrees$/,
    there: null,
    status: 0,
  },
  {
    done: 'openssl s_client without a certificate, and gRPC on it',
    act: grpcOverOpenssl,
    here: /^16: .*certificate.*join/,
    there: { of: 'box', say: /refused a connection .*certificate/ },
    status: null,
  },
  {
    done: 'openssl s_client of a stranger who asks for no protocol',
    act: async ({ main }) => openssl(['s_client', '-quiet', '-connect', main]),
    here: /HTTP\/1\.1 421 Misdirected Request[^]*gRPC over TLS[^]*odmoe status[^]*odmoe worker/,
    there: { of: 'box', say: /refused a connection .*did not ask for HTTP\/2/ },
    status: 1,
  },
  {
    done: 'openssl s_client by TLS 1.2',
    act: async (cluster) => openssl(await sClient(cluster, cluster.main, '-tls1_2')),
    here: /alert protocol version/,
    there: { of: 'box', say: /a connection ended in its TLS handshake .*unsupported protocol/i },
    status: 1,
  },
];

function silentAt(address: string, localAddress = '127.0.0.1'): Socket {
  const socket = connectTcp({ ...parseAddress(address), localAddress });
  // A socket that nobody reads never reports its end.
  socket.resume();
  socket.on('error', () => undefined);
  return socket;
}

async function amongHalfOpen(cluster: ProofCluster): Promise<Seen> {
  let closed = 0;
  const silent = Array.from({ length: HALF_OPEN }, (_, index) => {
    const socket = silentAt(cluster.main, `127.0.1.${1 + (index % HOSTS)}`);
    socket.on('close', () => (closed += 1));
    return socket;
  });
  try {
    await waitUntil(
      'main has closed those beyond its bound',
      () => closed >= HALF_OPEN - HOSTS * TLS_HANDSHAKES_LIMIT.ofHost,
    );
    const { id } = await identifyPeer(await cluster.clientOf('jetson'), cluster.main, CALL_TIMEOUT_MS);
    return { said: `${id} answers`, status: null };
  } catch (thrown) {
    return { said: errorWords(thrown), status: null };
  } finally {
    for (const socket of silent) socket.destroy();
  }
}

async function resumedAfterRemoval(cluster: ProofCluster): Promise<Seen> {
  await cluster.joinByHand('shadow', 'cellar');
  const first = await dialAny(cluster.main, showing(await cluster.credentials('cellar')));
  const session = await new Promise<Buffer>((resolve) => first.once('session', resolve));
  const resumed = await dialAny(cluster.main, { session });
  const before = `${resumed.isSessionReused()}, ${(await callOver(resumed, METHODS.node.identify.path)).code}`;
  first.destroy();
  await cluster.asOperator(METHODS.operator.removeNode, { id: 'cellar' });
  const again = await dialAny(cluster.main, { session, ...showing(await cluster.credentials('cellar')) });
  const handshake = again.isSessionReused() ? 'resumed' : 'whole handshake';
  const { code, message } = await callOver(again, METHODS.node.identify.path);
  const said = `${handshake}, ${code}: ${message}`;
  return { said: before === 'true, 16' ? `refused before it was removed: ${said}` : said, status: null };
}

/** Arguments of a client that shows jetson's certificate and takes a main of this authority alone. */
async function sClient(cluster: ProofCluster, address: string, version = '-tls1_3'): Promise<string[]> {
  const { key, certificate, authority } = await cluster.credentials('jetson');
  return [
    [
      's_client',
      '-connect',
      address,
      '-alpn',
      'h2',
      version,
      '-verify_hostname',
      'main.odmoe.internal',
      '-verify_return_error',
    ],
    ['-CAfile', cluster.fileWith('authority.pem', pemOf('CERTIFICATE', authority))],
    ['-cert', cluster.fileWith('own.pem', pemOf('CERTIFICATE', certificate))],
    ['-key', cluster.fileWith('own-key.pem', key.export({ type: 'pkcs8', format: 'pem' }).toString())],
  ].flat();
}

/** Runs the program without input to its end. */
export function openssl(args: readonly string[]): Promise<Seen> {
  const child = spawn('openssl', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text: Buffer) => (said += text.toString()));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (status) => resolve({ said, status }));
  });
}

async function grpcOverOpenssl({ main }: ProofCluster): Promise<Seen> {
  const child = spawn('openssl', ['s_client', '-quiet', '-connect', main, '-alpn', 'h2', '-tls1_3'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  const socket = Duplex.from({ readable: child.stdout, writable: child.stdin });
  const session = connectHttp2('https://node', { createConnection: () => socket });
  session.on('error', () => undefined);
  try {
    return await new Promise((resolve, reject) => {
      const stream = session.request({
        ':method': 'POST',
        ':path': METHODS.node.identify.path,
        'content-type': 'application/grpc',
      });
      stream.on('error', reject);
      stream.on('response', (headers) => {
        const words = decodeURI(String(headers['grpc-message']));
        resolve({ said: `${String(headers['grpc-status'])}: ${words}`, status: null });
      });
      stream.end();
    });
  } finally {
    session.destroy();
    child.kill();
  }
}
