import { type Server, ServerCredentials } from '@grpc/grpc-js';
import { createServer } from 'node:net';
import { listenForOwner } from '../base/files/owner-socket.js';
import { CONNECTIONS_LIMIT } from '../wire/limits.js';
import type { ServerPort } from './server-port.js';
import type { CertifiedCaller } from './trust/peer-role.js';

/**
 * Serves operators on main's host by a Unix socket that only main's user can open: it is the operator's door in a cluster with an authority, and
 * needs no certificate. A socket that a killed daemon has left is replaced. Throws PORT_UNAVAILABLE.
 */
export async function openOperatorSocket(server: Server, path: string, operator: CertifiedCaller): Promise<ServerPort> {
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = createServer((socket) => injector.injectConnection(socket));
  listener.maxConnections = CONNECTIONS_LIMIT.ofHost;
  await listenForOwner(listener, path, OTHER_MAIN);
  return { port: 0, callerOf: () => operator, connectionsFrom: () => 0, close: () => void listener.close() };
}

const OTHER_MAIN = 'another main of this cluster runs here: stop it';
