import type { GenerationWatch } from './delivery/generation-watch.js';
import type { FastifyInstance } from 'fastify';
import type { ErrorCode } from '../shared/base/errors/registry.js';
import type { Logger } from '../shared/base/log/logger.js';
import type { GenerateReply, GenerateRequest, StatusReply } from '../shared/wire/messages.js';
import type { Runtime } from '../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../shared/language/tokenizer/tokenizer.js';
import type { ClusterEvent } from '../shared/wire/cluster-events.js';
import type { KeySessions } from './access/key-sessions.js';
import type { PrepareChat } from './conversation/chat-request.js';
import type { DeliverBody, DeliverStream } from './delivery/dialect.js';
import type { PageFile } from './page-files.js';

/** The model that main serves, as clients see it. */
export interface ServedModel {
  /** The manifest's model name: the only id that is served. */
  readonly name: string;
  /** When main began to serve it, seconds since 1970. */
  readonly createdS: number;
  /** Version of odmoe, digest of the pack and arithmetic: the same fingerprint, request and seed give the same bits. */
  readonly fingerprint: string;
  readonly packDigest: string;
  /** null: prompts come as token ids, and answers have no text. */
  readonly tokenizer: Tokenizer | null;
  /** Positions of prompt and answer together. */
  readonly contextPositions: number;
  readonly vocabSize: number;
  readonly family: string;
  /** Parameters of all experts and of the rest. */
  readonly parameters: number;
  /** As shipped: "BF16", "FP16" and so on. */
  readonly weightFormat: string;
  /** Of the pack's files. */
  readonly packBytes: number;
}

/** What Prometheus is told. */
export interface ServedMetrics {
  readonly contentType: string;
  /** Of this moment. */
  text(): Promise<string>;
  /** An HTTP request has ended. `route`: as it is registered; "none": nothing is served at its path. */
  httpRequestEnded(route: string, code: 'ok' | ErrorCode): void;
}

/** What one listener has not taken yet of the cluster's events. */
export interface EventListener {
  /** The next event, as soon as there is one; null: there will be none. Asked again only when it has resolved. */
  next(): Promise<ClusterEvent | null>;
  /** Nothing more is told. Idempotent. */
  end(): void;
}

/** Events of the cluster, as main tells them. */
export interface ClusterFeed {
  /** @throws QUEUE_FULL: too many listeners; NO_MAIN: main stops */
  listen(wantsPasses: boolean): EventListener;
}

/** What every route of the door may use. */
export interface DoorContext {
  readonly model: ServedModel;
  /** As InferenceService.generate. The request is checked here (validateGenerateRequest), so that wrong fields are REQUEST_INVALID. */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    watch?: GenerationWatch,
  ): AsyncGenerator<GenerateReply, void, undefined>;
  /** Prepares a conversation for the model. */
  readonly prepareChat: PrepareChat;
  /** Token ids of a text, made by the thread that makes those of prompts. `addSpecial`: with a leading BOS and the like. */
  tokenize(text: string, addSpecial: boolean, signal: AbortSignal): Promise<number[]>;
  /** Token ids of what goes through the chat template. */
  tokenizeChat(
    request: Pick<GenerateRequest, 'messages' | 'templateArguments' | 'continueLast'>,
    signal: AbortSignal,
  ): Promise<number[]>;
  status(): StatusReply;
  /** What happens in the cluster. */
  readonly feed: ClusterFeed;
  /** The page's files, by name. */
  readonly page: ReadonlyMap<string, PageFile>;
  /** Browsers that have brought an API key. */
  readonly sessions: KeySessions;
  readonly metrics: ServedMetrics;
  readonly deliverStream: DeliverStream;
  readonly deliverBody: DeliverBody;
  readonly runtime: Runtime;
  readonly log: Logger;
}

/**
 * Adds the routes of one dialect, in `dialects/routes.ts`. Each path is registered with and without its prefix by the dialect itself. A route names
 * its dialect (`{ config: { dialect } }`), so that errors before its handler have the dialect's form, too.
 */
export type RegisterRoutes = (app: FastifyInstance, context: DoorContext) => void;
