import type { Server, ServerOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { Logger } from '../../shared/log/logger.js';
import { errorHeaders, openAiErrorBody } from './errors/error-answer.js';

/** Of the line and headers of a request. */
const HEADER_LIMIT_BYTES = 16 * 1024;
/** How long the headers, and the whole, of a request may take to come. */
const HEADERS_LIMIT_MS = 10_000;
const REQUEST_LIMIT_MS = 60_000;
/** How often requests that take too long are looked for. */
const SLOW_REQUEST_CHECK_MS = 1000;
/** How long a connection without a request is kept. */
const KEEP_ALIVE_MS = 15_000;
/** A connection on which nothing at all happens for so long is closed: an answer gives signs of life more often. */
const SILENCE_LIMIT_MS = 120_000;
/** More connections at a time are refused. Each takes a file descriptor. */
const CONNECTIONS_LIMIT = 4096;

export const SERVER_OPTIONS: ServerOptions = {
  maxHeaderSize: HEADER_LIMIT_BYTES,
  headersTimeout: HEADERS_LIMIT_MS,
  requestTimeout: REQUEST_LIMIT_MS,
  connectionsCheckingInterval: SLOW_REQUEST_CHECK_MS,
  keepAliveTimeout: KEEP_ALIVE_MS,
  // A request without one is refused by the door, which says why.
  requireHostHeader: false,
  noDelay: true,
};

/** The server with its bounds; what cannot be read as a request is answered and its connection closed. */
export function boundServer(server: Server, log: Logger): Server {
  server.maxConnections = CONNECTIONS_LIMIT;
  server.timeout = SILENCE_LIMIT_MS;
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    log.debug('a request could not be read', { reason: error.code ?? error.message });
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    else socket.end(rawAnswer(errorOfConnection(error.code ?? '')), () => socket.destroy());
  });
  return server;
}

function errorOfConnection(code: string): OdmoeError {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new OdmoeError('REQUEST_SLOW', 'the request did not come whole in time; send it again');
    case 'HPE_HEADER_OVERFLOW':
      return new OdmoeError('REQUEST_TOO_LARGE', `the headers have more than ${HEADER_LIMIT_BYTES} bytes; send less`);
    default:
      return new OdmoeError('REQUEST_INVALID', 'what came is no HTTP/1.1 request');
  }
}

function rawAnswer(error: OdmoeError): string {
  const body = JSON.stringify(openAiErrorBody(error));
  const headers = {
    ...{ connection: 'close', 'content-type': 'application/json; charset=utf-8' },
    ...{ 'content-length': String(Buffer.byteLength(body)), ...errorHeaders(error) },
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `HTTP/1.1 ${error.kind.httpStatus} ${error.code}\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}
