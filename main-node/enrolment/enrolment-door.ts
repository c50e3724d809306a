/** The door at which machines ask to be let in: HTTP/1.1 on TLS connections that need no certificate, each with bounds. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { MAIN_FAULTS } from '../../engine/trust/enrolment-messages.js';
import { exportedBytes } from '../../engine/trust/key-proof.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { TokenBuckets } from '../../shared/base/runtime/token-buckets.js';
import { ConnectionCount } from '../../shared/transport/connection-count.js';
import {
  ENROLMENT_BODY_LIMIT_BYTES,
  ENROLMENT_CONNECTIONS_LIMIT,
  ENROLMENT_HOSTS_LIMIT,
  ENROLMENT_IDLE_MS,
  ENROLMENT_REQUEST_MS,
  ENROLMENT_REQUESTS_LIMIT,
  ENROLMENT_TRIES,
  ENROLMENT_WAIT_MS,
  REFUSED_CONNECTIONS_LIMIT,
} from '../../shared/wire/limits.js';
import type { EnrolmentDesk } from './enrolment-desk.js';
import { answerEnrolment } from './enrolment-routes.js';

const HEADER_LIMIT_BYTES = 4096;

/** A connection at the door. */
interface Visit {
  readonly host: string;
  readonly socket: TLSSocket;
  /** True: there are too many, and this one only gets to know that. */
  readonly isOneTooMany: boolean;
  readonly ended: AbortController;
  requests: number;
  timer: Timer | null;
  /** Ends its count among the connections. Idempotent. */
  leaveCount: () => void;
}

export class EnrolmentDoor {
  private readonly server: Server;
  private readonly connections = new ConnectionCount(ENROLMENT_CONNECTIONS_LIMIT);
  private readonly tries: TokenBuckets;
  /** Lines of the log about refused machines, by host. */
  private readonly lines: TokenBuckets;
  private readonly visits = new Map<unknown, Visit>();
  private tooMany = 0;
  private isClosed = false;

