/** One who stands between, poses as a main with an authority of his own, and refuses what machines reveal to him. */
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:tls';
import { ENROLMENT_PATHS } from '../../engine/trust/enrolment-messages.js';
import { ENROLMENT_PROTOCOL, tlsOptions } from '../../shared/transport/trust/tls-options.js';
import { TestCluster } from './cluster-authority.js';

/** His answer to a request at this path: an error for the machine; null: as a main would. */
export type RefusalAt = (path: string) => { code: string; message: string } | null;

export interface RefusingMain {
  readonly address: string;
  /** Paths of the requests that came. */
  readonly asked: string[];
  close(): void;
}

export async function startRefusingMain(cluster: string, refusalAt: RefusalAt): Promise<RefusingMain> {
  const own = new TestCluster(cluster).member('main');
  const asked: string[] = [];
  const authority = own.authority.toString('base64');
  const replies: Readonly<Record<string, object>> = {
    [ENROLMENT_PATHS.authority]: { authority },
    [ENROLMENT_PATHS.pair]: { pairingId: '0'.repeat(32), nonce: Buffer.alloc(32).toString('base64'), authority },
    [ENROLMENT_PATHS.reveal]: { state: 'waiting' },
    [ENROLMENT_PATHS.wait]: { state: 'waiting' },
  };
  const answer = (request: IncomingMessage, response: ServerResponse): void => {
    const { url = '' } = request;
    request.resume();
    request.on('end', () => {
      asked.push(url);
      const refusal = refusalAt(url);
      const body = JSON.stringify(refusal === null ? (replies[url] ?? {}) : { error: refusal });
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      response.writeHead(refusal === null ? 200 : 403, headers).end(body);
    });
  };
  const http = createHttpServer(answer);
  const server = createServer({ ...tlsOptions(own), ALPNProtocols: [ENROLMENT_PROTOCOL] }, (socket) => {
    http.emit('connection', socket);
  });
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { address: addressOf(server), asked, close: () => void server.close() };
}

/** The host and port of a server that listens on 127.0.0.1. */
export function addressOf(server: Server): string {
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the server does not listen');
  return `127.0.0.1:${address.port}`;
}
