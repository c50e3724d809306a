import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { type MessageWatch, openInProcess } from './in-process-streams.js';
import type { WorkerReply, WorkerRequest } from '../wire/messages.js';
import { type CallMethod, METHODS, type StreamMethod } from './methods.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';
import { type Handler, servedMethods } from './served-methods.js';
import type { PeerMessage } from './stream-pace.js';
import type { RpcServer, RpcServerOptions, Transport } from './transport.js';

/** A caller in the same process. */
const OWN_PROCESS: PeerContext = { host: '127.0.0.1', caller: null };

/**
 * Connects a worker and a main in one process without sockets. Main reaches the worker under `address`. Other peers reach the worker through
 * main's server (serveWorker).
 */
export class InProcessTransport {
  /** "host:port" under which other nodes know the worker; empty: not known yet. */
  address = '';
  /** The worker's methods, by path; null: it does not run. */
  private serving: ReturnType<typeof servedMethods> | null = null;
  private readonly streams = new Set<PeerStream<never, unknown>>();

  /** `watch`: sees every message between the two; null: nothing does. */
  constructor(
    private readonly runtime: Runtime,
    private readonly outer: Transport,
    private readonly watch: MessageWatch | null = null,
  ) {}

  /** Main's transport: its streams and calls to `address` stay in this process, and everything else goes by the outer transport. */
  get ofMain(): Transport {
    const { outer } = this;
    return {
      serve: (options) => outer.serve(options),
      stream: (address, method, ...limits) =>
        address === this.address ? this.stream(method) : outer.stream(address, method, ...limits),
      call: (address, method, request, limits) =>
        address === this.address ? this.call(method, request) : outer.call(address, method, request, limits),
      replies: (...asked) => outer.replies(...asked),
      connect: (...asked) => outer.connect(...asked),
    };
  }

  /** The worker's transport: its services are reached in this process; its calls to other nodes go by the outer transport. */
  get ofWorker(): Transport {
    const { outer } = this;
    return {
      serve: async (options) => this.serve(options),
      stream: (...asked) => outer.stream(...asked),
      call: (...asked) => outer.call(...asked),
      replies: (...asked) => outer.replies(...asked),
      connect: (...asked) => outer.connect(...asked),
    };
  }

  /** Serves a stream to the worker that arrived at main's server; shadow opens such streams. */
  serveWorker(stream: PeerStream<WorkerReply, WorkerRequest>, peer: PeerContext): void {
    const serve = this.handlerOf(METHODS.worker.serve);
    if (serve === null) stream.close(notServing());
    else serve(stream, peer);
  }

  private stream<Request extends PeerMessage, Reply extends PeerMessage>(
    method: StreamMethod<Request, Reply>,
  ): PeerStream<Request, Reply> {
    const { runtime, watch } = this;
    const onOver = (): void => {
      this.streams.delete(served);
    };
    const { opened, served } = openInProcess(method, { runtime, watch, onOver });
    const handle = this.handlerOf(method);
    if (handle === null) {
      served.close(notServing());
      return opened;
    }
    this.streams.add(served);
    handle(served, OWN_PROCESS);
    return opened;
  }

  private async call<Request, Reply>(method: CallMethod<Request, Reply>, request: Request): Promise<Reply> {
    const handle = this.handlerOf(method);
    if (handle === null) throw new OdmoeError('TIMEOUT', "main's own worker does not run");
    return handle(request, OWN_PROCESS);
  }

  private handlerOf<Method extends { path: string }>(method: Method): Handler<Method> | null {
    return (this.serving?.get(method.path)?.handle ?? null) as Handler<Method> | null;
  }

  private serve(options: RpcServerOptions): RpcServer {
    this.serving = servedMethods(options);
    return {
      address: 'in this process',
      port: 0,
      connectionsFrom: () => 0,
      tellLeaving: () => undefined,
      stop: async () => {
        this.serving = null;
        for (const stream of [...this.streams]) stream.close();
        // The last messages arrive in the next turn; nothing is on the way after it.
        await new Promise<void>((resolve) => {
          this.runtime.nextTurn(resolve);
        });
      },
    };
  }
}

function notServing(): OdmoeError {
  return new OdmoeError('WORKER_LOST', "main's own worker does not run");
}
