import type { GenerationWatch } from './generation-watch.js';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** In which errors of the route are told; left out: OpenAI's form. */
    dialect?: Pick<Dialect, 'errorBody'>;
    /** Where the id of the request stands beside x-request-id. */
    requestIdHeader?: string;
    /** Served without an API key, too. */
    open?: boolean;
  }
}

/** How far an answer is that a client waits for. */
export type AnswerProgress =
  | { phase: 'queued'; before: number }
  | { phase: 'prefill'; doneTokens: number; promptTokens: number }
  | { phase: 'decode' };

/** How one family of clients is spoken to. */
export interface Dialect {
  /** Body of an answer with an error status. */
  errorBody(error: OdmoeError, requestId: string): object;
  /** "text/event-stream; charset=utf-8", "application/x-ndjson". */
  readonly streamType: string;
  /** What keeps a streamed line alive while nothing else is sent. */
  keepAlive(progress: AnswerProgress, request: FastifyRequest): string;
  /** What ends a stream whose answer failed after its headers were sent. */
  errorEvent(error: OdmoeError, requestId: string): string;
}

/** Makes the pieces of a streamed answer, each framed as it is to be sent; it is not asked for the next before the client has taken the last. */
export type StreamMaker = (signal: AbortSignal, watch: GenerationWatch) => AsyncGenerator<string, void, undefined>;

/** Makes the body of an answer that is not streamed. */
export type BodyMaker = (signal: AbortSignal, watch: GenerationWatch) => Promise<object>;

/**
 * Sends an answer piece by piece. An error before the first piece (and before the first sign of life) is an answer with its status. The
 * signal aborts as soon as the client is gone or takes nothing for too long.
 */
export type DeliverStream = (
  request: FastifyRequest,
  reply: FastifyReply,
  dialect: Dialect,
  make: StreamMaker,
) => Promise<void>;

/** Sends an answer at once; one that takes long gets its headers first and a newline now and then. */
export type DeliverBody = (
  request: FastifyRequest,
  reply: FastifyReply,
  dialect: Pick<Dialect, 'errorBody'>,
  make: BodyMaker,
) => Promise<void>;
