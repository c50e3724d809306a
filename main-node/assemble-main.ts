import type { NodeEnvironment } from '../engine/environment/node-environment.js';
import type { NodeSettings } from '../shared/settings/node-settings.js';
import { MAX_DRAFT_ROWS, mostSeparatePasses } from '../shared/settings/setting-limits.js';
import { machineAddress } from '../engine/daemon/advertised-address.js';
import type { GiveUp } from '../engine/daemon/run-daemon.js';
import type { Logger } from '../shared/base/log/logger.js';
import { spreadForDrafts, type UsableDrafts } from '../shared/decisions/placement/draft-rows.js';
import { isFirstLayerWorthAnnouncing } from '../shared/decisions/placement/first-layer-workers.js';
import { type FormatShare, formatShares } from '../shared/model/format-shares.js';
import { expertRowSize } from '../shared/model/model-shape.js';
import { allExperts } from '../shared/model/part-sizes.js';
import { meanWeightBytes, nominalLayerCosts } from '../shared/decisions/placement/group-size.js';
import { firstEpoch } from '../shared/wire/epochs.js';
import type { DrainedNode, DrainRequest, NodeIdentity, StatusReply } from '../shared/wire/messages.js';
import { withoutUnstated } from '../shared/wire/node-status.js';
import { PassLoop, type PassLoopOptions } from './batching/pass-loop.js';
import { drainNode } from './cluster/drain-node.js';
import { reportedProblems } from './cluster/reported-problems.js';
import { Membership } from './cluster/membership.js';
import { ownExpertsOf } from './cluster/own-experts.js';
import { observedBy } from './cluster/engine-observer.js';
import { type Grouping, Roster } from './cluster/roster.js';
import type { ShadowListener } from './cluster/shadow-link.js';
import { clusterCosts, type ClusterEngine } from './decode/cluster-engine.js';
import { announcingCosts } from './pass/choose-announced.js';
import { type ClusterCosts, DraftCostMeter } from './decode/draft-costs.js';
import { draftsOf, type EngineDrafting, engineDrafting } from './decode/engine-drafting.js';
import { HeadExperts, type HeadExpertsOptions } from './decode/head-experts.js';
import { CachedNews } from './decode/cached-news.js';
import { PredictionPost } from './decode/prediction-post.js';
import type { ClusterFeed } from './events/cluster-feed.js';
import type { ServedCluster } from './events/cluster-view.js';
import { problemsWithLost } from './events/lost-nodes.js';
import { MainEvents, type MainMoment } from './events/main-events.js';
import { isLoopbackHost } from '../shared/transport/credentials.js';
import type { Admission } from './enrolment/admission.js';
import { machinesOfDesk } from './enrolment/machines-of-desk.js';
import type { Machines, ServedMetrics, ServedModel } from '../http-api/http-api-context.js';
import { decisionRules } from '../engine/loading/open-for-quality.js';
import { arithmeticOf, type LoadedMain } from './load-main.js';
import type { ClusterFigures, RowFigures } from './metrics/cluster-metrics.js';
import { MainMetrics } from './metrics/main-metrics.js';
import { miniBatchRowsFor } from './pass/expert-work.js';
import type { PassEngine } from './pass/run-layer.js';
import { ReusablePasses } from './pass/reusable-passes.js';
import { JointDealer, AnnouncedPasses } from './pass/announcements.js';
import { PassRunner } from './pass/run-pass.js';
import { ExpertDispatcher } from './pass/expert-dispatcher.js';
import { LayerWaits } from './pass/layer-waits.js';
import { MapsTime } from './pass/maps-time.js';
import {
  createContextRoom,
  type ExpertMemory,
  leastAnswerBytes,
  type RoomComponents,
} from './room/create-context-room.js';
import type { RowStore } from './stored-rows/row-store.js';
import { ExecutionChecks, type ExecutionCheckOptions } from './verify/execution-checks.js';
import { runOnMain } from './verify/main-opinion.js';
import { servedModel } from './served-model.js';
import { retriedWithRoom } from './room/retried-pass.js';
import { contextPositionsOf, InferenceService, statedArithmetic } from './rpc/inference-service.js';
import { nodeStatuses } from './rpc/node-statuses.js';
import { observeAll } from './rpc/request-observer.js';
import type { Pack } from '../packs/format/open-pack.js';
import { isSlicesOnly } from '../packs/format/manifest.js';

