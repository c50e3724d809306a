import { EXPERT_POLICIES } from '../../shared/settings/cache-policies.js';
import { ALIGN_ROWS, DRAFTING_ROWS, PLACEMENT_ROWS, PREDICTION_ROWS } from '../../shared/settings/cluster-table.js';
import { BATCHING_ROWS, MAIN_ROWS, SHADOW_ROWS, WORKER_ROWS } from '../../shared/settings/role-table.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { LOWER_FETCHES, type Routing } from '../../shared/settings/logical-rules.js';
import { EXACT_QUALITY, type Quality } from '../../shared/settings/quality.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { drawRows } from './drawn-rows.js';
import { DEVICE_BYTES, drawBudget, drawContextMemory } from './draw-budget.js';
import {
  type DrawnLink,
  type DrawnPace,
  MODEL_WITH_HEAD,
  MODELS_OF_PARTS,
  type ScenarioModel,
  type ScenarioNode,
} from './scenario.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';

export const MAX_WORKERS = 8;
/** Values of main.experts; mostly workers of the LAN. */
const EXPERTS_OF_MAIN = ['workers', 'workers', 'workers', 'local', 'both', 'both'] as const;
/** Weight forms of main's weights; on emulated devices auto means as shipped. */
const RESIDENTS_OF_MAIN = [null, 'auto', 'fixed4'] as const;
/** The port on which main listens. */
const PORT = 7600;
const SHORT_MS = { keepaliveIntervalMs: 300, keepaliveTimeoutMs: 200, executeTimeoutMs: 4000, reconnectDelayMs: 100 };

export function drawLink(random: SeededRandom): DrawnLink {
  return {
    latencyMs: random.pick([0.05, 0.1, 0.5, 2]),
    jitterMs: random.pick([0, 0.1, 1]),
    bytesPerMs: random.pick([1000, 100_000, 10_000_000]),
  };
}

export function drawPace(random: SeededRandom): DrawnPace {
  if (random.chance(0.3)) return { denseMs: 0, expertMs: 0, lmHeadMs: 0, loadMs: 0 };
  return {
    denseMs: random.pick([0.05, 0.3, 1]),
    expertMs: random.pick([0.05, 0.3, 1]),
    lmHeadMs: random.pick([0.05, 0.5]),
    loadMs: random.pick([0.2, 1, 5]),
  };
}

/** Settings that all daemons of a cluster share. */
type Shared = Pick<NodeSettings, 'align' | 'batching' | 'drafting' | 'placement' | 'prediction' | 'network'>;

/** Fewest nodes of a cluster, and the probability that a worker fetches its experts, or a shadow main's pack. */
export interface WantedNodes {
  leastWorkers: number;
  leastShadows: number;
  fetches: number;
}

/** Main, 1 to 8 workers, and mostly a shadow; some start later than others. */
export function drawNodes(random: SeededRandom, model: ScenarioModel, wanted: WantedNodes): ScenarioNode[] {
  const shared = drawShared(random.fork('shared'), model);
  const quality = drawQuality(random.fork('quality'), model);
  const discovery = random.pick(['mdns', 'main', 'configured'] as const);
  const workers = Math.max(wanted.leastWorkers, random.chance(0.5) ? 1 + random.int(3) : 1 + random.int(MAX_WORKERS));
  const shadows = Math.max(wanted.leastShadows, random.pick([0, 1, 1, 1, 2]));
  const ids: { role: RoleSetting; id: string }[] = [
    ...Array.from({ length: workers }, (_, index) => ({ role: 'worker' as const, id: `w${index}` })),
    ...Array.from({ length: shadows }, (_, index) => ({ role: 'shadow' as const, id: `s${index}` })),
  ];
  const peers = discovery === 'configured' ? ids.map(({ role, id }) => ({ role, id, address: `${id}:${PORT}` })) : [];
  const nodeOf = (role: RoleSetting, id: string): ScenarioNode => {
    const own = random.fork(id);
    const settings = withQuality(drawSettings(own, role, id, { shared, model }), quality, own.fork('slices'));
    const memoryBudgetBytes = drawBudget(own.fork('budget'), role, model, settings, {
      mayNotFit: role === 'worker' && id !== 'w0',
    });
    const fetches =
      (role === 'worker' && own.chance(wanted.fetches)) ||
      // It draws aside, so that scenarios without such a shadow stay as they are.
      (role === 'shadow' && own.fork('fetches').chance(wanted.fetches));
    const mayReplan = role === 'main' && settings.worker.pools === null && quality.kind === 'exact';
    const replans = mayReplan && own.fork('own worker').chance(0.5);
    return {
      settings: {
        ...settings,
        modelPath: model,
        // Changes what main's own worker caches beside answers.
        worker: replans ? { ...settings.worker, cachePolicy: 'residency' } : settings.worker,
        device: { ...settings.device, memoryBudgetBytes },
        mainAddress: role !== 'main' && (discovery === 'main' || fetches) ? `${MAIN_ID}:${PORT}` : null,
        discovery: {
          provider: discovery === 'mdns' ? 'mdns' : 'static',
          interfaceAddress: null,
          name: null,
          peers: role === 'main' ? peers : [],
        },
      },
      startMs: own.chance(0.7) ? 0 : own.int(200),
      wallSkewMs: own.chance(0.7) ? 0 : own.int(2_000_000) - 1_000_000,
      fetches,
      isNewer: own.fork('release').chance(NEWER_SHARE),
    };
  };
  return [nodeOf('main', MAIN_ID), ...ids.map(({ role, id }) => nodeOf(role, id))];
}

