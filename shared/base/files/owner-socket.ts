/** Unix sockets that only the user of this process can open. */
import { mkdir, rm } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import { dirname } from 'node:path';
import { OdmoeError, toOdmoeError } from '../errors/odmoe-error.js';
import { systemErrorCode } from '../errors/system-failure.js';

/** Longest path of a Unix socket on Linux, in bytes. */
const SOCKET_PATH_LIMIT_BYTES = 107;

/** Access to the socket for its owner alone. */
const OWNER_ONLY_UMASK = 0o177;

/**
 * Listens at the path, whose directory is made where it is missing. A socket that a killed process has left is replaced. `servedWords`: says of
 * whom another process that listens there is. Throws PORT_UNAVAILABLE.
 */
export async function listenForOwner(listener: Server, path: string, servedWords: string): Promise<void> {
  if (Buffer.byteLength(path) > SOCKET_PATH_LIMIT_BYTES) {
    throw socketUnavailable(
      path,
      `a path of a socket has at most ${SOCKET_PATH_LIMIT_BYTES} bytes: set XDG_STATE_HOME to a shorter one`,
    );
  }
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    if ((await socketState(path)) === 'left') await rm(path, { force: true });
    await listen(listener, path);
  } catch (thrown) {
    const reason = systemErrorCode(thrown) === 'EADDRINUSE' ? servedWords : toOdmoeError(thrown).message;
    throw socketUnavailable(path, reason, thrown);
  }
}

function socketUnavailable(path: string, reason: string, cause?: unknown): OdmoeError {
  return new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${path}: ${reason}`, { cause });
}

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
async function listen(listener: Server, path: string): Promise<void> {
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
