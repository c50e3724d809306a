import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import type { RpcServer } from '../../shared/transport/transport.js';
import { RUNTIME } from '../wall.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };

/** The server of a main on loopback whose cluster has no authority. */
export function startPlainMain(cluster: string): Promise<RpcServer> {
  return new GrpcTransport(RUNTIME).serve({
    host: '127.0.0.1',
    port: 0,
    network: NETWORK,
    log: new Lines(),
    node: { identify: () => plainIdentity({ id: 'box', role: 'ROLE_MAIN', cluster }) },
  });
}