type Spread = NodeSettings['placement']['spread'];

/** Number of joint passes: one after another, so that their rows share the workers. */
const JOINT_PASSES = 1;
/** Number of prompt chunk passes where passes are not joint: prompts run one at a time, and answers go on meanwhile. */
const PROMPT_CHUNK_PASSES = 1;
const RANDOM_SEED_LIMIT = 2 ** 48 - 1;

/** The components that serve: the engine, the members of the cluster, and the requests. */
export interface MainComponents {
  /** Gives a node no new work, or work again. Returns null if it gets work. Throws USAGE if main has no such node. */
  drain(request: DrainRequest): DrainedNode | null;
  engine: ClusterEngine;
  membership: Membership;
  inference: InferenceService;
  status(): StatusReply;
  metrics: ServedMetrics;
  /** The model as clients see it. */
  model: ServedModel;
  feed: ClusterFeed;
  /** null: the cluster has no authority. */
  machines: Machines | null;
}

/** Counts of what requests hold here: sequences, passes, experts that workers owe, and callers that wait. */
export function openCounts({ engine, inference }: MainComponents): Record<string, number> {
  const { roster, predictionPost, passLoop } = engine;
  const { distrustedIds } = roster;
  const { activeSequences, queuedRequests } = inference.counts();
  return {
    requests: inference.openCount,
    activeSequences,
    queuedRequests,
    sequences: predictionPost.openCount,
    ...inference.remembered,
    passes: passLoop.openCount,
    expertsOwed: [...roster.outstanding().values()].reduce((sum, experts) => sum + experts, 0),
    waiters: roster.waiterCount,
    checks: engine.checks?.openCount ?? 0,
    // This must be 0: no rows that a distrusted worker took part in are retained.
    workersDistrustedWithRows: [...engine.room.retainedFrom].filter((id) => distrustedIds.has(id)).length,
  };
}

/** The components that a main is assembled from. */
export interface ComponentSources extends LoadedMain {
  environment: NodeEnvironment;
  experts: ExpertMemory;
  /** Rows of earlier requests on disk; null: there are none. */
  stored: RowStore | null;
  recorder: PassEngine['recorder'];
}

function createEngine(
  settings: NodeSettings,
  loaded: ComponentSources,
  { epoch, events, ...numbers }: EngineSurroundings,
  log: Logger,
): ClusterEngine {
  const { source, sliced, model, environment, experts } = loaded;
  const { shape } = source;
  const { runtime, versions } = environment;
  const usable = draftsOf(settings);
  const { grouping, spread } = groupingUsed(settings.placement, source, usable.shadowRows);
  logWhatDiffers(settings, { ...usable, spread }, log);
  const observer = observedBy(events.nodes, () => ({ checks, room, passLoop }));
  const ownExperts = ownExpertsOf(numbers.ownWorkerId, shape, grouping);
  const roster = new Roster(shape, grouping, epoch, runtime, log, observer, versions.arithmeticVersion, ownExperts);
  const miniBatchRows = miniBatchRowsFor(settings.main.miniBatchRows, expertRowSize(shape));
  const runs = { roster, shape, spread, miniBatchRows, nextSequence: numbers.nextSequence, log };
  const drafting = draftingOf(settings, loaded, runs);
  const checks = createChecks(settings, loaded, { roster, isIdle: () => passLoop.isEmpty, ...numbers }, log);
  const draftCosts = new DraftCostMeter();
  const layerWaits = new LayerWaits(shape.expertLayers);
  const passEngine: PassEngine = {
    shape,
    roster,
    ...predictors(loaded, { draftCosts, layerWaits, runtime }, () => clusterCosts({ roster, shape, drafting, spread })),
    ...sliceRules(sliced, shape),
    spread,
    prefillOverlap: settings.main.prefillOverlap,
    runtime,
    checks,
    uses: ownExperts?.uses ?? null,
    observer: events.passes,
    dispatcher: new ExpertDispatcher(roster, settings.main.workerGraceMs, log),
    announcedPasses: new AnnouncedPasses(),
    jointDealer: new JointDealer((id) => (roster.worker(id)?.status?.cache ?? null) !== null),
    miniBatchRows,
    firstLayerAhead: guessesFirstLayer(settings, spread, usable.shadowRows, shape),
    draftCosts,
    layerWaits,
  };
  const loop = passLoopOptions(settings, { model, shape, runtime }, mostRows(usable));
  const components = roomComponents(loaded, passEngine.decisions);
  const room = createContextRoom(settings, components, [...new Set([loop.passes, loop.promptChunkPasses])], experts);
  const passLoop = new PassLoop({ ...loop, runPass: retriedWithRoom(new PassRunner(passEngine).run, room), room });
  return {
    ...passEngine,
    checks,
    draftCosts,
    model,
    roster,
    runtime,
    log,
    drafting,
    align: settings.align,
    room,
    passLoop,
    cachedNews: new CachedNews(roster),
    predictionPost: new PredictionPost(roster, passEngine.announcedPasses, events.passes),
  };
}

