import assert from 'node:assert/strict';
import { join } from 'node:path';
import protobuf from 'protobufjs';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type * as KeptExperts from '../../shared/wire/kept-experts.js';
import type * as Messages from '../../shared/wire/messages.js';
import type { OutputFormat, OutputSequence, SchemaText } from '../../shared/wire/output-format.js';
import type { LogitBias, SamplingMessage } from '../../shared/wire/sampling-options.js';

const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(packageRoot(), 'proto', target);
root.loadSync(['worker', 'shadow', 'inference', 'pack'].map((name) => `odmoe/v1/${name}.proto`));

/** The names of T's members: complete, because the compiler asks for each. */
type Names<T> = Record<keyof Required<T>, true>;

/** TypeScript's members of each message, by the message's name in the .proto files. */
const MEMBERS: Record<string, Record<string, true>> = {
  NodeIdentity: {
    id: true,
    role: true,
    cluster: true,
    protocolVersion: true,
    modelName: true,
    packDigest: true,
    bootId: true,
    address: true,
    device: true,
    release: true,
  } satisfies Names<Messages.NodeIdentity>,
  Count: { name: true, count: true } satisfies Names<Messages.Count>,
  CountsReply: { counts: true } satisfies Names<Messages.CountsReply>,
  Refusal: { code: true, message: true } satisfies Names<Messages.Refusal>,
  Welcome: { identity: true, partialPack: true, highestEpoch: true } satisfies Names<Messages.Welcome>,
  StreamError: { code: true, message: true, requestId: true, epoch: true } satisfies Names<Messages.StreamError>,
  NodeStatus: {
    identity: true,
    epoch: true,
    uptimeMs: true,
    residentMemoryBytes: true,
    deviceMemoryUsedBytes: true,
    deviceMemoryHighWaterBytes: true,
    deviceMemoryBudgetBytes: true,
    deviceName: true,
    deviceReason: true,
    deviceContextBytes: true,
    deviceDriverUsedBytes: true,
    weightBytes: true,
    weightFormat: true,
    slots: true,
    slotsInUse: true,
    slotBytes: true,
    loads: true,
    reloads: true,
    evictions: true,
    executions: true,
    storageReadBytes: true,
    loadMsMean: true,
    executeMsMean: true,
    staleMessages: true,
    latePredictions: true,
    droppedPredictions: true,
    predictedPositions: true,
    alignedTokens: true,
    alignedKvRows: true,
    cache: true,
    fetchNeededBytes: true,
    fetchHeldBytes: true,
    fetchReceivedBytes: true,
    fetchReadyFor: true,
    fetchProblem: true,
    damagedExperts: true,
    keyValueBytes: true,
    prefixBytes: true,
    hostMemory: true,
  } satisfies Names<Messages.NodeStatus>,
  HostMemoryStatus: {
    budgetBytes: true,
    heldBytes: true,
    experts: true,
    loads: true,
    loadedBytes: true,
    filledBytes: true,
  } satisfies Names<KeptExperts.HostMemoryStatus>,
  CacheStatus: {
    policy: true,
    bytes: true,
    capacities: true,
    kept: true,
    hits: true,
    misses: true,
    packed: true,
  } satisfies Names<KeptExperts.CacheStatus>,
  PoolCounts: {
    full: true,
    compressed: true,
    signMantissa: true,
    exponent: true,
  } satisfies Names<KeptExperts.PoolCounts>,
  PlacedWorker: { id: true, address: true, slots: true } satisfies Names<Messages.PlacedWorker>,
  WorkerGroup: { workerIds: true } satisfies Names<Messages.WorkerGroup>,
  Placement: {
    epoch: true,
    workers: true,
    groups: true,
    layers: true,
    experts: true,
    expertsPerToken: true,
    homes: true,
    spread: true,
  } satisfies Names<Messages.Placement>,
  Prospect: { number: true, placement: true, sources: true } satisfies Names<Messages.Prospect>,
  Prediction: {
    epoch: true,
    pass: true,
    rows: true,
    layer: true,
    experts: true,
    workers: true,
    restart: true,
    untold: true,
    runUs: true,
  } satisfies Names<Messages.Prediction>,
  Execute: {
    requestId: true,
    epoch: true,
    pass: true,
    rows: true,
    layer: true,
    experts: true,
    hiddenSize: true,
    dtype: true,
    hidden: true,
  } satisfies Names<Messages.Execute>,
  Release: { epoch: true, pass: true, rows: true, layer: true, experts: true } satisfies Names<Messages.Release>,
  PassRow: { sequence: true, position: true } satisfies Names<Messages.PassRow>,
  RowRun: { sequence: true, position: true, rows: true } satisfies Names<Messages.RowRun>,
  ExpertRows: { expert: true, rows: true, last: true } satisfies Names<Messages.ExpertRows>,
  ExpertFailure: { code: true, message: true } satisfies Names<Messages.ExpertFailure>,
  ExpertResult: {
    expert: true,
    rows: true,
    wasLoaded: true,
    stallUs: true,
    loadUs: true,
    loadedBeforeUs: true,
    begunUs: true,
    answeredUs: true,
    calledUs: true,
    endedUs: true,
    executeUs: true,
    output: true,
    failure: true,
  } satisfies Names<Messages.ExpertResult>,
  ExecuteResult: {
    requestId: true,
    epoch: true,
    hiddenSize: true,
    dtype: true,
    experts: true,
    last: true,
    kept: true,
  } satisfies Names<Messages.ExecuteResult>,
  KeptExperts: { experts: true } satisfies Names<Messages.KeptExperts>,
  BeginSequence: {
    epoch: true,
    sequence: true,
    tokenIds: true,
    alignTokenPeriod: true,
    alignKvPeriod: true,
    promptTokens: true,
    maxPositions: true,
    optimistic: true,
    spread: true,
    sampling: true,
    prefixSequence: true,
    prefixPositions: true,
  } satisfies Names<Messages.BeginSequence>,
  AlignToken: {
    epoch: true,
    sequence: true,
    position: true,
    tokenId: true,
    rows: true,
    nextRows: true,
    branch: true,
    joint: true,
    kept: true,
  } satisfies Names<Messages.AlignToken>,
  WorkerKept: { worker: true, layer: true, experts: true } satisfies Names<Messages.WorkerKept>,
  DraftToken: {
    epoch: true,
    sequence: true,
    position: true,
    tokenId: true,
    branch: true,
    passPosition: true,
    runUs: true,
  } satisfies Names<Messages.DraftToken>,
  AlignRows: {
    epoch: true,
    sequence: true,
    layer: true,
    position: true,
    rows: true,
    values: true,
  } satisfies Names<Messages.AlignRows>,
  EndSequence: { sequence: true } satisfies Names<Messages.EndSequence>,
  ChatMessage: {
    role: true,
    content: true,
    toolCalls: true,
    toolCallId: true,
    name: true,
    reasoningContent: true,
  } satisfies Names<Messages.ChatMessage>,
  ToolCall: { id: true, name: true, arguments: true } satisfies Names<Messages.ToolCall>,
  LogitBias: { tokenId: true, bias: true } satisfies Names<LogitBias>,
  OutputFormat: { alternatives: true } satisfies Names<OutputFormat>,
  OutputSequence: { parts: true } satisfies Names<OutputSequence>,
  OutputPart: { literal: true, jsonSchema: true, until: true, schemaText: true },
  SchemaText: { jsonSchema: true, without: true } satisfies Names<SchemaText>,
  PromptLogprobs: { first: true, tokens: true } satisfies Names<Messages.PromptLogprobs>,
  PromptToken: { logprob: true, top: true } satisfies Names<Messages.PromptToken>,
  SamplingOptions: {
    temperature: true,
    topK: true,
    topP: true,
    minP: true,
    repetitionPenalty: true,
    seed: true,
    presencePenalty: true,
    frequencyPenalty: true,
    logitBias: true,
    outputFormat: true,
  } satisfies Names<SamplingMessage>,
  GenerateRequest: {
    text: true,
    messages: true,
    promptTokenIds: true,
    raw: true,
    maxTokens: true,
    sampling: true,
    stop: true,
    ignoreEos: true,
    logprobs: true,
    templateArguments: true,
    continueLast: true,
    promptLogprobs: true,
    showSpecialTokens: true,
  } satisfies Names<Messages.GenerateRequest>,
  TemplateArgument: { name: true, value: true } satisfies Names<Messages.TemplateArgument>,
  Started: { promptTokenIds: true, seed: true } satisfies Names<Messages.Started>,
  TokenLogprob: { tokenId: true, logprob: true } satisfies Names<Messages.TokenLogprob>,
  Token: { tokenId: true, text: true, logprob: true, top: true } satisfies Names<Messages.TokenReply>,
  Timing: {
    ttftMs: true,
    tpotMs: true,
    decodeTokensPerS: true,
    outputTokensPerS: true,
    queuedMs: true,
    ioStallMs: true,
  } satisfies Names<Messages.Timing>,
  SepMetrics: {
    recall: true,
    activated: true,
    predictedCorrectly: true,
    late: true,
    correctByIteration: true,
    activatedByIteration: true,
  } satisfies Names<Messages.SepMetrics>,
  Finished: {
    finishReason: true,
    text: true,
    timing: true,
    sep: true,
    reloads: true,
    nodes: true,
    drafts: true,
    stopString: true,
    cachedTokens: true,
  } satisfies Names<Messages.Finished>,
  PrefixKept: { sequence: true, positions: true } satisfies Names<Messages.PrefixKept>,
  DraftMetrics: { proposed: true, accepted: true } satisfies Names<Messages.DraftMetrics>,
  PackDescription: {
    packDigest: true,
    layers: true,
    experts: true,
    heldExperts: true,
    whole: true,
  } satisfies Names<Messages.PackDescription>,
  ReadManifestRequest: { packDigest: true } satisfies Names<Messages.ReadManifestRequest>,
  ReadPackRequest: {
    packDigest: true,
    file: true,
    offsetBytes: true,
    lengthBytes: true,
  } satisfies Names<Messages.ReadPackRequest>,
  PackPiece: { bytes: true } satisfies Names<Messages.PackPiece>,
  PeerProblem: { address: true, id: true, code: true, message: true } satisfies Names<Messages.PeerProblem>,
  StatusReply: {
    nodes: true,
    placement: true,
    activeSequences: true,
    queuedRequests: true,
    passes: true,
    problems: true,
    requests: true,
    tokens: true,
    groupReason: true,
    layerWaits: true,
    workerWaits: true,
    workerHops: true,
    links: true,
    httpAddress: true,
    ownWorkerId: true,
  } satisfies Names<Messages.StatusReply>,
  LayerWait: {
    layer: true,
    passes: true,
    waitMs: true,
    stallMs: true,
    slowestWorker: true,
  } satisfies Names<Messages.LayerWait>,
  PassCounts: { passes: true, rows: true, preemptions: true, waiting: true } satisfies Names<Messages.PassCounts>,
  WorkerWait: {
    worker: true,
    executes: true,
    waitMs: true,
    stallMs: true,
    executeMs: true,
    otherMs: true,
    lastShare: true,
    costMs: true,
  } satisfies Names<Messages.WorkerWait>,
  WorkerHops: { worker: true, hops: true, median: true, p99: true } satisfies Names<Messages.WorkerHops>,
  HopStages: {
    roundTripMs: true,
    transitMs: true,
    callMs: true,
    handOffMs: true,
    executeMs: true,
    replyMs: true,
  } satisfies Names<Messages.HopStages>,
  LinkBytes: {
    peer: true,
    sentBytes: true,
    receivedBytes: true,
    roundTripMs: true,
  } satisfies Names<Messages.LinkBytes>,
};

