import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';

/** Tiny packs of test/fixtures/packs: kept, so that what a library makes of a chunk is the same everywhere. */
export const SCENARIO_MODELS = [
  ...(['four-experts', 'six-experts', 'one-of-three', 'three-of-five'] as const),
  ...(['delta-nets', 'latent-attention', 'mxfp4-experts', 'short-convolutions', 'dense-ends'] as const),
] as const;
export type ScenarioModel = (typeof SCENARIO_MODELS)[number];

/** What may happen to a cluster. */
export const FAULT_KINDS = [
  'kill',
  'restart',
  'stopAndContinue',
  'join',
  'leave',
  'cutOneWay',
  'cutBothWays',
  'slowLink',
  'stalledLink',
  'failingReads',
  'slowReads',
  'flippedBits',
  'shortPieces',
  'wrongPieces',
  'falseHoldings',
  'falseValues',
  'slowDevice',
  'deviceLost',
  'memoryRefused',
  'nonsense',
  'secondMain',
  'staleMessages',
  'wallClockJump',
  'changeAddress',
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Cases for which much must come together, so that plain chance hardly draws them: a scenario of a theme is made for its case. */
export const THEMES = ['none', 'shortMemory', 'manyFetches', 'endingMembers', 'shadowBehind'] as const;
export type Theme = (typeof THEMES)[number];

/** Latency and speed of all links. */
export interface DrawnLink {
  latencyMs: number;
  jitterMs: number;
  bytesPerMs: number;
}

/** What operations of all devices take; all 0: no time at all. */
export interface DrawnPace {
  denseMs: number;
  expertMs: number;
  lmHeadMs: number;
  loadMs: number;
}

/** One fault: from a time on, for a while, at a node or between two. */
export interface Fault {
  kind: FaultKind;
  atMs: number;
  /** How long it lasts; what was killed or has left comes back when it is over. */
  forMs: number;
  /** Id of the node that it happens to. */
  node: string;
  /** Of faults of links: the other end. */
  peer: string;
  /** What the fault draws of its own. */
  seed: number;
}

/** How a request's prompt begins as an earlier one does. */
export const SHARED_BEGINNINGS = ['same', 'longer', 'shorter', 'nextTurn'] as const;
export type SharedBeginning = (typeof SHARED_BEGINNINGS)[number];

/** A request of a client. */
export interface ScenarioRequest {
  atMs: number;
  request: GenerateRequest;
  /** What its prompt has in common with an earlier one's; null: nothing is drawn to be. */
  begins: SharedBeginning | null;
  /** The next turn of a conversation: this one's prompt and answer stand before its own prompt. Null: nothing does. */
  follows: GenerateRequest | null;
  /** The client goes away so long after it has asked; null: it waits for the answer. */
  cancelAfterMs: number | null;
  /** How long it takes over each token before it reads on. */
  readMs: number;
}

export interface ScenarioNode {
  settings: NodeSettings;
  /** When it is started. */
  startMs: number;
  /** Its machine's wall clock less the first one's. */
  wallSkewMs: number;
  /** It fetches its experts from main. */
  fetches: boolean;
}

/** Everything that a seed decides about one simulated cluster. Plain data: what makes it smaller can be tried. */
export interface Scenario {
  seed: number;
  theme: Theme;
  model: ScenarioModel;
  nodes: ScenarioNode[];
  link: DrawnLink;
  pace: DrawnPace;
  requests: ScenarioRequest[];
  faults: Fault[];
  /** Nobody has asked for anything for a while then: what is held is compared. */
  restsMs: readonly number[];
  /** All faults are over by then, and everything that belongs to the cluster runs again. */
  calmMs: number;
}

export const MAIN = 'main';
/** Requests and faults begin within so long. */
export const BUSY_MS = 1500;
