import { InvalidArgumentError, type Command } from 'commander';
import { parseByteSize } from '../../shared/config/byte-size.js';
import { giveYoungObjectsRoom } from '../../shared/daemon/collection-pauses.js';
import { loadDeviceProfile } from '../../shared/emulation/load-device-profile.js';
import type { DeviceProfile } from '../../shared/emulation/device-profile.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { assumedRecall, KEY_VALUE_DECAY, PLANNED_ITERATIONS } from '../../simulator/plan/assumed-recall.js';
import { loadTiming } from '../../simulator/plan/io-bound.js';
import { boxTimes, overrideProfile, type WorkerBoxes } from '../../simulator/plan/planned-profile.js';
import { PERIODS, searchSetUps, type Candidate } from '../../simulator/plan/search-set-ups.js';
import { tokenBreakdown } from '../../simulator/plan/token-breakdown.js';
import { cachedTokenMs, type ClusterSetUp } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { readTrace } from '../../simulator/trace/trace-file.js';
import { parseNumber } from '../client/generation-flags.js';
import { planJson, planLines, type ClusterPlan, type MemoryOfBoxes } from '../output/cluster-plan-view.js';
import { addTraceFlags, MOST_WORKERS, openTrace, type TraceFlags } from '../client/simulation-flags.js';

const WORKERS = 8;
/** Simulated for each set-up that is tried. */
const TOKENS = 32;

interface PlanFlags extends TraceFlags {
  /** --workers was given. */
  workersGiven: boolean;
  box: WorkerBoxes[];
  model?: string;
  linkBandwidth?: number;
  networkBandwidth?: number;
  roundTrip?: number;
  memoryBudget?: number;
}

