import { expertMatrixValues } from '../../shared/model/model-shape.js';
import { InvalidArgumentError, type Command } from 'commander';
import type { PredictionSource } from '../../shared/decisions/placement/draft-rows.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { plannedSlots, spareBytes } from '../../simulator/plan/worker-memory.js';
import { parseByteSize } from '../../shared/base/text/byte-size.js';
import { giveYoungObjectsRoom } from '../../engine/daemon/collection-pauses.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { slicedStorage } from '../../engine/emulation/sliced-storage.js';
import { lossMeasuredOn, slicedOffers } from '../../engine/planning/sliced-offers.js';
import type { PlannedOffer } from '../output/sliced-offers-report.js';
import {
  shippedStorage,
  storageForm,
  type DeviceProfile,
  type PlannedStorage,
} from '../../engine/emulation/device-profile.js';
import { WEIGHT_MIXES } from '../../engine/emulation/weight-mixes.js';
import { modelProfileNames } from '../../engine/emulation/load-model-profile.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { assumedRecall, KEY_VALUE_DECAY, PLANNED_ITERATIONS } from '../../simulator/plan/assumed-recall.js';
import { diskNeeds } from '../../simulator/plan/disk-needs.js';
import { loadTiming } from '../../simulator/plan/io-bound.js';
import { boxTimes, openPlannedModel, overrideProfile, type WorkerBoxes } from '../../simulator/plan/planned-profile.js';
import {
  PERIODS,
  searchSetUps,
  type Candidate,
  type SearchOptions,
  type SearchOutcome,
} from '../../simulator/plan/search-set-ups.js';
import { tokenBreakdown } from '../../simulator/plan/token-breakdown.js';
import { type ClusterSetUp, wholeTokenMs } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { readTrace } from '../../simulator/trace/trace-file.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { settingFlag } from '../client/setting-flags.js';
import { parseNumber } from '../client/generation-flags.js';
import { planJson, clusterPlanLines, type BoxNeeds, type ClusterPlan } from '../output/cluster-plan-report.js';
import {
  addTraceFlags,
  ASSUMED_RECALL,
  DEFAULT_PROMPT_TOKENS,
  MOST_WORKERS,
  openTrace,
  profileFile,
  type TraceFlags,
} from '../client/simulation-flags.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

const WORKERS = 8;
/** Length of a prompt that fills workers' caches like long answers do: its passes use nearly all experts. */
const WARM_PROMPT_TOKENS = 128;
/** Tokens that are simulated for each set-up. */
const TOKENS = 32;

interface PlanFlags extends TraceFlags {
  /** True: --workers was given. */
  workersGiven: boolean;
  modelProfile?: string;
  layersAhead: number;
  box: WorkerBoxes[];
  model?: string;
  format?: string;
  linkBandwidth?: number;
  networkBandwidth?: number;
  roundTrip?: number;
  memoryBudget?: number;
}