/** The makers of drafts for answers. The head is the model's own, with its experts here or at the workers. */
function draftingOf(
  settings: NodeSettings,
  { draftHead, headAtWorkers }: ComponentSources,
  runs: HeadExpertsOptions,
): EngineDrafting {
  const headExperts = headAtWorkers ? new HeadExperts(runs) : null;
  return engineDrafting(settings.drafting, draftsOf(settings), draftHead, headExperts);
}

/** The parts of main that take memory for rows. */
function roomComponents(
  { device, model, draftHead, environment, stored }: Omit<ComponentSources, 'experts' | 'recorder'>,
  decisions: PassEngine['decisions'],
): RoomComponents {
  const { runtime, devices } = environment;
  return { device, model, devices, runtime, decisions, stored, head: draftHead };
}

/** The predictions that main makes itself: their settings, the trained maps with the costs that decide on announcements, and the recorder for maps to come. */
function predictors(
  { prediction, maps, tokenExperts, recorder }: ComponentSources,
  { draftCosts, layerWaits, runtime }: Pick<PassEngine, 'layerWaits' | 'runtime'> & { draftCosts: DraftCostMeter },
  clusterNow: () => ClusterCosts,
): Pick<PassEngine, 'prediction' | 'trained' | 'tokenExperts' | 'recorder'> {
  const costs = (): ReturnType<typeof announcingCosts> => {
    const cluster = clusterNow();
    return announcingCosts(draftCosts.costs(cluster) ?? { ...cluster, layerMs: 0 });
  };
  const time = new MapsTime(
    () => runtime.nowMs(),
    () => layerWaits.hopMs,
  );
  const predicts = prediction.source !== 'off' && prediction.source !== 'random';
  return { prediction, trained: maps && { maps, costs, time }, tokenExperts: predicts ? tokenExperts : null, recorder };
}

/** Parts of main that the engine takes. */
interface EngineSurroundings {
  epoch: number;
  events: Pick<MainEvents, 'nodes' | 'passes'>;
  ownWorkerId: string;
  nextSequence: () => number;
}

/** Null: no executions are run again. */
function createChecks(
  { main: { verifyShare: share } }: NodeSettings,
  { source, sliced, device, environment: { runtime } }: ComponentSources,
  parts: Pick<ExecutionCheckOptions, 'isIdle' | 'ownWorkerId' | 'nextSequence'> & { roster: Roster },
  log: Logger,
): ExecutionChecks | null {
  if (share === 0) return null;
  const { roster: workers, ...others } = parts;
  const ofMain = { device, source, sliced };
  return new ExecutionChecks({
    ...others,
    share,
    workers,
    runtime,
    log,
    runOnMain: (check) => runOnMain(ofMain, check),
  });
}

function sliceRules(
  sliced: LoadedMain['sliced'],
  shape: PassEngine['shape'],
): Pick<PassEngine, 'precision' | 'decisions'> {
  return { precision: sliced?.rule ?? null, decisions: sliced && decisionRules(sliced, shape) };
}

/** Settings under which an expert of the next token's first layer may load before shadow has predicted it, and a model where that pays. */
function guessesFirstLayer(
  { prediction, drafting }: NodeSettings,
  spread: string,
  draftRows: number | 'auto',
  shape: PassEngine['shape'],
): boolean {
  const leavesTime = prediction.source === 'sep' && spread === 'all' && !drafting.optimistic && draftRows === 1;
  return leavesTime && isFirstLayerWorthAnnouncing(shape);
}