/** `odmoe plan cluster`: what boxes would do for a model, before anyone buys them. */
export function registerPlanCluster(program: Command): void {
  addTraceFlags(program, WORKERS, TOKENS)
    .description('what a cluster of given boxes would do for a model, and how it is best set up')
    .option(
      '--box <count:link[:memory]>',
      'so many workers with that link, as 4:12GB:8GiB; again for another kind',
      box,
      [],
    )
    .option('--model <directory>', "a checkpoint or pack, for its shapes (default: the profile's model)")
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
  odmoe plan cluster --box 4:24GB:24GB --box 4:6GB:8GB --expert-storage fixed4 --round-trip 0.1
  odmoe plan cluster --model ~/Mixtral-8x7B --workers 16 --json`,
    )
    .action((flags: Omit<PlanFlags, 'workersGiven'>, command: Command) =>
      run({ ...flags, workersGiven: command.getOptionValueSource('workers') === 'cli' }),
    );
}

async function run(flags: PlanFlags): Promise<void> {
  giveYoungObjectsRoom();
  const profile = await overrideProfile(loadDeviceProfile(flags.profile), {
    modelDirectory: flags.model ?? null,
    networkBytesPerS: flags.networkBandwidth ?? null,
    roundTripMs: flags.roundTrip ?? null,
  });
  const given = { linkBytesPerS: flags.linkBandwidth ?? null, memoryBytes: flags.memoryBudget ?? null };
  if (flags.box.length > 0 && flags.workersGiven) {
    throw new OdmoeError('USAGE', '--box says how many workers there are, and so does --workers: leave one out');
  }
  const boxes = flags.box.length > 0 ? flags.box : [{ count: flags.workers, ...given }];
  const plan = await planCluster(flags, profile, boxes);
  process.stdout.write(`${flags.json ? JSON.stringify(planJson(plan)) : planLines(plan).join('\n')}\n`);
}

async function planCluster(
  flags: PlanFlags,
  profile: DeviceProfile,
  boxes: readonly WorkerBoxes[],
): Promise<ClusterPlan> {
  const times = boxTimes(profile, boxes, flags.expertStorage);
  const { expertsPerToken } = profile.model.shape;
  const workers = boxes.reduce((sum, { count }) => sum + count, 0);
  if (workers > MOST_WORKERS) throw new OdmoeError('USAGE', `--box: ${workers} workers, and ${MOST_WORKERS} at most`);
  const traces = tracesOf(flags, profile);
  const { tokens, slots, cache: cacheBytes } = flags;
  const measure = (setUp: ClusterSetUp) => simulateCluster(times, setUp, traces.traceFor(setUp), { tokens });
  const asked = { workers, slots, cacheBytes };
  const search = await searchSetUps({ asked, expertsPerToken, periods: traces.periods, measure });
  const groupSize = search.grouped.setUp.placement.groupSize;
  const size = Math.min(workers, groupSize === 'auto' ? expertsPerToken : groupSize);
  const timing = loadTiming(times, Math.floor(workers / size), expertsPerToken);
  return {
    ...{ profile: profile.name, model: profile.model.name, workers, timing, search },
    breakdown: tokenBreakdown(times, search.best),
    memory: memoryOf(search.plain, profile, boxes),
    cachedTokensPerS: 1000 / cachedTokenMs(profile),
    recallNote: traces.note,
  };
}

interface PlanTraces {
  traceFor: (setUp: ClusterSetUp) => ClusterTrace;
  periods: { token: number; keyValue: number }[];
  note: string;
}

/** A recorded trace knows one alignment; for a synthetic one recall is assumed to fall with the periods. */
function tracesOf(flags: PlanFlags, profile: DeviceProfile): PlanTraces {
  if (flags.trace !== 'synthetic') {
    const trace = openTrace(flags, profile);
    const { align_token: token, align_kv: keyValue } = readTrace(flags.trace);
    const note = `Recall is the trace's, for the alignment it was recorded with (${token}/${keyValue}); others are not tried.`;
    return { traceFor: () => trace, periods: [{ token, keyValue }], note };
  }
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const { recall, acceptance, tokens, promptTokens, seed } = flags;
  const model = { alignedRecall: recall, acceptance, keyValueDecay: KEY_VALUE_DECAY, experts, expertsPerToken };
  const traceFor = ({ align: { tokenPeriod: token, keyValuePeriod: keyValue } }: ClusterSetUp): ClusterTrace =>
    new SyntheticTrace({
      ...{ layers, experts, expertsPerToken, prompts: 1, promptTokens, iterations: tokens, acceptance, seed },
      recall: assumedRecall(model, { token, keyValue }, PLANNED_ITERATIONS),
    });
  const periods = PERIODS.flatMap((token) => PERIODS.map((keyValue) => ({ token, keyValue })));
  const note =
    `Recall is assumed: ${recall} when aligned at every iteration; a token of shadow's own is main's with probability ` +
    `${acceptance}, and an iteration on keys and values of its own costs ${((1 - KEY_VALUE_DECAY) * 100).toFixed(1)} % of recall (answers of ${PLANNED_ITERATIONS} tokens).`;
  return { traceFor, periods, note };
}

/** What the daemons' defaults have held. */
function memoryOf(
  { result: { memoryBytes } }: Candidate,
  { devices }: DeviceProfile,
  boxes: readonly WorkerBoxes[],
): MemoryOfBoxes[] {
  const { main, shadow, worker } = memoryBytes;
  return [
    { name: 'main', count: 1, memory: { usedBytes: main, memoryBytes: devices.main.memoryBytes } },
    ...(shadow === null
      ? []
      : [{ name: 'shadow', count: 1, memory: { usedBytes: shadow, memoryBytes: devices.shadow.memoryBytes } }]),
    ...boxes.map(({ count, memoryBytes: boxBytes }) => ({
      name: 'worker',
      count,
      memory: { usedBytes: worker, memoryBytes: boxBytes ?? devices.worker.memoryBytes },
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

/** Of a link: below this a unit has been forgotten. */
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