  constructor(
    private readonly desk: EnrolmentDesk,
    private readonly runtime: Runtime,
    private readonly log: Logger,
  ) {
    this.tries = new TokenBuckets(ENROLMENT_TRIES, ENROLMENT_HOSTS_LIMIT, () => runtime.nowMs());
    this.lines = new TokenBuckets(ENROLMENT_TRIES, ENROLMENT_HOSTS_LIMIT, () => runtime.nowMs());
    // The waits of this class are the bounds of time; they know whether this process itself stood still.
    const noTimes = { keepAliveTimeout: 0, headersTimeout: 0, requestTimeout: 0 };
    this.server = createServer({ maxHeaderSize: HEADER_LIMIT_BYTES, ...noTimes }, (request, response) => {
      void this.handle(request, response);
    });
    this.server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
      this.answerNoRequest(error.code ?? '', socket);
    });
  }

  /** Takes a connection of a machine that asks to be let in (the `enrol` of a server's port). */
  take(socket: TLSSocket): void {
    const host = plainHost(socket.remoteAddress ?? '');
    const isCounted = !this.isClosed && this.connections.begin(host);
    if (!isCounted && (this.isClosed || this.tooMany >= REFUSED_CONNECTIONS_LIMIT)) {
      socket.destroy();
      return;
    }
    if (!isCounted) this.tooMany += 1;
    const end = (): void => {
      if (isCounted) this.connections.end(host);
      else this.tooMany -= 1;
    };
    const visit: Visit = {
      host,
      socket,
      isOneTooMany: !isCounted,
      ended: new AbortController(),
      requests: 0,
      timer: null,
      leaveCount: once(end),
    };
    this.visits.set(socket, visit);
    socket.once('close', () => {
      visit.timer?.cancel();
      visit.leaveCount();
      visit.ended.abort();
      this.visits.delete(socket);
    });
    this.bound(visit, ENROLMENT_IDLE_MS, () => socket.destroy());
    this.server.emit('connection', socket);
  }

  /** Ends every connection, and takes none any more. */
  close(): void {
    this.isClosed = true;
    for (const { socket } of this.visits.values()) socket.destroy();
  }

  /** Gives the connection this time for what comes next. */
  private bound(visit: Visit, limitMs: number, over: () => void): void {
    visit.timer?.cancel();
    if (visit.ended.signal.aborted) return;
    visit.timer = waitForPeer(this.runtime, limitMs, over);
    visit.timer.unref();
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const visit = requirePresent(this.visits.get(request.socket), 'A request comes on a connection of the door.');
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    this.bound(visit, ENROLMENT_REQUEST_MS, () => {
      send(response, new OdmoeError('REQUEST_SLOW', 'the request did not come whole in time; send it again'), true);
      visit.socket.destroySoon();
    });
    try {
      send(response, await this.answer(request, visit));
    } catch (thrown) {
      send(response, this.wordsFor(thrown, visit));
    }
    this.bound(visit, ENROLMENT_IDLE_MS, () => visit.socket.destroy());
  }

  private async answer(request: IncomingMessage, visit: Visit): Promise<object> {
    visit.requests += 1;
    if (visit.isOneTooMany) {
      throw new OdmoeError('QUEUE_FULL', 'too many machines ask main to be let in at this time: try again in a minute');
    }
    if (visit.requests > ENROLMENT_REQUESTS_LIMIT) {
      throw new OdmoeError('QUEUE_FULL', 'too many requests on one connection: open another one');
    }
    const { method = '', url = '' } = request;
    const { host, socket } = visit;
    const asked = {
      method,
      path: url,
      host,
      exporter: exportedBytes(socket),
      signal: visit.ended.signal,
      body: () => readBody(request),
      mayTry: () => this.tries.take(host),
      waits: () => this.park(visit),
    };
    return answerEnrolment(this.desk, asked, this.log);
  }

  /** A machine that waits takes no place of those that ask. Each waiting machine has one such connection. */
  private park(visit: Visit): void {
    visit.leaveCount();
    visit.requests = ENROLMENT_REQUESTS_LIMIT;
    this.bound(visit, ENROLMENT_WAIT_MS + ENROLMENT_REQUEST_MS, () => visit.socket.destroy());
  }

  private wordsFor(thrown: unknown, { host, ended }: Visit): OdmoeError {
    const error = toOdmoeError(thrown);
    if (ended.signal.aborted) return error;
    if (MAIN_FAULTS.has(error.code)) {
      this.log.error('a machine could not be let in', { peer: host, error });
      return new OdmoeError(error.code, 'main failed at this, and its log says why: try again when it is mended');
    }
    const text = 'refused a machine that asked to be let in';
    const fields = { peer: host, reason: error.message };
    // A flood fills no log.
    if (error.code !== 'QUEUE_FULL' && this.lines.take(host)) this.log.warn(text, fields);
    else this.log.debug(text, fields);
    return error;
  }

  private answerNoRequest(code: string, socket: Duplex): void {
    this.log.debug('no request came at the door for machines', { reason: code });
    if (!socket.writable || code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    const { status, body } = errorReply(new OdmoeError('REQUEST_INVALID', 'what came is no HTTP/1.1 request'));
    const head = `HTTP/1.1 ${status} Bad Request\r\nconnection: close\r\ncontent-length: ${Buffer.byteLength(body)}`;
    socket.end(`${head}\r\ncontent-type: application/json\r\n\r\n${body}`, () => socket.destroy());
  }
}

/** Throws REQUEST_TOO_LARGE, and what ends the connection. */
async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  // The rest of a body that is too large is left to HTTP, so that the reply reaches the machine.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > ENROLMENT_BODY_LIMIT_BYTES) {
      throw new OdmoeError('REQUEST_TOO_LARGE', `a request has at most ${ENROLMENT_BODY_LIMIT_BYTES} bytes: send less`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

/** Sends a reply, if none was sent. `isLast`: the connection ends after it. */
function send(response: ServerResponse, reply: object, isLast = false): void {
  if (response.headersSent || response.destroyed) return;
  const { status, body } = reply instanceof OdmoeError ? errorReply(reply) : okReply(reply);
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  response.writeHead(status, isLast ? { ...headers, connection: 'close' } : headers).end(body);
}

function okReply(reply: object): { status: number; body: string } {
  return { status: 200, body: JSON.stringify(reply) };
}

function errorReply(error: OdmoeError): { status: number; body: string } {
  const { code, message, kind } = error;
  return { status: kind.httpStatus, body: JSON.stringify({ error: { code, message } }) };
}

/** An IPv4 address that came on an IPv6 socket, as IPv4. */
function plainHost(host: string): string {
  return host.startsWith('::ffff:') ? host.slice('::ffff:'.length) : host;
}

function once(run: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) run();
    isDone = true;
  };
}