/** Bytes of main's device that its own worker leaves for passes and the shortest answer when it makes its slots. */
export function bytesForAnswers(
  settings: NodeSettings,
  loaded: Omit<ComponentSources, 'experts' | 'stored' | 'recorder'>,
): number {
  const { source, sliced, model, environment } = loaded;
  const { runtime } = environment;
  const loop = passLoopOptions(settings, { model, shape: source.shape, runtime }, mostRows(draftsOf(settings)));
  const { decisions } = sliceRules(sliced, source.shape);
  const components = roomComponents({ ...loaded, stored: null }, decisions);
  return leastAnswerBytes(components, [...new Set([loop.passes, loop.promptChunkPasses])]);
}

/** Rows of a decode pass, whoever drafts. */
function mostRows({ shadowRows, ownRows }: UsableDrafts): number | 'auto' {
  return shadowRows === 1 ? ownRows : shadowRows;
}

/** The passes that the loop uses, and how many rows they have. */
function passLoopOptions(
  { batching, main }: NodeSettings,
  { model, shape, runtime }: Pick<ClusterEngine, 'model' | 'shape' | 'runtime'>,
  draftRows: number | 'auto',
): Omit<PassLoopOptions, 'runPass' | 'room'> {
  const { enabled: joint, maxDelayMs } = batching;
  const { prefillRows: promptChunkRows, quality } = main;
  const allScores = quality.kind === 'cached';
  if (joint) {
    const { maxRows } = batching;
    const passes = new ReusablePasses(model, shape, maxRows, JOINT_PASSES, allScores);
    return { joint, maxRows, promptChunkRows, maxDelayMs, passes, promptChunkPasses: passes, runtime };
  }
  const maxRows = draftRows === 'auto' ? MAX_DRAFT_ROWS : draftRows;
  const passes = new ReusablePasses(model, shape, maxRows, mostSeparatePasses(main.maxActiveSequences), allScores);
  const promptChunkPasses = new ReusablePasses(model, shape, promptChunkRows, PROMPT_CHUNK_PASSES, allScores);
  return { joint, maxRows, promptChunkRows, maxDelayMs, passes, promptChunkPasses, runtime };
}

/** Number of strict homes of each expert; 0: homes are not strict. */
function homesOfSettings({ homes, replicas }: NodeSettings['placement']): number {
  return homes === 'strict' ? replicas : 0;
}

/** The groups, the costs from which their size follows where it is auto, and the workers that an expert may go to. */
function groupingUsed(
  placement: NodeSettings['placement'],
  pack: Pack,
  draftRows: number | 'auto',
): { grouping: Grouping; spread: Spread } {
  const { groupSize } = placement;
  const homes = homesOfSettings(placement);
  const spread = spreadUsed(homes, draftRows, placement.spread);
  const costs = nominalLayerCosts(pack.shape, meanWeightBytes(formatsOfExperts(pack)));
  return { grouping: { groupSize, costs, homes, spread: spread === 'all' }, spread };
}

/** A pack of slices alone has no expert as it was shipped. */
function formatsOfExperts(pack: Pack): readonly FormatShare[] {
  const { shippedFormat: format } = pack;
  if (format !== 'mixed') return [{ format, share: 1 }];
  return isSlicesOnly(pack.manifest) ? [{ format: 'bf16', share: 1 }] : formatShares(allExperts(pack));
}

/** With strict homes, no expert is dealt to other workers. */
function spreadUsed(homes: number, draftRows: number | 'auto', wanted: Spread): Spread {
  return homes > 0 ? 'group' : spreadForDrafts(draftRows, wanted);
}

/** Logs which of the settings that exclude one another main does not follow. */
function logWhatDiffers(
  { drafting, prediction, placement, align, main }: NodeSettings,
  used: UsableDrafts & { spread: NodeSettings['placement']['spread'] },
  log: Logger,
): void {
  const isWished = drafting.rows !== 'auto' || drafting.source !== 'auto';
  if (isWished && mostRows(used) !== drafting.rows) {
    const reason =
      main.quality.kind === 'cached'
        ? 'no drafts: under a logical cache each pass runs one token of an answer'
        : 'no drafts: shadow drafts only where it predicts and gets every token (prediction sep, align-token 1); main drafts only beside such a ' +
          'shadow or without one, and not beside random predictions';
    log.warn(reason, {
      draft_rows: drafting.rows,
      draft_source: drafting.source,
      prediction: prediction.source,
      align_token: align.tokenPeriod,
    });
  }
  if (used.spread !== placement.spread) {
    log.info(
      used.spread === 'all'
        ? "with shadow's drafts, experts are dealt to all workers"
        : 'experts go to their own workers',
      {
        spread_set: placement.spread,
        spread_used: used.spread,
      },
    );
  }
}

