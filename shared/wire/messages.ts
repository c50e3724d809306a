/**
 * The messages of proto/odmoe/v1 as TypeScript sees them (proto-loader options: camelCase, longs as number, enums as
 * string, bytes as Buffer, defaults filled in, `kind` names the member of a oneof that is set). A test holds these
 * against the .proto files.
 */
import type { CacheStatus, HostMemoryStatus } from './kept-experts.js';
import type { SamplingMessage } from './sampling-options.js';
import type { Execute, ExecuteResult, Prediction, PrefixKept, Release } from './layer-messages.js';
import type { AlignToken, DraftToken } from './shadow-messages.js';
import type { LayerWait, LinkBytes, PassCounts, WorkerHops, WorkerWait } from './wait-messages.js';

export type * from './layer-messages.js';
export type * from './shadow-messages.js';
export type * from './wait-messages.js';

export type RoleName = 'ROLE_UNSPECIFIED' | 'ROLE_MAIN' | 'ROLE_SHADOW' | 'ROLE_WORKER';

export interface NodeIdentity {
  id: string;
  role: RoleName;
  cluster: string;
  protocolVersion: number;
  modelName: string;
  packDigest: string;
  bootId: string;
  address: string;
  device: string;
  /** Version of odmoe. */
  release: string;
}

export interface Refusal {
  code: string;
  message: string;
}

export interface Welcome {
  identity: NodeIdentity;
  partialPack: boolean;
  highestEpoch: number;
}

export interface StreamError {
  code: string;
  message: string;
  requestId: number;
  epoch: number;
}

export interface NodeStatus {
  identity: NodeIdentity;
  epoch: number;
  uptimeMs: number;
  residentMemoryBytes: number;
  deviceMemoryUsedBytes: number;
  deviceMemoryHighWaterBytes: number;
  deviceMemoryBudgetBytes: number;
  deviceName: string;
  deviceReason: string;
  deviceContextBytes: number;
  /** null: the driver does not tell, or there is none. */
  deviceDriverUsedBytes: number | null;
  /** Main and shadow: the model's weights. */
  weightBytes: number;
  /** Main: how its BF16 matrices are kept, 'bf16' or 'fixed4', or the form that the model is shipped in; '': not told. */
  weightFormat: string;
  slots: number;
  slotsInUse: number;
  slotBytes: number;
  loads: number;
  reloads: number;
  evictions: number;
  executions: number;
  storageReadBytes: number;
  loadMsMean: number;
  executeMsMean: number;
  staleMessages: number;
  latePredictions: number;
  droppedPredictions: number;
  predictedPositions: number;
  alignedTokens: number;
  alignedKvRows: number;
  cache: CacheStatus | null;
  fetchNeededBytes: number;
  fetchHeldBytes: number;
  fetchReceivedBytes: number;
  fetchReadyFor: number;
  fetchProblem: string;
  /** Their bytes on the disk are damaged, and they have not been loaded since. */
  damagedExperts: number;
  /** Main and shadow: keys, values and states of sequences. */
  keyValueBytes: number;
  /** Of these: what prefixes hold that no request uses at present. */
  prefixBytes: number;
  /** Workers; null: none is used. */
  hostMemory: HostMemoryStatus | null;
}

export interface PlacedWorker {
  id: string;
  address: string;
  slots: number;
}

export interface WorkerGroup {
  workerIds: string[];
}

/** Layer l is served by groups[l mod groups.length]. */
export interface Placement {
  epoch: number;
  workers: PlacedWorker[];
  groups: WorkerGroup[];
  layers: number;
  experts: number;
  expertsPerToken: number;
  /** Workers that each expert has of its own; 0: experts belong to the group of their layer. */
  homes: number;
  /** Each worker may be asked for experts of every layer. */
  spread?: boolean;
}

export interface Prospect {
  number: number;
  placement: Placement;
  sources: string[];
}

export type WorkerRequest =
  | { kind: 'hello'; hello: NodeIdentity }
  | { kind: 'placement'; placement: Placement }
  | { kind: 'prediction'; prediction: Prediction }
  | { kind: 'execute'; execute: Execute }
  | { kind: 'release'; release: Release }
  | { kind: 'prospect'; prospect: Prospect }
  | { kind: 'end'; end: EndSequence };

export type WorkerReply =
  | { kind: 'welcome'; welcome: Welcome }
  | { kind: 'refusal'; refusal: Refusal }
  | { kind: 'result'; result: ExecuteResult }
  | { kind: 'error'; error: StreamError }
  | { kind: 'status'; status: NodeStatus };

export interface BeginSequence {
  epoch: number;
  sequence: number;
  tokenIds: number[];
  alignTokenPeriod: number;
  alignKvPeriod: number;
  promptTokens: number;
  maxPositions: number;
  optimistic: boolean;
  spread: boolean;
  /** How main samples, with its seed; null: greedy. */
  sampling: SamplingMessage | null;
  /** tokenIds begin as those of this sequence, of which shadow may have kept something. */
  prefixSequence?: number;
  /** 0 or left out: of none. */
  prefixPositions?: number;
}

/** Rows of a layer's cache, of all layers; values: rows x cacheRowFloats FP32 (shared/model/model-shape.ts). */
export interface AlignRows {
  epoch: number;
  sequence: number;
  layer: number;
  position: number;
  rows: number;
  values: Uint8Array;
}

export interface EndSequence {
  sequence: number;
}