/** `odmoe plan cluster`: estimates a cluster of given boxes for a model, before they are bought. */
export function registerPlanCluster(program: Command): void {
  addTraceFlags(program, WORKERS, TOKENS)
    .description('what a cluster of given boxes would do for a model, and how it is best set up')
    .option(
      '--box <count:link[:memory]>',
      'so many workers with that link, as 4:12GB:8GiB; again for another kind',
      box,
      [],
    )
    .option('--model <path>', "a checkpoint or a pack, for its sizes and formats (default: the profile's model)")
    .option('--model-profile <name>', 'a model whose sizes come with odmoe, as qwen3-30b-a3b; "list" names them')
    .option(
      '--format <name>',
      `the format of its weights, instead of that in which it is shipped: ${WEIGHT_MIXES.join(', ')}, or EXPERTS+REST`,
    )
    .addOption(
      settingFlag(
        SETTINGS.prediction.source,
        '<how>',
        'where predictions come from (default: sep, or router-ahead where the profile has no shadow)',
      ).default(undefined),
    )
    .addOption(settingFlag(SETTINGS.prediction.layersAhead, '<n>', 'of router-ahead'))
    .option('--link-bandwidth <bytes/s>', "of every worker's link from storage to device, as 24GB", bytes)
    .option('--memory-budget <size>', 'device memory of a worker', bytes)
    .option('--network-bandwidth <bytes/s>', 'of each network card, as 125MB', bytes)
    .option('--round-trip <ms>', 'of the network', milliseconds)
    .addHelpText(
      'after',
      `
Group sizes, alignment periods, drafts, optimistic departure and the spread of experts are tried by simulation (odmoe simulate); what is
not said comes from the profile. docs/simulator.md says what is assumed. "odmoe plan PACK" plans one worker's cache; a pack whose
directory is called cluster is ./cluster there.

Examples:
  odmoe plan cluster --workers 12 --link-bandwidth 12GB
  odmoe plan cluster --profile orin-nx-rtx3090 --workers 3 --model-profile qwen3-30b-a3b --format Q4_K_M
  odmoe plan cluster --box 4:24GB:24GB --box 4:6GB:8GB --expert-storage fixed4 --round-trip 0.1
  odmoe plan cluster --model ~/Mixtral-8x7B --workers 16 --json`,
    )
    .action((flags: Omit<PlanFlags, 'workersGiven'>, command: Command) =>
      run({ ...flags, workersGiven: command.getOptionValueSource('workers') === 'cli' }),
    );
}

async function run(flags: PlanFlags): Promise<void> {
  if (flags.modelProfile === 'list') {
    standardOutput.write(`${modelProfileNames().join('\n')}\n`);
    return;
  }
  giveYoungObjectsRoom();
  requireConsistent(flags);
  const profile = overrideProfile(loadDeviceProfile(profileFile(flags.profile)), {
    model: flags.model === undefined ? null : await openPlannedModel(flags.model),
    modelProfile: flags.modelProfile ?? null,
    format: flags.format ?? null,
    networkBytesPerS: flags.networkBandwidth ?? null,
    roundTripMs: flags.roundTrip ?? null,
  });
  const given = { linkBytesPerS: flags.linkBandwidth ?? null, memoryBytes: flags.memoryBudget ?? null };
  const boxes = flags.box.length > 0 ? flags.box : [{ count: flags.workers, ...given }];
  const plan = await planCluster(flags, profile, boxes);
  standardOutput.write(`${flags.json ? printableJson(planJson(plan)) : clusterPlanLines(plan).join('\n')}\n`);
}

/** @throws USAGE */
function requireConsistent({ box: boxes, workersGiven, model, modelProfile, format, expertStorage }: PlanFlags): void {
  if (boxes.length > 0 && workersGiven) {
    throw new OdmoeError('USAGE', '--box says how many workers there are, and so does --workers: leave one out');
  }
  if (model !== undefined && modelProfile !== undefined) {
    throw new OdmoeError('USAGE', '--model and --model-profile both name a model: leave one out');
  }
  if (format !== undefined && expertStorage !== undefined) {
    throw new OdmoeError('USAGE', '--format and --expert-storage both say how experts are stored: leave one out');
  }
}

