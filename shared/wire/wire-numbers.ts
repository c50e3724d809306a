/** Bounds of the numbers in messages between daemons. A test compares the tables with the .proto files: every number has a bound. */
import { EPOCH_LIMIT } from './epochs.js';
import { MOST_SHARE } from './limits.js';

/** Greatest mean or duration in milliseconds; it is more than eleven days. */
const DURATION_MS = 1e9;
/** Greatest uptime of a daemon: 139 years. */
const UPTIME_MS = 2 ** 42;
/** Greatest count of events that happen in passes: one event a microsecond reaches it in nine years. */
const COUNT = 2 ** 48;
/** Most bytes that were moved since a start, or that exist: an exbibyte. */
const BYTES = 2 ** 60;
/** Most experts for which a machine has slots, or that it holds. */
const EXPERTS = 2 ** 26;
/** Greatest number that is sent back unchanged. */
const ECHO = Number.MAX_SAFE_INTEGER;

/** The greatest value of each field, checked when the message is decoded. The least value is 0; NaN is refused. */
export const NUMBER_BOUNDS = {
  StreamError: { requestId: ECHO, epoch: EPOCH_LIMIT },
  NodeStatus: {
    epoch: EPOCH_LIMIT,
    uptimeMs: UPTIME_MS,
    loadMsMean: DURATION_MS,
    executeMsMean: DURATION_MS,
    shortExecuteMsMean: DURATION_MS,
    residentMemoryBytes: BYTES,
    deviceMemoryUsedBytes: BYTES,
    deviceMemoryHighWaterBytes: BYTES,
    deviceMemoryBudgetBytes: BYTES,
    deviceContextBytes: BYTES,
    deviceDriverUsedBytes: BYTES,
    weightBytes: BYTES,
    slotBytes: BYTES,
    keyValueBytes: BYTES,
    prefixBytes: BYTES,
    storageReadBytes: BYTES,
    loads: COUNT,
    reloads: COUNT,
    headLoads: COUNT,
    evictions: COUNT,
    executions: COUNT,
    staleMessages: COUNT,
    latePredictions: COUNT,
    droppedPredictions: COUNT,
    predictedPositions: COUNT,
    alignedTokens: COUNT,
    alignedKvRows: COUNT,
    fetchNeededBytes: BYTES,
    fetchHeldBytes: BYTES,
    fetchReceivedBytes: BYTES,
    fetchReadyFor: COUNT,
    slots: EXPERTS,
    slotsInUse: EXPERTS,
    damagedExperts: EXPERTS,
  },
  PlacedWorker: { slots: EXPERTS, homeShare: MOST_SHARE },
  Count: { count: COUNT },
  HostMemoryStatus: {
    experts: EXPERTS,
    budgetBytes: BYTES,
    heldBytes: BYTES,
    loads: COUNT,
    loadedBytes: BYTES,
    filledBytes: BYTES,
  },
  CacheStatus: { bytes: BYTES, misses: COUNT, packed: COUNT },
  PoolCounts: { full: COUNT, compressed: COUNT, signMantissa: COUNT, exponent: COUNT },
  Placement: { epoch: EPOCH_LIMIT },
  Prospect: { number: COUNT },
  PassRow: { sequence: EPOCH_LIMIT },
  RowRun: { sequence: EPOCH_LIMIT },
  Predict: { epoch: EPOCH_LIMIT },
  Announce: { epoch: EPOCH_LIMIT },
  Restart: { epoch: EPOCH_LIMIT, sequence: EPOCH_LIMIT },
  EndSequence: { sequence: EPOCH_LIMIT },
  Execute: { requestId: ECHO, epoch: EPOCH_LIMIT },
  Release: { epoch: EPOCH_LIMIT },
  ExecuteResult: { requestId: ECHO, epoch: EPOCH_LIMIT },
  BeginSequence: { epoch: EPOCH_LIMIT, sequence: EPOCH_LIMIT, prefixSequence: EPOCH_LIMIT },
  AlignToken: { epoch: EPOCH_LIMIT, sequence: EPOCH_LIMIT },
  DraftToken: { epoch: EPOCH_LIMIT, sequence: EPOCH_LIMIT },
  AlignRows: { epoch: EPOCH_LIMIT, sequence: EPOCH_LIMIT },
  PrefixKept: { sequence: EPOCH_LIMIT },
} as const satisfies Record<string, Record<string, number>>;

export type BoundedMessage = keyof typeof NUMBER_BOUNDS;

