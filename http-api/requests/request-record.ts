import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** The place of a request in its client's trace (W3C Trace Context). */
interface TraceContext {
  /** 32 hexadecimal digits. */
  traceId: string;
  /** Id of the client's span to which the request belongs: 16 hexadecimal digits. */
  spanId: string;
}

/** version-traceid-parentid-flags; later versions may add fields at the end. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/;
const FORBIDDEN_VERSION = 'ff';
const FIRST_VERSION = '00';
const LENGTH_LIMIT = 512;

/** Reads the header "traceparent"; null: it is missing or does not follow the standard. */
export function parseTraceparent(header: string | string[] | undefined): TraceContext | null {
  if (typeof header !== 'string' || header.length > LENGTH_LIMIT) return null;
  const [, version, traceId = '', spanId = '', more] = TRACEPARENT.exec(header) ?? [];
  if (version === undefined || version === FORBIDDEN_VERSION) return null;
  if (version === FIRST_VERSION && more !== undefined) return null;
  return isAllZero(traceId) || isAllZero(spanId) ? null : { traceId, spanId };
}

function isAllZero(digits: string): boolean {
  return /^0+$/.test(digits);
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Missing if the request could not be read. */
    account?: RequestRecord | null;
  }
  interface FastifyContextConfig {
    /** True: machines request this route again and again, so that its requests are logged at debug level. */
    polled?: boolean;
  }
}

/** The data of a request for the log line at its end. It never contains a text. */
export class RequestRecord {
  readonly traceContext: TraceContext | null;
  /** The client's name (KeyOwner.client); its host where no keys are configured. Empty: it is not known yet. */
  client = '';
  /** Tokens of the prompt, and tokens of all answers. */
  promptTokens = 0;
  tokens = 0;
  private failure: ErrorCode | null = null;

  constructor(
    { headers }: Pick<FastifyRequest, 'headers'>,
    readonly begunMs: number,
  ) {
    this.traceContext = parseTraceparent(headers['traceparent']);
  }

  /** Records the reason of a failure; the first failure counts. */
  failed(code: ErrorCode): void {
    this.failure ??= code;
  }

  /** The code at the request's end. If the client did not get the whole answer, it has closed the connection. */
  codeAtEnd(isWhole: boolean): 'ok' | ErrorCode {
    return this.failure ?? (isWhole ? 'ok' : 'CANCELLED');
  }
}

/** Fields that identify a request in each of its log lines. */
export function logNames({ id, account }: Pick<FastifyRequest, 'id' | 'account'>): Record<string, string> {
  const trace = account?.traceContext ?? null;
  return trace === null ? { request: id } : { request: id, trace_id: trace.traceId, span_id: trace.spanId };
}

/** Log and metrics that get the end of every request. */
export interface RequestEnds {
  runtime: Pick<Runtime, 'nowMs'>;
  log: Logger;
  metrics: { httpRequestEnded(route: string, code: 'ok' | ErrorCode): void };
}

/** Records every request, counts it, and logs one line at its end, for any kind of end. This hook must come before all others. */
export function keepAccounts(app: FastifyInstance, { log, runtime, metrics }: RequestEnds): void {
  app.decorateRequest('account', null);
  app.addHook('onRequest', async (request, reply) => {
    const account = new RequestRecord(request, runtime.nowMs());
    request.account = account;
    reply.raw.once('close', () => {
      const [route, code] = [request.routeOptions.url ?? 'none', account.codeAtEnd(reply.raw.writableFinished)];
      metrics.httpRequestEnded(route, code);
      logEnd(request, reply, { route, code, durationMs: runtime.nowMs() - account.begunMs }, log);
    });
  });
}

function logEnd(
  request: FastifyRequest,
  { raw }: FastifyReply,
  { route, code, durationMs }: { route: string; code: string; durationMs: number },
  log: Logger,
): void {
  const { account, routeOptions, method } = request;
  const { promptTokens = 0, tokens = 0 } = account ?? {};
  log[routeOptions.config.polled === true ? 'debug' : 'info']('HTTP request ended', {
    ...logNames(request),
    method,
    route,
    status: raw.headersSent ? raw.statusCode : 0,
    code,
    duration_ms: Math.round(durationMs),
    ...(promptTokens > 0 && { prompt_tokens: promptTokens, tokens }),
  });
}
