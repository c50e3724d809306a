import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { fillNodeDevice } from '../engine/devices/open-node-device.js';
import { realEnvironment, type NodeEnvironment } from '../engine/environment/node-environment.js';
import { PackShare } from '../packs/fetching/pack-share.js';
import type { PromptEncoder } from '../engine/generation/prompt-encoder.js';
import { loadDenseWeights } from '../engine/loading/load-weights.js';
import { exitWithParent, type Device, type Model } from '../native/index.js';
import type { NodeSettings, RunningNode } from '../shared/config/node-settings.js';
import { advertisedAddress } from '../shared/daemon/advertised-address.js';
import { createNodeIdentity } from '../shared/daemon/node-identity.js';
import { type GiveUp, requireWanted, runDaemon } from '../shared/daemon/run-daemon.js';
import type { Stoppable } from '../shared/discovery/discovery.js';
import { MAX_DRAFT_ROWS } from '../shared/config/setting-limits.js';
import { isFirstLayerWorthAGuess } from '../shared/placement/first-layer-workers.js';
import { nominalLayerCosts } from '../shared/placement/group-size.js';
import { spreadForDrafts } from '../shared/placement/draft-rows.js';
import { usableDraftRows } from '../shared/placement/draft-rows.js';
import type { Logger } from '../shared/log/logger.js';
import type { Pack } from '../packs/format/open-pack.js';
import type { RpcServer } from '../shared/rpc/transport.js';
import type { NodeIdentity, StatusReply } from '../shared/rpc/messages.js';
import { openTokenizer } from '../shared/tokenizer/load-tokenizer.js';
import type { Tokenizer } from '../shared/tokenizer/tokenizer.js';
import { ExpertDispatcher } from './pass/expert-dispatcher.js';
import { firstEpoch } from './cluster/first-epoch.js';
import { Membership } from './cluster/membership.js';
import { Roster } from './cluster/roster.js';
import type { ClusterEngine } from './decode/cluster-engine.js';
import { DraftCostMeter } from './decode/draft-costs.js';
import { LayerWaits } from './pass/layer-waits.js';
import { PassPool } from './pass/pass-pool.js';
import { PredictionPost } from './decode/prediction-post.js';
import { miniBatchRowsFor } from './prefill/expert-batches.js';
import { InferenceService } from './rpc/inference-service.js';
import { nodeStatuses } from './rpc/node-statuses.js';

/** Prompts go through one at a time; answers go on meanwhile. */
const PREFILL_PASSES = 1;
const RANDOM_SEED_LIMIT = 2 ** 48 - 1;

interface LoadedMain {
  source: Pack;
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  device: Device;
  deviceReason: string;
  weightBytes: number;
  model: Model;
}

interface MainParts {
  engine: ClusterEngine;
  membership: Membership;
  inference: InferenceService;
  status(): StatusReply;
}

/**
 * Starts a main in this process: loads all but the experts, serves users and gathers the cluster. What cannot be opened, loaded or
 * listened on is thrown. `giveUp`: its device is lost. `abandoned`: it is not to start any more.
 */
export async function startMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  giveUp: GiveUp = () => undefined,
  abandoned: AbortSignal = new AbortController().signal,
): Promise<RunningNode> {
  const loaded = await loadMain(settings, environment, log, abandoned);
  try {
    return await serveMain(settings, { ...loaded, environment }, log, giveUp);
  } catch (thrown) {
    await disposeLoaded(loaded);
    throw thrown;
  }
}

/** The daemon `odmoe main`. */
export async function runMain(): Promise<never> {
  return runDaemon(
    'main',
    (settings, log, giveUp, abandoned) => startMain(settings, realEnvironment(settings), log, giveUp, abandoned),
    exitWithParent,
  );
}

async function loadMain(
  settings: NodeSettings,
  environment: NodeEnvironment,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { runtime } = environment;
  const source = await environment.openPack(settings.modelPath);
  const tokenizer = await runtime.outside(() => openTokenizer(source.directory));
  const { maxActiveSequences, maxQueuedRequests } = settings.main;
  const queueLimit = maxActiveSequences + maxQueuedRequests;
  const prompts = environment.openPrompts({ directory: source.directory, tokenizer, queueLimit });
  try {
    return await loadDevice(settings, environment, { source, tokenizer, prompts }, log, abandoned);
  } catch (thrown) {
    await prompts.close();
    throw thrown;
  }
}

