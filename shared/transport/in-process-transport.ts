import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { WORKER_SERVE } from '../wire/codecs.js';
import { type MessageWatch, openInProcess } from './in-process-streams.js';
import type { WorkerReply, WorkerRequest } from '../wire/messages.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';
import type { RpcServer, RpcServerOptions, Transport } from './transport.js';

/** A caller in the same process. */
const OWN_PROCESS: PeerContext = { host: '127.0.0.1' };

/**
 * Connects a worker and a main in one process without sockets. Main reaches the worker under `address`. Other peers reach the worker through
 * main's server (serveWorker).
 */
export class InProcessTransport {
  /** "host:port" under which other nodes know the worker; empty: not known yet. */
  address = '';
  private serving: RpcServerOptions | null = null;
  private readonly streams = new Set<PeerStream<WorkerReply, WorkerRequest>>();

  /** `watch`: sees every message between the two; null: nothing does. */
  constructor(
    private readonly runtime: Runtime,
    private readonly outer: Transport,
    private readonly watch: MessageWatch | null = null,
  ) {}

  /** Main's transport: it reaches the worker in this process, and all other nodes by the outer transport. */
  get ofMain(): Transport {
    return withMethods(this.outer, {
      openWorkerStream: (address, network, receiveLimitBytes) =>
        address === this.address
          ? this.openWorkerStream()
          : this.outer.openWorkerStream(address, network, receiveLimitBytes),
      identifyPeer: async (address, timeoutMs, signal) => {
        if (address !== this.address) return this.outer.identifyPeer(address, timeoutMs, signal);
        if (this.serving !== null) return this.serving.identity(OWN_PROCESS);
        throw new OdmoeError('TIMEOUT', "main's own worker does not run");
      },
    });
  }

  /** The worker's transport: its service is reached in this process; its calls to other nodes go by the outer transport. */
  get ofWorker(): Transport {
    return withMethods(this.outer, { serve: async (options) => this.serve(options) });
  }

  /** Serves a stream to the worker that arrived at main's server; shadow opens such streams. */
  serveWorker(stream: PeerStream<WorkerReply, WorkerRequest>, peer: PeerContext): void {
    if (this.serving?.worker === undefined) {
      stream.close(notServing());
      return;
    }
    this.serving.worker(stream, peer);
  }

  private openWorkerStream(): PeerStream<WorkerRequest, WorkerReply> {
    const { runtime, watch } = this;
    const onOver = (): void => {
      this.streams.delete(served);
    };
    const { opened, served } = openInProcess(WORKER_SERVE, { runtime, watch, onOver });
    if (this.serving?.worker === undefined) {
      served.close(notServing());
      return opened;
    }
    this.streams.add(served);
    this.serving.worker(served, OWN_PROCESS);
    return opened;
  }

  private serve(options: RpcServerOptions): RpcServer {
    this.serving = options;
    return {
      address: 'in this process',
      port: 0,
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

/** The transport with some of its methods replaced. */
function withMethods(outer: Transport, methods: Partial<Transport>): Transport {
  return {
    serve: (...args) => outer.serve(...args),
    openWorkerStream: (...args) => outer.openWorkerStream(...args),
    openShadowStream: (...args) => outer.openShadowStream(...args),
    openPackSource: (...args) => outer.openPackSource(...args),
    identifyPeer: (...args) => outer.identifyPeer(...args),
    joinMain: (...args) => outer.joinMain(...args),
    fetchCounts: (...args) => outer.fetchCounts(...args),
    fetchStatus: (...args) => outer.fetchStatus(...args),
    generate: (...args) => outer.generate(...args),
    ...methods,
  };
}