function shadowListener({ roster, predictionPost, draftCosts }: ClusterEngine): ShadowListener {
  return {
    onPrediction: (prediction, by) => {
      predictionPost.arrive(prediction, by);
    },
    onRestart: (restart, by) => {
      predictionPost.restart(restart, by);
    },
    onDraft: (draft, by) => {
      predictionPost.draft(draft, by);
    },
    onPrefixKept: (retained, by) => predictionPost.prefixKept(retained, by),
    onSequenceDropped: (sequence, by) => {
      predictionPost.dropped(sequence, by);
    },
    onLost: (by) => {
      if (roster.shadow === by) draftCosts.shadowChanged();
      predictionPost.lost(by);
    },
    onDrained: (by) => {
      if (roster.shadow === by) draftCosts.shadowChanged();
      predictionPost.drained(by);
    },
  };
}

export interface AssembleOptions {
  identity: NodeIdentity;
  giveUp: GiveUp;
  /** Returns the address of the HTTP API; empty: HTTP clients are not served. */
  httpAddress: () => string;
  /** Empty: main has no worker of its own. */
  ownWorkerId: string;
  /** null: the cluster has no authority. */
  admission: Admission | null;
}

/** Assembles the components of a main; nothing runs yet. */
export function assemble(
  settings: NodeSettings,
  loaded: ComponentSources,
  { identity, giveUp, httpAddress, ownWorkerId, admission }: AssembleOptions,
  log: Logger,
): MainComponents {
  const { runtime } = loaded.environment;
  const startedMs = runtime.nowMs();
  const epoch = firstEpoch(runtime.wallMs());
  const model = modelOf(settings, loaded);
  const moment = (): MainMoment => ({ status, ...inference.counts(), peerCounts: roster.peerCounts() });
  const served = servedCluster(settings, loaded, model);
  const events = new MainEvents(served, moment, runtime, startedMs);
  const nextSequence = numbersFrom(epoch);
  const engine = createEngine(settings, loaded, { epoch, events, ownWorkerId, nextSequence }, log);
  const { roster } = engine;
  const membership = createMembership(settings, loaded, engine, identity);
  const statuses = () => {
    const figures = { uptimeMs: runtime.nowMs() - startedMs, memoryBytes: runtime.memoryBytes() };
    return nodeStatuses(identity, loaded, roster, figures, engine.room.counts()).map(withoutUnstated);
  };
  const metrics = new MainMetrics();
  const inference = new InferenceService({
    engine,
    tokenizer: loaded.tokenizer,
    eosTokenIds: loaded.source.eosTokenIds,
    prompts: loaded.prompts,
    formats: loaded.formats,
    limits: settings.main,
    nextSequence,
    arithmetic: model.arithmetic,
    nodeStatuses: statuses,
    runtime,
    observer: observeAll([metrics.requests, events.requests]),
    randomSeed: () => runtime.randomInt(RANDOM_SEED_LIMIT),
    onDeviceLost: giveUp,
  });
  const status = (): StatusReply => {
    const nodes = statuses();
    const found = [...membership.problems(), ...(engine.checks?.problems() ?? [])];
    const problems = problemsWithLost(found, events.lostBeside(nodes));
    const stated = { ...statedArithmetic(model.arithmetic), ...statedContext(model, loaded.source.shape) };
    const serving = { httpAddress: httpAddress(), ownWorkerId, ...stated, ...inference.counts() };
    const protection = protectionStatus(admission, settings);
    return { ...serving, ...protection, ...engineStatus(engine), nodes, problems: reportedProblems(problems) };
  };
  const figures = () => ({
    status: status(),
    peerCounts: roster.peerCounts(),
    arithmetic: model.arithmetic,
    rows: rowFigures(engine),
  });
  const machines = admission && machinesOfDesk(admission.desk, served);
  const { feed } = events;
  const parts = { engine, membership, inference, status, model, feed, machines };
  const drain = drainOf(roster, admission, { main: identity.id, ownWorker: ownWorkerId });
  return { ...parts, drain, metrics: servedMetrics(metrics, figures) };
}