export type ShadowRequest =
  | { kind: 'hello'; hello: NodeIdentity }
  | { kind: 'placement'; placement: Placement }
  | { kind: 'begin'; begin: BeginSequence }
  | { kind: 'token'; token: AlignToken }
  | { kind: 'cacheRows'; cacheRows: AlignRows }
  | { kind: 'end'; end: EndSequence };

export type ShadowReply =
  | { kind: 'welcome'; welcome: Welcome }
  | { kind: 'refusal'; refusal: Refusal }
  | { kind: 'prediction'; prediction: Prediction }
  | { kind: 'error'; error: StreamError }
  | { kind: 'status'; status: NodeStatus }
  | { kind: 'draft'; draft: DraftToken }
  | { kind: 'prefixKept'; prefixKept: PrefixKept };

export interface ChatMessage {
  role: string;
  content: string;
  /** Of an assistant: what it called. */
  toolCalls?: ToolCall[];
  /** Of a tool's result: the call that it answers, and the tool. Empty: none. */
  toolCallId?: string;
  name?: string;
  /** Of an assistant: what it thought before it answered. */
  reasoningContent?: string;
}

export interface ToolCall {
  id: string;
  name: string;
  /** JSON. */
  arguments: string;
}

/** A variable of the chat template; `value` is JSON. */
export interface TemplateArgument {
  name: string;
  value: string;
}

export interface GenerateRequest {
  text: string;
  messages: ChatMessage[];
  promptTokenIds: number[];
  raw: boolean;
  maxTokens: number;
  sampling: SamplingMessage | null;
  stop: string[];
  ignoreEos: boolean;
  logprobs: number;
  /** For prompts that go through the chat template; left out: none. */
  templateArguments?: TemplateArgument[];
  /** The last of `messages` is an assistant's that is not whole: the answer goes on with it. */
  continueLast?: boolean;
  /** With `logprobs`: those of the prompt's tokens, too. */
  promptLogprobs?: boolean;
  /** Special tokens stand in the answer's text by their names, but for the one that ends it. */
  showSpecialTokens?: boolean;
}

export interface Started {
  promptTokenIds: number[];
  seed: number;
}

/** Of prompt tokens [first, first + tokens.length). */
export interface PromptLogprobs {
  first: number;
  /** Of the prompt's very first token the log-probability is 0 and `top` is empty: nothing stands before it. */
  tokens: PromptToken[];
}

export interface PromptToken {
  logprob: number;
  top: TokenLogprob[];
}

export interface TokenLogprob {
  tokenId: number;
  logprob: number;
}

export interface TokenReply {
  tokenId: number;
  text: string;
  /** 0 where no log-probabilities were asked for. */
  logprob: number;
  top: TokenLogprob[];
}

export interface Timing {
  ttftMs: number;
  tpotMs: number;
  decodeTokensPerS: number;
  outputTokensPerS: number;
  queuedMs: number;
  ioStallMs: number;
}

export interface SepMetrics {
  recall: number;
  activated: number;
  predictedCorrectly: number;
  late: number;
  correctByIteration: number[];
  activatedByIteration: number[];
}

export interface Finished {
  finishReason: string;
  text: string;
  timing: Timing | null;
  sep: SepMetrics | null;
  reloads: number;
  nodes: NodeStatus[];
  /** null: main was not to use drafts. */
  drafts: DraftMetrics | null;
  /** The stop string that ended the answer; empty or left out: something else did. */
  stopString?: string;
  /** Leading tokens of the prompt that were not run, because an earlier request had the same ones. Left out: none. */
  cachedTokens?: number;
}

export interface DraftMetrics {
  proposed: number;
  accepted: number;
}

export type GenerateReply =
  | { kind: 'started'; started: Started }
  | { kind: 'prompt'; prompt: PromptLogprobs }
  | { kind: 'token'; token: TokenReply }
  | { kind: 'finished'; finished: Finished };

export type JoinReply = { kind: 'welcome'; welcome: Welcome } | { kind: 'refusal'; refusal: Refusal };

export interface PackDescription {
  packDigest: string;
  layers: number;
  experts: number;
  /** Bit layer * experts + expert, the lowest of a byte first. */
  heldExperts: Uint8Array;
  whole: boolean;
}

export interface ReadManifestRequest {
  packDigest: string;
}

export interface ReadPackRequest {
  packDigest: string;
  file: string;
  offsetBytes: number;
  lengthBytes: number;
}

export interface PackPiece {
  bytes: Uint8Array;
}

export interface PeerProblem {
  address: string;
  id: string;
  code: string;
  message: string;
}

/** How many things of one kind a daemon's process has. */
export interface Count {
  name: string;
  count: number;
}

export interface CountsReply {
  counts: Count[];
}

export interface StatusReply {
  nodes: NodeStatus[];
  placement: Placement | null;
  activeSequences: number;
  queuedRequests: number;
  problems: PeerProblem[];
  requests: number;
  tokens: number;
  /** Why groups have the size that they have; empty without a placement. */
  groupReason: string;
  /** Of layers and workers that decode has waited for. `workerHops` left out: not known. */
  layerWaits: LayerWait[];
  workerWaits: WorkerWait[];
  workerHops?: WorkerHops[];
  /** Of main with each peer that is connected. */
  links: LinkBytes[];
  /** Left out: not known. */
  passes?: PassCounts | null;
  /** "host:port" where main serves HTTP clients; empty: nowhere. */
  httpAddress: string;
  /** Of the worker in main's own process, whose memory is a part of main's; empty, or left out: there is none. */
  ownWorkerId?: string;
}
