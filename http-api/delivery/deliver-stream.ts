import type { FastifyReply, FastifyRequest } from 'fastify';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { ClientLine } from './client-line.js';
import type { DeliverySetting } from './delivery-limits.js';
import type { DeliverStream, Dialect, StreamMaker } from './dialect.js';
import { logFailure } from './log-failure.js';
import { sendError } from './send-error.js';

/** Implements DeliverStream. */
export function createDeliverStream(setting: DeliverySetting): DeliverStream {
  return async (request, reply, dialect, make) => {
    const delivery = new StreamDelivery(new ClientLine(request, reply, setting), { request, reply, dialect, setting });
    await delivery.run(make);
  };
}

interface StreamSetting {
  request: FastifyRequest;
  reply: FastifyReply;
  dialect: Dialect;
  setting: DeliverySetting;
}

/** The delivery of one streamed answer. */
class StreamDelivery {
  private silence: Timer | null = null;

  constructor(
    private readonly line: ClientLine,
    private readonly options: StreamSetting,
  ) {}

  async run(make: StreamMaker): Promise<void> {
    const { line } = this;
    const texts = make(line.signal, line.watch);
    this.listenToSilence();
    try {
      for await (const text of texts) {
        this.send(text);
        await line.taken();
        // An answer that is no longer wanted ends here, even if its maker ignores the signal.
        if (line.signal.aborted) break;
      }
      this.silence?.cancel();
      this.begin();
      await line.end();
    } catch (thrown) {
      await this.fail(thrown);
    } finally {
      this.silence?.cancel();
    }
  }

  private begin(): void {
    this.line.begin({
      'content-type': this.options.dialect.streamType,
      'cache-control': 'no-cache, no-transform',
      // Proxies like nginx must not buffer output that the client wants to see at once.
      'x-accel-buffering': 'no',
    });
  }

  private send(text: string): void {
    if (text === '') return;
    this.begin();
    this.line.write(text);
    this.listenToSilence();
  }

  /** Keeps the stream alive. A client that has not read earlier output gets no signs of life. */
  private listenToSilence(): void {
    const { setting, dialect, request } = this.options;
    this.silence?.cancel();
    this.silence = setting.runtime.after(setting.limits.keepAliveMs, () => {
      if (!this.line.isBlocked) {
        this.begin();
        this.line.write(dialect.keepAlive(this.line.progress, request));
      }
      this.listenToSilence();
    });
  }

  private async fail(thrown: unknown): Promise<void> {
    const { line } = this;
    const { dialect, reply, request, setting } = this.options;
    this.silence?.cancel();
    const error = toOdmoeError(thrown);
    logFailure(setting.log, request, thrown, line.signal.aborted);
    if (line.signal.aborted) {
      this.begin();
      return;
    }
    if (line.hasBegun) await line.end(dialect.errorEvent(error, request.id));
    else await sendError(reply, error, dialect);
  }
}
