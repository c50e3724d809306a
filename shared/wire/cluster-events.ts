/**
 * The events of `GET /cluster/events` (server-sent events; docs/http.md): one JSON object an event, with its `type` as the event's name, too.
 * Every event of a type has all its members. Ids are those of the nodes. Times are milliseconds; times with "At" count from main's start. Events
 * hold nothing of prompts, answers or keys.
 */
export type ClusterEvent =
  | { type: 'cluster'; cluster: ClusterData }
  | { type: 'figures'; samples: FigureSample[] }
  | { type: 'recall'; recall: RecallView }
  | { type: 'heat'; heat: ExpertHeat }
  | { type: 'pass'; pass: PassTimeline };

export type NodeRole = 'main' | 'shadow' | 'worker';

/** Sent at once, then every second, and as soon as a node comes or goes. */
export interface ClusterData {
  atMs: number;
  name: string;
  release: string;
  model: {
    name: string;
    family: string;
    parameters: number;
    weightFormat: string;
    contextPositions: number;
    /** Most positions that the model was made for. */
    madeForPositions: number;
    /** How answers are computed: "exact", "fast" (tensor cores of a GPU), or a quality such as "sliced(8,4,low)". */
    arithmetic: string;
  };
  expertLayers: number;
  experts: number;
  expertsPerToken: number;
  nodes: NodeView[];
  /** Workers' ids by group; layer l is served by group l mod groups.length. */
  groups: string[][];
  groupReason: string;
  activeRequests: number;
  queuedRequests: number;
  /** Problems of the cluster, with their remedies. */
  problems: ProblemView[];
  /** The command that joins another machine as a worker. */
  joinCommand: string;
  /** Main has a loopback address, so no other machine can join. */
  isThisMachineOnly: boolean;
  /** True: a machine joins by a code or a token. False: main takes every machine that reaches it. */
  hasAuthority: boolean;
  /** Machines that show a code and wait to be let in. */
  waitingMachines: number;
  /** Other machines reach main, and the cluster has no authority. */
  isInsecure: boolean;
}

export interface ProblemView {
  /** Id of the node; empty: the problem concerns no single node. */
  node: string;
  /** A code of docs/errors.md. */
  code: string;
  message: string;
  /** The remedy. */
  advice: string;
}

export interface NodeView {
  id: string;
  role: NodeRole;
  /**
   * 'lost': the node was there and is gone. 'fetching': some of its experts are not on its disk yet. 'draining': it was drained and is not done;
   * 'mayGo': it was drained, and its daemon may be stopped.
   */
  state: 'up' | 'fetching' | 'draining' | 'mayGo' | 'lost';
  /** Of a drained worker: bytes of its experts that others still fetch; answers wait for them if it goes before. Else 0. */
  othersLackBytes: number;
  /** True for a worker in main's own process: its memory is a part of main's. */
  isOnMain: boolean;
  /** The reason for the loss; empty: the node is not lost. */
  reason: string;
  /** Group of a worker; null: a spare, or not a worker. */
  group: number | null;
  device: string;
  deviceReason: string;
  release: string;
  address: string;
  uptimeMs: number;
  memory: MemoryView;
  /** The link from main to this node; null for main itself, and for a lost node. */
  /** `roundTripMs`: round trip of the keepalive; 0: no question has been answered yet. */
  link: { roundTripMs: number; sentBytes: number; receivedBytes: number } | null;
  /** For workers: main's waits for this worker, as the mean of the last passes; null: it has run nothing. */
  waits: { waitMs: number; stallMs: number; executeMs: number; otherMs: number; lastShare: number } | null;
  /** For workers: the stages of main's latest messages that needed no load; null: there were none. */
  hops: { median: HopView; p99: HopView } | null;
  /** For workers; null: not a worker. */
  slots: { count: number; inUse: number } | null;
  loads: number;
  reloads: number;
  loadMsMean: number;
  executeMsMean: number;
  storageReadBytes: number;
  /** Null: the node fetches nothing. */
  fetch: { heldBytes: number; neededBytes: number; receivedBytes: number; problem: string } | null;
}

/** Stages of a hop main -> worker -> main. Their means add up to the mean round trip; their medians do not. */
export interface HopView {
  roundTripMs: number;
  transitMs: number;
  callMs: number;
  handOffMs: number;
  executeMs: number;
  replyMs: number;
}

