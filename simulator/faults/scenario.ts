import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';

/** Tiny packs of test/fixtures/packs. They are stored, so that their chunks are the same everywhere and do not depend on a library's version. */
export const SCENARIO_MODELS = [
  ...(['four-experts', 'six-experts', 'one-of-three', 'three-of-five'] as const),
  ...(['delta-nets', 'latent-attention', 'mxfp4-experts', 'short-convolutions', 'dense-ends'] as const),
  ...(['state-spaces', 'indexers', 'draft-head'] as const),
  ...(['chosen-blocks', 'pools', 'chosen-pools'] as const),
] as const;
export type ScenarioModel = (typeof SCENARIO_MODELS)[number];

/** Its pack has a head that drafts. */
export const MODEL_WITH_HEAD = 'draft-head' satisfies ScenarioModel;

/**
 * Models of attention to parts of what a sequence has: to blocks of positions that an indexer chooses (MiniMax-M3), to entries of pools, with residual streams
 * and experts by token (DeepSeek-V4), and to chosen pools, with Kimi delta attention (GLM-5-Next).
 */
export const MODELS_OF_PARTS = ['chosen-blocks', 'pools', 'chosen-pools'] as const satisfies readonly ScenarioModel[];

/** Faults that are drawn for any cluster. */
export const ANY_FAULTS = [
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
/** Events of a cluster with an authority: who is let in, who is removed, whose keys change, and who tries to get in without leave. */
export const TRUST_FAULTS = [
  'letIn',
  'renewal',
  'endOfOldKeys',
  'removal',
  'removalAndReturn',
  'strangerWithoutCertificate',
  'strangerOfOtherAuthority',
  'strangerWithRemovedKey',
  'strangerWithOthersKey',
  'oldRoster',
] as const;
export type TrustFaultKind = (typeof TRUST_FAULTS)[number];

/** Events that disturb no answer, no placement and no counter. */
export const HARMLESS_FAULTS: ReadonlySet<FaultKind> = new Set<TrustFaultKind>([
  'renewal',
  'strangerWithoutCertificate',
  'strangerOfOtherAuthority',
  'strangerWithRemovedKey',
  'strangerWithOthersKey',
]);

/**
 * Faults that may happen to a cluster. A worker gives false numbers only where main verifies executions: nothing else finds them. Drains are drawn by
 * themselves.
 */
export const FAULT_KINDS = [...ANY_FAULTS, 'falseNumbers', 'drain', ...TRUST_FAULTS] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** Special cases that need several conditions at once and that random drawing rarely produces: a scenario with a theme is made for its case. */
export const THEMES = ['none', 'shortMemory', 'manyFetches', 'endingMembers', 'shadowBehind', 'mainRestarts'] as const;
export type Theme = (typeof THEMES)[number];

/** Latency and speed of all links. */
export interface DrawnLink {
  latencyMs: number;
  jitterMs: number;
  bytesPerMs: number;
}

/** Times of operations on all devices; all 0: operations take no time. */
export interface DrawnPace {
  denseMs: number;
  expertMs: number;
  lmHeadMs: number;
  loadMs: number;
}

/** One fault: from a certain time, for some time, at one node or between two. */
export interface Fault {
  kind: FaultKind;
  atMs: number;
  /** Its duration; a node that was killed or has left starts again at its end. */
  forMs: number;
  /** Id of the affected node. */
  node: string;
  /** For faults of links: the node at the other end. */
  peer: string;
  /** Seed for the fault's random choices. */
  seed: number;
}

/** One event of a cluster with an authority. */
export type TrustFault = Fault & { kind: TrustFaultKind };

export function isTrustFault(kind: FaultKind): kind is TrustFaultKind {
  return TRUST_FAULTS.some((one) => one === kind);
}

/** Relations between the beginnings of a prompt and an earlier one. */
export const SHARED_BEGINNINGS = ['same', 'longer', 'shorter', 'nextTurn'] as const;
export type SharedBeginning = (typeof SHARED_BEGINNINGS)[number];

/** A request of a client. */
export interface ScenarioRequest {
  atMs: number;
  request: GenerateRequest;
  /** The relation of its prompt to an earlier one; null: no relation was drawn. */
  begins: SharedBeginning | null;
  /** The earlier turn of a conversation: its prompt and answer come before the prompt of this request. Null: there is none. */
  follows: GenerateRequest | null;
  /** Time after which the client goes away; null: it waits for the answer. */
  cancelAfterMs: number | null;
  /** Time that the client spends on each token before it reads the next one. */
  readMs: number;
}

export interface ScenarioNode {
  settings: NodeSettings;
  /** Time when it starts. */
  startMs: number;
  /** Its machine's wall clock minus that of the first machine. */
  wallSkewMs: number;
  /** True if it has no pack at first: a worker fetches its experts, a shadow main's whole pack. */
  fetches: boolean;
  /** True if its release speaks a newer protocol, too: an upgrade is under way. */
  isNewer: boolean;
}

/** Everything that a seed decides about one simulated cluster. Plain data, so that smaller scenarios can be tried. */
export interface Scenario {
  seed: number;
  theme: Theme;
  /** True if the cluster has an authority: its nodes have certificates, and nobody else gets in. */
  hasAuthority: boolean;
  model: ScenarioModel;
  nodes: ScenarioNode[];
  link: DrawnLink;
  pace: DrawnPace;
  requests: ScenarioRequest[];
  faults: Fault[];
  /** Times at which there has been no request for some time: the counts of held resources are compared. */
  restsMs: readonly number[];
  /** Time when all faults are over and all nodes of the cluster run again. */
  calmMs: number;
}

/** Requests and faults begin within this time. */
export const BUSY_MS = 1500;
