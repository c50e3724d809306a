import { CACHE_POLICIES } from '../../shared/settings/cache-policies.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import { resolveNodeSettings } from '../../shared/settings/resolve-node-settings.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { drawBudget, drawContextMemory } from './draw-budget.js';
import type { DrawnLink, DrawnPace, ScenarioModel, ScenarioNode } from './scenario.js';
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

/** Fewest nodes of a cluster, and the probability that a worker fetches its experts. */
export interface WantedNodes {
  leastWorkers: number;
  leastShadows: number;
  fetches: number;
}

/** Main, 1 to 8 workers, and mostly a shadow; some start later than others. */
export function drawNodes(random: SeededRandom, model: ScenarioModel, wanted: WantedNodes): ScenarioNode[] {
  const shared = drawShared(random.fork('shared'));
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
    const settings = drawSettings(own, role, id, { shared, model });
    const memoryBudgetBytes = drawBudget(own.fork('budget'), role, model, settings, {
      mayNotFit: role === 'worker' && id !== 'w0',
    });
    const fetches = role === 'worker' && own.chance(wanted.fetches);
    const replans = role === 'main' && settings.worker.pools === null && own.fork('own worker').chance(0.5);
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
          peers: role === 'main' ? peers : [],
        },
      },
      startMs: own.chance(0.7) ? 0 : own.int(200),
      wallSkewMs: own.chance(0.7) ? 0 : own.int(2_000_000) - 1_000_000,
      fetches,
    };
  };
  return [nodeOf('main', MAIN_ID), ...ids.map(({ role, id }) => nodeOf(role, id))];
}

function drawShared(random: SeededRandom): Shared {
  const drafting = { optimistic: random.chance(0.4), rows: random.pick([1, 1, 2, 3, 4, 'auto' as const]) };
  return {
    align: {
      tokenPeriod: random.pick([1, 1, 1, 1, 2, 4, 0]),
      keyValuePeriod: random.pick([1, 1, 1, 3, 0]),
      streamKeyValues: random.chance(0.7),
    },
    batching: drawBatching(random.fork('batching'), drafting.rows),
    drafting,
    placement: {
      groupSize: random.pick(['auto' as const, 1, 2, 3]),
      spread: random.pick(['group' as const, 'all' as const]),
      homes: random.pick(['group' as const, 'group' as const, 'group' as const, 'strict' as const]),
      replicas: 1 + random.int(2),
    },
    prediction: {
      source: random.pick(['sep', 'sep', 'sep', 'router-ahead', 'random', 'off'] as const),
      layersAhead: random.pick([1, 2]),
    },
    network: SHORT_MS,
  };
}

/** A pass has at least room for a token and its drafts. */
function drawBatching(random: SeededRandom, draftRows: number | 'auto'): Shared['batching'] {
  const maxRows = Math.max(random.pick([1, 2, 5, 16, 64, 512]), draftRows === 'auto' ? 1 : draftRows);
  return { enabled: random.chance(0.75), maxRows, maxDelayMs: random.pick(['auto', 'auto', 0, 2, 50] as const) };
}

function drawSettings(
  random: SeededRandom,
  role: RoleSetting,
  id: string,
  { shared, model }: { shared: Shared; model: ScenarioModel },
): NodeSettings {
  const defaults = resolveNodeSettings(
    role,
    defaultClusterConfig(),
    {
      id,
      cluster: 'simulated',
      model: 'model',
      host: '0.0.0.0',
      port: PORT,
      device: 'cpu',
      threads: 1,
      discovery: 'static',
    },
    { hostname: id, addresses: [], processId: 1, stateHome: '/nowhere' },
  );
  return {
    ...defaults,
    ...shared,
    main: {
      ...defaults.main,
      experts: role === 'main' ? random.fork('experts').pick(EXPERTS_OF_MAIN) : 'workers',
      resident: random.fork('resident').pick(RESIDENTS_OF_MAIN),
      maxActiveSequences: random.pick(['auto', 'auto', 1, 2, 3, 4, 16] as const),
      maxQueuedRequests: random.pick([1, 8, 16]),
      contextMemoryBytes: drawContextMemory(random.fork('context'), model),
      reusePrefixes: random.chance(0.8),
      prefillRows: random.pick([1, 3, 8, 64]),
      miniBatchRows: random.pick([1, 2, 5, 64]),
      prefillOverlap: random.chance(0.7),
      workerGraceMs: 3000,
      stopGraceMs: random.fork('stop').pick([0, 200, 30_000]),
    },
    shadow: {
      precision: random.pick(['int8' as const, 'nf4' as const, 'fp16' as const]),
      quantize: random.pick(['projections' as const, 'all' as const]),
    },
    worker: {
      ...drawWorker(random),
      yields: false,
      decompressionThreads: 1,
      directIo: random.chance(0.2),
      readDepth: random.fork('reads').pick([1, 2, 4, 8]),
      hostMemory: drawHostMemory(random.fork('host memory')),
      resident: random.fork('packing').pick([null, 'fixed4'] as const),
    },
  };
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
  const drawn = { slots: 1 + random.int(3), cacheBytes: 0, replanPasses: random.fork('replan').pick([1, 2, 8]) };
  if (random.chance(0.6)) return { ...drawn, cachePolicy: 'planned', pools: null };
  const cachePolicy = random.pick(CACHE_POLICIES);
  const full = random.int(4);
  if (cachePolicy === 'residency')
    return { ...drawn, cachePolicy, pools: { ...NO_CAPACITIES, full, compressed: 1 + random.int(4) } };
  if (cachePolicy !== 'planned') return { ...drawn, cachePolicy, pools: { ...NO_CAPACITIES, full: full + 1 } };
  const [compressed, signMantissa, exponent] = [random.int(3), random.int(3), 1 + random.int(2)];
  return { ...drawn, cachePolicy, pools: { full, compressed, signMantissa, exponent } };
}
