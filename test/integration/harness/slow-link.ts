import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';

const STEP_MS = 10;

/** A TCP link to an address. It limits the bytes per second from that address to the client; the other direction has no limit. */
export class SlowLink {
  /** Bytes that came from the address. */
  carriedBytes = 0;
  private readonly sockets = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private readonly bytesPerS: number,
  ) {}

  static async open(to: string, bytesPerS: number): Promise<SlowLink> {
    const [host = '', port = ''] = to.split(':');
    const server = createServer();
    const link = new SlowLink(server, bytesPerS);
    server.on('connection', (near) => {
      link.join(near, connect(Number(port), host));
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    return link;
  }

  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }

  private join(near: Socket, far: Socket): void {
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.sockets.add(socket);
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        other.destroy();
        this.sockets.delete(socket);
      });
    }
    near.pipe(far);
    far.on('data', (bytes: Buffer) => {
      far.pause();
      this.carriedBytes += bytes.length;
      near.write(bytes);
      setTimeout(() => far.resume(), Math.max(STEP_MS, (1000 * bytes.length) / this.bytesPerS));
    });
  }
}