/** The share of nodes of a release that speaks one protocol more. */
const NEWER_SHARE = 0.2;

/** The share of scenarios whose experts are sliced. */
const SLICED_SHARE = 0.2;

/** Their routers choose by other numbers than their scores, so that no logical cache can choose other experts. */
const WITHOUT_LOGICAL_CACHE: ReadonlySet<ScenarioModel> = new Set<ScenarioModel>([
  ...MODELS_OF_PARTS,
  'dense-ends',
  'draft-head',
  'indexers',
  'latent-attention',
  'short-convolutions',
  'state-spaces',
]);

/** The packs of test/fixtures/packs have slices (8,4). A router that chooses one expert has no thresholds. */
function drawQuality(random: SeededRandom, model: ScenarioModel): Quality {
  if (!random.chance(SLICED_SHARE)) return EXACT_QUALITY;
  const split = 'sliced84';
  const kind = random.pick(['high', 'low', 'critical', 'cached'] as const);
  if (kind === 'high' || kind === 'low') return { kind, split };
  if (model === 'one-of-three') return { kind: 'high', split };
  if (kind === 'critical' || WITHOUT_LOGICAL_CACHE.has(model)) {
    return { kind: 'critical', split, share: random.pick([0.1, 0.3, 0.6]) };
  }
  const cacheBytes = Math.round(DEVICE_BYTES.slotBytes * random.pick([0.7, 2, 5, 20]));
  const missShare = random.pick([0.05, 0.3, 0.9]);
  return { kind, split, cacheBytes, missShare, lowerFetch: random.pick(LOWER_FETCHES), routing: drawRouting(random) };
}

function drawRouting(random: SeededRandom): Routing {
  const kind = random.pick(['top-k', 'cumulative', 'cache-prior'] as const);
  const kept = random.int(3);
  switch (kind) {
    case 'top-k':
      return { kind };
    case 'cumulative':
      return { kind, mass: random.pick([0.5, 0.7, 0.9]), kept };
    case 'cache-prior':
      return { kind, lambda: random.pick([0.1, 0.4, 2]), kept };
  }
}

/** All daemons have the same quality. Slices have a cache of their own. */
function withQuality(settings: NodeSettings, quality: Quality, random: SeededRandom): NodeSettings {
  const main = { ...settings.main, quality };
  if (quality.kind === 'exact') return { ...settings, main };
  const worker = { ...settings.worker, ...NO_LOSSLESS_CACHE, cacheBytes: drawSlicedCache(random) };
  return { ...settings, main, worker };
}

/** No cache, or room for few upper slices up to all slices of a tiny model. */
function drawSlicedCache(random: SeededRandom): number {
  return random.chance(0.3) ? 0 : Math.round(DEVICE_BYTES.slotBytes * random.pick([1, 1.5, 2, 3.5, 6, 32]));
}

const NO_LOSSLESS_CACHE = {
  cachePolicy: 'sliced',
  pools: null,
  hostMemory: 0,
  resident: null,
} as const;

/** The share of clusters whose model has a head in which it drafts. */
const HEAD_DRAFTS = 0.8;

/** The settings as drawn; of a model that has a head, mostly those with which it drafts. */
function withHead<Drafting extends Shared['drafting']>(
  random: SeededRandom,
  drafting: Drafting,
  model: ScenarioModel,
): Drafting {
  if (model !== MODEL_WITH_HEAD || !random.chance(HEAD_DRAFTS)) return drafting;
  return { ...drafting, source: 'mtp', rows: random.pick([2, 3, 4, 'auto'] as const) };
}

function drawShared(random: SeededRandom, model: ScenarioModel): Shared {
  const defaults = defaultSettings('main', MAIN_ID);
  const drawn = {
    ...drawRows(random, 'drafting', defaults.drafting),
    optimistic: random.chance(0.4),
    rows: random.pick(DRAFTING_ROWS.rows.drawn),
  };
  const drafting = withHead(random.fork('head'), drawn, model);
  return {
    align: {
      ...drawRows(random, 'align', defaults.align),
      tokenPeriod: random.pick(ALIGN_ROWS.tokenPeriod.drawn),
      keyValuePeriod: random.pick(ALIGN_ROWS.keyValuePeriod.drawn),
      streamKeyValues: random.chance(0.7),
    },
    batching: {
      ...drawRows(random, 'batching', defaults.batching),
      ...drawBatching(random.fork('batching'), drafting.rows),
    },
    drafting,
    placement: {
      ...drawRows(random, 'placement', defaults.placement),
      groupSize: random.pick(PLACEMENT_ROWS.groupSize.drawn),
      spread: random.pick(PLACEMENT_ROWS.spread.drawn),
      homes: random.pick(PLACEMENT_ROWS.homes.drawn),
      replicas: 1 + random.int(2),
    },
    prediction: {
      ...drawRows(random, 'prediction', defaults.prediction),
      source: random.pick(PREDICTION_ROWS.source.drawn),
      layersAhead: random.pick(PREDICTION_ROWS.layersAhead.drawn),
    },
    network: SHORT_MS,
  };
}

