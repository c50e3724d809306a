import { type Server, ServerCredentials } from '@grpc/grpc-js';
import { mkdir, rm } from 'node:fs/promises';
import { connect, createServer, type Server as SocketServer } from 'node:net';
import { dirname } from 'node:path';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import { systemErrorCode } from '../base/errors/system-failure.js';
import { CONNECTIONS_LIMIT } from '../wire/limits.js';
import type { ServerPort } from './server-port.js';
import type { CertifiedCaller } from './trust/peer-role.js';

/** Longest path of a Unix socket on Linux, in bytes. */
const SOCKET_PATH_LIMIT_BYTES = 107;

/** Access to the socket for its owner alone. */
const OWNER_ONLY_UMASK = 0o177;

/** The address under which the command line dials the socket at the path. */
export function socketAddress(path: string): string {
  return `unix:${path}`;
}

export function isSocketAddress(address: string): boolean {
  return address.startsWith('unix:');
}

/**
 * Serves operators on main's host by a Unix socket that only main's user can open: it is the operator's door in a cluster with an authority, and
 * needs no certificate. A socket that a killed daemon has left is replaced. Throws PORT_UNAVAILABLE.
 */
export async function openOperatorSocket(server: Server, path: string, operator: CertifiedCaller): Promise<ServerPort> {
  if (Buffer.byteLength(path) > SOCKET_PATH_LIMIT_BYTES) {
    throw unavailable(
      path,
      `a path of a socket has at most ${SOCKET_PATH_LIMIT_BYTES} bytes: set XDG_STATE_HOME to a shorter one`,
    );
  }
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = createServer((socket) => injector.injectConnection(socket));
  listener.maxConnections = CONNECTIONS_LIMIT.ofHost;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    if ((await socketState(path)) === 'left') await rm(path, { force: true });
    await listen(listener, path);
  } catch (thrown) {
    const reason = systemErrorCode(thrown) === 'EADDRINUSE' ? OTHER_MAIN : toOdmoeError(thrown).message;
    throw unavailable(path, reason, thrown);
  }
  return { port: 0, callerOf: () => operator, connectionsFrom: () => 0, close: () => void listener.close() };
}

function unavailable(path: string, reason: string, cause?: unknown): OdmoeError {
  return new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${path}: ${reason}`, { cause });
}

/**
 * For a main that is about to change the roster: two mains would write one. Throws PORT_UNAVAILABLE if another main of the cluster serves operators at
 * the path.
 */
export async function requireNoOtherMain(path: string): Promise<void> {
  if ((await socketState(path)) === 'served') throw unavailable(path, OTHER_MAIN);
}

const OTHER_MAIN = 'another main of this cluster runs here: stop it';

/** `left`: a process that was killed has left the socket behind. */
async function socketState(path: string): Promise<'served' | 'left' | 'none'> {
  return new Promise((resolve) => {
    const probe = connect({ path });
    probe.once('connect', () => {
      probe.destroy();
      resolve('served');
    });
    probe.once('error', (error) => resolve(systemErrorCode(error) === 'ECONNREFUSED' ? 'left' : 'none'));
  });
}

/** Node makes the socket within the call of `listen`, so no other user can open it before its mode is set. */
async function listen(listener: SocketServer, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    listener.once('error', reject);
    const umask = process.umask(OWNER_ONLY_UMASK);
    try {
      listener.listen({ path }, resolve);
    } finally {
      process.umask(umask);
    }
  });
}