/** Fields that only their receiver can judge, and which it checks; and numbers of 32 bits to which nothing is added. */
export const CHECKED_ELSEWHERE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  NodeIdentity: {
    protocolVersion: 'versions.ts: compared with own numbers',
    newestProtocol: 'versions.ts: compared with own numbers',
    arithmeticVersion: 'versions.ts: compared with the own number',
  },
  Welcome: {
    highestEpoch:
      'Roster.goAbove: what is above PEER_EPOCH_LIMIT is passed over, as it may have come from a false main',
  },
  Placement: {
    layers: "held against the model's",
    experts: "held against the model's",
    expertsPerToken: 'asked of the model, not of the placement',
    homes: 'strict-homes.ts: no more than workers',
  },
  PassRow: { position: 'compared with others of its sequence' },
  RowRun: { position: 'message-rules.ts', rows: 'message-rules.ts: ROWS_LIMIT' },
  Announce: {
    layer: 'checkExpectedExperts',
    experts: 'checkExpectedExperts',
    critical: 'message-rules.ts: some of the experts',
  },
  Restart: { position: 'compared with others of its sequence' },
  Predict: {
    layer: "held against the model's",
    experts: "held against the model's",
    workers: 'announced-by-prediction.ts',
    runUs: 'shown',
    critical: 'message-rules.ts: some of the experts',
  },
  Execute: { layer: 'checkExecute', hiddenSize: 'checkExecute' },
  ExpertRows: { expert: 'checkExecute', rows: 'message-rules.ts', upper: 'message-rules.ts' },
  Release: { layer: 'checkExpectedExperts', experts: 'checkExpectedExperts' },
  ExecuteResult: { hiddenSize: 'WorkerLink: the size that was asked for' },
  KeptExperts: { experts: 'WorkerLink: experts of the model, each once' },
  ExpertResult: {
    expert: 'WorkerLink: one that was asked for',
    rows: 'WorkerLink: as many as were asked for',
    stallUs: 'shown, in means',
    executeUs: 'shown, in means',
    loadUs: 'shown',
    loadedBeforeUs: 'shown',
    begunUs: 'shown',
    answeredUs: 'shown, in means',
    calledUs: 'shown, in means',
    endedUs: 'shown, in means',
  },
  BeginSequence: {
    tokenIds: 'checkStart',
    promptTokens: 'checkStart',
    maxPositions: 'checkStart',
    prefixPositions: 'checkStart',
    alignTokenPeriod: 'divides positions',
    alignKvPeriod: 'divides positions',
    criticalTheta: 'compared with weights',
  },
  AlignToken: {
    position: 'checkToken: the next one',
    tokenId: 'checkToken',
    branch: 'main says it, whose drafts they are',
    rows: 'alignment.ts',
    nextRows: 'alignment.ts',
  },
  WorkerKept: {
    worker: 'PredictionDealer: one of the placement',
    layer: 'PredictionDealer',
    experts: 'PredictionDealer',
  },
  DraftToken: {
    position: 'DraftBook: the next ones',
    tokenId: 'ShadowLink',
    branch: "DraftBook: main's own or none",
    passPosition: 'ShadowLink: no more than position',
    runUs: 'DraftCostMeter: SHADOW_TOKEN_LIMIT_MS',
  },
  AlignRows: { layer: 'checkAlignedRows', position: 'checkAlignedRows', rows: 'checkAlignedRows' },
  PrefixKept: { positions: 'AlignmentSender.prefixKept: no more than was asked about' },
  PackDescription: { layers: 'message-rules.ts', experts: 'message-rules.ts' },
  ReadPackRequest: { offsetBytes: 'message-rules.ts', lengthBytes: 'message-rules.ts' },
};

/**
 * Messages between main and its clients. generate-validation.ts checks the numbers of requests; those of answers and figures are only shown. The
 * same holds for the texts.
 */
export const MESSAGES_OF_USERS: readonly string[] = [
  'GenerateRequest',
  'SamplingOptions',
  'LogitBias',
  'PromptLogprobs',
  'PromptToken',
  'Started',
  'TokenLogprob',
  'Token',
  'Finished',
  'Timing',
  'SepMetrics',
  'DraftMetrics',
  'LogicalCacheMetrics',
  'StatusReply',
  'PassCounts',
  'Verification',
  'LayerWait',
  'WorkerWait',
  'WorkerHops',
  'HopStages',
  'LinkBytes',
  'GenerateReply',
  'ChatMessage',
  'ToolCall',
  'TemplateArgument',
  'OutputPart',
  'SchemaText',
  'PeerProblem',
  'TrustStatus',
  'WaitingMachine',
  'AcceptRequest',
  'AcceptReply',
  'CreateTokenRequest',
  'CreateTokenReply',
  'ListTokensReply',
  'JoinTokenLine',
  'RevokeTokenRequest',
  'ListNodesReply',
  'ListedNode',
  'RemoveNodeRequest',
  'RemoveNodeReply',
  'DrainRequest',
  'DrainReply',
  'DrainedNode',
];
