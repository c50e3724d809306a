/** Servers of a cluster with an authority, and clients that accept any of them. */
import { connect as connectHttp2 } from 'node:http2';
import { connect, type TLSSocket } from 'node:tls';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { RpcServer, RpcServerOptions } from '../../shared/transport/transport.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { pemOf } from '../../shared/transport/trust/tls-options.js';
import { RUNTIME } from '../wall.js';
import type { TestMember } from './cluster-authority.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';

export const NETWORK = {
  keepaliveIntervalMs: 500,
  keepaliveTimeoutMs: 700,
  executeTimeoutMs: 1000,
  reconnectDelayMs: 100,
};

/** The servers of one test, with one log. */
export class TrustedServers {
  readonly log = new Lines();
  private readonly running: RpcServer[] = [];

  /** Serves `Node.Identify`, and the methods in `more`. Returns the address. `member` null: in plaintext. */
  async serve(member: TestMember | null, more: Partial<RpcServerOptions> = {}): Promise<string> {
    const node = { identify: () => plainIdentity() };
    const options = { host: '127.0.0.1', port: 0, network: NETWORK, log: this.log, node, ...more };
    const server = await new GrpcTransport(RUNTIME, null, member).serve(options);
    this.running.push(server);
    return server.address;
  }

  /** Stops all of them. */
  async stop(): Promise<void> {
    await Promise.all(this.running.splice(0).map((server) => server.stop()));
  }
}

/** A TLS connection that accepts any server. `more`: further options of node:tls. */
export function dialAny(address: string, more: object): Promise<TLSSocket> {
  const [host, port] = address.split(':');
  return new Promise((resolve, reject) => {
    const options = { host, port: Number(port), rejectUnauthorized: false, ALPNProtocols: ['h2'], ...more };
    const socket = connect(options, () => resolve(socket));
    socket.on('error', reject);
  });
}

/** The options of node:tls by which a client shows the certificate. */
export function showing({ certificate, key }: OwnCertificate): { cert: string; key: string | Buffer } {
  return { cert: pemOf('CERTIFICATE', certificate), key: key.export({ type: 'pkcs8', format: 'pem' }) };
}

/** Status and words of a call of gRPC over the connection, which ends with it. */
export function callOver(socket: TLSSocket, path: string): Promise<{ code: string; message: string }> {
  const session = connectHttp2('https://node', { createConnection: () => socket });
  return new Promise((resolve, reject) => {
    session.on('error', reject);
    const stream = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc' });
    stream.on('error', reject);
    stream.on('response', (headers) => {
      resolve({ code: String(headers['grpc-status']), message: decodeURI(String(headers['grpc-message'])) });
      session.destroy();
    });
    stream.end();
  });
}
