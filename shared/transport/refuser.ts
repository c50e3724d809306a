import { createServer, type Http2Server, type ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { status } from '@grpc/grpc-js';
import { ERROR_KINDS, type ErrorCode } from '../base/errors/registry.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { REFUSED_CONNECTION_MS, REFUSED_CONNECTIONS_LIMIT } from '../wire/limits.js';
import { ERROR_CODE_METADATA } from './rpc-errors.js';

const CODE: ErrorCode = 'TRUST_REFUSED';

/**
 * Answers every call of a peer that is not admitted with TRUST_REFUSED and the reason, so that the person at the other end reads it. The gRPC
 * server never sees such a connection. Only so many are open at a time, each for a short time; further ones end without words.
 */
export class Refuser {
  private readonly server: Http2Server = createServer();
  private readonly open = new Set<TLSSocket>();

  constructor(private readonly runtime: Runtime) {
    this.server.on('session', (session: ServerHttp2Session) => session.on('error', () => undefined));
    this.server.on('sessionError', () => undefined);
  }

  refuse(socket: TLSSocket, reason: string): void {
    if (this.open.size >= REFUSED_CONNECTIONS_LIMIT) {
      socket.destroy();
      return;
    }
    this.open.add(socket);
    const timer = this.runtime.after(REFUSED_CONNECTION_MS, () => socket.destroy());
    timer.unref();
    socket.once('close', () => {
      timer.cancel();
      this.open.delete(socket);
    });
    this.server.once('session', (session: ServerHttp2Session) => {
      session.on('stream', (stream) => {
        stream.on('error', () => undefined);
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
      });
    });
    // The session begins within this call.
    this.server.emit('connection', socket);
  }

  close(): void {
    for (const socket of this.open) socket.destroy();
  }
}
