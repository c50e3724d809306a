/** HTTP/1.1 on a TLS connection that stands already. */
import { Agent, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Sends requests on one connection. */
export class SocketAgent extends Agent {
  constructor(private readonly socket: TLSSocket) {
    super({ keepAlive: true, maxSockets: 1 });
  }

  override createConnection(): Duplex {
    return this.socket;
  }
}

/** The body of a reply. Throws if the connection ends before it does, or if it has more than `limitBytes`. */
export async function readReply(reply: IncomingMessage, limitBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of reply as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > limitBytes) throw new OdmoeError('PROTOCOL_VIOLATION', 'a reply is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
