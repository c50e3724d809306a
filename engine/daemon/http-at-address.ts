import { request } from 'node:http';
import { onAbort } from '../../shared/base/runtime/living.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import { parseAddress } from '../../shared/wire/addresses.js';

const PROBE_TIMEOUT_MS = 1000;

/** The answers of main's own port to HTTP/1.1 (shared/transport/refuser.ts): it is main. */
const ANSWERS_OF_MAIN: ReadonlySet<number> = new Set([400, 421]);

/**
 * The words for an address at which an HTTP server answers in the place of main, such as main's own page; null: there is none. The server is asked
 * once, and nothing of its answer is read but the status. Never rejects.
 */
export async function httpAtAddress(
  address: string,
  { runtime, signal }: { runtime: Runtime; signal?: AbortSignal | undefined },
): Promise<string | null> {
  const isHttp = await new Promise<boolean>((resolve) => {
    const end = (answer: boolean): void => {
      timer.cancel();
      leave();
      asked.destroy();
      resolve(answer);
    };
    const asked = request({ ...parseAddress(address), agent: false, method: 'HEAD', path: '/' });
    const timer = waitForPeer(runtime, PROBE_TIMEOUT_MS, () => end(false));
    const leave = onAbort(signal, () => end(false));
    asked.on('error', () => end(false));
    asked.on('response', ({ statusCode = 0 }) => end(!ANSWERS_OF_MAIN.has(statusCode)));
    asked.end();
  });
  if (!isHttp) return null;
  return `what answers at ${address} speaks HTTP and is no port for machines (main's page and HTTP API are such): give main's address for machines, usually port ${defaultPort('main')}`;
}
