import { connect as connectTcp, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { parseAddress } from '../../shared/wire/addresses.js';

/** Packed numbers as protobuf writes them. */
export function packed(values: readonly number[]): Buffer {
  const bytes: number[] = [];
  for (const value of values) {
    let rest = value;
    while (rest > 127) {
      bytes.push((rest & 127) | 128);
      rest >>>= 7;
    }
    bytes.push(rest);
  }
  return Buffer.from(bytes);
}

/** A machine in the middle that passes everything on, and keeps a copy. */
export class RecordingProxy {
  private readonly chunks: Buffer[] = [];
  private readonly sockets = new Set<Socket>();
  private readonly server: Server;

  /** `target`: "host:port". */
  constructor(target: string) {
    this.server = createServer((from) => {
      const to = connectTcp(parseAddress(target));
      for (const socket of [from, to]) {
        this.sockets.add(socket);
        socket.on('close', () => this.sockets.delete(socket));
        socket.on('error', () => undefined);
        socket.on('data', (chunk: Buffer) => this.chunks.push(chunk));
      }
      from.pipe(to);
      to.pipe(from);
      from.on('close', () => to.destroy());
      to.on('close', () => from.destroy());
    });
  }

  async listen(host = '127.0.0.1', port = 0): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen({ host, port }, resolve));
    return `${host}:${(this.server.address() as AddressInfo).port}`;
  }

  /** Both ends of each connection that goes on. */
  get openSockets(): number {
    return this.sockets.size;
  }

  get seenBytes(): number {
    return this.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  }

  saw(bytes: Buffer): boolean {
    return Buffer.concat(this.chunks).includes(bytes);
  }

  /** Connections that stand go on. */
  takeNoMore(): void {
    this.server.close();
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }
}