/** Members of each union, by the message's name in the .proto files: all fields of its oneof `kind`. */
const KINDS: Record<string, Record<string, true>> = {
  WorkerRequest: {
    hello: true,
    placement: true,
    prediction: true,
    execute: true,
    release: true,
    prospect: true,
    end: true,
  } satisfies Kinds<Messages.WorkerRequest['kind']>,
  WorkerReply: { welcome: true, refusal: true, result: true, error: true, status: true } satisfies Kinds<
    Messages.WorkerReply['kind']
  >,
  ShadowRequest: { hello: true, placement: true, begin: true, token: true, cacheRows: true, end: true } satisfies Kinds<
    Messages.ShadowRequest['kind']
  >,
  ShadowReply: {
    welcome: true,
    refusal: true,
    prediction: true,
    error: true,
    status: true,
    draft: true,
    prefixKept: true,
  } satisfies Kinds<Messages.ShadowReply['kind']>,
  GenerateReply: { started: true, token: true, finished: true, prompt: true } satisfies Kinds<
    Messages.GenerateReply['kind']
  >,
  JoinReply: { welcome: true, refusal: true } satisfies Kinds<Messages.JoinReply['kind']>,
};
type Kinds<K extends string> = Record<K, true>;

/** Requests with nothing in them, or only an identity, that TypeScript names no interface for. */
const WITHOUT_INTERFACE = ['IdentifyRequest', 'CountsRequest', 'StatusRequest', 'JoinRequest', 'DescribePackRequest'];

