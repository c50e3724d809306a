import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { status } from '@grpc/grpc-js';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import { ERROR_KINDS, type ErrorCode } from '../base/errors/registry.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { REFUSED_CONNECTION_MS, REFUSED_CONNECTIONS_LIMIT, REFUSED_REQUEST_LIMIT_BYTES } from '../wire/limits.js';
import { ERROR_CODE_METADATA } from './rpc-errors.js';
import { operatorJoinCommand } from './trust/operator-join.js';

const CODE: ErrorCode = 'TRUST_REFUSED';

/** For whoever comes with a browser or curl. It names nothing of the cluster, because everybody may read it. */
const WORDS_FOR_HTTP = `At this port the daemons of an odmoe cluster talk to each other: gRPC over TLS, with certificates of the cluster.
The page and the HTTP API are at another address of main, which odmoe status shows (usually port 7680).
A machine gets in by odmoe worker, and a person by ${operatorJoinCommand()}, with a token of main.
`;

const TEXT = 'text/plain; charset=utf-8';

/**
 * Answers every call of a peer that is not admitted with TRUST_REFUSED and the reason, and what is no gRPC with text, so that the person at the
 * other end reads it. The gRPC server never sees such a connection. Only so many are open at a time, each for a short time; further ones end
 * without words.
 */
export class Refuser {
  private readonly server: Http2Server = createServer();
  private readonly open = new Set<Socket>();
  /** The reason for the peer whose session begins now. */
  private reason: string | null = null;

  constructor(private readonly runtime: Runtime) {
    this.server.on('session', (session: ServerHttp2Session) => this.answer(session));
    this.server.on('sessionError', () => undefined);
  }

  refuse(socket: TLSSocket, reason: string): void {
    if (!this.keepShortly(socket)) return;
    this.reason = reason;
    // The session begins within this call, or never: Node makes none for a peer that did not ask for HTTP/2.
    this.server.emit('connection', socket);
    this.reason = null;
  }

  private answer(session: ServerHttp2Session): void {
    const { reason } = this;
    assertInvariant(reason !== null, 'A session of a refused peer begins within refuse().');
    session.on('error', () => undefined);
    session.on('stream', (stream, { 'content-type': type = '' }) => {
      stream.on('error', () => undefined);
      // A peer that has taken its call back already.
      if (stream.destroyed || stream.closed) return;
      if (type.startsWith('application/grpc')) refuseCall(stream, reason);
      else refuseRequest(stream, reason);
    });
  }

  /**
   * Answers in HTTP/1.1 a peer that cannot speak gRPC, and ends its connection. Nothing that it has sent is read: a person at a terminal gets the
   * words before he types anything.
   */
  refuseInText(socket: Socket, answer: '400 Bad Request' | '421 Misdirected Request'): void {
    if (!this.keepShortly(socket)) return;
    socket.on('error', () => undefined);
    let arrivedBytes = 0;
    // The connection of a peer that still sends would be reset, and the words might be lost with it.
    socket.on('data', ({ length }: Buffer) => {
      arrivedBytes += length;
      if (arrivedBytes > REFUSED_REQUEST_LIMIT_BYTES) socket.destroy();
    });
    const head = `HTTP/1.1 ${answer}\r\nconnection: close\r\ncontent-type: ${TEXT}\r\ncontent-length: ${WORDS_FOR_HTTP.length}`;
    socket.end(`${head}\r\n\r\n${WORDS_FOR_HTTP}`);
  }

  /** False: there are too many, and this connection has ended. */
  private keepShortly(socket: Socket): boolean {
    if (this.open.size >= REFUSED_CONNECTIONS_LIMIT || !socket.writable) {
      socket.destroy();
      return false;
    }
    this.open.add(socket);
    const timer = this.runtime.after(REFUSED_CONNECTION_MS, () => socket.destroy());
    timer.unref();
    socket.once('close', () => {
      timer.cancel();
      this.open.delete(socket);
    });
    return true;
  }

  close(): void {
    for (const socket of this.open) socket.destroy();
  }
}

function refuseCall(stream: ServerHttp2Stream, reason: string): void {
  stream.respond(
    {
      ':status': 200,
      'content-type': 'application/grpc',
      'grpc-status': String(status[ERROR_KINDS[CODE].grpcStatus]),
      // grpc-js decodes the escapes of encodeURI alone.
      'grpc-message': encodeURI(reason),
      [ERROR_CODE_METADATA]: CODE,
    },
    { endStream: true },
  );
}

/** Curl and browsers choose HTTP/2 over TLS, and show no message of gRPC. The reason names the cluster, whose name mDNS tells everybody, too. */
function refuseRequest(stream: ServerHttp2Stream, reason: string): void {
  stream.respond({ ':status': 403, 'content-type': TEXT });
  stream.end(`${reason}\n\n${WORDS_FOR_HTTP}`);
}
