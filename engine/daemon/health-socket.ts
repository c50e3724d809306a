/** The Unix socket by which `odmoe health` asks a daemon of this host whether it serves. */
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { listenForOwner } from '../../shared/base/files/owner-socket.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { DaemonPhase, DaemonReport } from './daemon-report.js';

/** The answer of a daemon, as one line of JSON. */
export interface Health {
  readonly id: string;
  readonly role: NodeSettings['role'];
  readonly phase: DaemonPhase;
  /** One line for the user. */
  readonly words: string;
}

/** No cluster has this name. */
const DIRECTORY = '.health';
const ENDING = '.sock';
const CONNECTIONS_LIMIT = 16;

/** The directory of the sockets of all daemons. `home`: that of the states of all clusters. */
export function healthDirectory(home: string): string {
  return join(home, DIRECTORY);
}

/** The id of the daemon whose socket has this name; null: it is no socket of a daemon. */
export function idOfSocket(name: string): string | null {
  return name.endsWith(ENDING) ? name.slice(0, -ENDING.length) : null;
}

/** Answers until the returned function is called, which removes the socket. Throws PORT_UNAVAILABLE. */
export async function serveHealth(
  { id, role, stateDirectory }: Pick<NodeSettings, 'id' | 'role' | 'stateDirectory'>,
  report: DaemonReport,
): Promise<() => void> {
  const listener = createServer((socket) => {
    // The asker may leave before the answer.
    socket.on('error', () => undefined);
    const health: Health = { id, role, phase: report.phase, words: report.words };
    socket.end(`${JSON.stringify(health)}\n`);
  });
  listener.maxConnections = CONNECTIONS_LIMIT;
  const path = join(healthDirectory(dirname(stateDirectory)), `${id}${ENDING}`);
  await listenForOwner(listener, path, `another daemon with the id ${id} runs on this host`);
  listener.unref();
  return () => void listener.close();
}
