/** Asks daemons of this host, by their sockets, what they do. */
import { readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { type Health, healthDirectory, idOfSocket } from '../../engine/daemon/health-socket.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { ANY_CLUSTER, stateDirectory, stateHomes } from '../../shared/base/files/state-directory.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { runtime } from '../client/process-runtime.js';

/** The socket of a daemon, which may have ended without removing it. */
export interface DaemonSocket {
  readonly id: string;
  readonly path: string;
}

/** A daemon answers from its event loop, which may be busy for a moment. */
const ANSWER_TIMEOUT_MS = 5000;
const ANSWER_LIMIT_BYTES = 4096;

/** The directories in which daemons of this user, and those of the system's services, have their sockets. */
export function healthHomes(): string[] {
  return stateHomes().map((home) => dirname(stateDirectory(ANY_CLUSTER, home)));
}

/** The sockets of daemons, by id. `wanted`: only that of this daemon. A directory that this user may not read has none. */
export async function daemonsOfHomes(homes: readonly string[], wanted: string | null): Promise<DaemonSocket[]> {
  const found: DaemonSocket[] = [];
  for (const home of homes) {
    const directory = healthDirectory(home);
    for (const name of await readdir(directory).catch(() => [])) {
      const id = idOfSocket(name);
      if (id !== null && (wanted === null || id === wanted)) found.push({ id, path: join(directory, name) });
    }
  }
  return found.sort((one, other) => (one.id < other.id ? -1 : 1));
}

const healthSchema = z.object({
  id: z.string(),
  role: z.enum(['main', 'shadow', 'worker']),
  phase: z.enum(['starting', 'waiting', 'serving', 'stopping']),
  words: z.string(),
}) satisfies z.ZodType<Health>;

/**
 * The answer of the daemon; null: its process has ended.
 * @throws TIMEOUT it does not answer; PROTOCOL_VIOLATION it answers in other words
 */
export async function askHealth(path: string, timeoutMs = ANSWER_TIMEOUT_MS): Promise<Health | null> {
  const text = await answerOf(path, timeoutMs);
  if (text === null) return null;
  try {
    return healthSchema.parse(JSON.parse(text));
  } catch (thrown) {
    const words = `${path}: what answers is no daemon of this version of odmoe; stop it, or update odmoe`;
    throw new OdmoeError('PROTOCOL_VIOLATION', words, { cause: thrown });
  }
}

function answerOf(path: string, timeoutMs: number): Promise<string | null> {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect({ path });
    const timer = waitForPeer(runtime, timeoutMs, () => {
      socket.destroy();
      reject(new OdmoeError('TIMEOUT', `the daemon at ${path} does not answer: its process is stopped, or stuck`));
    });
    const end = (answer: string | null): void => {
      timer.cancel();
      socket.destroy();
      resolve(answer);
    };
    socket.setEncoding('utf8').on('data', (part: string) => {
      text += part;
      if (text.length > ANSWER_LIMIT_BYTES) end(text);
    });
    socket.once('end', () => end(text));
    socket.once('error', (error) => {
      if (!ENDED.has(systemErrorCode(error))) {
        timer.cancel();
        reject(error);
      } else end(null);
    });
  });
}

/** The socket of a process that has ended, or has just ended. */
const ENDED: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOENT', 'ECONNRESET', 'EPIPE']);