/** The context in main's status, where it goes past what the model was made for. */
function statedContext(
  { contextPositions }: Pick<ServedModel, 'contextPositions'>,
  { maxPositions: madeForPositions }: Pick<PassEngine['shape'], 'maxPositions'>,
): Pick<StatusReply, 'contextPositions' | 'madeForPositions'> {
  return contextPositions > madeForPositions ? { contextPositions, madeForPositions } : {};
}

function drainOf(
  roster: Roster,
  admission: Admission | null,
  own: { main: string; ownWorker: string },
): MainComponents['drain'] {
  const members = (): string[] =>
    (admission?.desk.listNodes() ?? []).filter(({ role }) => role !== 'operator').map(({ id }) => id);
  return (request) => drainNode(roster, { ...own, members }, request);
}

function createMembership(
  { network, main }: NodeSettings,
  { environment }: ComponentSources,
  engine: ClusterEngine,
  identity: NodeIdentity,
): Membership {
  const { roster, shape, log } = engine;
  return new Membership({
    identity: () => identity,
    network,
    ...environment,
    shape,
    roster,
    usesWorkers: main.experts !== 'local',
    shadowListener: shadowListener(engine),
    log,
  });
}

/** Rising whole numbers. */
function numbersFrom(first: number): () => number {
  let next = first;
  return () => next++;
}

/** The part of main's status that says who may reach it. */
function protectionStatus(
  admission: Admission | null,
  { listenHost }: NodeSettings,
): Pick<StatusReply, 'trust' | 'insecure'> {
  const trust = admission?.status ?? null;
  return { trust, insecure: trust === null && !isLoopbackHost(listenHost) };
}

type EngineStatus = Pick<
  StatusReply,
  | 'placement'
  | 'drained'
  | 'groupReason'
  | 'links'
  | 'passes'
  | 'layerWaits'
  | 'workerWaits'
  | 'workerHops'
  | 'verification'
>;

function engineStatus({ roster, layerWaits, passLoop, checks }: ClusterEngine): EngineStatus {
  return {
    verification: checks?.status ?? null,
    placement: roster.placement,
    drained: roster.drainedNodes(),
    groupReason: roster.groupReason,
    links: roster.links(),
    passes: passLoop.passCounts(),
    ...layerWaits.report(roster.connectedWorkers()),
  };
}

function rowFigures({ room }: ClusterEngine): RowFigures {
  const { prefixes: retainedPrefixes, ...counts } = room.counts();
  return { retainedPrefixes, ...counts };
}

function modelOf(settings: NodeSettings, loaded: LoadedMain & { environment: NodeEnvironment }): ServedModel {
  const { source, tokenizer, environment } = loaded;
  return servedModel(source, {
    tokenizer,
    arithmetic: arithmeticOf(settings, loaded),
    slicesDigest: loaded.sliced?.slices.digest ?? '',
    wallMs: environment.runtime.wallMs(),
    contextPositions: contextPositionsOf(settings.main, source.shape),
  });
}

function servedCluster(
  { discovery, placement }: NodeSettings,
  { source, environment: { interfaces } }: ComponentSources,
  { name, family, parameters, weightFormat, contextPositions, arithmetic }: ServedModel,
): ServedCluster {
  const { expertLayers, experts, expertsPerToken, maxPositions: madeForPositions } = source.shape;
  return {
    model: { name, family, parameters, weightFormat, contextPositions, madeForPositions, arithmetic },
    expertLayers,
    experts,
    expertsPerToken,
    strictHomes: homesOfSettings(placement) > 0,
    get machineAddress() {
      return machineAddress(interfaces.addresses, discovery.interfaceAddress);
    },
  };
}

function servedMetrics(metrics: MainMetrics, figures: () => ClusterFigures): ServedMetrics {
  return {
    contentType: metrics.contentType,
    text: () => metrics.text(figures()),
    httpRequestEnded: (route, code) => metrics.httpRequestEnded(route, code),
  };
}
