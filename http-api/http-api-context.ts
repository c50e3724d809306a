import type { GenerationWatch } from './delivery/generation-watch.js';
import type { FastifyInstance } from 'fastify';
import type { ErrorCode } from '../shared/base/errors/registry.js';
import type { Logger } from '../shared/base/log/logger.js';
import type {
  DrainedNode,
  DrainRequest,
  GenerateReply,
  GenerateRequest,
  StatusReply,
} from '../shared/wire/messages.js';
import type { Runtime } from '../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../shared/language/tokenizer/tokenizer.js';
import type { ClusterEvent } from '../shared/wire/cluster-events.js';
import type { AcceptedMachineView, ListedMachineView, WaitingMachineView } from '../shared/wire/cluster-machines.js';
import type { ApiKeys } from './access/api-keys.js';
import type { KeySessions } from './access/key-sessions.js';
import type { PrepareChat } from './conversation/chat-request.js';
import type { DeliverBody, DeliverStream } from './delivery/dialect.js';
import type { PageFile } from './page-files.js';

/** The model that main serves, as clients see it. */
export interface ServedModel {
  /** The manifest's model name, which is the only id of a model here. */
  readonly name: string;
  /** The time at which main began to serve it, in seconds since 1970. */
  readonly createdS: number;
  /** Version of odmoe, digest of the pack and arithmetic. The same fingerprint, request and seed give the same bits. */
  readonly fingerprint: string;
  /** How answers are computed: "exact", "fast" (tensor cores of a GPU), or a quality such as "sliced(8,4,low)". */
  readonly arithmetic: string;
  readonly packDigest: string;
  /** null: prompts are token ids, and answers have no text. */
  readonly tokenizer: Tokenizer | null;
  /** Most positions of prompt and answer together. */
  readonly contextPositions: number;
  readonly vocabSize: number;
  readonly family: string;
  /** Number of parameters, experts and all others. */
  readonly parameters: number;
  /** The shipped format: "BF16", "FP16" and so on. */
  readonly weightFormat: string;
  /** Bytes of the pack's files. */
  readonly packBytes: number;
}

/** The metrics for Prometheus. */
export interface ServedMetrics {
  readonly contentType: string;
  /** The metrics at this moment. */
  text(): Promise<string>;
  /** Counts an HTTP request that has ended. `route`: its registered path; "none": its path has no route. */
  httpRequestEnded(route: string, code: 'ok' | ErrorCode): void;
}

/** The cluster's events that one listener has not read yet. */
export interface EventListener {
  /** Resolves with the next event, or with null when no more follow. It may be called again only after it has resolved. */
  next(): Promise<ClusterEvent | null>;
  /** Ends the listening; no more events follow. Idempotent. */
  end(): void;
}

/** The events of the cluster that main publishes. */
export interface EventFeed {
  /** @throws QUEUE_FULL: too many listeners; NO_MAIN: main stops */
  listen(wantsPasses: boolean): EventListener;
}

/** A machine that is in the cluster. */
export type ListedMachine = Pick<ListedMachineView, 'id' | 'role' | 'sinceMs'>;

/** The machines of a cluster with an authority, as an operator sees and changes them. */
export interface Machines {
  readonly cluster: string;
  /** The authority in words. */
  readonly words: string;
  /** The host by which other machines may reach main if it listens on every interface. */
  readonly machineAddress: string;
  /** The machines that show a code, the first one first. */
  waiting(): readonly WaitingMachineView[];
  /** So many wrong codes send every machine away that waits. */
  wrongCodesLeft(): number;
  /** The machines in the cluster. */
  nodes(): readonly ListedMachine[];
  /** Lets the machine in that shows this code. Throws JOIN_TOKEN_INVALID, USAGE the code let it in before, TRUST_REFUSED, STORAGE_*. */
  accept(code: string): Promise<AcceptedMachineView>;
  /** Removes a machine and ends its connections. Throws USAGE, STORAGE_*. */
  remove(id: string): Promise<void>;
}

/** The parts of main that every route of the HTTP API may use. */
export interface HttpApiContext {
  readonly model: ServedModel;
  /** Like InferenceService.generate. It checks the request (validateGenerateRequest), so that wrong fields cause REQUEST_INVALID. */
  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    watch?: GenerationWatch,
  ): AsyncGenerator<GenerateReply, void, undefined>;
  /** Prepares a conversation for the model. */
  readonly prepareChat: PrepareChat;
  /** Token ids of a text, made by the same thread as those of prompts. `addSpecial`: with a leading BOS and the like. */
  tokenize(text: string, addSpecial: boolean, signal: AbortSignal): Promise<number[]>;
  /** Token ids of a conversation, through the chat template. */
  tokenizeChat(
    request: Pick<GenerateRequest, 'messages' | 'templateArguments' | 'continueLast'>,
    signal: AbortSignal,
  ): Promise<number[]>;
  status(): StatusReply;
  /** The events of the cluster. */
  readonly feed: EventFeed;
  /** The page's files by name. */
  readonly page: ReadonlyMap<string, PageFile>;
  /** Null: the cluster has no authority. */
  readonly machines: Machines | null;
  /** Gives a node no new work, or work again. Returns null if it gets work. Throws USAGE if main has no such node. */
  drain(request: DrainRequest): DrainedNode | null;
  readonly keys: ApiKeys;
  /** Sessions of browsers that have sent an API key. */
  readonly sessions: KeySessions;
  readonly metrics: ServedMetrics;
  readonly deliverStream: DeliverStream;
  readonly deliverBody: DeliverBody;
  readonly runtime: Runtime;
  readonly log: Logger;
}

/**
 * Adds the routes of one dialect, in `dialects/routes.ts`. The dialect itself registers each path with and without its prefix. A route names
 * its dialect (`{ config: { dialect } }`), so that errors before its handler have the dialect's form, too.
 */
export type RegisterRoutes = (app: FastifyInstance, context: HttpApiContext) => void;
