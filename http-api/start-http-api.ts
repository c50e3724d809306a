import type { RequestListener, Server } from 'node:http';
import { hostname } from 'node:os';
import type { CreateHttpServer } from '../engine/environment/node-environment.js';
import type { HttpSettings } from '../shared/settings/node-settings.js';
import { readProcessLimits } from '../engine/daemon/process-limits.js';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { formatAddress } from '../shared/wire/addresses.js';
import { isLoopbackHost } from '../shared/transport/credentials.js';
import { CLOSE_GRACE_MS } from '../shared/wire/limits.js';
import type { ApiKeys } from './access/api-keys.js';
import { servedHosts } from './access/host-check.js';
import { KeySessions } from './access/key-sessions.js';
import { buildApp } from './build-app.js';
import { createDeliverBody } from './delivery/deliver-body.js';
import { createDeliverStream } from './delivery/deliver-stream.js';
import { DELIVERY_LIMITS, type DeliveryLimits } from './delivery/delivery-limits.js';
import type { HttpApiContext, RegisterRoutes } from './http-api-context.js';
import { createBoundServer, serverBounds, type ServerBounds } from './http-server.js';
import { onEvent } from '../shared/base/runtime/living.js';

/** Parts of the context that the HTTP API makes itself. */
export type OwnContextFields = 'deliverStream' | 'deliverBody' | 'keys' | 'sessions';

export interface HttpApiOptions {
  settings: HttpSettings;
  keys: ApiKeys;
  createServer: CreateHttpServer;
  /** All parts of HttpApiContext except those that the HTTP API makes itself. */
  context: Omit<HttpApiContext, OwnContextFields>;
  /** The routes besides /health. */
  routes: readonly RegisterRoutes[];
  /** The reason why main itself serves no client; null: it serves. */
  trouble: () => OdmoeError | null;
  limits?: DeliveryLimits;
  bounds?: ServerBounds;
}

export interface HttpApi {
  /** The "host:port" at which it listens. */
  readonly address: string;
  /** Refuses new requests. Resolves when the running answers have ended or the grace time is over. Idempotent. */
  close(): Promise<void>;
}

/** Serves HTTP clients. Throws PORT_UNAVAILABLE, CONFIG_INVALID. */
export async function startHttpApi(options: HttpApiOptions): Promise<HttpApi> {
  const { settings, keys, createServer, routes, limits = DELIVERY_LIMITS } = options;
  const { bounds = serverBounds(readProcessLimits().openFiles) } = options;
  const { runtime, log } = options.context;
  const delivery = { runtime, limits, log };
  const context: HttpApiContext = {
    ...options.context,
    deliverStream: createDeliverStream(delivery),
    deliverBody: createDeliverBody(delivery),
    keys,
    sessions: new KeySessions(keys, runtime),
  };
  let closing: Promise<void> | null = null;
  const admission = {
    hosts: servedHosts(hostname(), [settings.host, ...settings.hosts]),
    origins: settings.origins,
    keys,
    sessions: context.sessions,
  };
  const app = buildApp({
    context,
    admission,
    routes,
    trouble: () => (closing === null ? options.trouble() : new OdmoeError('NO_MAIN', 'main is being stopped')),
  });
  await app.ready();
  const handle: RequestListener = (request, response) => app.routing(request, response);
  const server = createBoundServer(createServer, bounds, handle, options.context);
  const port = await listen(server, settings, options.context);
  const address = formatAddress(settings.host, port);
  warnOfLostConnections(server, options.context);
  log.info('HTTP clients are served', { address, api_keys: keys.count });
  if (keys.count === 0 && settings.origins.includes('*')) {
    log.warn('any web page that is opened on this machine may ask: main.http_origins is "*" and there are no API keys');
  }
  return {
    address,
    close: () => (closing ??= closeServer(server, options.context).then(() => app.close())),
  };
}

/** Refuses an address that other machines can reach, if there are no API keys. Throws CONFIG_INVALID. */
export function requireKeysForOthers({ host, port }: HttpSettings, keys: ApiKeys): void {
  if (keys.count > 0 || isLoopbackHost(host)) return;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `others can reach ${formatAddress(host, port)}, so HTTP clients need API keys there: write one a line into a file and name it by ` +
      '--api-keys or main.api_keys, or set ODMOE_API_KEYS; or serve this machine alone by --http 127.0.0.1:7680',
  );
}

/** Shortest time between two log lines about connections that cannot be accepted. */
const LOST_CONNECTIONS_PERIOD_MS = 60_000;

/** Logs connections that cannot be accepted (for example: too many open files). Existing connections are still served. */
function warnOfLostConnections(server: Server, { runtime, log }: Pick<HttpApiContext, 'runtime' | 'log'>): void {
  let loggedMs: number | null = null;
  let connections = 0;
  server.on('error', (error) => {
    connections += 1;
    const nowMs = runtime.nowMs();
    if (loggedMs !== null && nowMs - loggedMs < LOST_CONNECTIONS_PERIOD_MS) return;
    log.warn('connections of HTTP clients could not be taken', { connections, error });
    loggedMs = nowMs;
    connections = 0;
  });
}

/** Returns the port. If the port comes from the default and is taken, any free port is used. */
async function listen(server: Server, settings: HttpSettings, { log }: Pick<HttpApiContext, 'log'>): Promise<number> {
  const { host, port } = settings;
  const code = await tryToListen(server, host, port);
  if (code === null) return portOf(server);
  if (code === 'EADDRINUSE' && !settings.isAddressGiven && (await tryToListen(server, host, 0)) === null) {
    log.warn('the default port for HTTP clients is taken; another one is used', {
      taken: formatAddress(host, port),
      address: formatAddress(host, portOf(server)),
    });
    return portOf(server);
  }
  throw new OdmoeError(
    'PORT_UNAVAILABLE',
    `cannot serve HTTP clients at ${formatAddress(host, port)}: ${BIND_FAILURES[code] ?? code}; choose another address by --http, or off`,
  );
}

const BIND_FAILURES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'this machine has no such address',
  EACCES: 'ports below 1024 need more rights',
};

/** Most connections that wait to be accepted. */
const BACKLOG = 1024;

/** Returns null if it listens, otherwise the system's error code. */
function tryToListen(server: Server, host: string, port: number): Promise<string | null> {
  return new Promise((resolve) => {
    const onError = (error: NodeJS.ErrnoException): void => {
      stop();
      resolve(error.code ?? error.message);
    };
    const stop = onEvent(server, 'error', onError);
    server.listen({ host, port, exclusive: true, backlog: BACKLOG }, () => {
      stop();
      resolve(null);
    });
  });
}

function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Closes connections without a request at once. Clients that wait for an answer get its end first. */
async function closeServer(server: Server, { runtime }: Pick<HttpApiContext, 'runtime'>): Promise<void> {
  await new Promise<void>((resolve) => {
    const idle = runtime.every(IDLE_CHECK_MS, () => server.closeIdleConnections());
    const grace = runtime.after(CLOSE_GRACE_MS, () => server.closeAllConnections());
    server.close(() => {
      idle.cancel();
      grace.cancel();
      resolve();
    });
    server.closeIdleConnections();
  });
}

/** Interval of the check for connections whose answer has ended, while the server closes. */
const IDLE_CHECK_MS = 50;
