import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorCode } from '../../../shared/errors/registry.js';
import type { Logger } from '../../../shared/log/logger.js';
import type { Runtime } from '../../../shared/runtime/runtime.js';
import { parseTraceparent, type TraceContext } from './trace-context.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** null: the request could not be read. */
    account: RequestAccount | null;
  }
  interface FastifyContextConfig {
    /** Asked again and again by machines: its requests are no news. */
    polled?: boolean;
  }
}

/** What the log is told of a request when it has ended. Never a text. */
export class RequestAccount {
  readonly trace: TraceContext | null;
  /** Of the prompt, and of all answers. */
  promptTokens = 0;
  tokens = 0;
  /** null: it did not fail. */
  failure: ErrorCode | null = null;

  constructor(
    { headers }: Pick<FastifyRequest, 'headers'>,
    readonly begunMs: number,
  ) {
    this.trace = parseTraceparent(headers['traceparent']);
  }
}

/** What names a request in each of its lines in the log. */
export function logNames({ id, account }: Pick<FastifyRequest, 'id' | 'account'>): Record<string, string> {
  if (account === null || account.trace === null) return { request: id };
  return { request: id, trace_id: account.trace.traceId, span_id: account.trace.spanId };
}

/** Keeps an account of every request, and logs one line when it has ended, however that was. Before all other hooks. */
export function keepAccounts(app: FastifyInstance, log: Logger, runtime: Pick<Runtime, 'nowMs'>): void {
  app.decorateRequest('account', null);
  app.addHook('onRequest', async (request, reply) => {
    request.account = new RequestAccount(request, runtime.nowMs());
    reply.raw.once('close', () => {
      logEnd(request, reply, log, runtime.nowMs());
    });
  });
}

function logEnd(request: FastifyRequest, { raw }: FastifyReply, log: Logger, nowMs: number): void {
  const { account, routeOptions, method } = request;
  if (account === null) return;
  const { failure, promptTokens, tokens, begunMs } = account;
  const code = failure ?? (raw.writableFinished ? 'ok' : 'CANCELLED');
  log[routeOptions.config.polled === true ? 'debug' : 'info']('HTTP request ended', {
    ...logNames(request),
    ...{ method, route: routeOptions.url ?? 'none', status: raw.headersSent ? raw.statusCode : 0, code },
    duration_ms: Math.round(nowMs - begunMs),
    ...(promptTokens > 0 && { prompt_tokens: promptTokens, tokens }),
  });
}