async function planCluster(
  flags: PlanFlags,
  profile: DeviceProfile,
  boxes: readonly WorkerBoxes[],
): Promise<ClusterPlan> {
  const storage = flags.expertStorage ?? shippedStorage(profile.model);
  const times = boxTimes(profile, boxes, storage);
  const { expertsPerToken } = profile.model.shape;
  const workers = boxes.reduce((sum, { count }) => sum + count, 0);
  if (workers > MOST_WORKERS) throw new OdmoeError('USAGE', `--box: ${workers} workers, and ${MOST_WORKERS} at most`);
  const source = flags.prediction ?? (profile.devices.shadow === null ? 'router-ahead' : 'sep');
  const slots = flags.slots ?? plannedSlots(times, boxes, profile);
  const cacheBytes = flags.cache ?? spareBytes(times, boxes, profile, slots);
  const promptTokens = flags.promptTokens ?? (cacheBytes === 0 ? DEFAULT_PROMPT_TOKENS : WARM_PROMPT_TOKENS);
  const traces = tracesOf({ ...flags, promptTokens }, profile, source);
  const measure = (setUp: ClusterSetUp) =>
    simulateCluster(times, setUp, traces.traceFor(setUp), { tokens: flags.tokens });
  const asked = { workers, slots, cacheBytes, prediction: { source, layersAhead: flags.layersAhead } };
  const search = await searchWithProgress({ asked, expertsPerToken, periods: traces.periods, measure });
  const { groupSize, homes } = search.grouped.setUp.placement;
  // With strict homes, all workers form one group.
  const size = homes === 'strict' ? workers : Math.min(workers, groupSize === 'auto' ? expertsPerToken : groupSize);
  const timing = loadTiming(times, Math.floor(workers / size), expertsPerToken);
  const cachedMs = wholeTokenMs(profile, 'cached');
  const offers = await planOffers(flags, profile, boxes, { storage, best: search.best, trace: traces.traceFor });
  return {
    profile: profile.name,
    model: profile.model.name,
    workers,
    timing,
    search,
    format: profile.model.format?.name ?? null,
    storage: flags.expertStorage ?? nameOfStorage(profile, storage),
    slots,
    cacheBytes,
    breakdown: tokenBreakdown(times, search.best),
    boxes: boxNeeds(search.best, profile, boxes, storage),
    cachedTokensPerS: cachedMs === null ? null : 1000 / cachedMs,
    offers,
    recallNote: traces.note,
  };
}

function nameOfStorage({ model }: DeviceProfile, storage: PlannedStorage): string {
  return typeof storage === 'string'
    ? storage
    : requirePresent(model.format, 'Bytes without a name are those of a format.').name;
}

/**
 * Simulates the best set-up with the slices of each offer, and with a cache of them in the memory that its slots leave. Slices that are no smaller
 * than the experts themselves are no offer.
 */
async function planOffers(
  { model, tokens, cache }: PlanFlags,
  profile: DeviceProfile,
  boxes: readonly WorkerBoxes[],
  { storage, best, trace }: { storage: PlannedStorage; best: Candidate; trace: PlanTraces['traceFor'] },
): Promise<PlannedOffer[]> {
  const measuredOn = model === undefined ? 'demo model' : await lossMeasuredOn(model);
  const weights = expertMatrixValues(profile.model.shape);
  const offers: PlannedOffer[] = [];
  for (const offer of slicedOffers(profile.model.shape.expertsPerToken, measuredOn)) {
    const bytesShare = offer.form.storedBytes / storageForm(storage).storedBytes;
    if (bytesShare >= 1) continue;
    const times = boxTimes(profile, boxes, slicedStorage(offer.asked));
    const cacheBytes = cache ?? spareBytes(times, boxes, profile, best.setUp.slots);
    const setUp = { ...best.setUp, quality: offer.asked, cacheBytes };
    const result = await simulateCluster(times, setUp, trace(setUp), { tokens });
    offers.push({
      offer,
      expertBytes: Math.round(weights * offer.form.storedBytes),
      bytesShare,
      speedup: result.decodeTokensPerS / best.result.decodeTokensPerS,
    });
  }
  return offers;
}

/** Approximate number of set-ups that are tried, for the progress bar only. */
const TRIED_ABOUT = 70;

async function searchWithProgress(options: SearchOptions): Promise<SearchOutcome> {
  const bar = createProgressBar('planning', (tried, all) => `${tried} of about ${all ?? TRIED_ABOUT} set-ups`);
  try {
    return await searchSetUps({
      ...options,
      onTried: (tried) => {
        bar.update(tried, Math.max(TRIED_ABOUT, tried));
      },
    });
  } finally {
    bar.stop();
  }
}

interface PlanTraces {
  traceFor: (setUp: ClusterSetUp) => ClusterTrace;
  periods: { token: number; keyValue: number }[];
  note: string;
}

