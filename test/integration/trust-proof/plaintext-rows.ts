/** Plaintext where TLS is spoken, and the other way round. */
import { identifyPeer } from '../../../shared/transport/node-clients.js';
import { TRANSPORT } from '../../wall.js';
import { cpSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { parseAddress } from '../../../shared/wire/addresses.js';
import { CALL_TIMEOUT_MS, CLUSTER } from './proof-cluster.js';
import { type Row, type Seen, wordsOf } from './row.js';
import { waitUntil } from '../harness/wait-until.js';

export const PLAINTEXT_ROWS: readonly Row[] = [
  {
    done: 'a worker that was told --insecure, at a main that speaks TLS',
    act: async (cluster) => cluster.runDaemon('nobody', 'worker', ['--insecure', '--main', cluster.main]).ended,
    here: /main at \S+ speaks TLS and this worker was told --insecure: leave that out \[TLS_MISMATCH\]/,
    there: null,
    status: 3,
  },
  {
    done: 'a client without TLS, at a main that speaks TLS',
    act: (cluster) => wordsOf(identifyPeer(TRANSPORT, cluster.main, CALL_TIMEOUT_MS)),
    here: /^TLS_MISMATCH: the daemon at \S+ speaks TLS, and this process spoke none/,
    there: { of: 'box', say: /a connection ended in its TLS handshake/ },
    status: null,
  },
  {
    done: 'a request of HTTP without TLS, at a main that speaks TLS',
    act: ({ main }) => plainRequest(main),
    here: /^HTTP\/1\.1 400 Bad Request[^]*gRPC over TLS[^]*odmoe status[^]*odmoe worker/,
    there: { of: 'box', say: /a connection ended in its TLS handshake .*http request/i },
    status: null,
  },
  {
    done: 'a client with a certificate, at a main that speaks no TLS',
    act: async (cluster) =>
      wordsOf(identifyPeer(await cluster.clientOf('laptop'), cluster.daemon('plain').address, CALL_TIMEOUT_MS)),
    here: /^TLS_MISMATCH: the daemon at \S+ speaks no TLS: its cluster has no authority/,
    there: null,
    status: null,
  },
  {
    done: 'a worker that has joined, at a main that speaks no TLS: it waits, and says why',
    act: async (cluster) => {
      cpSync(cluster.stateOf('jetson'), cluster.stateOf('copy'), { recursive: true });
      const more = ['--id', 'jetson', '--main', cluster.daemon('plain').address];
      const worker = cluster.runDaemon('copy', 'worker', more);
      await waitUntil(
        () => `the worker says what is wrong; it said ${worker.said()}`,
        () => /speaks no TLS/.test(worker.said()),
      );
      worker.stop();
      return worker.ended;
    },
    here: /main at \S+ speaks no TLS/,
    there: null,
    status: 0,
  },
  {
    done: 'odmoe status of somebody who is no operator, at a main that speaks TLS',
    act: (cluster) => cluster.command('nobody', 'status', '--main', cluster.main),
    here: /main of "home" at \S+ lets only operators ask: .*odmoe operator join --id NAME \[TRUST_REFUSED\]/,
    there: null,
    status: 3,
  },
  {
    done: 'odmoe status of anybody, at a main that speaks no TLS',
    act: (cluster) => cluster.command('nobody', 'status', '--main', cluster.daemon('plain').address),
    here: new RegExp(`^cluster ${CLUSTER} does not serve demo: no worker is connected`),
    there: null,
    status: 0,
  },
];

/** The answer to a request of HTTP/1.1 in plaintext. */
function plainRequest(address: string): Promise<Seen> {
  const socket = connectTcp(parseAddress(address));
  let said = '';
  socket.on('data', (chunk: Buffer) => (said += chunk.toString()));
  socket.end('GET / HTTP/1.1\r\nhost: main\r\n\r\n');
  return new Promise((resolve, reject) => {
    socket.on('error', reject);
    socket.on('close', () => resolve({ said, status: null }));
  });
}