const declared = root.lookup('odmoe.v1') as protobuf.Namespace;
const types = declared.nestedArray.filter((nested): nested is protobuf.Type => nested instanceof protobuf.Type);

describe('messages.ts and proto/odmoe/v1', () => {
  it('have the same messages', () => {
    const ours = [...Object.keys(MEMBERS), ...Object.keys(KINDS), ...WITHOUT_INTERFACE].sort();
    assert.deepEqual(types.map(({ name }) => name).sort(), ours);
  });

  for (const type of types.filter(({ name }) => !WITHOUT_INTERFACE.includes(name))) {
    it(`agree on the members of ${type.name}`, () => {
      const ours = MEMBERS[type.name] ?? KINDS[type.name] ?? {};
      assert.deepEqual(type.fieldsArray.map(({ name }) => name).sort(), Object.keys(ours).sort());
      if (type.name in KINDS) {
        assert.deepEqual(
          type.oneofsArray.map(({ name }) => name),
          ['kind'],
        );
      }
    });
  }

  it('agree on the names of enums', () => {
    const roles: Kinds<Messages.NodeIdentity['role']> = {
      ROLE_UNSPECIFIED: true,
      ROLE_MAIN: true,
      ROLE_SHADOW: true,
      ROLE_WORKER: true,
    };
    const tensors: Kinds<Messages.TensorType> = {
      TENSOR_TYPE_UNSPECIFIED: true,
      TENSOR_TYPE_F32: true,
      TENSOR_TYPE_BF16: true,
    };
    assert.deepEqual(Object.keys(declared.lookupEnum('Role').values), Object.keys(roles));
    assert.deepEqual(Object.keys(declared.lookupEnum('TensorType').values), Object.keys(tensors));
  });
});
