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
import type { DoorContext, RegisterRoutes } from './door-context.js';
import { createBoundServer, serverBounds, type ServerBounds } from './http-server.js';
import { onEvent } from '../shared/base/runtime/living.js';

/** What the door makes itself of its context. */
export type DoorsOwn = 'deliverStream' | 'deliverBody' | 'sessions';

export interface DoorOptions {
  settings: HttpSettings;
  keys: ApiKeys;
  createServer: CreateHttpServer;
  /** All of DoorContext but what the door makes itself. */
  context: Omit<DoorContext, DoorsOwn>;
  /** What is served beside /health. */
  routes: readonly RegisterRoutes[];
  /** Why main itself serves nobody; null: it does. */
  trouble: () => OdmoeError | null;
  limits?: DeliveryLimits;
  bounds?: ServerBounds;
}

export interface Door {
  /** "host:port" it listens on. */
  readonly address: string;
  /** Takes no more requests, and resolves when the answers under way have ended or the grace time is over. Idempotent. */
  close(): Promise<void>;
}

/** Serves HTTP clients. Throws PORT_UNAVAILABLE, CONFIG_INVALID. */
export async function startDoor(options: DoorOptions): Promise<Door> {
  const { settings, keys, createServer, routes, limits = DELIVERY_LIMITS } = options;
  const { bounds = serverBounds(readProcessLimits().openFiles) } = options;
  const { runtime, log } = options.context;
  const delivery = { runtime, limits, log };
  const context: DoorContext = {
    ...options.context,
    deliverStream: createDeliverStream(delivery),
    deliverBody: createDeliverBody(delivery),
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

/** An address that others can reach is not opened to everybody. Throws CONFIG_INVALID. */
export function requireKeysForOthers({ host, port }: HttpSettings, keys: ApiKeys): void {
  if (keys.count > 0 || isLoopbackHost(host)) return;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `others can reach ${formatAddress(host, port)}, so HTTP clients need API keys there: write one a line into a file and name it by ` +
      '--api-keys or main.api_keys, or set ODMOE_API_KEYS; or serve this machine alone by --http 127.0.0.1:7680',
  );
}

/** How often connections that cannot be taken are told, at the most. */
const LOST_CONNECTIONS_PERIOD_MS = 60_000;

/** Tells of connections that cannot be taken (too many open files, for one). Whoever is connected is served on. */
function warnOfLostConnections(server: Server, { runtime, log }: Pick<DoorContext, 'runtime' | 'log'>): void {
  let toldMs: number | null = null;
  let connections = 0;
  server.on('error', (error) => {
    connections += 1;
    const nowMs = runtime.nowMs();
    if (toldMs !== null && nowMs - toldMs < LOST_CONNECTIONS_PERIOD_MS) return;
    log.warn('connections of HTTP clients could not be taken', { connections, error });
    toldMs = nowMs;
    connections = 0;
  });
}

/** The port. Where only the default is taken, any free one. */
async function listen(server: Server, settings: HttpSettings, { log }: Pick<DoorContext, 'log'>): Promise<number> {
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

/** Connections that wait to be taken. */
const BACKLOG = 1024;

/** null: it listens; else why not, as the system names it. */
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

/** Whoever waits for an answer gets its end; connections without one are closed at once. */
async function closeServer(server: Server, { runtime }: Pick<DoorContext, 'runtime'>): Promise<void> {
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

/** How often a door that closes looks for connections whose answer has ended. */
const IDLE_CHECK_MS = 50;