function loadDevice(
  settings: NodeSettings,
  environment: NodeEnvironment,
  opened: Pick<LoadedMain, 'source' | 'tokenizer' | 'prompts'>,
  log: Logger,
  abandoned: AbortSignal,
): Promise<LoadedMain> {
  const { source } = opened;
  return fillNodeDevice(environment, settings, log, async ({ device, reason: deviceReason }) => {
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, source.shippedFormat, () => requireWanted(abandoned));
    } catch (thrown) {
      model.dispose();
      throw thrown;
    }
    const { usedBytes, contextBytes } = device.info();
    log.info('model loaded', { model: source.name, deviceMemoryBytes: usedBytes });
    return { ...opened, device, deviceReason, weightBytes: usedBytes - contextBytes, model };
  });
}

async function disposeLoaded({ prompts, model, device }: LoadedMain): Promise<void> {
  await prompts.close();
  model.dispose();
  device.dispose();
}

async function serveMain(
  settings: NodeSettings,
  loaded: LoadedMain & { environment: NodeEnvironment },
  log: Logger,
  giveUp: GiveUp,
): Promise<RunningNode> {
  const { runtime, transport, discovery } = loaded.environment;
  const identity = createNodeIdentity(settings, loaded.source, loaded.device.info(), runtime);
  const parts = assemble(settings, loaded, { identity, giveUp }, log);
  const { membership, inference } = parts;
  const server = await transport.serve({
    host: settings.listenHost,
    port: settings.listenPort,
    network: settings.network,
    log,
    identity: () => identity,
    cluster: {
      join: async (peer, peerHost) => membership.join(peer, peerHost),
      status: async () => parts.status(),
    },
    inference: (request, signal) => inference.generate(request, signal),
    pack: new PackShare(loaded.source, runtime),
  });
  identity.address = advertisedAddress(settings, server.port);
  const announced: Stoppable[] = [];
  let stopping: Promise<void> | null = null;
  const stop = (): Promise<void> => (stopping ??= stopMain(parts, announced, server, loaded));
  try {
    membership.addConfigured(settings.discovery.peers);
    announced.push(await discovery.watchPeers(settings, (peer) => membership.addDiscovered(peer), log));
    announced.push(await discovery.advertise(settings, identity, log));
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  log.info('main is ready', { address: server.address, model: loaded.source.name });
  return { address: server.address, openCounts: () => openCounts(parts), stop };
}

/** What requests hold here: sequences, passes, experts that workers owe, and whoever waits for something. */
function openCounts({ engine, inference }: MainParts): Record<string, number> {
  const { roster, predictionPost, decodePasses, prefillPasses } = engine;
  const { activeSequences, queuedRequests } = inference.counts();
  return {
    requests: inference.openCount,
    ...{ activeSequences, queuedRequests },
    sequences: predictionPost.openCount,
    ...inference.kept,
    decodePasses: decodePasses.openCount,
    prefillPasses: prefillPasses.openCount,
    expertsOwed: [...roster.outstanding().values()].reduce((sum, experts) => sum + experts, 0),
    waiters: roster.waiterCount,
  };
}

/** Answers end first, so that their sequences are freed at the workers and the shadow while the streams stand. */
async function stopMain(
  parts: MainParts,
  announced: readonly Stoppable[],
  server: RpcServer,
  loaded: LoadedMain,
): Promise<void> {
  const { engine, membership, inference } = parts;
  await Promise.all([inference.stop(), server.stop(), ...announced.map((part) => part.stop())]);
  engine.roster.stop();
  await membership.stop();
  engine.decodePasses.dispose();
  engine.prefillPasses.dispose();
  await disposeLoaded(loaded);
}

function createEngine(
  settings: NodeSettings,
  { source, model, environment }: LoadedMain & { environment: NodeEnvironment },
  epoch: number,
  log: Logger,
): ClusterEngine {
  const { shape } = source;
  const { runtime } = environment;
  const { maxActiveSequences, prefillRows, miniBatchRows, prefillOverlap, workerGraceMs } = settings.main;
  const { prediction, placement } = settings;
  const drafting = {
    ...settings.drafting,
    rows: usableDraftRows(settings.drafting.rows, prediction.source, settings.align.tokenPeriod),
  };
  const homes = homesOfSettings(placement);
  // Where an expert has workers of its own nobody deals it to others.
  const spread = homes > 0 ? 'group' : spreadForDrafts(drafting.rows, placement.spread);
  logWhatDiffers(settings, { rows: drafting.rows, spread }, log);
  const grouping = { groupSize: placement.groupSize, costs: nominalLayerCosts(shape, source.shippedFormat), homes };
  const roster = new Roster(shape, grouping, epoch, runtime, log);
  return {
    model,
    shape,
    roster,
    dispatcher: new ExpertDispatcher(roster, workerGraceMs, log),
    predictionPost: new PredictionPost(roster),
    decodePasses: new PassPool(
      model,
      shape,
      drafting.rows === 'auto' ? MAX_DRAFT_ROWS : drafting.rows,
      maxActiveSequences,
    ),
    prefillPasses: new PassPool(model, shape, prefillRows, PREFILL_PASSES),
    prefillRows,
    miniBatchRows: miniBatchRowsFor(miniBatchRows, shape.hiddenSize),
    prefillOverlap,
    align: settings.align,
    prediction,
    drafting,
    spread,
    firstLayerAhead:
      isFirstLayerWorthAGuess(shape) &&
      prediction.source === 'sep' &&
      spread === 'all' &&
      !drafting.optimistic &&
      drafting.rows === 1,
    draftCosts: new DraftCostMeter(),
    layerWaits: new LayerWaits(shape.expertLayers),
    runtime,
    log,
  };
}

/** Workers that each expert has of its own; 0: none has. */
function homesOfSettings({ homes, replicas }: NodeSettings['placement']): number {
  return homes === 'strict' ? replicas : 0;
}

/** Settings that cannot stand beside one another: which of them main does not follow. */
function logWhatDiffers(
  { drafting, prediction, placement, align }: NodeSettings,
  used: { rows: number | 'auto'; spread: NodeSettings['placement']['spread'] },
  log: Logger,
): void {
  if (used.rows !== drafting.rows) {
    log.warn('no drafts: shadow drafts only where it predicts and gets every token (prediction sep, align-token 1)', {
      ...{ draft_rows: drafting.rows, prediction: prediction.source, align_token: align.tokenPeriod },
    });
  }
  if (used.spread !== placement.spread) {
    log.info(
      used.spread === 'all' ? 'with drafts, experts are dealt to all workers' : 'experts go to their own workers',
      {
        spread_set: placement.spread,
        spread_used: used.spread,
      },
    );
  }
}

function assemble(
  settings: NodeSettings,
  loaded: LoadedMain & { environment: NodeEnvironment },
  { identity, giveUp }: { identity: NodeIdentity; giveUp: GiveUp },
  log: Logger,
): MainParts {
  const { runtime, transport } = loaded.environment;
  const startedMs = runtime.nowMs();
  const epoch = firstEpoch(runtime.wallMs());
  const engine = createEngine(settings, loaded, epoch, log);
  const { roster, predictionPost, shape } = engine;
  const membership = new Membership({
    identity: () => identity,
    network: settings.network,
    ...{ runtime, transport, shape, roster },
    shadowListener: {
      onPrediction: (prediction, by) => {
        predictionPost.arrive(prediction, by);
      },
      onDraft: (draft, by) => {
        predictionPost.draft(draft, by);
      },
      onSequenceDropped: (sequence, by) => {
        predictionPost.dropped(sequence, by);
      },
      onLost: (by) => {
        if (roster.shadow === by) engine.draftCosts.shadowChanged();
        predictionPost.lost(by);
      },
    },
    log,
  });
  const statuses = () =>
    nodeStatuses(identity, loaded, roster, {
      uptimeMs: runtime.nowMs() - startedMs,
      memoryBytes: runtime.memoryBytes(),
    });
  const inference = new InferenceService({
    engine,
    tokenizer: loaded.tokenizer,
    prompts: loaded.prompts,
    eosTokenIds: loaded.source.eosTokenIds,
    limits: settings.main,
    firstSequence: epoch,
    nodeStatuses: statuses,
    runtime,
    randomSeed: () => runtime.randomInt(RANDOM_SEED_LIMIT),
    onDeviceLost: giveUp,
  });
  const status = (): StatusReply => ({
    nodes: statuses(),
    placement: roster.placement,
    groupReason: roster.groupReason,
    problems: membership.problems(),
    ...engine.layerWaits.told(roster.connectedWorkers()),
    links: roster.links(),
    ...inference.counts(),
  });
  return { engine, membership, inference, status };
}

const entry = process.argv[1];
if (entry !== undefined && realpathSync(entry) === fileURLToPath(import.meta.url)) await runMain();
