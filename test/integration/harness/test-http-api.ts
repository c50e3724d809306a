import { createServer, type Server } from 'node:http';
import { connect, type Socket } from 'node:net';
import { type ApiKey, ApiKeys } from '../../../http-api/access/api-keys.js';
import { DELIVERY_LIMITS, type DeliveryLimits } from '../../../http-api/delivery/delivery-limits.js';
import type { Dialect } from '../../../http-api/delivery/dialect.js';
import type { HttpApiContext, RegisterRoutes } from '../../../http-api/http-api-context.js';
import { openAiErrorBody } from '../../../http-api/errors/error-answer.js';
import { SERVER_BOUNDS, type ServerBounds } from '../../../http-api/http-server.js';
import { startHttpApi, type HttpApi, type OwnContextFields } from '../../../http-api/start-http-api.js';
import type { HttpSettings } from '../../../shared/settings/node-settings.js';
import type { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../../shared/base/runtime/runtime.js';
import { RUNTIME } from '../../wall.js';
import { TestLog } from './test-log.js';

export interface TestHttpApiOptions {
  http?: Partial<HttpSettings>;
  /** A text alone is a client's key. */
  keys?: readonly (string | ApiKey)[];
  limits?: Partial<DeliveryLimits>;
  bounds?: Partial<ServerBounds>;
  trouble?: () => OdmoeError | null;
  runtime?: Runtime;
  context?: Partial<Pick<HttpApiContext, 'machines' | 'status' | 'drain'>>;
}

/** The dialect of these tests; its events are lines of text. */
export const LINES: Dialect = {
  streamType: 'text/plain',
  errorBody: openAiErrorBody,
  keepAlive: (progress) => `alive ${JSON.stringify(progress)}\n`,
  errorEvent: ({ code }) => `failed ${code}\n`,
};

export interface TestHttpApi extends HttpApi {
  readonly log: TestLog;
  /** Emits an error of the HTTP server. */
  fail(error: Error): void;
  /** Number of open connections. */
  connections(): Promise<number>;
}

/** An HTTP API that has the test's own routes alone. */
export async function openTestHttpApi(routes: RegisterRoutes, options: TestHttpApiOptions = {}): Promise<TestHttpApi> {
  const { http = {}, keys = [], limits = {}, bounds = {}, trouble = () => null } = options;
  const log = new TestLog();
  const context = {
    runtime: options.runtime ?? RUNTIME,
    log: log.logger('http'),
    metrics: { contentType: 'text/plain', text: () => Promise.resolve(''), httpRequestEnded: () => undefined },
    status: () => ({ placement: { workers: [{}] } }),
    machines: null,
    drain: () => null,
    ...options.context,
  };
  const servers: Server[] = [];
  const httpApi = await startHttpApi({
    settings: {
      host: '127.0.0.1',
      port: 0,
      isAddressGiven: true,
      hosts: [],
      origins: [],
      apiKeysPath: null,
      ...http,
    },
    keys: new ApiKeys(keys.map((key) => (typeof key === 'string' ? { text: key, role: 'client' } : key))),
    routes: [routes],
    trouble,
    createServer: (given, handle) => {
      const server = createServer(given, handle);
      servers.push(server);
      return server;
    },
    context: context as unknown as Omit<HttpApiContext, OwnContextFields>,
    limits: { ...DELIVERY_LIMITS, ...limits },
    bounds: { ...SERVER_BOUNDS, ...bounds },
  });
  const count = (server: Server): Promise<number> =>
    new Promise((resolve, reject) =>
      server.getConnections((error, open) => (error === null ? resolve(open) : reject(error))),
    );
  return {
    ...httpApi,
    log,
    fail: (error) => {
      for (const server of servers) server.emit('error', error);
    },
    connections: async () => (await Promise.all(servers.map(count))).reduce((sum, open) => sum + open, 0),
  };
}

/** A client that sends exactly the bytes that a test gives it. */
export class RawClient {
  /** All bytes that came so far. */
  received = '';
  ended = false;
  readonly closed: Promise<void>;

  private constructor(readonly socket: Socket) {
    socket.on('data', (bytes) => (this.received += bytes.toString('latin1')));
    socket.on('error', () => undefined);
    socket.on('end', () => (this.ended = true));
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()));
  }

  static async connect(address: string): Promise<RawClient> {
    const port = Number(address.slice(address.lastIndexOf(':') + 1));
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    const client = new RawClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return client;
  }

  send(text: string): void {
    this.socket.write(text);
  }

  /** Sends a request for a path, with a JSON body or without a body. */
  request(path: string, body?: string, headers: readonly string[] = []): void {
    const lines = [
      `${body === undefined ? 'GET' : 'POST'} ${path} HTTP/1.1`,
      'host: localhost',
      ...headers,
      ...(body === undefined ? [] : [`content-length: ${Buffer.byteLength(body)}`]),
    ];
    this.send(`${lines.join('\r\n')}\r\n\r\n${body ?? ''}`);
  }

  /** Closes the connection as if the client's process were killed after it had read everything. */
  kill(): void {
    this.socket.destroy();
  }
}
