import type { GenerationWatch } from './generation-watch.js';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The form of the route's errors, or its choice by the request; if left out: OpenAI's form. */
    dialect?: ErrorForm | ((request: FastifyRequest) => ErrorForm);
    /** A header for the request's id, besides x-request-id. */
    requestIdHeader?: string;
    /** True: the route needs no API key. */
    open?: boolean;
  }
}

/** The progress of an answer for which a client waits. */
export type AnswerProgress =
  | { phase: 'queued'; before: number }
  | { phase: 'prefill'; doneTokens: number; promptTokens: number }
  | { phase: 'decode' };

/** The forms in which one family of clients is answered. */
export interface Dialect {
  /** The body of an answer with an error status. */
  errorBody(error: OdmoeError, requestId: string): object;
  /** For example "text/event-stream; charset=utf-8" or "application/x-ndjson". */
  readonly streamType: string;
  /** The text that keeps a stream alive while nothing else is sent. */
  keepAlive(progress: AnswerProgress, request: FastifyRequest): string;
  /** The text that ends a stream whose answer failed after its headers were sent. */
  errorEvent(error: OdmoeError, requestId: string): string;
}

/** The part of a dialect by which errors are answered. */
export type ErrorForm = Pick<Dialect, 'errorBody'>;

/** Makes the parts of a streamed answer, each framed for sending. The next part is requested only when the client has read the last one. */
export type StreamMaker = (signal: AbortSignal, watch: GenerationWatch) => AsyncGenerator<string, void, undefined>;

/** Makes the body of an answer that is not streamed. */
export type BodyMaker = (signal: AbortSignal, watch: GenerationWatch) => Promise<object>;

/**
 * Sends an answer part by part. An error before the first part (and before the first sign of life) becomes an answer with the error's status.
 * The signal aborts as soon as the client is gone or reads nothing for too long.
 */
export type DeliverStream = (
  request: FastifyRequest,
  reply: FastifyReply,
  dialect: Dialect,
  make: StreamMaker,
) => Promise<void>;

/** Sends an answer as a whole. If it takes long, the client gets the headers first and a newline from time to time. */
export type DeliverBody = (
  request: FastifyRequest,
  reply: FastifyReply,
  dialect: ErrorForm,
  make: BodyMaker,
) => Promise<void>;
