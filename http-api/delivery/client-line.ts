import type { GenerationWatch } from './generation-watch.js';
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { logNames, type RequestRecord } from '../requests/request-record.js';
import type { DeliverySetting } from './delivery-limits.js';
import type { AnswerProgress } from './dialect.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { onEvent } from '../../shared/base/runtime/living.js';

/**
 * The connection to the client of one answer. It records the progress of the answer, notices when the client closes the connection, and
 * closes it when the client reads nothing for too long. Output that bypasses Fastify goes through `begin`, `write` and `end`.
 */
export class ClientLine {
  readonly watch: GenerationWatch;
  progress: AnswerProgress = { phase: 'queued', before: 0 };
  private readonly gone = new AbortController();
  private readonly raw: ServerResponse;
  private wait: { taken: Promise<void>; settle: () => void } | null = null;
  private begun = false;
  private readonly account: RequestRecord | null;

  constructor(
    request: FastifyRequest,
    private readonly reply: FastifyReply,
    private readonly setting: DeliverySetting,
  ) {
    this.raw = reply.raw;
    this.account = request.account ?? null;
    this.watch = this.watchFor(this.account);
    const { socket } = request.raw;
    // If a connection has several requests, only the first reply learns that it has closed. So every answer listens on the socket.
    socket.setMaxListeners(0);
    const stopListening = (): void => {
      for (const stop of stops) stop();
    };
    // A process that dies ends its side first. A client that only ends its side of the connection looks the same.
    const onEnd = (): void => {
      stopListening();
      this.leave();
    };
    const stops = [onEvent(socket, 'end', onEnd), onEvent(socket, 'close', onEnd)];
    this.raw.once('close', () => {
      stopListening();
      if (!this.raw.writableFinished) this.leave();
      this.wait?.settle();
    });
    this.raw.on('error', () => this.leave());
    if (socket.destroyed || socket.readableEnded) onEnd();
  }

  private watchFor(account: RequestRecord | null): GenerationWatch {
    return {
      client: account?.client ?? '',
      queued: (before) => (this.progress = { phase: 'queued', before }),
      prefill: (doneTokens, promptTokens) => {
        if (account !== null) account.promptTokens = promptTokens;
        this.progress =
          doneTokens < promptTokens ? { phase: 'prefill', doneTokens, promptTokens } : { phase: 'decode' };
      },
      token: () => {
        if (account !== null) account.tokens += 1;
      },
    };
  }

  /** Aborts when the client has closed the connection, or main has closed it because the client was too slow. */
  get signal(): AbortSignal {
    return this.gone.signal;
  }

  /** True: headers have been sent past Fastify. */
  get hasBegun(): boolean {
    return this.begun;
  }

  /** True: the client has not yet read the output that was written. */
  get isBlocked(): boolean {
    return this.wait !== null;
  }

  begin(headers: Record<string, string>): void {
    if (this.begun) return;
    this.begun = true;
    this.reply.hijack();
    if (this.signal.aborted) return;
    for (const [name, value] of Object.entries({ ...this.reply.getHeaders(), ...headers })) {
      if (value !== undefined) this.raw.setHeader(name, value);
    }
    this.raw.writeHead(200);
    this.raw.flushHeaders();
  }

  /** Sends text; `taken` resolves when more may be sent. */
  write(text: string): void {
    if (this.signal.aborted || text === '') return;
    if (this.raw.write(text) || this.isBlocked) return;
    const onDrain = (): void => this.wait?.settle();
    this.waitForClient(() => this.raw.off('drain', onDrain));
    this.raw.once('drain', onDrain);
  }

  /** Resolves when the client has read enough of the output, or is gone. */
  async taken(): Promise<void> {
    await this.wait?.taken;
  }

  /** Sends the last part of the answer. Resolves when the client has read all of it, or is gone. */
  async end(text = ''): Promise<void> {
    await this.taken();
    if (this.signal.aborted) return;
    this.waitForClient(() => undefined);
    const taken = this.taken();
    this.raw.end(text, () => this.wait?.settle());
    await taken;
  }

  /** Closes the connection; the signal aborts, so that the answer's maker stops. */
  leave(): void {
    if (this.signal.aborted) return;
    this.gone.abort();
    this.raw.destroy();
    this.wait?.settle();
  }

  /** Closes the connection if the client reads nothing for too long. */
  private waitForClient(cleanUp: () => void): void {
    const { runtime, limits, log } = this.setting;
    const timer = waitForPeer(runtime, limits.slowReaderMs, () => {
      log.warn('a client takes nothing of its answer; it is given up', logNames(this.reply.request));
      this.leave();
    });
    let resolve = (): void => undefined;
    const taken = new Promise<void>((settled) => (resolve = settled));
    const settle = (): void => {
      timer.cancel();
      cleanUp();
      this.wait = null;
      resolve();
    };
    this.wait = { taken, settle };
  }
}
