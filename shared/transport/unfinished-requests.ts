/**
 * Bounds for requests that have not come whole. grpc-js collects a request, or a stream's first message, before a handler sees anything of it. Its
 * interceptors see a call from its first header on, but no bytes of a message that is not whole, so this file reads the HTTP/2 stream below the call.
 */
import type { ServerInterceptingCall, ServerInterceptingCallInterface, ServerInterceptor } from '@grpc/grpc-js';
import { constants, type ServerHttp2Stream } from 'node:http2';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { waitForPeer, type WaitRuntime } from '../base/runtime/peer-wait.js';
import { MEGABYTE_BYTES, UNFINISHED_PIECE_BYTES, UNFINISHED_REQUESTS_LIMIT_BYTES } from '../wire/limits.js';
import { toServiceError } from './rpc-errors.js';

/** The size of gRPC's header of a message: a flag, then the length in four bytes. */
const HEADER_BYTES = 5;

/** Bytes of requests that are not whole. */
interface Holder {
  heldBytes: number;
}

interface UnfinishedRequest extends Holder {
  end(error: OdmoeError): void;
}

interface HoldingConnection extends Holder {
  readonly requests: Set<UnfinishedRequest>;
}

interface HoldingPeer extends Holder {
  readonly connections: Map<object, HoldingConnection>;
}

/** One request's place among all. */
interface Holders {
  readonly request: UnfinishedRequest;
  readonly connection: HoldingConnection;
  readonly peer: HoldingPeer;
}

/**
 * The requests to a daemon that have not come whole. Each has `limitMs`, counted as peers' time. If they hold too many bytes, the largest request of
 * the connection, or of the peer that holds most, is ended, so a peer that leaves much unfinished harms itself.
 */
export class UnfinishedRequests {
  private readonly peers = new Map<string, HoldingPeer>();
  private readonly total: Holder = { heldBytes: 0 };
  /** To read a certificate takes long, so each connection is asked once. */
  private readonly names = new WeakMap<object, string>();

  constructor(
    private readonly runtime: WaitRuntime,
    private readonly limitMs: number,
    private readonly limits: { readonly all: number; readonly ofConnection: number } = UNFINISHED_REQUESTS_LIMIT_BYTES,
  ) {}

  /** Bytes that requests hold which are not whole. */
  get bytes(): number {
    return this.total.heldBytes;
  }

  /** Watches each call of a server until its request is whole. `nameOf`: the name by which bounds count the caller. */
  interceptor(nameOf: (call: ServerInterceptingCallInterface) => string): ServerInterceptor {
    return ({ requestStream }, call) => {
      const stream = httpStreamOf(call);
      const connection = stream.session ?? stream;
      const name = this.names.get(connection) ?? nameOf(call);
      this.names.set(connection, name);
      this.watch(call, stream, { name, connection, endsWithMessage: requestStream });
      // grpc-js asks for its own class and takes whatever has its interface; the call itself costs its messages nothing.
      return call as ServerInterceptingCall;
    };
  }

  private watch(
    call: ServerInterceptingCallInterface,
    stream: ServerHttp2Stream,
    { name, connection, endsWithMessage }: { name: string; connection: object; endsWithMessage: boolean },
  ): void {
    const message = new FirstMessage();
    const forget = (): void => {
      timer.cancel();
      stream.off('data', arrived).off('end', forget).off('close', forget);
      this.remove(holders, name, connection);
    };
    const end = (error: OdmoeError): void => {
      forget();
      call.sendStatus(toServiceError(error));
      // A status alone leaves the stream, and what has come of the request, until the client ends it.
      stream.close(constants.NGHTTP2_NO_ERROR);
    };
    const arrived = (data: Buffer): void => {
      if (message.isWholeWith(data) && endsWithMessage) forget();
      else this.hold(holders, data.length + UNFINISHED_PIECE_BYTES);
    };
    const holders = this.add(name, connection, end);
    const timer = waitForPeer(this.runtime, this.limitMs, () => end(tooSlow(this.limitMs)));
    timer.unref();
    // grpc-js has paused the stream, so a further listener does not make it flow.
    stream.on('data', arrived).on('end', forget).on('close', forget);
  }

  private add(name: string, place: object, end: (error: OdmoeError) => void): Holders {
    const request = { heldBytes: 0, end };
    const peer = this.peers.get(name) ?? { heldBytes: 0, connections: new Map<object, HoldingConnection>() };
    const connection = peer.connections.get(place) ?? { heldBytes: 0, requests: new Set<UnfinishedRequest>() };
    this.peers.set(name, peer);
    peer.connections.set(place, connection);
    connection.requests.add(request);
    return { request, connection, peer };
  }

  private remove({ request, connection, peer }: Holders, name: string, place: object): void {
    if (!connection.requests.delete(request)) return;
    for (const holder of [this.total, connection, peer]) holder.heldBytes -= request.heldBytes;
    if (connection.requests.size === 0) peer.connections.delete(place);
    if (peer.connections.size === 0) this.peers.delete(name);
  }

  private hold({ request, connection, peer }: Holders, bytes: number): void {
    for (const holder of [this.total, request, connection, peer]) holder.heldBytes += bytes;
    const { ofConnection, all } = this.limits;
    while (connection.heldBytes > ofConnection) {
      largest(connection.requests).end(tooMuch(connection.heldBytes, 'this connection', ofConnection));
    }
    while (this.total.heldBytes > all) {
      const most = largest(largest(this.peers.values()).connections.values());
      largest(most.requests).end(tooMuch(this.total.heldBytes, 'all connections', all));
    }
  }
}

/** Reads how long the first message of a call is. */
class FirstMessage {
  private readonly header = Buffer.alloc(HEADER_BYTES);
  private arrivedBytes = 0;

  /** True if the message is whole once these bytes have come. */
  isWholeWith(data: Buffer): boolean {
    if (this.arrivedBytes < HEADER_BYTES) data.copy(this.header, this.arrivedBytes);
    this.arrivedBytes += data.length;
    return this.arrivedBytes >= HEADER_BYTES && this.arrivedBytes >= HEADER_BYTES + this.header.readUInt32BE(1);
  }
}

/** The HTTP/2 stream of a call. No public way leads there. */
function httpStreamOf(call: ServerInterceptingCallInterface): ServerHttp2Stream {
  const { stream } = call as unknown as { stream?: ServerHttp2Stream };
  assertInvariant(
    typeof stream?.close === 'function',
    'grpc-js keeps the HTTP/2 stream of a call where it has always been.',
  );
  return stream;
}

function largest<Each extends Holder>(holders: Iterable<Each>): Each {
  let most: Each | null = null;
  for (const each of holders) if (most === null || each.heldBytes > most.heldBytes) most = each;
  assertInvariant(most !== null, 'Bytes that are held belong to a request.');
  return most;
}

function tooSlow(limitMs: number): OdmoeError {
  return new OdmoeError(
    'REQUEST_SLOW',
    `the request did not come whole within ${limitMs / 1000} s; check the network between, and send it again`,
  );
}

function tooMuch(heldBytes: number, holder: string, limitBytes: number): OdmoeError {
  const [held, limit] = [heldBytes, limitBytes].map((bytes) => (bytes / MEGABYTE_BYTES).toFixed(1));
  return new OdmoeError(
    'QUEUE_FULL',
    `the requests of ${holder} that have not come whole hold ${held} MiB, and at most ${limit} MiB are kept: send fewer large ones at once`,
  );
}