/** Memory of a node's device. */
export interface MemoryView {
  /** Memory that the driver took before anything was allocated. */
  contextBytes: number;
  weightBytes: number;
  /** Keys, values and states of all sequences. */
  keyValueBytes: number;
  /** The part of keyValueBytes that belongs to prefixes which no request uses at present. */
  prefixBytes: number;
  slotBytes: number;
  cacheBytes: number;
  /** Scratch memory of passes, staging, and memory that is retained for reuse. */
  otherBytes: number;
  usedBytes: number;
  highWaterBytes: number;
  /** 0: no limit. */
  budgetBytes: number;
  /** Host memory of the process. */
  residentBytes: number;
}

/** The figures of one second. The last ten minutes are sent at once, then one sample at a time. */
export interface FigureSample {
  atMs: number;
  tokensPerS: number;
  /** Mean TTFT of the answers whose first token came in this second; null: there were none. */
  ttftMs: number | null;
  /** Share of the activated experts that had been predicted; null: no predictions were made. */
  recall: number | null;
  reloadsPerS: number;
  /** Share of the drafts in passes that proved right; null: there were no drafts. */
  draftsRight: number | null;
  loadsPerS: number;
  loadBytesPerS: number;
  activeRequests: number;
  queuedRequests: number;
  /** Passes, and their rows; from both follow the rows of a pass. */
  passes: number;
  rows: number;
}

/** OD-MoE equation 2 over all answers since main's start: entry n is of iteration n + 1. Sent every five seconds. */
export interface RecallView {
  correct: number[];
  activated: number[];
}

/** Numbers of rows that chose each expert, the latest counting most: expertLayers x experts, row by row. Sent every five seconds. */
export interface ExpertHeat {
  expertLayers: number;
  experts: number;
  counts: number[];
}

/**
 * One pass of main's. Its times are relative to its begin on main's clock. Workers report durations, and main records when its messages leave
 * and arrive, so the clocks need not agree. The last passes are sent at once, then each as it comes, at most PASS_EVENTS_PER_S.
 */
export interface PassTimeline {
  /** Rises by one from pass to pass. Some passes may be left out. */
  number: number;
  atMs: number;
  members: { sequence: number; position: number; rows: number; kind: 'decode' | 'prompt' }[];
  durationMs: number;
  layers: LayerTimeline[];
  predictions: PredictionTimeline[];
}

export interface LayerTimeline {
  layer: number;
  /** Main begins with attention; its router has chosen; all outputs have arrived; they are summed. */
  beginMs: number;
  routedMs: number;
  answeredMs: number;
  endMs: number;
  experts: ExpertTimeline[];
}

/**
 * State of an expert's prediction when the router chose it. 'missed': the layer had predictions, without this expert. 'announced': all experts of the
 * layer were announced. 'unpredicted': no predictions are made.
 */
export type PredictionOutcome = 'predicted' | 'late' | 'missed' | 'announced' | 'unpredicted';

export interface ExpertTimeline {
  expert: number;
  worker: string;
  rows: number;
  foretold: PredictionOutcome;
  /** Loaded after the router's choice, or requested again. */
  reloaded: boolean;
  /** Main's message leaves; it reaches the worker (estimated as half of the time there and back). */
  sentMs: number;
  arrivedMs: number;
  /** Times of the expert's load. Null: an earlier pass had loaded it. */
  loadBeginMs: number | null;
  loadEndMs: number | null;
  executeBeginMs: number;
  executeEndMs: number;
  /** Time at which the result reaches main. */
  receivedMs: number;
}

/** One prediction of shadow, as it reached main. A negative time is before the begin of the pass. */
export interface PredictionTimeline {
  sequence: number;
  layer: number;
  receivedMs: number;
  /** Time that shadow's own pass had taken by then. */
  runMs: number;
  experts: number[];
}

/** Most passes a second that are sent. If passes have very many experts, fewer are sent. */
export const PASS_EVENTS_PER_S = 5;
/** Passes that a new listener gets at once. */
export const RECORDED_PASSES = 32;
/** Seconds of figures that a new listener gets at once. */
export const REMEMBERED_FIGURES_S = 600;
