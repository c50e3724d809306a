import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { servedWorkerRefusal } from '../../shared/transport/call-permission.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import { ARRIVALS_OF_PLAIN_PEER, HANDSHAKE_TIMEOUT_MS } from '../../shared/wire/limits.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { NodeIdentity, PlacedWorker, WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';

/** Unsent bytes to one worker above which predictions to it are dropped: it could not use them in time anyway. */
export const PREDICTION_BACKLOG_LIMIT_BYTES = 64 * 1024;

export interface WorkerLinksOptions {
  open(address: string): PeerStream<WorkerRequest, WorkerReply>;
  identity(): NodeIdentity;
  reconnectDelayMs: number;
  runtime: Runtime;
  log: Logger;
}

export interface WorkerLinkCounts {
  sent: number;
  /** Messages dropped because there was no connection, or the worker's backlog was too long. */
  dropped: number;
  /** Messages that were answered with STALE_EPOCH. */
  stale: number;
}

/** Shadow's streams to the workers of the current placement. A worker that cannot be reached is tried again as long as it is placed. */
export class WorkerLinks {
  readonly counts: WorkerLinkCounts = { sent: 0, dropped: 0, stale: 0 };
  private readonly links = new Map<string, PredictedWorker>();

  constructor(private readonly options: WorkerLinksOptions) {}

  /** Opens streams to workers that are new (or back), closes those to workers that have left or moved. */
  place(workers: readonly PlacedWorker[]): void {
    const addresses = new Map(workers.map(({ id, address }) => [id, address]));
    for (const [id, link] of this.links) {
      if (addresses.get(id) === link.address) continue;
      link.close();
      this.links.delete(id);
    }
    for (const [id, address] of addresses) {
      const link = this.links.get(id);
      if (link === undefined) this.links.set(id, new PredictedWorker(id, address, this.options, this.counts));
      else link.retryNow();
    }
  }

  /** Drops the message, and counts it, when it cannot be sent to the worker now. */
  send(workerId: string, message: PredictedMessage): void {
    const link = this.links.get(workerId);
    if (link?.send(message) === true) this.counts.sent += 1;
    else this.counts.dropped += 1;
  }
}

/** The messages that shadow sends to workers. */
type PredictedMessage = Extract<WorkerRequest, { kind: 'predict' | 'restart' }>;

/** One worker to which shadow sends predictions. */
class PredictedWorker {
  private stream: PeerStream<WorkerRequest, WorkerReply> | null = null;
  private welcome = false;
  private timer: Timer | null = null;
  private closed = false;
  /** A worker that stays away is logged once, not at every attempt. */
  private reported = false;

  constructor(
    private readonly id: string,
    readonly address: string,
    private readonly options: WorkerLinksOptions,
    private readonly counts: WorkerLinkCounts,
  ) {
    this.connect();
  }

  send(message: PredictedMessage): boolean {
    if (this.stream === null || !this.welcome) return false;
    if (this.stream.backlogBytes > PREDICTION_BACKLOG_LIMIT_BYTES) return false;
    this.stream.send(message);
    return true;
  }

  /** Main reaches the worker, so there is no reason to wait any longer. */
  retryNow(): void {
    if (this.stream !== null || this.closed) return;
    this.clearTimer();
    this.connect();
  }

  close(): void {
    this.closed = true;
    this.clearTimer();
    this.stream?.close();
  }

  private connect(): void {
    const stream = this.options.open(this.address);
    this.stream = stream;
    stream.boundArrivals(new ArrivalBound(ARRIVALS_OF_PLAIN_PEER, this.options.runtime));
    stream.onMessage((reply) => this.receive(stream, reply));
    stream.onClose((error) => this.streamClosed(error));
    stream.send({ kind: 'hello', hello: this.options.identity() });
    this.timer = waitForPeer(this.options.runtime, HANDSHAKE_TIMEOUT_MS, () => {
      stream.close(
        new OdmoeError('TIMEOUT', `worker ${this.id} did not answer hello within ${HANDSHAKE_TIMEOUT_MS} ms`),
      );
    });
  }

  private receive(stream: PeerStream<WorkerRequest, WorkerReply>, reply: WorkerReply): void {
    const worker = this.id;
    switch (reply.kind) {
      case 'welcome':
        this.welcomed(stream);
        return;
      case 'refusal':
        this.report('refused by worker', { code: reply.refusal.code, reason: reply.refusal.message });
        stream.close();
        return;
      case 'error':
        if (reply.error.code === 'STALE_EPOCH') this.counts.stale += 1;
        else this.options.log.warn('worker error', { worker, code: reply.error.code, reason: reply.error.message });
        return;
      case 'result':
      case 'status':
        return;
    }
  }

  private welcomed(stream: PeerStream<WorkerRequest, WorkerReply>): void {
    this.clearTimer();
    const wrongWorker = servedWorkerRefusal(this.id, stream.certifiedPeer);
    if (wrongWorker !== null) {
      stream.close(wrongWorker);
      return;
    }
    this.welcome = true;
    this.reported = false;
    this.options.log.info('connected to worker', { worker: this.id, address: this.address });
  }

  private streamClosed(error: OdmoeError | null): void {
    this.clearTimer();
    this.stream = null;
    this.welcome = false;
    if (this.closed) return;
    this.report('no connection to worker', { reason: error?.message ?? 'the worker ended the stream' });
    this.timer = this.options.runtime.after(this.options.reconnectDelayMs, () => this.connect());
  }

  private report(event: string, fields: Record<string, unknown>): void {
    if (this.reported) return;
    this.reported = true;
    this.options.log.warn(event, { worker: this.id, address: this.address, ...fields });
  }

  private clearTimer(): void {
    this.timer?.cancel();
    this.timer = null;
  }
}
