/**
 * What `GET /cluster/events` tells (server-sent events; docs/http.md): one JSON object an event, its `type` as the event's name too. All
 * members are there in every event of a type. Ids are those of the nodes; times are milliseconds, and times with "At" count from main's
 * start. Nothing of prompts, answers or keys is told.
 */
export type ClusterEvent =
  | { type: 'cluster'; cluster: ClusterData }
  | { type: 'figures'; samples: FigureSample[] }
  | { type: 'recall'; recall: RecallView }
  | { type: 'heat'; heat: ExpertHeat }
  | { type: 'pass'; pass: PassTrace };

export type NodeRole = 'main' | 'shadow' | 'worker';

/** At once, then every second, and as soon as a node comes or goes. */
export interface ClusterData {
  atMs: number;
  name: string;
  release: string;
  model: { name: string; family: string; parameters: number; weightFormat: string; contextPositions: number };
  expertLayers: number;
  experts: number;
  expertsPerToken: number;
  nodes: NodeView[];
  /** Workers' ids by group; layer l is served by group l mod groups.length. */
  groups: string[][];
  groupReason: string;
  activeRequests: number;
  queuedRequests: number;
  /** What is wrong, and what to do about it. */
  problems: ProblemView[];
  /** The command that joins another box as a worker. */
  joinCommand: string;
  /** Main has a loopback address: no other box can join. */
  isThisMachineOnly: boolean;
}

export interface ProblemView {
  /** Empty: of no node in particular. */
  node: string;
  /** A code of docs/errors.md. */
  code: string;
  message: string;
  /** What to do about it. */
  advice: string;
}

export interface NodeView {
  id: string;
  role: NodeRole;
  /** 'lost': it was there, and is so no longer. 'fetching': its experts are not all on its disk. */
  state: 'up' | 'fetching' | 'lost';
  /** A worker in main's own process: its memory is a part of main's. */
  isOnMain: boolean;
  /** Why it was lost; empty: it was not. */
  reason: string;
  /** Of a worker; null: a spare, or no worker. */
  group: number | null;
  device: string;
  deviceReason: string;
  release: string;
  address: string;
  uptimeMs: number;
  memory: MemoryView;
  /** Of main with this node; null: main itself, or lost. */
  /** `roundTripMs`: of the keepalive's questions; 0: none was answered yet. */
  link: { roundTripMs: number; sentBytes: number; receivedBytes: number } | null;
  /** Workers: what main waits for it, on the mean of the last passes; null: it has run nothing. */
  waits: { waitMs: number; stallMs: number; executeMs: number; otherMs: number; lastShare: number } | null;
  /** Workers: where the time of main's messages goes that load nothing, of the last ones; null: there were none. */
  hops: { median: HopView; p99: HopView } | null;
  /** Workers; null: no worker. */
  slots: { count: number; inUse: number } | null;
  loads: number;
  reloads: number;
  loadMsMean: number;
  executeMsMean: number;
  storageReadBytes: number;
  /** Null: it fetches nothing. */
  fetch: { heldBytes: number; neededBytes: number; receivedBytes: number; problem: string } | null;
}

/** Stages of a hop main -> worker -> main; they add up to its round trip in the mean, not in medians. */
export interface HopView {
  roundTripMs: number;
  transitMs: number;
  callMs: number;
  handOffMs: number;
  executeMs: number;
  replyMs: number;
}

/** Of a node's device. */
export interface MemoryView {
  /** Taken by the driver before anything was allocated. */
  contextBytes: number;
  weightBytes: number;
  /** Keys, values and states of sequences. */
  keyValueBytes: number;
  /** Of these: of prefixes that no request uses at present. */
  prefixBytes: number;
  slotBytes: number;
  cacheBytes: number;
  /** Scratch of passes, staging, and what is kept for reuse. */
  otherBytes: number;
  usedBytes: number;
  highWaterBytes: number;
  /** 0: no limit. */
  budgetBytes: number;
  /** Of the process, on the host. */
  residentBytes: number;
}

/** One second. At once those of the last ten minutes, then one by one. */
export interface FigureSample {
  atMs: number;
  tokensPerS: number;
  /** Of answers whose first token came in this second, on the mean; null: none did. */
  ttftMs: number | null;
  /** Experts that had been predicted, of those that were activated; null: none were predicted for. */
  recall: number | null;
  reloadsPerS: number;
  /** Drafts that proved right, of those that were run; null: none was. */
  draftsRight: number | null;
  loadsPerS: number;
  loadBytesPerS: number;
  activeRequests: number;
  queuedRequests: number;
  /** Passes, and rows of them, so that rows a pass can be told. */
  passes: number;
  rows: number;
}

/** OD-MoE equation 2 over all answers since main's start: entry n is of iteration n + 1. Every five seconds. */
export interface RecallView {
  correct: number[];
  activated: number[];
}

/** How often rows chose each expert, the latest counting most: expertLayers x experts, row by row. Every five seconds. */
export interface ExpertHeat {
  expertLayers: number;
  experts: number;
  counts: number[];
}

/**
 * One pass of main's, its times relative to its begin on main's clock. Workers tell how long things took, and main when their messages
 * went and came; so no clocks need to agree. The last ones at once, then as they come, at most PASS_EVENTS_PER_S.
 */
export interface PassTrace {
  /** Rises by one from pass to pass: some may be left out. */
  number: number;
  atMs: number;
  members: { sequence: number; position: number; rows: number; kind: 'decode' | 'prompt' }[];
  durationMs: number;
  layers: LayerTrace[];
  predictions: PredictionTrace[];
}

export interface LayerTrace {
  layer: number;
  /** Main begins with attention; its router has chosen; all outputs are there; they are summed. */
  beginMs: number;
  routedMs: number;
  answeredMs: number;
  endMs: number;
  experts: ExpertTrace[];
}

export interface ExpertTrace {
  expert: number;
  worker: string;
  rows: number;
  /** How the expert was foretold when the router chose. 'announced': all of the layer were told to load. 'unpredicted': nobody predicts. */
  foretold: 'predicted' | 'late' | 'missed' | 'announced' | 'unpredicted';
  /** Loaded after the router's choice, or sent again. */
  reloaded: boolean;
  /** Main's message goes; it reaches the worker (reckoned as half of what the way and back took). */
  sentMs: number;
  arrivedMs: number;
  /** Of the load that brought it. Null: it was there from an earlier pass. */
  loadBeginMs: number | null;
  loadEndMs: number | null;
  executeBeginMs: number;
  executeEndMs: number;
  /** The result reaches main. */
  receivedMs: number;
}

/** A prediction of shadow's, as it reached main; negative: before the pass began. */
export interface PredictionTrace {
  sequence: number;
  layer: number;
  receivedMs: number;
  /** What shadow's own pass had taken by then. */
  runMs: number;
  experts: number[];
}

/** Most passes a second that are told; of passes with very many experts fewer are. */
export const PASS_EVENTS_PER_S = 5;
/** Passes that whoever begins to listen is told at once. */
export const PASSES_KEPT = 32;
/** Seconds of figures that whoever begins to listen is told at once. */
export const FIGURES_KEPT_S = 600;
