import { types } from 'node:util';
import { STORED_BLOCKS_LIMIT } from '../../main-node/stored-rows/block-index.js';
import { RETAINED_PREFIXES_LIMIT } from '../../main-node/room/prefix-index.js';
import { RETAINED_SEQUENCES_LIMIT } from '../../shadow-node/predictor/retained-sequences.js';
import { COMPILED_FORMATS_LIMIT } from '../../engine/output-format/format-limits.js';
import { MOST_OPEN_PASSES } from '../../worker-node/executor/pass-timing.js';
import { MAX_FOLLOWED_SEQUENCES } from '../../worker-node/loader/main-progress.js';
import { REMEMBERED_FIGURES_S, RECORDED_PASSES } from '../../shared/wire/cluster-events.js';
import { REMEMBERED_PASSES } from '../../shared/decisions/placement/expert-dealer.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import { ChannelSide } from '../network/channel.js';
import { MemoryNetwork } from '../network/memory-network.js';
import { SideDuplex } from '../network/memory-streams.js';
import type { Violation } from './accounts/violation.js';

/** Number of entries of each collection, by place, for each running node. */
export type NodeSizes = ReadonlyMap<string, ReadonlyMap<string, number>>;

export function sizesAtRest(cluster: SimulatedCluster): NodeSizes {
  const running = [...cluster.nodes.values()].filter(({ isReady }) => isReady);
  return new Map(running.map((node) => [node.id, collectionSizes(node.components(), isOutside)]));
}

/** Compares two rests: the requests between them must not have made a collection grow, unless it has a bound and stays within it. */
export function checkSizes(before: NodeSizes, after: NodeSizes): Violation[] {
  const grown: string[] = [];
  for (const [id, sizes] of after) {
    const earlier = before.get(id);
    if (earlier === undefined) continue;
    for (const [name, size] of sizes) {
      const was = earlier.get(name) ?? 0;
      if (size > Math.max(was, mostOf(name))) grown.push(`${name} of ${id} has grown from ${was} to ${size}`);
    }
  }
  return grown.map((detail) => ({ invariant: 'nothing grows with requests', detail }));
}

/** Classes of the world outside of the processes. */
const OUTSIDE = [VirtualClock, VirtualRuntime, MemoryNetwork, ChannelSide, SideDuplex];

/** Simulated devices are proxies. */
function isOutside(value: object): boolean {
  return types.isProxy(value) || OUTSIDE.some((outside) => value instanceof outside);
}

/** Limits of the largest simulated model, and the most workers of a main in one scenario. */
const LAYERS = 5;
const EXPERTS = 8;
const WORKERS = 16;
const PLACES = LAYERS * EXPERTS;
/** Numbers of layers and experts under which a dealer remembers the experts that it has dealt. */
const DEALT_ORDINALS = REMEMBERED_PASSES * LAYERS + WORKERS + 1;
const LINES_OF_LOG = 64;
/** Blocks of rows that the longest context of a scenario has. */
const RECORD_BLOCKS = 8;

/** Most entries of a place, for any requests. Collections inside an entry (`[]`) count separately, unless they are listed here. */
const MAY_GROW: Readonly<Record<string, number>> = {
  // One entry for each layer, expert or worker.
  'ActivationCounts.countsByLayer': LAYERS,
  'EntryNumbers.free.exponent': PLACES,
  'EntryNumbers.free.full': PLACES,
  'EntryNumbers.free.signMantissa': PLACES,
  'ExpertFetcher.needed': PLACES,
  'ExpertRecoder.recodedSlots': PLACES,
  'HomesPlan.planned.shares': WORKERS,
  'HomesPlan.present.shares': WORKERS,
  'HostMemory.held': PLACES,
  'HostMemory.sizes': PLACES,
  'CachedLayers.layers': LAYERS * WORKERS,
  'CachedLayers.layers[].experts': PLACES * WORKERS,
  'LayerPools.cachedExperts': PLACES,
  'RecordedPools.layers': LAYERS,
  'RecordedPools.served': LAYERS,
  'RegisteredExperts.numbers': PLACES,
  'ReportedExperts.reported': LAYERS,
  'SliceMemory.absent': PLACES,
  'SliceMemory.free': PLACES,
  'SliceMemory.lower': PLACES,
  'SlicesInSlots.orders.lower': PLACES,
  'SlicesInSlots.orders.upper': PLACES,
  'HopWindow.samples': RECORDED_PASSES * WORKERS,
  'LatestHops.workers': WORKERS,
  'LayerRace.arrivals': WORKERS,
  'LayerWaits.idle': WORKERS,
  'LayerWaits.workers': WORKERS,
  'SlotSchedule.actions': PLACES,
  // The last passes, and the measured times of each size.
  'DraftCostMeter.passes': RECORDED_PASSES,
  'PassRecorder.remembered': RECORDED_PASSES,
  'PassTimes.sizes': RECORDED_PASSES,
  'PassTiming.open': MOST_OPEN_PASSES,
  'ReusablePasses.idle': WORKERS,
  'MainProgress.sequences': MAX_FOLLOWED_SEQUENCES,
  'ExpertDealer.dealt': DEALT_ORDINALS,
  'ExpertDealer.dealt[]': DEALT_ORDINALS * EXPERTS,
  'ExpertDealer.loads': WORKERS,
  'WorkerLoads.ordinals': DEALT_ORDINALS * EXPERTS,
  'PredictionDealer.cached[]': PLACES,
  'PredictionDealer.cached[][]': PLACES * WORKERS,
  // Rows of earlier requests, and the workers that took part in them.
  'RetainedSequences.retained': RETAINED_SEQUENCES_LIMIT,
  'PrefixIndex.sequences': RETAINED_PREFIXES_LIMIT,
  'DecisionRecord.blocks': RETAINED_PREFIXES_LIMIT * RECORD_BLOCKS,
  'DecisionRecord.states': RETAINED_PREFIXES_LIMIT * RECORD_BLOCKS,
  'RowProvenance.firstPositions': RETAINED_PREFIXES_LIMIT * WORKERS,
  'BlockIndex.blocks': STORED_BLOCKS_LIMIT,
  'BlockIndex.children': STORED_BLOCKS_LIMIT,
  // Clients, and the formats that they ask for.
  'ClientShares.rows': 1,
  'ClientShares.waiting': 1,
  'TokenVocabulary.compiled': COMPILED_FORMATS_LIMIT,
  'TokenVocabulary.masks': 1024,
  'TextAutomaton.states': 4096,
  // Figures and log lines of the last seconds.
  'Figures.samples': REMEMBERED_FIGURES_S,
  // The peers that were connected when the newest second ended: before a rest there may have been fewer.
  'Figures.before.peers': WORKERS,
  'Buckets.buckets': LINES_OF_LOG,
};

/** Automata of output formats grow with the texts that were read; the number of formats is their bound. */
const PARTS_OF_FORMATS = /^(TextAutomaton\.|TokenVocabulary\.masks\[\])/;
/** The model's own lists, which never change. Their name begins with the first holder of the model that was visited. */
const PARTS_OF_MODEL = /\.shape\./;

function mostOf(name: string): number {
  const own = MAY_GROW[name];
  if (own !== undefined) return own;
  if (PARTS_OF_FORMATS.test(name) || PARTS_OF_MODEL.test(name)) return Infinity;
  return Object.keys(MAY_GROW).some((outer) => name.startsWith(`${outer}[]`)) ? Infinity : 0;
}