/** A recorded trace has one alignment. For a synthetic trace, recall is assumed to fall with longer alignment periods. */
function tracesOf(flags: PlanFlags, profile: DeviceProfile, source: PredictionSource): PlanTraces {
  if (flags.trace !== 'synthetic') {
    const trace = openTrace(flags, profile);
    const { align_token: token, align_kv: keyValue } = readTrace(flags.trace);
    const note = `Recall is the trace's, for the alignment it was recorded with (${token}/${keyValue}); others are not tried.`;
    return { traceFor: () => trace, periods: [{ token, keyValue }], note };
  }
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const { acceptance, tokens, promptTokens = DEFAULT_PROMPT_TOKENS, seed } = flags;
  const recall = flags.recall ?? ASSUMED_RECALL[source];
  const model = { alignedRecall: recall, acceptance, keyValueDecay: KEY_VALUE_DECAY, experts, expertsPerToken };
  const traceFor = ({ align: { tokenPeriod: token, keyValuePeriod: keyValue } }: ClusterSetUp): ClusterTrace =>
    new SyntheticTrace({
      layers,
      experts,
      expertsPerToken,
      prompts: 1,
      promptTokens,
      iterations: tokens,
      acceptance,
      seed,
      recall: assumedRecall(model, { token, keyValue }, PLANNED_ITERATIONS),
    });
  if (source !== 'sep') {
    const note = `Recall is assumed: ${recall} (${source}). Experts are assumed to be equally popular, which no real model's are.`;
    return { traceFor, periods: [{ token: 1, keyValue: 1 }], note };
  }
  const periods = PERIODS.flatMap((token) => PERIODS.map((keyValue) => ({ token, keyValue })));
  const note =
    `Recall is assumed: ${recall} when aligned at every iteration; a token of shadow's own is main's with probability ` +
    `${acceptance}, and an iteration on keys and values of its own costs ${((1 - KEY_VALUE_DECAY) * 100).toFixed(1)} % of recall (answers of ${PLANNED_ITERATIONS} tokens).`;
  return { traceFor, periods, note };
}

/** The memory that the best set-up used, and the bytes that must be on disk. */
function boxNeeds(
  { setUp, result: { memoryBytes } }: Candidate,
  { devices, model }: DeviceProfile,
  boxes: readonly WorkerBoxes[],
  storage: PlannedStorage,
): BoxNeeds[] {
  const { main, shadow, worker } = memoryBytes;
  const disk = diskNeeds(model, storage, setUp);
  const { wholePackBytes: diskBytes } = disk;
  return [
    { name: 'main', count: 1, usedBytes: main, memoryBytes: devices.main.memoryBytes, diskBytes },
    ...(shadow === null
      ? []
      : [{ name: 'shadow', count: 1, usedBytes: shadow, memoryBytes: devices.shadow?.memoryBytes ?? 0, diskBytes }]),
    ...boxes.map(({ count, memoryBytes: boxBytes }) => ({
      name: 'worker',
      count,
      usedBytes: worker,
      memoryBytes: boxBytes ?? devices.worker.memoryBytes,
      diskBytes: disk.workerBytes,
    })),
  ];
}

function box(value: string, previous: WorkerBoxes[]): WorkerBoxes[] {
  const [count = '', link = '', memory] = value.split(':');
  const number = /^\d+$/.test(count) ? Number(count) : 0;
  if (number < 1 || number > MOST_WORKERS || value.split(':').length > 3) {
    throw new InvalidArgumentError('Give COUNT:LINK or COUNT:LINK:MEMORY, as 4:12GB:8GiB.');
  }
  return [
    ...previous,
    { count: number, linkBytesPerS: bandwidth(link), memoryBytes: memory === undefined ? null : bytes(memory) },
  ];
}

/** Lowest credible bandwidth of a link; a lower number probably lacks its unit. */
const SLOWEST_LINK_BYTES_PER_S = 1e6;

function bandwidth(value: string): number {
  const bytesPerS = bytes(value);
  if (bytesPerS >= SLOWEST_LINK_BYTES_PER_S) return bytesPerS;
  throw new InvalidArgumentError(`${value} is less than 1 MB a second: give a unit, as 12GB.`);
}

function bytes(value: string): number {
  const size = parseByteSize(value);
  if (size !== null && size > 0) return size;
  throw new InvalidArgumentError('Give a size, as 24GB or 512MiB.');
}

function milliseconds(value: string): number {
  const number = parseNumber(value);
  if (number >= 0) return number;
  throw new InvalidArgumentError('Give milliseconds, as 0.2.');
}
