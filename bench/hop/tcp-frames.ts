/** Length-prefixed frames over plain TCP: the lower bound for a hop by gRPC. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';

const PREFIX_BYTES = 4;

/** Calls `handle` with each whole frame, prefix included. */
function onFrame(socket: Socket, handle: (frame: Buffer) => void): void {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  socket.on('data', (chunk) => {
    pending.push(chunk);
    pendingBytes += chunk.length;
    while (pendingBytes >= PREFIX_BYTES) {
      const joined = pending.length === 1 ? pending[0] : Buffer.concat(pending);
      if (joined === undefined) return;
      pending = [joined];
      const frameBytes = PREFIX_BYTES + joined.readUInt32LE(0);
      if (pendingBytes < frameBytes) return;
      handle(joined.subarray(0, frameBytes));
      pending = [joined.subarray(frameBytes)];
      pendingBytes -= frameBytes;
    }
  });
}

/** Listens on a free port of 127.0.0.1 and sends every frame back. */
export async function startTcpEcho(): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => {
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    onFrame(socket, (frame) => socket.write(frame));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const address = server.address();
  assertInvariant(address !== null && typeof address !== 'string', 'a server that listens by TCP has a port');
  return { server, port: address.port };
}

export interface TcpPeer {
  /** Sends `payload` and resolves when a frame has come back. Only one call at a time. */
  roundTrip(payload: Uint8Array): Promise<void>;
  close(): void;
}

export async function connectTcp(port: number): Promise<TcpPeer> {
  const socket = connect(port, '127.0.0.1');
  socket.setNoDelay(true);
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  let settle: { resolve: () => void; reject: (error: Error) => void } | null = null;
  socket.on('error', (error) => settle?.reject(error));
  onFrame(socket, () => settle?.resolve());
  return {
    roundTrip: (payload) =>
      new Promise((resolve, reject) => {
        settle = { resolve, reject };
        const frame = Buffer.allocUnsafe(PREFIX_BYTES + payload.length);
        frame.writeUInt32LE(payload.length, 0);
        frame.set(payload, PREFIX_BYTES);
        socket.write(frame);
      }),
    close: () => {
      socket.destroy();
    },
  };
}
