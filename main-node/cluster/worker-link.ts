import { isErrorCode, OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type {
  ExecuteResult,
  ExpertResult,
  NodeIdentity,
  NodeStatus,
  Placement,
  Announce,
  Prospect,
  Release,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import { rowCount } from '../../shared/wire/pass-rows.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { CachedLayers } from './cached-layers.js';
import { LatestStatus } from './latest-status.js';
import type { ExecuteWork, WorkerOrders } from './placed-workers.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Most errors over one connection that answer no execute. */
export const MAX_STRAY_ERRORS = 256;

interface PendingExecute {
  layer: number;
  /** Rows of each expert that has not been answered. */
  open: Map<number, number>;
  onPartialResult(results: readonly ExpertResult[]): void;
  resolve(): void;
  reject(error: OdmoeError): void;
}

/** Main's side of the stream to one worker that has sent its welcome. */
export class WorkerLink implements WorkerOrders {
  readonly id: string;
  readonly latestStatus = new LatestStatus();
  readonly cached = new CachedLayers();
  private readonly pending = new Map<number, PendingExecute>();
  private nextRequestId = 1;
  /** Runs while executes are pending. */
  private silence: Timer | null = null;
  private closed = false;
  private late = false;
  /** Number of executes that nobody waits for any more, whose replies may still come. */
  private dropped = 0;
  private strayErrors = 0;
  /** The reason why main itself has ended the stream of a worker that it regards as lost. */
  private givenUp: OdmoeError | null = null;

  constructor(
    readonly identity: NodeIdentity,
    readonly address: string,
    private readonly stream: PeerStream<WorkerRequest, WorkerReply>,
    private readonly settings: { hiddenSize: number; experts: number; executeTimeoutMs: number; runtime: Runtime },
    private readonly log: Logger,
    /** The worker holds only part of the pack and fetches the experts that it needs. */
    readonly partialPack = false,
  ) {
    this.id = identity.id;
  }

  get status(): NodeStatus | null {
    return this.latestStatus.value;
  }

  /** Traffic over this connection. */
  get traffic(): Pick<PeerStream<never, unknown>, 'sentBytes' | 'receivedBytes' | 'roundTripMs'> {
    return this.stream;
  }

  /** Number of experts that have not been answered. */
  get outstanding(): number {
    let experts = 0;
    for (const { open } of this.pending.values()) experts += open.size;
    return experts;
  }

  /** True if main gave it up because it answered no execute in time though its connection was open, or because it sent errors that answer nothing. */
  get unresponsive(): boolean {
    return this.late;
  }

  /**
   * Rejects with WORKER_LOST when the stream ends, or when the worker has answered none of its executes for executeTimeoutMs: a worker with a queue
   * of slow loads is not lost. Rejects with CANCELLED as soon as the signal aborts; later results are dropped. Otherwise rejects with the code that
   * the worker replied with.
   */
  execute(
    work: ExecuteWork,
    epoch: number,
    onPartialResult: (results: readonly ExpertResult[]) => void,
    signal: AbortSignal,
  ): Promise<void> {
    if (this.closed) return Promise.reject(this.lostError('the stream is closed'));
    const requestId = this.nextRequestId++;
    const allRows = rowCount(work.rows);
    const open = new Map(work.experts.map(({ expert, rows }) => [expert, rows.length === 0 ? allRows : rows.length]));
    return new Promise((resolve, reject) => {
      const giveUp = (): void => {
        this.dropped += 1;
        this.forget(requestId);
        reject(new OdmoeError('CANCELLED', 'the request was cancelled while a worker ran its experts'));
      };
      const settle = onAbort(signal, giveUp);
      this.pending.set(requestId, {
        layer: work.layer,
        open,
        onPartialResult: onPartialResult,
        resolve: () => {
          settle();
          resolve();
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      if (this.silence === null) this.awaitAnswer();
      this.stream.send({
        kind: 'execute',
        execute: { requestId, epoch, hiddenSize: this.settings.hiddenSize, dtype: 'TENSOR_TYPE_F32', ...work },
      });
    });
  }

  sendPlacement(placement: Placement): void {
    if (!this.closed) this.stream.send({ kind: 'placement', placement });
  }

  sendProspect(prospect: Prospect): void {
    if (!this.closed) this.stream.send({ kind: 'prospect', prospect });
  }

  sendAnnounce(announce: Announce): void {
    if (!this.closed) this.stream.send({ kind: 'announce', announce });
  }

  sendRelease(release: Release): void {
    if (!this.closed) this.stream.send({ kind: 'release', release });
  }

  sendEnd(sequence: number): void {
    if (!this.closed) this.stream.send({ kind: 'end', end: { sequence } });
  }

  sendRoster(signed: Uint8Array): void {
    if (!this.closed) this.stream.send({ kind: 'roster', roster: { signed } });
  }

  /** Takes the worker's messages after its welcome. */
  receive(reply: WorkerReply): void {
    switch (reply.kind) {
      case 'result':
        this.settle(reply.result);
        return;
      case 'error':
        // The worker is leaving, and can do nothing more: its open work goes to other workers now.
        if (reply.error.code === 'DEVICE_LOST') this.giveUp(reply.error.message);
        else this.fail(reply.error.requestId, reply.error.code, reply.error.message);
        return;
      case 'status':
        this.noteFetched(reply.status);
        this.latestStatus.take(reply.status);
        return;
      case 'welcome':
      case 'refusal':
        this.close(new OdmoeError('PROTOCOL_VIOLATION', `worker ${this.id} sent a second ${reply.kind}`));
    }
  }

  /** The stream has ended: everything pending fails with WORKER_LOST. Called once by the owner of the stream. */
  streamClosed(error: OdmoeError | null): void {
    this.closed = true;
    this.latestStatus.end();
    const lost = this.givenUp ?? this.lostError(error?.message ?? 'the worker ended the stream');
    for (const request of this.pending.values()) request.reject(lost);
    this.pending.clear();
    this.awaitAnswer();
  }

  close(error?: OdmoeError): void {
    this.stream.close(error);
  }

  /** Takes no more of the worker's open results: they fail as for a lost worker. Its stream stays open. */
  disbelieve(why: string): void {
    const error = this.lostError(why);
    for (const request of this.pending.values()) request.reject(error);
    this.pending.clear();
    this.awaitAnswer();
  }

  private settle(result: ExecuteResult): void {
    const request = this.pending.get(result.requestId);
    if (request === undefined) return;
    const strange = this.strangeness(request, result);
    if (strange !== null) {
      const message = `worker ${this.id} answered with ${strange}; the stream is closed`;
      this.close(new OdmoeError('PROTOCOL_VIOLATION', message));
      return;
    }
    for (const { failure } of result.experts) {
      if (failure?.code !== 'DEVICE_LOST') continue;
      this.giveUp(failure.message);
      return;
    }
    for (const { expert } of result.experts) request.open.delete(expert);
    if (result.kept !== undefined && result.kept !== null) this.cached.take(request.layer, result.kept.experts);
    if (result.last) this.pending.delete(result.requestId);
    this.awaitAnswer();
    try {
      request.onPartialResult(result.experts);
      if (result.last) request.resolve();
    } catch (thrown) {
      this.forget(result.requestId);
      request.reject(toOdmoeError(thrown));
    }
  }

  /** The difference between the result and the request; null: the result answers the request. The codec has compared bytes with rows already. */
  private strangeness(
    { open }: PendingExecute,
    { experts, hiddenSize, dtype, last, kept }: ExecuteResult,
  ): string | null {
    if (hiddenSize !== this.settings.hiddenSize || dtype !== 'TENSOR_TYPE_F32') {
      return `hidden states of ${hiddenSize} ${dtype} for ones of ${this.settings.hiddenSize} TENSOR_TYPE_F32`;
    }
    for (const { expert, rows, failure } of experts) {
      const asked = open.get(expert);
      if (asked === undefined) return `expert ${expert}, which it owes no answer for`;
      if (failure === null && rows !== asked) return `${rows} rows of expert ${expert} for ${asked}`;
    }
    if (kept !== undefined && kept !== null) {
      const { size } = new Set(kept.experts);
      if (size < kept.experts.length || kept.experts.some((expert) => expert >= this.settings.experts)) {
        return `${kept.experts.length} experts that it keeps, of which some are none of a layer's ${this.settings.experts} or come twice`;
      }
    }
    return last && experts.length < open.size ? `${experts.length} experts at the end for ${open.size}` : null;
  }

  private fail(requestId: number, code: string, message: string): void {
    const request = this.pending.get(requestId);
    if (request === undefined) {
      this.log.warn('worker sent an error', { worker: this.id, code, message });
      this.countStrayError();
      return;
    }
    this.forget(requestId);
    request.reject(new OdmoeError(isErrorCode(code) ? code : 'INTERNAL', `worker ${this.id}: ${message}`));
  }

  /** Counts an error that answers nothing. Such errors cost time, and a healthy worker sends few of them. */
  private countStrayError(): void {
    if (this.dropped > 0) {
      this.dropped -= 1;
      return;
    }
    this.strayErrors += 1;
    if (this.strayErrors <= MAX_STRAY_ERRORS || this.closed) return;
    this.late = true;
    this.giveUp(`it has sent ${this.strayErrors} errors that answer nothing`);
  }

  private forget(requestId: number): void {
    this.pending.delete(requestId);
    this.awaitAnswer();
  }

  /** Executes may wait for experts that are being fetched: while bytes arrive, the worker is not silent. */
  private noteFetched(status: NodeStatus): void {
    if (status.fetchReceivedBytes > (this.status?.fetchReceivedBytes ?? 0)) this.awaitAnswer();
  }

  /** Restarts the worker's time limit, if it owes an answer. */
  private awaitAnswer(): void {
    this.silence?.cancel();
    this.silence = null;
    if (this.pending.size === 0) return;
    const { executeTimeoutMs, runtime } = this.settings;
    this.silence = waitForPeer(runtime, executeTimeoutMs, () => {
      this.late = true;
      this.giveUp(`no answer to an execute within ${executeTimeoutMs} ms`);
    });
  }

  private giveUp(why: string): void {
    this.givenUp = this.lostError(why);
    this.close(this.givenUp);
  }

  private lostError(why: string): OdmoeError {
    return new OdmoeError('WORKER_LOST', `worker ${this.id} at ${this.address} is lost: ${why}`);
  }
}
