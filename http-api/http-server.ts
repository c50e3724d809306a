import type { RequestListener, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import type { CreateHttpServer } from '../engine/environment/node-environment.js';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Logger } from '../shared/base/log/logger.js';
import type { Runtime } from '../shared/base/runtime/runtime.js';
import { errorHeaders, openAiErrorBody } from './errors/error-answer.js';

/** Limit for the line and headers of a request. */
export const HTTP_HEADER_LIMIT_BYTES = 16 * 1024;

/** Limits for the clients of one HTTP server. */
export interface ServerBounds {
  /** Time in which the headers of a request, and the whole request, must arrive. */
  headersMs: number;
  requestMs: number;
  /** Interval of the check for requests that take too long. */
  checkMs: number;
  /** Time for which a connection without a request stays open. */
  keepAliveMs: number;
  /** A connection without any traffic for this time is closed. An answer sends signs of life more often. */
  silenceMs: number;
  /** Most connections at a time; more are refused. Each takes a file descriptor. */
  connections: number;
}

export const SERVER_BOUNDS: ServerBounds = {
  headersMs: 10_000,
  requestMs: 60_000,
  checkMs: 1000,
  keepAliveMs: 15_000,
  silenceMs: 120_000,
  connections: 4096,
};

/** The share of the process's open files that HTTP clients may use. Peers, experts and logs need the others. */
const CONNECTIONS_SHARE = 0.5;

/** The bounds for a process that may open `openFiles` files; null: no limit. */
export function serverBounds(openFiles: number | null): ServerBounds {
  if (openFiles === null) return SERVER_BOUNDS;
  const most = Math.max(1, Math.floor(openFiles * CONNECTIONS_SHARE));
  return { ...SERVER_BOUNDS, connections: Math.min(SERVER_BOUNDS.connections, most) };
}

/** A server with these bounds. It answers input that cannot be read as a request, and closes the connection. */
export function createBoundServer(
  create: CreateHttpServer,
  bounds: ServerBounds,
  handle: RequestListener,
  { log, runtime }: { log: Pick<Logger, 'debug'>; runtime: Pick<Runtime, 'randomId'> },
): Server {
  const options = {
    maxHeaderSize: HTTP_HEADER_LIMIT_BYTES,
    headersTimeout: bounds.headersMs,
    requestTimeout: bounds.requestMs,
    connectionsCheckingInterval: bounds.checkMs,
    keepAliveTimeout: bounds.keepAliveMs,
    // The HTTP API itself refuses a request without a Host header, with a reason.
    requireHostHeader: false,
    noDelay: true,
  };
  const server = create(options, handle);
  server.maxConnections = bounds.connections;
  server.timeout = bounds.silenceMs;
  // An unknown Expect header is no reason to refuse a request.
  server.on('checkExpectation', handle);
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const requestId = runtime.randomId();
    log.debug('a request could not be read', { request: requestId, reason: error.code ?? error.message });
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else socket.end(rawAnswer(errorOfConnection(error.code ?? ''), requestId), () => socket.destroy());
  });
  return server;
}

function errorOfConnection(code: string): OdmoeError {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new OdmoeError('REQUEST_SLOW', 'the request did not come whole in time; send it again');
    case 'HPE_HEADER_OVERFLOW':
      return new OdmoeError(
        'REQUEST_TOO_LARGE',
        `the headers have more than ${HTTP_HEADER_LIMIT_BYTES} bytes; send less`,
      );
    default:
      return new OdmoeError('REQUEST_INVALID', 'what came is no HTTP/1.1 request');
  }
}

function rawAnswer(error: OdmoeError, requestId: string): string {
  const body = JSON.stringify(openAiErrorBody(error));
  const headers = {
    connection: 'close',
    'x-request-id': requestId,
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    ...errorHeaders(error),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `HTTP/1.1 ${error.kind.httpStatus} ${error.code}\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}