/** A pass has at least room for a token and its drafts. */
function drawBatching(random: SeededRandom, draftRows: number | 'auto'): Shared['batching'] {
  const maxRows = Math.max(random.pick([1, 2, 5, 16, 64, 512]), draftRows === 'auto' ? 1 : draftRows);
  return { enabled: random.chance(0.75), maxRows, maxDelayMs: random.pick(BATCHING_ROWS.maxDelayMs.drawn) };
}

function drawSettings(
  random: SeededRandom,
  role: RoleSetting,
  id: string,
  { shared, model }: { shared: Shared; model: ScenarioModel },
): NodeSettings {
  const defaults = defaultSettings(role, id);
  return {
    ...defaults,
    ...shared,
    main: {
      ...drawRows(random, 'main', defaults.main),
      experts: role === 'main' ? random.fork('experts').pick(EXPERTS_OF_MAIN) : 'workers',
      resident: random.fork('resident').pick(RESIDENTS_OF_MAIN),
      maxActiveSequences: random.pick(MAIN_ROWS.maxActiveSequences.drawn),
      maxQueuedRequests: random.pick(MAIN_ROWS.maxQueuedRequests.drawn),
      contextMemoryBytes: drawContextMemory(random.fork('context'), model),
      reusePrefixes: random.chance(0.8),
      prefillRows: random.pick(MAIN_ROWS.prefillRows.drawn),
      miniBatchRows: random.pick(MAIN_ROWS.miniBatchRows.drawn),
      prefillOverlap: random.chance(0.7),
      workerGraceMs: 3000,
      stopGraceMs: random.fork('stop').pick(MAIN_ROWS.stopGraceMs.drawn),
    },
    shadow: {
      ...drawRows(random, 'shadow', defaults.shadow),
      precision: random.pick(SHADOW_ROWS.precision.drawn),
      quantize: random.pick(SHADOW_ROWS.quantize.drawn),
    },
    worker: {
      ...drawRows(random, 'worker', defaults.worker),
      ...drawWorker(random),
      yields: false,
      decompressionThreads: 1,
      directIo: random.chance(0.2),
      readDepth: random.fork('reads').pick(WORKER_ROWS.readDepth.drawn),
      hostMemory: drawHostMemory(random.fork('host memory')),
      resident: random.fork('packing').pick([null, 'fixed4'] as const),
    },
  };
}

/** The default settings, before anything is drawn. They do not depend on this machine. */
function defaultSettings(role: RoleSetting, id: string): NodeSettings {
  const flags = {
    id,
    cluster: 'simulated',
    model: 'model',
    host: '0.0.0.0',
    port: PORT,
    device: 'cpu',
    threads: 1,
    discovery: 'static',
  } as const;
  const host = { hostname: id, addresses: [], processId: 1, stateHome: '/nowhere' };
  return resolveNodeSettings(role, defaultClusterConfig(), flags, host);
}

/** Host memory for experts of a few KiB: none, room for a few, or all of them. */
function drawHostMemory(random: SeededRandom): number | 'auto' {
  if (random.chance(0.6)) return 0;
  return random.chance(0.5) ? 'auto' : 16_384 * (1 + random.int(20));
}

/** With a cache the pools are set: a plan would depend on measured times. */
function drawWorker(
  random: SeededRandom,
): Pick<NodeSettings['worker'], 'slots' | 'cacheBytes' | 'cachePolicy' | 'replanPasses' | 'pools'> {
  const drawn = {
    slots: 1 + random.int(3),
    cacheBytes: 0,
    replanPasses: random.fork('replan').pick(WORKER_ROWS.replanPasses.drawn),
  };
  if (random.chance(0.6)) return { ...drawn, cachePolicy: 'planned', pools: null };
  const cachePolicy = random.pick(EXPERT_POLICIES);
  const full = random.int(4);
  if (cachePolicy === 'residency')
    return { ...drawn, cachePolicy, pools: { ...NO_CAPACITIES, full, compressed: 1 + random.int(4) } };
  if (cachePolicy !== 'planned') return { ...drawn, cachePolicy, pools: { ...NO_CAPACITIES, full: full + 1 } };
  const [compressed, signMantissa, exponent] = [random.int(3), random.int(3), 1 + random.int(2)];
  return { ...drawn, cachePolicy, pools: { full, compressed, signMantissa, exponent } };
}
